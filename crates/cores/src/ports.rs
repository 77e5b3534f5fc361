//! The ports of cores.

/// A port with its width, at most 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The port.
    pub name: &'static str,
    /// Its width.
    pub bits: u32,
}

impl Field {
    /// A port of this width.
    pub const fn new(name: &'static str, bits: u32) -> Field {
        Field { name, bits }
    }
}

/// An AXI4-Stream of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPorts {
    /// What the core's ports `{name}_tdata` and so on begin with.
    pub name: &'static str,
    /// Whether data enters by it.
    pub is_input: bool,
    /// Bits of `tdata`.
    pub data_bits: u32,
    /// Bits of `tuser`, where there is one.
    pub user_bits: u32,
}

/// The ports `m_axi_*` of a core, by which it reads and writes a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPorts {
    /// How many there are side by side.
    pub count: u32,
    /// Bits of an address.
    pub address_bits: u32,
    /// Bits of a beat.
    pub data_bits: u32,
}

/// The ports of a core besides clock, reset and `error_o`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Of a pipeline without handshake and reset.
    Pipeline {
        /// What enters in every cycle.
        inputs: Vec<Field>,
        /// What leaves.
        outputs: Vec<Field>,
    },
    /// Of any other.
    Streams {
        /// Its streams.
        streams: Vec<StreamPorts>,
        /// Its memory, if it has one.
        memory: Option<MemoryPorts>,
    },
}
