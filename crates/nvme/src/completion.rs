//! The completion queue entry (Base Specification, "Common Completion Queue Entry Layout").

use std::fmt;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Status;

const PHASE: u16 = 1;
const DO_NOT_RETRY: u16 = 1 << 15;

/// Completion queue entry, 16 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Command specific result.
    pub dw0: U32,
    /// Command specific result.
    pub dw1: U32,
    /// Submission queue head pointer.
    pub sq_head: U16,
    /// Submission queue identifier.
    pub sq_id: U16,
    /// Identifier of the command that completed.
    pub cid: U16,
    status: U16,
}

const _: () = assert!(size_of::<Cqe>() == 16);

impl Cqe {
    /// Successful completion of the command `cid`.
    pub fn success(cid: u16) -> Cqe {
        Cqe::new(cid, Status::SUCCESS, false)
    }

    /// Completion of the command `cid` with `status`. `do_not_retry` states that the same command is expected to fail again.
    pub fn new(cid: u16, status: Status, do_not_retry: bool) -> Cqe {
        let dnr = if do_not_retry { DO_NOT_RETRY } else { 0 };
        Cqe {
            cid: cid.into(),
            status: (status.to_field() << 1 | dnr).into(),
            ..Cqe::default()
        }
    }

    /// Status of the command.
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get() >> 1)
    }

    /// Do Not Retry bit.
    pub fn do_not_retry(&self) -> bool {
        self.status.get() & DO_NOT_RETRY != 0
    }

    /// Phase tag, which a memory-mapped completion queue toggles at each pass.
    pub fn phase(&self) -> bool {
        self.status.get() & PHASE != 0
    }

    /// Sets the phase tag.
    pub fn set_phase(&mut self, phase: bool) {
        self.status = (self.status.get() & !PHASE | u16::from(phase)).into();
    }
}

impl fmt::Debug for Cqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cqe")
            .field("cid", &self.cid.get())
            .field("status", &self.status())
            .field("do_not_retry", &self.do_not_retry())
            .field("phase", &self.phase())
            .field("dw0", &self.dw0.get())
            .field("dw1", &self.dw1.get())
            .field("sq_head", &self.sq_head.get())
            .field("sq_id", &self.sq_id.get())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let mut cqe = Cqe::new(0x1234, Status::COMPARE_FAILURE, true);
        cqe.dw0 = 0x0403_0201.into();
        cqe.sq_head = 0x0605.into();
        cqe.sq_id = 0x0807.into();
        cqe.set_phase(true);
        // Status field: DNR 15, SCT 2h in 11:9, SC 85h in 8:1, phase 0.
        assert_eq!(
            cqe.as_bytes(),
            [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0x34, 0x12, 0x0B, 0x85]
        );
        assert_eq!(Cqe::read_from_bytes(cqe.as_bytes()).unwrap(), cqe);
    }

    #[test]
    fn phase_leaves_the_status_alone() {
        let mut cqe = Cqe::new(7, Status::WRITE_FAULT, true);
        for phase in [true, false, true] {
            cqe.set_phase(phase);
            assert_eq!(cqe.phase(), phase);
            assert_eq!(cqe.status(), Status::WRITE_FAULT);
            assert!(cqe.do_not_retry());
        }
        assert!(!Cqe::success(7).do_not_retry());
        assert!(Cqe::success(7).status().is_success());
    }
}
