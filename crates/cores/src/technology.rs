//! What cores are mapped to.

/// What a core is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technology {
    /// Xilinx 7 series; cores are placed on an Artix-7 200T.
    Xc7,
    /// Lattice ECP5; cores are placed on an ECP5-85.
    Ecp5,
}

impl Technology {
    /// All there are.
    pub const ALL: [Technology; 2] = [Technology::Xc7, Technology::Ecp5];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Technology::Xc7 => "xc7",
            Technology::Ecp5 => "ecp5",
        }
    }
}
