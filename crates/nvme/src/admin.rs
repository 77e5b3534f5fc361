//! Identifiers of admin commands, of what Identify gives, and of I/O command sets.

/// Opcodes of admin commands.
pub mod opcode {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0A;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT: u8 = 0x0C;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Load Program (Computational Programs command set).
    pub const LOAD_PROGRAM: u8 = 0x85;
    /// Program Activation Management (Computational Programs command set).
    pub const PROGRAM_ACTIVATION: u8 = 0x88;
    /// Memory Range Set Management (Computational Programs command set).
    pub const MEMORY_RANGE_SET: u8 = 0x89;
}

/// Controller or Namespace Structure: what Identify gives.
pub mod cns {
    /// Identify Namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespaces.
    pub const NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptors.
    pub const DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace of a command set.
    pub const NAMESPACE_OF_SET: u8 = 0x05;
    /// Identify Controller of a command set.
    pub const CONTROLLER_OF_SET: u8 = 0x06;
    /// Active namespaces of a command set.
    pub const NAMESPACES_OF_SET: u8 = 0x07;
    /// Identify Namespace, independent of command sets.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Combinations of command sets.
    pub const COMMAND_SETS: u8 = 0x1C;
}

/// Command set identifiers.
pub mod csi {
    use super::opcode;

    /// NVM.
    pub const NVM: u8 = 0;
    /// Subsystem Local Memory.
    pub const MEMORY: u8 = 3;
    /// Computational Programs.
    pub const PROGRAMS: u8 = 4;

    /// Admin opcodes, and I/O opcodes with whether they change what a namespace holds.
    type Commands = (&'static [u8], &'static [(u8, bool)]);

    /// The commands of a set other than NVM, for the Commands Supported and Effects log page.
    pub(crate) fn commands(csi: u8) -> Option<Commands> {
        match csi {
            // Copy, Read, Fill, Write.
            MEMORY => Some((
                &[],
                &[(0x01, true), (0x02, false), (0x04, true), (0x05, true)],
            )),
            // Execute Program.
            PROGRAMS => Some((
                &[
                    opcode::LOAD_PROGRAM,
                    opcode::PROGRAM_ACTIVATION,
                    opcode::MEMORY_RANGE_SET,
                ],
                &[(0x01, false)],
            )),
            _ => None,
        }
    }
}
