//! Switches between ring keys: from the image of a secret polynomial under an automorphism, or from its product with another,
//! back to the key itself.

use crate::arithmetic::{Arithmetic, WordOf};
use crate::bootstrap::BootstrappingKey;
use crate::ggsw::{GgswList, Workspace};
use crate::memory::Buffer;
use crate::modulus::Modulus;

/// The keys of all switches, in the order of [`crate::params::WopbsParams::switch`]: the rows of the mask components of a GGSW
/// sample, without those of the body.
pub(super) struct RingSwitchKey<M: Modulus, A: Arithmetic<M>>(GgswList<M, A>);

impl<M: Modulus, A: Arithmetic<M>> RingSwitchKey<M, A> {
    /// From the part of a bootstrapping key that holds them.
    pub(super) fn new(part: BootstrappingKey<M, A>) -> Self {
        RingSwitchKey(part.samples)
    }

    /// Bytes of memory that the keys hold.
    pub(super) fn memory(&self) -> u64 {
        self.0.memory()
    }

    /// sum += the mask that `write_component` writes, component by component, switched by key number `index`.
    pub(super) fn switch(
        &self,
        index: usize,
        write_component: impl Fn(usize, &mut [WordOf<M, A>]),
        sum: &mut [WordOf<M, A>],
        memory: &mut Buffer,
    ) {
        let mut work = Workspace::<M, A>::new(self.0.params(), memory);
        let rows = 0..self.0.params().ggsw_rows();
        self.0.products(index, rows, write_component, &mut work);
        self.0.add_sums(&mut work, sum);
    }
}
