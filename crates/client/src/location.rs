//! Where a drive is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toroid_nvme::tcp::{Address, AddressError};

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// An image, which this process opens: a file, or a block device that is the drive's SSD.
    Image(PathBuf),
    /// On the network, over NVMe/TCP.
    Remote(Address),
    /// A block device of this Linux, which is connected to the drive.
    Device(PathBuf),
}

/// A path: a block device is a drive, unless it begins as an image does.
impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Location {
        if is_block_device(&path) && !is_image(&path) {
            Location::Device(path)
        } else {
            Location::Image(path)
        }
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Location {
        path.to_owned().into()
    }
}

/// `nvme+tcp://HOST:PORT/NQN`, or a path.
impl FromStr for Location {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Location, AddressError> {
        if text.contains("://") {
            text.parse().map(Location::Remote)
        } else {
            Ok(PathBuf::from(text).into())
        }
    }
}

impl TryFrom<&str> for Location {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Location, AddressError> {
        text.parse()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Image(path) | Location::Device(path) => path.display().fmt(f),
            Location::Remote(address) => address.fmt(f),
        }
    }
}

/// Whether a path leads to a block device.
#[must_use]
pub fn is_block_device(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

#[cfg(feature = "image")]
fn is_image(path: &Path) -> bool {
    toroid_drive::image::info(path).is_ok()
}

#[cfg(not(feature = "image"))]
fn is_image(_path: &Path) -> bool {
    false
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
        let wrong = parse("http://localhost/").unwrap_err().to_string();
        assert!(wrong.contains("scheme"), "{wrong}");
        assert!(parse("nvme+tcp://:1/nqn.x").is_err());
    }
}
