//! Hosts of a drive: who they are, what they may touch, and what each has done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toroid_isa::VrNumber;
use toroid_nvme::{ErrorInformation, ErrorLog, Sqe, Status};

use super::status::Fault;
use toroid_isa::metadata::ScMetadata;

/// The number of hosts from which on those that have gone are forgotten.
const REMEMBERED: usize = 256;

/// The key ids that a host may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// Every one.
    All,
    /// These. Blocks with metadata of another key id, and registers of another, do not exist for the host.
    Only(BTreeSet<u32>),
}

impl KeyAccess {
    /// Whether the host may use this key id.
    #[must_use]
    pub fn allows(&self, key_id: u32) -> bool {
        self.only().is_none_or(|key_ids| key_ids.contains(&key_id))
    }

    pub(crate) fn only(&self) -> Option<&BTreeSet<u32>> {
        match self {
            KeyAccess::All => None,
            KeyAccess::Only(key_ids) => Some(key_ids),
        }
    }

    /// Checks NVMe metadata, 64 bytes per block. Damaged metadata may be anyone's.
    pub(crate) fn check_metadata(&self, metadata: &[u8]) -> Result<(), Fault> {
        if self.only().is_none() {
            return Ok(());
        }
        let allowed = |bytes: &[u8]| match ScMetadata::from_bytes(bytes) {
            Ok(None) => true,
            Ok(Some(metadata)) => self.allows(metadata.vr().key_id()),
            Err(_) => false,
        };
        if metadata.chunks(ScMetadata::SIZE).all(allowed) {
            Ok(())
        } else {
            Err(denied())
        }
    }

    /// Checks the key id that a host wants to use for its blocks.
    pub(crate) fn check_register(&self, vr: VrNumber) -> Result<(), Fault> {
        if self.allows(vr.key_id()) {
            Ok(())
        } else {
            Err(denied())
        }
    }
}

/// The refusal, which does not tell whose the blocks are.
pub(crate) fn denied() -> Fault {
    Fault::new(
        Status::ACCESS_DENIED,
        "the command is for a key id that this host may not use",
    )
}

/// Who a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// NVMe Qualified Name. Hosts of one name share statistics and the log of their failures.
    pub name: String,
    /// Tenants share the drive's programs and arithmetic in equal parts. The drive itself, as a host, is tenant 0.
    pub tenant: u64,
    /// What it may use.
    pub keys: KeyAccess,
}

/// What a host has done since the drive was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Read commands that succeeded.
    pub reads: u64,
    /// Write commands that succeeded.
    pub writes: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Bytes of data read.
    pub bytes_read: u64,
    /// Bytes of data written.
    pub bytes_written: u64,
    /// Rows of programs that ran to their end; a program on single samples has one.
    pub rows: u64,
    /// Bootstraps of programs that ran to their end.
    pub bootstraps: u64,
    /// Programs that ran to their end.
    pub programs: u64,
    /// Programs that failed or were cancelled.
    pub program_failures: u64,
    /// Time during which a command was in progress.
    pub busy: Duration,
}

/// Statistics and failures of the hosts of one name.
#[derive(Default)]
pub(crate) struct Account(Mutex<Record>);

#[derive(Default)]
struct Record {
    statistics: HostStatistics,
    in_progress: usize,
    busy_since: Option<Instant>,
    errors: ErrorLog,
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, Record> {
        // Every value is complete between two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut HostStatistics)) {
        change(&mut self.lock().statistics);
    }

    pub(crate) fn begin_command(&self) {
        let mut record = self.lock();
        record.in_progress += 1;
        record.busy_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn end_command(&self) {
        let mut record = self.lock();
        record.in_progress = record.in_progress.saturating_sub(1);
        if record.in_progress == 0
            && let Some(since) = record.busy_since.take()
        {
            record.statistics.busy += since.elapsed();
        }
    }

    pub(crate) fn statistics(&self) -> HostStatistics {
        let record = self.lock();
        let now = record.busy_since.map(|since| since.elapsed());
        HostStatistics {
            busy: record.statistics.busy + now.unwrap_or_default(),
            ..record.statistics
        }
    }

    pub(crate) fn error(&self, command: Sqe, status: Status, reason: String) {
        self.lock().errors.push(command, status, reason);
    }

    /// Newest first.
    pub(crate) fn errors(&self) -> Vec<ErrorInformation> {
        self.lock().errors.entries()
    }
}

/// A host with its account.
pub(crate) struct Hosted {
    pub(crate) identity: HostIdentity,
    pub(crate) account: Arc<Account>,
}

/// The accounts of all hosts, by name.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<BTreeMap<String, Arc<Account>>>);

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Account>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self, identity: HostIdentity) -> Hosted {
        let mut accounts = self.lock();
        if accounts.len() >= REMEMBERED && !accounts.contains_key(&identity.name) {
            accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let account = accounts.entry(identity.name.clone()).or_default();
        Hosted {
            account: Arc::clone(account),
            identity,
        }
    }

    pub(crate) fn statistics(&self) -> BTreeMap<String, HostStatistics> {
        let accounts = self.lock();
        let statistics = accounts.iter();
        statistics
            .map(|(name, account)| (name.clone(), account.statistics()))
            .collect()
    }
}
