//! Virtual addresses and page table entries (platform paper, sections 4.2 and 4.3).

use std::fmt;

/// Bytes that a virtual address's 12-bit offset spans: the unit of pages, frames and swap slots.
pub const PAGE_BYTES: usize = 1 << OFFSET_BITS;

const OFFSET_BITS: u32 = 12;
const PAGE_NUMBER_BITS: u32 = 26;

/// How many page numbers there are.
pub(crate) const PAGE_NUMBERS: u64 = 1 << PAGE_NUMBER_BITS;

/// Units of [`PAGE_BYTES`] that this many bytes take.
pub(crate) const fn units_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES as u64)
}

/// A virtual address: 26-bit page number, 12-bit offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualAddress(u64);

/// Why a number is not a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The page number has more than 26 bits.
    #[error("page number {found:#x} is too large (expected at most {max:#x})", max = PAGE_NUMBERS - 1)]
    Page {
        /// The page number.
        found: u32,
    },
    /// The offset has more than 12 bits.
    #[error("page offset {found:#x} is too large (expected at most {max:#x})", max = PAGE_BYTES - 1)]
    Offset {
        /// The offset.
        found: u16,
    },
    /// The address has more than 38 bits.
    #[error("virtual address {found:#x} has more than 38 bits")]
    Address {
        /// The address.
        found: u64,
    },
}

impl VirtualAddress {
    /// The address at this offset of this page.
    ///
    /// # Errors
    /// [`AddressError::Page`] or [`AddressError::Offset`] if a field does not fit.
    pub const fn new(page: u32, offset: u16) -> Result<VirtualAddress, AddressError> {
        if page as u64 >= PAGE_NUMBERS {
            return Err(AddressError::Page { found: page });
        }
        if offset as usize >= PAGE_BYTES {
            return Err(AddressError::Offset { found: offset });
        }
        Ok(VirtualAddress((page as u64) << OFFSET_BITS | offset as u64))
    }

    /// The address of page `page`, which an allocator below [`PAGE_NUMBERS`] gave out.
    pub(crate) const fn of_page(page: u64) -> VirtualAddress {
        VirtualAddress((page & (PAGE_NUMBERS - 1)) << OFFSET_BITS)
    }

    /// Takes the 38-bit form.
    ///
    /// # Errors
    /// [`AddressError::Address`] if bits above the 38 are set.
    pub const fn from_u64(raw: u64) -> Result<VirtualAddress, AddressError> {
        if raw >> (PAGE_NUMBER_BITS + OFFSET_BITS) != 0 {
            return Err(AddressError::Address { found: raw });
        }
        Ok(VirtualAddress(raw))
    }

    /// The 38-bit form.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The page number; below 2^26.
    #[must_use]
    pub const fn page(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    /// The offset in the page; below 2^12.
    #[must_use]
    pub const fn offset(self) -> u16 {
        (self.0 & (PAGE_BYTES as u64 - 1)) as u16
    }
}

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#012x}", self.0)
    }
}

/// Place of a page in the swap area: the number of its first unit of [`PAGE_BYTES`] (4096) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwapSlot(pub(crate) u64);

impl SwapSlot {
    /// Index of the first unit of 4096 bytes, from the start of the swap area.
    #[must_use]
    pub const fn unit(self) -> u64 {
        self.0
    }

    /// Distance from the start of the swap area in bytes.
    #[must_use]
    pub const fn byte_offset(self) -> u64 {
        self.0 * PAGE_BYTES as u64
    }
}

/// A page table entry: a flag (bit 63) and a physical address. Unset: byte address in the paged area of main memory. Set:
/// slot of the swap area.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageTableEntry(u64);

impl PageTableEntry {
    const FLAG: u64 = 1 << 63;

    pub(crate) const fn in_main_memory(address: u64) -> PageTableEntry {
        PageTableEntry(address & !Self::FLAG)
    }

    pub(crate) const fn in_swap(slot: SwapSlot) -> PageTableEntry {
        PageTableEntry(slot.0 | Self::FLAG)
    }

    /// The flag: whether the page is in the swap area.
    #[must_use]
    pub const fn is_swapped(self) -> bool {
        self.0 & Self::FLAG != 0
    }

    /// Byte address in the paged area, or number of the first unit of the swap slot.
    #[must_use]
    pub const fn physical_address(self) -> u64 {
        self.0 & !Self::FLAG
    }
}

impl fmt::Debug for PageTableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_swapped() { "swap" } else { "memory" };
        write!(f, "PageTableEntry({place} {:#x})", self.physical_address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_checked() {
        assert_eq!(
            VirtualAddress::new(1 << 26, 0),
            Err(AddressError::Page { found: 1 << 26 })
        );
        assert_eq!(
            VirtualAddress::new(0, 1 << 12),
            Err(AddressError::Offset { found: 1 << 12 })
        );
        assert_eq!(
            VirtualAddress::from_u64(1 << 38),
            Err(AddressError::Address { found: 1 << 38 })
        );
        let last = VirtualAddress::new((1 << 26) - 1, (1 << 12) - 1).unwrap();
        assert_eq!(last.to_u64(), (1 << 38) - 1);
    }

    #[test]
    fn entries_keep_flag_and_address_apart() {
        let resident = PageTableEntry::in_main_memory(0x3000);
        let swapped = PageTableEntry::in_swap(SwapSlot(0x3000));
        assert!(!resident.is_swapped() && swapped.is_swapped());
        assert_eq!(resident.physical_address(), 0x3000);
        assert_eq!(swapped.physical_address(), 0x3000);
    }

    proptest! {
        #[test]
        fn addresses_round_trip(raw in 0u64..1 << 38) {
            let address = VirtualAddress::from_u64(raw).unwrap();
            prop_assert_eq!(VirtualAddress::new(address.page(), address.offset()), Ok(address));
            prop_assert_eq!(address.to_u64(), raw);
            prop_assert_eq!(u64::from(address.page()) * 4096 + u64::from(address.offset()), raw);
        }
    }
}
