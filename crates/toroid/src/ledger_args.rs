//! The options with which a command checks what a drive gives.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use toroid_client::ledger::Ledger;

use crate::commands::keys::read_client_key;
use crate::output::Output;
use crate::passphrase::PassphraseArgs;

/// Options of commands that put objects on a drive, or get them.
#[derive(clap::Args)]
pub struct LedgerArgs {
    /// Bind what is put to the client key, and refuse what comes back otherwise than this file has it; it is made if it is not there.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// The client key of the ledger.
    #[arg(long, short, default_value = "keys/client.key", requires = "ledger")]
    key: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
}

impl LedgerArgs {
    /// The ledger, if one is wanted.
    pub fn open(&self, output: &Output) -> anyhow::Result<Option<Arc<Mutex<Ledger>>>> {
        let Some(path) = &self.ledger else {
            return Ok(None);
        };
        let client = read_client_key(&self.key, &self.passphrase, output)?;
        let ledger = Ledger::open(&client, path)?;
        Ok(Some(Arc::new(Mutex::new(ledger))))
    }
}
