//! Plans of the products of polynomials by two or three transforms of `hw/ntt_sdf` (`hw/polymul_sdf`): their designs and their cycles.

use toroid_ring::{goldilocks, prime};
use toroid_sim::model::{Design, Value};
use toroid_sim::sources::UnknownModule;

use crate::arithmetic::{Reduction, folds, mul_latency};
use crate::ntt_sdf::{Plan, Setting};
use crate::setting::SettingError;
use crate::sources::design;

/// A multiplier of polynomials modulo x^N + 1.
#[derive(Clone, Debug)]
pub struct Multiplier {
    forward: Plan,
    inverse: Plan,
    is_parallel: bool,
}

impl Multiplier {
    /// Of the transforms of a setting, whose direction and orders do not matter. Two NTTs work at a time if `is_parallel`, else one
    /// takes the factors in turn.
    ///
    /// # Errors
    /// [`SettingError`]
    pub fn new(setting: Setting, is_parallel: bool) -> Result<Multiplier, SettingError> {
        let of = |is_inverse| {
            Plan::new(Setting {
                is_inverse,
                is_cyclic: false,
                is_natural: false,
                ..setting.clone()
            })
        };
        Ok(Multiplier {
            forward: of(false)?,
            inverse: of(true)?,
            is_parallel,
        })
    }

    /// The NTT.
    pub fn forward(&self) -> &Plan {
        &self.forward
    }

    /// Whether two NTTs work at a time.
    pub fn is_parallel(&self) -> bool {
        self.is_parallel
    }

    /// Cycles of the product of two values.
    fn product_latency(&self) -> u64 {
        let setting = self.forward.setting();
        let (q, bits, tiles) = (setting.modulus, self.forward.bits(), setting.tiles);
        match self.forward.reduction() {
            Reduction::Solinas if q == goldilocks::P => mul_latency((64, 64), tiles, false) + 3,
            // A register after each fold, however short the other products are.
            Reduction::Solinas => mul_latency((bits, bits), tiles, false) + folds(q) + 1,
            Reduction::Barrett => Reduction::Barrett.latency(bits, 0, tiles),
            // a b / R, and that times R^2 / R.
            Reduction::Montgomery => {
                2 * Reduction::Montgomery.latency(bits, self.forward.word(), tiles)
            }
        }
    }

    /// Cycles from a beat of the second factor to the beat of the same number of the product, where beats follow each other.
    pub fn pipeline(&self) -> u64 {
        self.forward.pipeline() + self.product_latency() + self.inverse.pipeline()
    }

    /// Cycles from the first beat in to the last beat out, both counted, of one product.
    pub fn latency(&self) -> u64 {
        self.pipeline() + self.interval()
    }

    /// Cycles from a product to the next.
    pub fn interval(&self) -> u64 {
        self.forward.beats() * if self.is_parallel { 1 } else { 2 }
    }

    /// The design of `hw/polymul_sdf`.
    ///
    /// # Errors
    /// If its sources are not there.
    pub fn design(&self) -> Result<Design, UnknownModule> {
        let top = design("polymul_sdf")?;
        let top = top.with("PARALLEL", u64::from(self.is_parallel));
        let mut design = self.forward.with_arithmetic(top);
        for (plan, parameter, prefix) in [
            (&self.forward, "FORWARD", "forward"),
            (&self.inverse, "BACKWARD", "backward"),
        ] {
            let file = (parameter.to_owned(), Value::File(prefix.to_owned()));
            design.parameters.push(file);
            design.files.extend(plan.files(prefix));
        }
        Ok(design)
    }

    /// The product modulo x^N + 1, by transforms of the library.
    pub fn expected(&self, a: &[u64], b: &[u64]) -> Vec<u64> {
        let q = self.forward.setting().modulus;
        let (a, b) = (self.forward.expected(a), self.forward.expected(b));
        let products: Vec<u64> = a
            .iter()
            .zip(&b)
            .map(|(a, b)| prime::mul(*a, *b, q))
            .collect();
        self.inverse.expected(&products)
    }
}
