//! Addresses of controllers behind NVMe/TCP.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::fabrics::{DISCOVERY_NQN, is_nqn};
use crate::tcp::pdu::PORT;

/// Where a controller is: `nvme+tcp://HOST:PORT/NQN`. The port defaults to 4420, the NQN to that of discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// NQN of the subsystem.
    pub nqn: String,
}

/// The scheme of an [`Address`].
pub const SCHEME: &str = "nvme+tcp://";

/// Not the address of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not the address of a drive: {reason}; expected nvme+tcp://HOST:PORT/NQN")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = |reason| AddressError {
            text: text.to_owned(),
            reason,
        };
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| error("another scheme"))?;
        let (authority, nqn) = rest.split_once('/').unwrap_or((rest, ""));
        let nqn = if nqn.is_empty() { DISCOVERY_NQN } else { nqn };
        if !is_nqn(nqn) {
            return Err(error("what follows the host is not an NQN"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            // An IPv6 address.
            Some(rest) => {
                let (host, port) = rest
                    .split_once(']')
                    .ok_or_else(|| error("an open bracket"))?;
                match port {
                    "" => (host, ""),
                    port => (
                        host,
                        port.strip_prefix(':')
                            .ok_or_else(|| error("no port after the host"))?,
                    ),
                }
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        if host.is_empty() {
            return Err(error("no host"));
        }
        if host.contains(['[', ']']) || host.chars().any(char::is_control) {
            return Err(error("the host is no name and no IP address"));
        }
        let port = match port {
            "" => PORT,
            port => port
                .parse()
                .map_err(|_| error("the port is not a number below 65536"))?,
        };
        Ok(Address {
            host: host.to_owned(),
            port,
            nqn: nqn.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port, nqn } = self;
        if host.contains(':') {
            write!(f, "{SCHEME}[{host}]:{port}/{nqn}")
        } else {
            write!(f, "{SCHEME}{host}:{port}/{nqn}")
        }
    }
}
