//! The secure computing engine: virtual registers, pages, stack, processor and the arithmetic back ends.
