//! The arguments of every command that uses a drive: where it is, and who asks.

use std::path::PathBuf;

use toroid_client::drive::OpenOptions;
use toroid_client::location::Location;
use toroid_nvme::fabrics::is_nqn;
use toroid_nvme::tcp::Digests;
use uuid::Uuid;

use crate::interrupt;
use crate::serve::secret;

const HEADING: &str = "Drives on the network";

/// A digest of NVMe/TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Digest {
    /// Of every header.
    Header,
    /// Of all data.
    Data,
}

/// Arguments of a command that takes a drive.
#[derive(clap::Args, Clone, Debug)]
pub struct DriveArgs {
    /// The drive: an image, nvme+tcp://HOST:PORT/NQN, or a block device that is one, such as /dev/nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub location: Location,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Who connects to a drive on the network, and how.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct HostArgs {
    /// NQN of this host; that of /etc/nvme/hostnqn, or one made once for this user, if not given.
    #[arg(long, env = "TOROID_HOST_NQN", value_name = "NQN", value_parser = nqn, help_heading = HEADING)]
    pub host_nqn: Option<String>,
    /// Identifier of this host, a UUID; that in the NQN, of /etc/nvme/hostid, or one made once for this user, if not given.
    #[arg(long, env = "TOROID_HOST_ID", value_name = "UUID", value_parser = uuid, help_heading = HEADING)]
    pub host_id: Option<Uuid>,
    /// File with the secret (DHHC-1:...) by which this host authenticates.
    #[arg(long, env = "TOROID_HOST_SECRET", value_name = "FILE", help_heading = HEADING)]
    pub host_secret: Option<PathBuf>,
    /// File with the secret (DHHC-1:...) by which the drive must authenticate.
    #[arg(long, env = "TOROID_CONTROLLER_SECRET", value_name = "FILE", help_heading = HEADING)]
    pub controller_secret: Option<PathBuf>,
    /// File with the key (NVMeTLSkey-1:...) with which connections are encrypted by TLS; none is unencrypted then.
    #[arg(long, env = "TOROID_TLS_KEY", value_name = "FILE", help_heading = HEADING)]
    pub tls_key: Option<PathBuf>,
    /// Encrypt connections by TLS with a key that the authentication gives; needs both secrets.
    #[arg(long, conflicts_with = "tls_key", requires_all = ["host_secret", "controller_secret"], help_heading = HEADING)]
    pub concatenate: bool,
    /// Digests of NVMe/TCP: header, data or both.
    #[arg(long, env = "TOROID_DIGESTS", value_enum, value_delimiter = ',', help_heading = HEADING)]
    pub digests: Vec<Digest>,
    /// Namespace; the first that holds blocks if not given.
    #[arg(long, env = "TOROID_NSID", help_heading = HEADING)]
    pub nsid: Option<u32>,
}

fn nqn(text: &str) -> Result<String, String> {
    if is_nqn(text) {
        Ok(text.to_owned())
    } else {
        Err("not an NVMe qualified name: expected nqn.YYYY-MM.DOMAIN:NAME".to_owned())
    }
}

fn uuid(text: &str) -> Result<Uuid, String> {
    let expected = |_| "not a UUID: expected 8-4-4-4-12 hexadecimal digits".to_owned();
    text.parse().map_err(expected)
}

impl HostArgs {
    /// How to open a drive; Ctrl-C interrupts its work.
    pub fn options(&self) -> anyhow::Result<OpenOptions> {
        let mut options = OpenOptions::new()
            .digests(Digests {
                header: self.digests.contains(&Digest::Header),
                data: self.digests.contains(&Digest::Data),
            })
            .cancel(interrupt::token());
        if let Some(nqn) = &self.host_nqn {
            options = options.host_nqn(nqn);
        }
        if let Some(id) = self.host_id {
            options = options.host_id(id);
        }
        if let Some(path) = &self.host_secret {
            options = options.host_secret(secret::read(path)?);
        }
        if let Some(path) = &self.controller_secret {
            options = options.controller_secret(secret::read(path)?);
        }
        if let Some(path) = &self.tls_key {
            options = options.tls_key(secret::read_tls_key(path)?);
        }
        if self.concatenate {
            options = options.concatenate();
        }
        if let Some(nsid) = self.nsid {
            options = options.nsid(nsid);
        }
        Ok(options)
    }
}
