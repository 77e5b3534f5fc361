//! Where a drive is, and who asks: the arguments of every command that uses a drive.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use toroid_drive::bridge::status::VENDOR_STATUSES;
use toroid_drive::image;
use toroid_nvme::fabrics::{ConnectOptions, is_nqn};
use toroid_nvme::tcp::{Address, Connector, Digests};
use toroid_tfhe::random::Csprng;

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// An image, opened in this process: a file, or a block device that is the drive's SSD.
    Image(PathBuf),
    /// Behind NVMe/TCP.
    Remote(Address),
    /// A block device of this Linux, which is connected to the drive.
    Device(PathBuf),
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Location, String> {
        if text.contains("://") {
            let address: Address = text.parse().map_err(|error| format!("{error}"))?;
            return Ok(Location::Remote(address));
        }
        let path = PathBuf::from(text);
        // A block device may also be the SSD of a drive: then it begins as an image does.
        Ok(
            match is_block_device(&path) && image::info(&path).is_err() {
                true => Location::Device(path),
                false => Location::Image(path),
            },
        )
    }
}

/// Whether a path leads to a block device.
#[cfg(unix)]
pub fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Whether a path leads to a block device.
#[cfg(not(unix))]
pub fn is_block_device(_path: &Path) -> bool {
    false
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Image(path) | Location::Device(path) => path.display().fmt(f),
            Location::Remote(address) => address.fmt(f),
        }
    }
}

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
    #[arg(long, env = "TOROID_HOST_ID", value_name = "UUID", help_heading = HEADING)]
    pub host_id: Option<Uuid>,
    /// File with the secret (DHHC-1:...) by which this host authenticates.
    #[arg(long, env = "TOROID_HOST_SECRET", value_name = "FILE", help_heading = HEADING)]
    pub host_secret: Option<PathBuf>,
    /// File with the secret (DHHC-1:...) by which the drive must authenticate.
    #[arg(long, env = "TOROID_CONTROLLER_SECRET", value_name = "FILE", help_heading = HEADING)]
    pub controller_secret: Option<PathBuf>,
    /// Digests of NVMe/TCP: header, data or both.
    #[arg(long, env = "TOROID_DIGESTS", value_enum, value_delimiter = ',', help_heading = HEADING)]
    pub digests: Vec<Digest>,
    /// Namespace; the first that holds blocks if not given.
    #[arg(long, env = "TOROID_NSID", help_heading = HEADING)]
    pub nsid: Option<u32>,
}

fn nqn(text: &str) -> Result<String, String> {
    match is_nqn(text) {
        true => Ok(text.to_owned()),
        false => Err("no NVMe qualified name: expected nqn.YYYY-MM.DOMAIN:NAME".to_owned()),
    }
}

/// A UUID, in the order of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid(pub [u8; 16]);

impl FromStr for Uuid {
    type Err = String;

    fn from_str(text: &str) -> Result<Uuid, String> {
        let error = || "no UUID: expected 8-4-4-4-12 hexadecimal digits".to_owned();
        let groups: Vec<usize> = text.split('-').map(str::len).collect();
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if groups != [8, 4, 4, 4, 12] || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(error());
        }
        let value = u128::from_str_radix(&digits, 16).map_err(|_| error())?;
        Ok(Uuid(value.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&i) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// What the standard's own form of a host NQN begins with; a UUID follows.
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// A line of a file of nvme-cli.
fn system(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/etc/nvme").join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The identifier made once for this user.
fn own_id() -> anyhow::Result<Uuid> {
    let folder = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".config")))
        .context("this user has no home folder to keep a host identifier in: give --host-nqn and --host-id")?
        .join("toroid");
    let path = folder.join("hostid");
    let shown = path.display().to_string();
    let read = || {
        let text = fs::read_to_string(&path)?;
        let parsed = text.trim().parse::<Uuid>();
        parsed.map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))
    };
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found.context(shown),
    }
    let mut rng = Csprng::from_os()?;
    let mut id = [rng.next_u64().to_le_bytes(), rng.next_u64().to_le_bytes()].concat();
    // Version 4, variant 1.
    id[6] = id[6] & 0x0F | 0x40;
    id[8] = id[8] & 0x3F | 0x80;
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&id);
    let id = Uuid(bytes);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path);
    match file {
        Ok(mut file) => writeln!(file, "{id}").with_context(|| format!("cannot write {shown}"))?,
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return read().context(shown),
        Err(error) => return Err(error).with_context(|| format!("cannot write {shown}")),
    }
    Ok(id)
}

impl HostArgs {
    /// NQN and identifier of this host.
    fn identity(&self) -> anyhow::Result<(String, Uuid)> {
        let given = self
            .host_nqn
            .clone()
            .or_else(|| system("hostnqn").filter(|nqn| is_nqn(nqn)));
        let nqn = match given {
            Some(nqn) => nqn,
            None => format!("{UUID_NQN}{}", own_id()?),
        };
        let in_nqn = || nqn.strip_prefix(UUID_NQN)?.parse().ok();
        let id = self
            .host_id
            .or_else(in_nqn)
            .or_else(|| system("hostid")?.parse().ok());
        let id = match id {
            Some(id) => id,
            None => own_id()?,
        };
        Ok((nqn, id))
    }

    /// How to connect to a drive.
    pub fn connect_options(&self) -> anyhow::Result<ConnectOptions> {
        let (nqn, id) = self.identity()?;
        Ok(ConnectOptions {
            secret: self
                .host_secret
                .as_deref()
                .map(crate::serve::secret::read)
                .transpose()?,
            controller_secret: self
                .controller_secret
                .as_deref()
                .map(crate::serve::secret::read)
                .transpose()?,
            vendor_statuses: VENDOR_STATUSES,
            ..ConnectOptions::new(nqn, id.0)
        })
    }

    /// What connects to `address`.
    pub fn connector(&self, address: &Address) -> Connector {
        Connector {
            address: address.clone(),
            digests: Digests {
                header: self.digests.contains(&Digest::Header),
                data: self.digests.contains(&Digest::Data),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        let parse = |text: &str| text.parse::<Location>();
        assert_eq!(
            parse("drive.img"),
            Ok(Location::Image(PathBuf::from("drive.img")))
        );
        let remote = parse("nvme+tcp://localhost:4421/nqn.2024-01.io.example:drive").unwrap();
        assert_eq!(
            remote.to_string(),
            "nvme+tcp://localhost:4421/nqn.2024-01.io.example:drive"
        );
        assert!(parse("http://localhost/").unwrap_err().contains("scheme"));
        assert!(parse("nvme+tcp://:1/nqn.x").is_err());
    }

    #[test]
    fn identifiers_round_trip() {
        let text = "01234567-89ab-cdef-0011-223344556677";
        let id: Uuid = text.parse().unwrap();
        assert_eq!(id.0[..3], [0x01, 0x23, 0x45]);
        assert_eq!(id.to_string(), text);
        for wrong in [
            "",
            "0123456789ab-cdef-0011-223344556677",
            "0123456g-89ab-cdef-0011-223344556677",
        ] {
            assert!(wrong.parse::<Uuid>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_identifier_is_that_of_the_name() {
        let id = "01234567-89ab-cdef-0011-223344556677";
        let args = HostArgs {
            host_nqn: Some(format!("{UUID_NQN}{id}")),
            ..HostArgs::default()
        };
        let options = args.connect_options().unwrap();
        assert_eq!(Uuid(options.host_id).to_string(), id);
    }
}
