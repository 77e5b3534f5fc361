//! The name and the identifier by which this host connects to drives on the network.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use toroid_nvme::fabrics::is_nqn;
use uuid::Uuid;

/// What the standard's own form of a host NQN begins with; a UUID follows.
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Why this host has no identity of its own.
#[derive(Debug, thiserror::Error)]
pub enum HostIdentityError {
    /// There is nowhere to keep an identifier.
    #[error(
        "this user has no home folder to keep a host identifier in: give the host's NQN and identifier"
    )]
    NoHome,
    /// The file of the identifier cannot be read or written.
    #[error("cannot {action} {path}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes for a host identifier: {0}")]
    Random(getrandom::Error),
}

/// NQN and identifier of this host: those given, else those of nvme-cli's files in /etc/nvme, else one made once for this user. An
/// NQN that ends in a UUID gives the identifier.
pub(crate) fn of_host(
    nqn: Option<&str>,
    id: Option<Uuid>,
) -> Result<(String, Uuid), HostIdentityError> {
    let given = nqn
        .map(str::to_owned)
        .or_else(|| system("hostnqn").filter(|nqn| is_nqn(nqn)));
    let nqn = match given {
        Some(nqn) => nqn,
        None => format!("{UUID_NQN}{}", own_id()?),
    };
    let in_nqn = || nqn.strip_prefix(UUID_NQN)?.parse().ok();
    let id = id
        .or_else(in_nqn)
        .or_else(|| system("hostid")?.parse().ok());
    let id = match id {
        Some(id) => id,
        None => own_id()?,
    };
    Ok((nqn, id))
}

/// The text of one of nvme-cli's files.
fn system(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/etc/nvme").join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The identifier made once for this user.
fn own_id() -> Result<Uuid, HostIdentityError> {
    let folder = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".config")))
        .ok_or(HostIdentityError::NoHome)?
        .join("toroid");
    let path = folder.join("hostid");
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| HostIdentityError::Io {
            action,
            path,
            source,
        }
    };
    let read = || {
        let text = fs::read_to_string(&path)?;
        text.trim()
            .parse::<Uuid>()
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    };
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found.map_err(failed("read", &path)),
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(HostIdentityError::Random)?;
    let id = uuid::Builder::from_random_bytes(random).into_uuid();
    fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path);
    match file {
        Ok(mut file) => writeln!(file, "{id}").map_err(failed("write", &path))?,
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return read().map_err(failed("read", &path));
        }
        Err(error) => return Err(failed("write", &path)(error)),
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_is_that_of_the_name() {
        let id = "01234567-89ab-cdef-0011-223344556677";
        let nqn = format!("{UUID_NQN}{id}");
        let (found, found_id) = of_host(Some(&nqn), None).unwrap();
        assert_eq!((found, found_id.to_string()), (nqn, id.to_owned()));
        assert_eq!(found_id.into_bytes()[..3], [0x01, 0x23, 0x45]);
    }
}
