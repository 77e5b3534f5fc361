//! Status codes (Base Specification, "Status Code" of the completion queue entry).

use std::fmt;

/// The table that a status code belongs to (SCT, 3 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusCodeType {
    /// 0h: any command.
    Generic,
    /// 1h: the meaning depends on the command.
    CommandSpecific,
    /// 2h: media and data integrity errors.
    MediaAndDataIntegrity,
    /// 3h: the path between host and namespace.
    PathRelated,
    /// 4h to 6h: reserved by the specification.
    Reserved(u8),
    /// 7h: the vendor's own.
    VendorSpecific,
}

/// Status of a completed command: status code type and status code.
///
/// Two values are equal when both numbers are. The Do Not Retry bit belongs to the completion, not to the code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status {
    sct: u8,
    sc: u8,
}

macro_rules! statuses {
    ($($name:ident = ($sct:literal, $sc:literal, $text:literal);)*) => {
        impl Status {
            $(#[doc = concat!($text, ".")] pub const $name: Status = Status { sct: $sct, sc: $sc };)*

            /// The specification's name of the status, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                match (self.sct, self.sc) {
                    $(($sct, $sc) => Some($text),)*
                    _ => None,
                }
            }

            #[cfg(test)]
            const NAMED: &'static [Status] = &[$(Status::$name),*];
        }
    };
}

