//! Products of integers in tiles of DSP slices.

/// A product in tiles, as `mul_tiles` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    /// Bits of its operands.
    pub bits: (u32, u32),
    /// Whether it is a pipeline of three stages.
    pub is_short: bool,
    /// A row of tiles of up to this many bits is made of look-up tables.
    pub narrow: u32,
}

impl Product {
    /// The bits of the tiles of an operand, the last ones those that are left.
    fn cut(bits: u32, tile: u32) -> impl Iterator<Item = u32> {
        (0..bits.div_ceil(tile)).map(move |n| tile.min(bits - n * tile))
    }

    /// The bits of each row of tiles, and whether it is made of look-up tables.
    pub fn rows(&self, tiles: (u32, u32)) -> impl Iterator<Item = (u32, bool)> + '_ {
        Product::cut(self.bits.0, tiles.0).map(|bits| (bits, bits <= self.narrow))
    }

    /// The bits of each tile of a row.
    pub fn columns(&self, tiles: (u32, u32)) -> impl Iterator<Item = u32> + use<> {
        Product::cut(self.bits.1, tiles.1)
    }

    /// Cycles.
    pub fn latency(&self, tiles: (u32, u32)) -> u64 {
        mul_latency(self.bits, tiles, self.is_short)
    }

    /// Tiles in DSP slices.
    pub fn tiles(&self, tiles: (u32, u32)) -> u64 {
        // A factor of one bit is a gate.
        let columns = self.columns(tiles).filter(|bits| *bits > 1).count();
        let rows = self.rows(tiles);
        let rows = rows.filter(|(bits, is_narrow)| *bits > 1 && !is_narrow);
        (rows.count() * columns) as u64
    }
}

/// `toroid_pkg::mul_latency`
pub(crate) fn mul_latency(bits: (u32, u32), tiles: (u32, u32), is_short: bool) -> u64 {
    match is_short {
        true => 3,
        false => (1 + bits.0.div_ceil(tiles.0) + bits.1.div_ceil(tiles.1)).into(),
    }
}

/// Words of up to this many bits are multiplied in a pipeline of three stages, the last of which adds the products of all tiles:
/// at most 2 x 3 of 24 x 17.
const SHORT_BITS: u32 = 34;

/// Whether products of words of this many bits take the pipeline of three stages.
pub(crate) fn is_short(bits: u32) -> bool {
    bits <= SHORT_BITS
}
