//! What cores are mapped to.

/// What a core is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technology {
    /// Xilinx 7 series. There is no place and route, so no clock rate.
    Xc7,
    /// Lattice ECP5-85, with place and route out of context.
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