statuses! {
    SUCCESS = (0x0, 0x00, "Successful Completion");
    INVALID_OPCODE = (0x0, 0x01, "Invalid Command Opcode");
    INVALID_FIELD = (0x0, 0x02, "Invalid Field in Command");
    COMMAND_ID_CONFLICT = (0x0, 0x03, "Command ID Conflict");
    DATA_TRANSFER_ERROR = (0x0, 0x04, "Data Transfer Error");
    ABORTED_POWER_LOSS = (0x0, 0x05, "Commands Aborted due to Power Loss Notification");
    INTERNAL_ERROR = (0x0, 0x06, "Internal Error");
    ABORT_REQUESTED = (0x0, 0x07, "Command Abort Requested");
    ABORTED_SQ_DELETION = (0x0, 0x08, "Command Aborted due to SQ Deletion");
    ABORTED_FAILED_FUSED = (0x0, 0x09, "Command Aborted due to Failed Fused Command");
    ABORTED_MISSING_FUSED = (0x0, 0x0A, "Command Aborted due to Missing Fused Command");
    INVALID_NAMESPACE = (0x0, 0x0B, "Invalid Namespace or Format");
    COMMAND_SEQUENCE_ERROR = (0x0, 0x0C, "Command Sequence Error");
    INVALID_SGL_SEGMENT = (0x0, 0x0D, "Invalid SGL Segment Descriptor");
    INVALID_SGL_COUNT = (0x0, 0x0E, "Invalid Number of SGL Descriptors");
    DATA_SGL_LENGTH_INVALID = (0x0, 0x0F, "Data SGL Length Invalid");
    METADATA_SGL_LENGTH_INVALID = (0x0, 0x10, "Metadata SGL Length Invalid");
    SGL_TYPE_INVALID = (0x0, 0x11, "SGL Descriptor Type Invalid");
    ATOMIC_WRITE_UNIT_EXCEEDED = (0x0, 0x14, "Atomic Write Unit Exceeded");
    OPERATION_DENIED = (0x0, 0x15, "Operation Denied");
    SGL_OFFSET_INVALID = (0x0, 0x16, "SGL Offset Invalid");
    KEEP_ALIVE_EXPIRED = (0x0, 0x19, "Keep Alive Timer Expired");
    KEEP_ALIVE_INVALID = (0x0, 0x1A, "Keep Alive Timeout Invalid");
    WRITE_PROTECTED = (0x0, 0x20, "Namespace is Write Protected");
    COMMAND_INTERRUPTED = (0x0, 0x21, "Command Interrupted");
    TRANSIENT_TRANSPORT_ERROR = (0x0, 0x22, "Transient Transport Error");
    LBA_OUT_OF_RANGE = (0x0, 0x80, "LBA Out of Range");
    CAPACITY_EXCEEDED = (0x0, 0x81, "Capacity Exceeded");
    NAMESPACE_NOT_READY = (0x0, 0x82, "Namespace Not Ready");
    RESERVATION_CONFLICT = (0x0, 0x83, "Reservation Conflict");
    FORMAT_IN_PROGRESS = (0x0, 0x84, "Format In Progress");
    INVALID_QUEUE_IDENTIFIER = (0x1, 0x01, "Invalid Queue Identifier");
    INVALID_QUEUE_SIZE = (0x1, 0x02, "Invalid Queue Size");
    ABORT_LIMIT_EXCEEDED = (0x1, 0x03, "Abort Command Limit Exceeded");
    AER_LIMIT_EXCEEDED = (0x1, 0x05, "Asynchronous Event Request Limit Exceeded");
    INVALID_LOG_PAGE = (0x1, 0x09, "Invalid Log Page");
    INVALID_FORMAT = (0x1, 0x0A, "Invalid Format");
    FEATURE_NOT_SAVEABLE = (0x1, 0x0D, "Feature Identifier Not Saveable");
    FEATURE_NOT_CHANGEABLE = (0x1, 0x0E, "Feature Not Changeable");
    COMMAND_SET_NOT_SUPPORTED = (0x1, 0x29, "I/O Command Set Not Supported");
    COMMAND_SET_NOT_ENABLED = (0x1, 0x2A, "I/O Command Set Not Enabled");
    INVALID_COMMAND_SET = (0x1, 0x2C, "Invalid I/O Command Set");
    CONFLICTING_ATTRIBUTES = (0x1, 0x80, "Conflicting Attributes");
    INVALID_PROTECTION_INFORMATION = (0x1, 0x81, "Invalid Protection Information");
    WRITE_TO_READ_ONLY_RANGE = (0x1, 0x82, "Attempted Write to Read Only Range");
    COMMAND_SIZE_LIMIT_EXCEEDED = (0x1, 0x83, "Command Size Limit Exceeded");
    WRITE_FAULT = (0x2, 0x80, "Write Fault");
    UNRECOVERED_READ_ERROR = (0x2, 0x81, "Unrecovered Read Error");
    GUARD_CHECK_ERROR = (0x2, 0x82, "End-to-end Guard Check Error");
    APPLICATION_TAG_CHECK_ERROR = (0x2, 0x83, "End-to-end Application Tag Check Error");
    REFERENCE_TAG_CHECK_ERROR = (0x2, 0x84, "End-to-end Reference Tag Check Error");
    COMPARE_FAILURE = (0x2, 0x85, "Compare Failure");
    ACCESS_DENIED = (0x2, 0x86, "Access Denied");
    DEALLOCATED_BLOCK = (0x2, 0x87, "Deallocated or Unwritten Logical Block");
    INTERNAL_PATH_ERROR = (0x3, 0x00, "Internal Path Error");
    CONTROLLER_PATHING_ERROR = (0x3, 0x60, "Controller Pathing Error");
    HOST_PATHING_ERROR = (0x3, 0x70, "Host Pathing Error");
    ABORTED_BY_HOST = (0x3, 0x71, "Command Aborted By Host");
}

/// Command specific statuses of Fabrics commands. Some share their number with one of an I/O command: which is meant, the command
/// tells.
impl Status {
    /// Connect: incompatible record format.
    pub const CONNECT_INCOMPATIBLE_FORMAT: Status = Status { sct: 1, sc: 0x80 };
    /// Connect: no controller or queue is free.
    pub const CONNECT_CONTROLLER_BUSY: Status = Status { sct: 1, sc: 0x81 };
    /// Connect: invalid parameters; dword 0 tells which.
    pub const CONNECT_INVALID_PARAMETERS: Status = Status { sct: 1, sc: 0x82 };
    /// Connect: the host may not connect to this subsystem.
    pub const CONNECT_INVALID_HOST: Status = Status { sct: 1, sc: 0x84 };
    /// The queue is not authenticated.
    pub const AUTHENTICATION_REQUIRED: Status = Status { sct: 1, sc: 0x91 };

