//! The passphrase of a client key: from a descriptor, a file, the environment, or whoever sits at the terminal.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use zeroize::Zeroizing;

use crate::{interrupt, secret};

const VARIABLE: &str = "TOROID_PASSPHRASE";
const NEW_VARIABLE: &str = "TOROID_NEW_PASSPHRASE";

/// Options of commands that read a client key, or write one.
#[derive(clap::Args)]
pub struct PassphraseArgs {
    /// Take the client key's passphrase from the first line of this file, which must be closed to others (mode 600). Without this option and
    /// the next one it comes from TOROID_PASSPHRASE, or from the terminal.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Take the client key's passphrase from the first line that this open file descriptor gives: a pipe or a file.
    #[arg(long, value_name = "FD", conflicts_with = "passphrase_file")]
    passphrase_fd: Option<u32>,
}

/// Options of commands that give a client key another passphrase.
#[derive(clap::Args)]
pub struct NewPassphraseArgs {
    /// Take the new passphrase from the first line of this file, which must be closed to others (mode 600). Without this option and the next
    /// one it comes from TOROID_NEW_PASSPHRASE, or from the terminal.
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
    /// Take the new passphrase from the first line that this open file descriptor gives: a pipe or a file.
    #[arg(long, value_name = "FD", conflicts_with = "new_passphrase_file")]
    new_passphrase_fd: Option<u32>,
}

impl PassphraseArgs {
    /// The passphrase of an existing key.
    pub fn get(&self, key: &Path) -> anyhow::Result<Zeroizing<String>> {
        let source = Source {
            file: self.passphrase_file.as_deref(),
            descriptor: self.passphrase_fd,
            variable: VARIABLE,
        };
        let shown = key.display();
        source.get(
            || ask(&format!("Passphrase of {shown}: ")),
            || {
                format!(
                    "{shown} is encrypted, and there is no terminal to ask for its passphrase: give --passphrase-file, \
                     --passphrase-fd or {VARIABLE}"
                )
            },
        )
    }

    /// The passphrase for a key that is about to be written.
    pub fn choose(&self, key: &Path) -> anyhow::Result<Zeroizing<String>> {
        let source = Source {
            file: self.passphrase_file.as_deref(),
            descriptor: self.passphrase_fd,
            variable: VARIABLE,
        };
        source.choose(key, "--passphrase-file, --passphrase-fd")
    }
}

impl NewPassphraseArgs {
    /// The passphrase for a key that is about to be written.
    pub fn choose(&self, key: &Path) -> anyhow::Result<Zeroizing<String>> {
        let source = Source {
            file: self.new_passphrase_file.as_deref(),
            descriptor: self.new_passphrase_fd,
            variable: NEW_VARIABLE,
        };
        source.choose(key, "--new-passphrase-file, --new-passphrase-fd")
    }
}

struct Source<'a> {
    file: Option<&'a Path>,
    descriptor: Option<u32>,
    variable: &'static str,
}

impl Source<'_> {
    fn get(
        &self,
        ask: impl FnOnce() -> anyhow::Result<Zeroizing<String>>,
        missing: impl FnOnce() -> String,
    ) -> anyhow::Result<Zeroizing<String>> {
        let (passphrase, from) = if let Some(path) = self.file {
            let passphrase = secret::first_line(secret::open(path)?);
            (passphrase, path.display().to_string())
        } else if let Some(number) = self.descriptor {
            let from = format!("file descriptor {number}");
            // By its name, which takes no unsafe code: whoever owns the descriptor keeps it.
            let file = File::open(format!("/dev/fd/{number}"))
                .with_context(|| format!("cannot open {from}"))?;
            (secret::first_line(file), from)
        } else if let Some(text) = std::env::var_os(self.variable) {
            let text = text.into_string().map(Zeroizing::new);
            let text = text.map_err(|_| anyhow::anyhow!("text that is not UTF-8"));
            (text, self.variable.to_owned())
        } else if std::io::stdin().is_terminal() {
            (ask(), "the terminal".to_owned())
        } else {
            bail!(missing());
        };
        let passphrase =
            passphrase.with_context(|| format!("cannot read a passphrase from {from}"))?;
        ensure!(
            !passphrase.is_empty(),
            "the passphrase from {from} is empty"
        );
        Ok(passphrase)
    }

    fn choose(&self, key: &Path, options: &str) -> anyhow::Result<Zeroizing<String>> {
        let shown = key.display();
        self.get(
            || {
                let passphrase = ask(&format!("New passphrase for {shown}: "))?;
                let again = ask("The same again: ")?;
                ensure!(passphrase == again, "the two passphrases differ");
                Ok(passphrase)
            },
            || {
                format!(
                    "there is no passphrase to encrypt {shown} with, and no terminal to ask for one: give {options} or {}, or \
                     --unencrypted to write it as it is",
                    self.variable
                )
            },
        )
    }
}

/// Asks at the terminal, without echo.
fn ask(prompt: &str) -> anyhow::Result<Zeroizing<String>> {
    match rpassword::prompt_password(prompt) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            // Without echo the terminal sends no signal of its own.
            if error.kind() == ErrorKind::Interrupted {
                interrupt::token().cancel();
            }
            Err(error.into())
        }
    }
}
