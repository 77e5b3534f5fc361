use std::collections::VecDeque;

use crate::log::ERROR_ENTRIES;
use crate::{ErrorInformation, Sqe, Status};

/// The newest failures of a controller, as many as the Error Information log page has entries.
#[derive(Debug, Default)]
pub struct ErrorLog {
    count: u64,
    entries: VecDeque<ErrorInformation>,
}

impl ErrorLog {
    /// Adds a failure, and forgets the oldest one if there are too many.
    pub fn push(&mut self, command: Sqe, status: Status, reason: String) {
        self.count += 1;
        self.entries.truncate(ERROR_ENTRIES - 1);
        self.entries.push_front(ErrorInformation {
            count: self.count,
            command,
            status,
            reason,
        });
    }

    /// The failures, newest first.
    #[must_use]
    pub fn entries(&self) -> Vec<ErrorInformation> {
        self.entries.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_failures_are_kept_and_all_are_counted() {
        let mut log = ErrorLog::default();
        let failures = ERROR_ENTRIES as u64 + 3;
        for cid in 1..=failures {
            let command = Sqe::flush(cid as u16, 1);
            log.push(command, Status::INTERNAL_ERROR, cid.to_string());
        }
        let entries = log.entries();
        assert_eq!(entries.len(), ERROR_ENTRIES);
        for (entry, number) in entries.iter().zip((4..=failures).rev()) {
            assert_eq!(entry.count, number);
            assert_eq!(entry.reason, number.to_string());
        }
    }
}