    /// The specification's name of the status as that of a Fabrics command.
    pub const fn fabrics_name(self) -> Option<&'static str> {
        match (self.sct, self.sc) {
            (1, 0x80) => Some("Connect Incompatible Format"),
            (1, 0x81) => Some("Connect Controller Busy"),
            (1, 0x82) => Some("Connect Invalid Parameters"),
            (1, 0x83) => Some("Connect Restart Discovery"),
            (1, 0x84) => Some("Connect Invalid Host"),
            (1, 0x91) => Some("Authentication Required"),
            _ => self.name(),
        }
    }
}

impl Status {
    /// Status with the given status code type (0 to 7, `None` above) and status code.
    pub const fn new(sct: u8, sc: u8) -> Option<Status> {
        if sct < 8 {
            Some(Status { sct, sc })
        } else {
            None
        }
    }

    /// Vendor-specific status (SCT 7h). A controller describes its codes in
    /// [`ControllerInfo::vendor_statuses`](crate::ControllerInfo::vendor_statuses).
    pub const fn vendor(sc: u8) -> Status {
        Status { sct: 7, sc }
    }

    /// Status of a 15-bit status field (completion dword 3, bits 31:17); the bits above SCT are ignored.
    pub(crate) const fn from_field(field: u16) -> Status {
        Status {
            sct: (field >> 8) as u8 & 7,
            sc: field as u8,
        }
    }

    pub(crate) const fn to_field(self) -> u16 {
        (self.sct as u16) << 8 | self.sc as u16
    }

    /// Table of the code.
    pub const fn code_type(self) -> StatusCodeType {
        match self.sct {
            0 => StatusCodeType::Generic,
            1 => StatusCodeType::CommandSpecific,
            2 => StatusCodeType::MediaAndDataIntegrity,
            3 => StatusCodeType::PathRelated,
            7 => StatusCodeType::VendorSpecific,
            other => StatusCodeType::Reserved(other),
        }
    }

    /// Status code type, 0 to 7.
    pub const fn sct(self) -> u8 {
        self.sct
    }

    /// Status code.
    pub const fn sc(self) -> u8 {
        self.sc
    }

    /// Whether the command completed successfully.
    pub const fn is_success(self) -> bool {
        self.sct == 0 && self.sc == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or(match self.code_type() {
            StatusCodeType::Generic => "unnamed generic status",
            StatusCodeType::CommandSpecific => "unnamed command specific status",
            StatusCodeType::MediaAndDataIntegrity => "unnamed media error",
            StatusCodeType::PathRelated => "unnamed path related status",
            StatusCodeType::Reserved(_) => "reserved status",
            StatusCodeType::VendorSpecific => "vendor specific status",
        });
        write!(f, "{name} ({:X}h/{:02X}h)", self.sct, self.sc)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_of_the_specification() {
        assert_eq!(Status::INVALID_NAMESPACE.to_field(), 0x00B);
        assert_eq!(Status::LBA_OUT_OF_RANGE.to_field(), 0x080);
        assert_eq!(Status::WRITE_FAULT.to_field(), 0x280);
        assert_eq!(Status::COMPARE_FAILURE.to_field(), 0x285);
        assert_eq!(Status::vendor(0xC1).to_field(), 0x7C1);
        assert_eq!(Status::new(8, 0), None);
    }

    #[test]
    fn named_statuses_are_distinct() {
        let fields: HashSet<_> = Status::NAMED.iter().map(|s| s.to_field()).collect();
        let names: HashSet<_> = Status::NAMED.iter().map(|s| s.name()).collect();
        assert_eq!(fields.len(), Status::NAMED.len());
        assert_eq!(names.len(), Status::NAMED.len());
    }

    #[test]
    fn field_round_trip() {
        for field in 0..0x800 {
            assert_eq!(Status::from_field(field).to_field(), field);
        }
    }

    #[test]
    fn display_names_and_numbers() {
        assert_eq!(
            Status::LBA_OUT_OF_RANGE.to_string(),
            "LBA Out of Range (0h/80h)"
        );
        assert_eq!(
            Status::vendor(0xC1).to_string(),
            "vendor specific status (7h/C1h)"
        );
        assert_eq!(
            Status::from_field(0x500).to_string(),
            "reserved status (5h/00h)"
        );
    }
}
