//! Discovery from the host.

use zerocopy::FromBytes;

use super::options::{ConnectError, ConnectOptions};
use super::queue::Transport;
use super::setup::SetupQueue;
use crate::fabrics::command::DISCOVERY_NQN;
use crate::fabrics::discovery::{DISCOVERY_ENTRY, DiscoveryEntry, discovery_header};
use crate::log::log_page;

/// Times that a host reads a discovery log that keeps changing.
const MAX_READS: usize = 16;
/// Most entries that a host reads.
const MAX_RECORDS: usize = 1024;

/// The NVM subsystems that a discovery controller lists.
///
/// # Errors
/// [`ConnectError`].
pub async fn discover(
    transport: &impl Transport,
    options: &ConnectOptions,
) -> Result<Vec<DiscoveryEntry>, ConnectError> {
    let (mut admin, _) = SetupQueue::connect_admin(transport, DISCOVERY_NQN, options).await?;
    admin.enable().await?;
    for _ in 0..MAX_READS {
        let header = admin.log_page(log_page::DISCOVERY, DISCOVERY_ENTRY).await?;
        let unknown = ConnectError::Length {
            what: "the discovery log's entries",
            found: 0,
            expected: DISCOVERY_ENTRY,
        };
        let Some((generation, records)) = discovery_header(&header) else {
            return Err(unknown);
        };
        let records = records.min(MAX_RECORDS as u64) as usize;
        let page = admin
            .log_page(log_page::DISCOVERY, (records + 1) * DISCOVERY_ENTRY)
            .await?;
        // The entries belong together only if the generation has not changed meanwhile.
        if discovery_header(&page).is_none_or(|(now, _)| now != generation) {
            continue;
        }
        let entries = page.get(DISCOVERY_ENTRY..).unwrap_or_default();
        return Ok(entries
            .chunks_exact(DISCOVERY_ENTRY)
            .filter_map(|entry| DiscoveryEntry::read_from_bytes(entry).ok())
            .collect());
    }
    Err(ConnectError::Unsteady)
}
