//! The options with which a command checks what a drive gives.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use toroid_client::drive::OpenOptions;
use toroid_client::ledger::Ledger;

use crate::commands::keys::read_client_key;
use crate::output::Output;
use crate::passphrase::PassphraseArgs;

/// Options of commands that put objects on a drive, or get them.
#[derive(clap::Args)]
pub struct LedgerArgs {
    /// Bind what is put to the client key, and refuse what comes back otherwise than this file has it. `put` makes it.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// The client key of the ledger.
    #[arg(long, short, default_value = "keys/client.key", requires = "ledger")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    /// Take the blob store that the drive has, though the ledger has seen another one there: after a format.
    #[arg(long, requires = "ledger")]
    new_store: bool,
}

/// A ledger as a command opens a drive with it.
pub struct OpenLedger {
    ledger: Arc<Mutex<Ledger>>,
    new_store: bool,
}

impl OpenLedger {
    /// The same options, with the ledger.
    pub fn options(self, options: OpenOptions) -> OpenOptions {
        let options = options.ledger(self.ledger);
        match self.new_store {
            true => options.new_store(),
            false => options,
        }
    }
}

impl LedgerArgs {
    /// The ledger, if one is wanted; it must exist.
    pub fn open(&self, output: &Output) -> anyhow::Result<Option<OpenLedger>> {
        if let Some(path) = &self.ledger {
            anyhow::ensure!(
                path.exists(),
                "ledger {} does not exist: `toroid put --ledger` makes one",
                path.display()
            );
        }
        self.open_or_make(output)
    }

    /// The ledger, if one is wanted; the first entry makes the file.
    pub fn open_or_make(&self, output: &Output) -> anyhow::Result<Option<OpenLedger>> {
        let Some(path) = &self.ledger else {
            return Ok(None);
        };
        let client = read_client_key(&self.key, &self.passphrase, output)?;
        let ledger = Ledger::open(&client, path)?;
        Ok(Some(OpenLedger {
            ledger: Arc::new(Mutex::new(ledger)),
            new_store: self.new_store,
        }))
    }
}
