//! The discovery log page (Base Specification 2.x, "Discovery Log Page").

use std::net::SocketAddr;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{nqn, put_text};

/// Where hosts reach a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Transport type (TRTYPE) of a discovery log entry.
    pub trtype: u8,
    /// Address.
    pub address: SocketAddr,
}

/// Transport requirements (TREQ): whether a secure channel is required.
const SECURE_CHANNEL_REQUIRED: u8 = 1;
const SECURE_CHANNEL_NOT_REQUIRED: u8 = 2;
/// Security type (SECTYPE), the first byte of TCP's part of an entry (TSAS).
const SECTYPE_TLS13: u8 = 2;

/// Bytes of the discovery log's header, and of each of its entries.
pub const DISCOVERY_ENTRY: usize = 1024;

/// One entry of the discovery log, 1024 bytes.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport type.
    pub trtype: u8,
    /// Address family: 1 for IPv4, 2 for IPv6.
    pub adrfam: u8,
    /// Subsystem type: 2 for an NVM subsystem.
    pub subtype: u8,
    /// Transport requirements.
    pub treq: u8,
    /// Port identifier.
    pub portid: U16,
    /// Controller: FFFFh for any.
    pub cntlid: U16,
    /// Largest admin queue.
    pub asqsz: U16,
    /// Entry flags.
    pub eflags: U16,
    reserved_12: [u8; 20],
    trsvcid: [u8; 32],
    reserved_64: [u8; 192],
    subnqn: [u8; 256],
    traddr: [u8; 256],
    tsas: [u8; 256],
}

const _: () = assert!(size_of::<DiscoveryEntry>() == DISCOVERY_ENTRY);

impl DiscoveryEntry {
    /// The NVM subsystem `subnqn`, reached through `port`.
    pub fn new(subnqn: &str, port: Port, port_id: u16) -> DiscoveryEntry {
        let Port { trtype, address } = port;
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.trtype = trtype;
        entry.adrfam = if address.is_ipv4() { 1 } else { 2 };
        entry.subtype = 2;
        entry.portid = port_id.into();
        entry.cntlid = 0xFFFF.into();
        entry.asqsz = 32.into();
        entry.treq = SECURE_CHANNEL_NOT_REQUIRED;
        pad_text(&mut entry.trsvcid, &address.port().to_string());
        put_text(&mut entry.subnqn, subnqn);
        pad_text(&mut entry.traddr, &address.ip().to_string());
        entry
    }

    /// The entry of a port where the host must use TLS 1.3, or need not use a secure channel.
    pub fn with_secure_channel(mut self, required: bool) -> DiscoveryEntry {
        (self.treq, self.tsas[0]) = if required {
            (SECURE_CHANNEL_REQUIRED, SECTYPE_TLS13)
        } else {
            (SECURE_CHANNEL_NOT_REQUIRED, 0)
        };
        self
    }

    /// Whether the host must use TLS.
    pub fn requires_tls(&self) -> bool {
        self.treq & 3 == SECURE_CHANNEL_REQUIRED
    }

    /// NQN of the subsystem; `None` if the field holds no NQN.
    pub fn subnqn(&self) -> Option<&str> {
        nqn(&self.subnqn)
    }

    /// Transport address, an IP address.
    pub fn traddr(&self) -> String {
        text(&self.traddr)
    }

    /// Transport service, a port number.
    pub fn trsvcid(&self) -> String {
        text(&self.trsvcid)
    }
}

/// The discovery log page: a header and the entries.
pub(crate) fn discovery_log(generation: u64, entries: &[DiscoveryEntry]) -> Vec<u8> {
    let mut page = vec![0; DISCOVERY_ENTRY];
    page[..8].copy_from_slice(U64::new(generation).as_bytes());
    page[8..16].copy_from_slice(U64::new(entries.len() as u64).as_bytes());
    page.extend_from_slice(entries.as_bytes());
    page
}

/// Generation counter and number of records in the discovery log's header, if it is one of record format 0.
pub(crate) fn discovery_header(page: &[u8]) -> Option<(u64, u64)> {
    let (generation, rest) = U64::read_from_prefix(page).ok()?;
    let (records, rest) = U64::read_from_prefix(rest).ok()?;
    let (format, _) = U16::read_from_prefix(rest).ok()?;
    (format.get() == 0).then_some((generation.get(), records.get()))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field)
        .trim_end_matches([' ', '\0'])
        .to_owned()
}

fn pad_text(field: &mut [u8], text: &str) {
    field.fill(b' ');
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_entries() {
        let port = Port {
            trtype: 3,
            address: "127.0.0.1:4420".parse().unwrap(),
        };
        let entry = DiscoveryEntry::new("nqn.x", port, 1);
        assert_eq!(entry.subnqn(), Some("nqn.x"));
        assert_eq!(
            (entry.traddr(), entry.trsvcid()),
            ("127.0.0.1".into(), "4420".into())
        );
        assert!(!entry.requires_tls());
        let secure = entry.clone().with_secure_channel(true);
        assert!(secure.requires_tls() && (secure.treq, secure.tsas[0]) == (1, 2));
        let page = discovery_log(9, &[entry.clone(), entry]);
        assert_eq!(page.len(), 3 * DISCOVERY_ENTRY);
        assert_eq!(discovery_header(&page), Some((9, 2)));
        // "NVM subsystem", TCP, IPv4 at their places in the first entry.
        assert_eq!(page[1024..1027], [3, 1, 2]);
    }
}
