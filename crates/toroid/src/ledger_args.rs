//! The options with which a command checks what a drive gives.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use toroid_client::drive::OpenOptions;
use toroid_client::ledger::Ledger;
use toroid_tfhe::ClientKey;

use crate::commands::keys::read_client_key;
use crate::output::Output;
use crate::passphrase::PassphraseArgs;

/// Options of commands that have a client key and put objects on a drive, or get them.
#[derive(clap::Args)]
pub struct LedgerFile {
    /// Bind what is put to the client key, and refuse what comes back otherwise than this file has it. `put` makes it.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Take the blob store that the drive has, though the ledger has seen another one there: after a format.
    #[arg(long, requires = "ledger")]
    new_store: bool,
}

/// The same of commands that have no client key for anything else.
#[derive(clap::Args)]
pub struct LedgerArgs {
    #[command(flatten)]
    file: LedgerFile,
    /// The client key of the ledger.
    #[arg(long, short, default_value = "keys/client.key", requires = "ledger")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
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

impl LedgerFile {
    /// Refuses a ledger that does not exist, such as one whose name is mistyped.
    fn check_exists(&self) -> anyhow::Result<()> {
        if let Some(path) = &self.ledger {
            anyhow::ensure!(
                path.exists(),
                "ledger {} does not exist: `toroid put --ledger` makes one, as does `toroid column put`",
                path.display()
            );
        }
        Ok(())
    }

    /// The ledger, if one is wanted; it must exist.
    pub fn open(&self, client: &ClientKey) -> anyhow::Result<Option<OpenLedger>> {
        self.check_exists()?;
        self.open_or_make(client)
    }

    /// The ledger, if one is wanted; the first entry makes the file.
    pub fn open_or_make(&self, client: &ClientKey) -> anyhow::Result<Option<OpenLedger>> {
        let Some(path) = &self.ledger else {
            return Ok(None);
        };
        let ledger = Ledger::open(client, path)?;
        Ok(Some(OpenLedger {
            ledger: Arc::new(Mutex::new(ledger)),
            new_store: self.new_store,
        }))
    }
}

impl LedgerArgs {
    /// The ledger, if one is wanted; it must exist.
    pub fn open(&self, output: &Output) -> anyhow::Result<Option<OpenLedger>> {
        self.file.check_exists()?;
        self.open_or_make(output)
    }

    /// The ledger, if one is wanted; the first entry makes the file.
    pub fn open_or_make(&self, output: &Output) -> anyhow::Result<Option<OpenLedger>> {
        if self.file.ledger.is_none() {
            return Ok(None);
        }
        let client = read_client_key(&self.key, &self.passphrase, output)?;
        self.file.open_or_make(&client)
    }
}
