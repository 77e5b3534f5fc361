//! Transforms by the library, which results of cores must equal.

use toroid_ring::ntt::NttPlan;
use toroid_ring::prime_ntt::{Ntt32Plan, Ntt63Plan};
use toroid_ring::{goldilocks, prime};

use crate::order::Order;

/// The transform of a polynomial modulo q, in order of indices on both sides.
pub(crate) fn transform(words: &[u64], q: u64, is_inverse: bool, is_cyclic: bool) -> Vec<u64> {
    let log_n = words.len().trailing_zeros();
    let n = words.len();
    let scaled = |words: Vec<u64>, factor: u64, ratio: u64| -> Vec<u64> {
        let mut power = factor;
        let step = |word| {
            let product = prime::mul(word, power, q);
            power = prime::mul(power, ratio, q);
            product
        };
        words.into_iter().map(step).collect()
    };
    let psi = root(q, log_n, false);
    let of_n = prime::inv(n as u64 % q, q);
    if (q - 1).is_multiple_of(2 * n as u64) && q >> 63 == 0 || q == goldilocks::P {
        // A cyclic transform is a negacyclic one of the coefficients times powers of 1 / psi.
        return match (is_cyclic, is_inverse) {
            (false, false) => negacyclic(words.to_vec(), q, false),
            (false, true) => scaled(negacyclic(words.to_vec(), q, true), of_n, 1),
            (true, false) => negacyclic(scaled(words.to_vec(), 1, prime::inv(psi, q)), q, false),
            (true, true) => scaled(negacyclic(words.to_vec(), q, true), of_n, psi),
        };
    }
    let omega = root(q, log_n, true);
    match (is_cyclic, is_inverse) {
        (true, false) => sums(words, omega, q),
        (true, true) => scaled(sums(words, prime::inv(omega, q), q), of_n, 1),
        (false, false) => sums(&scaled(words.to_vec(), 1, psi), omega, q),
        (false, true) => {
            let values = sums(words, prime::inv(omega, q), q);
            scaled(values, of_n, prime::inv(psi, q))
        }
    }
}

/// A negacyclic transform by the library, from coefficients to values or back, the latter times N.
fn negacyclic(words: Vec<u64>, q: u64, is_inverse: bool) -> Vec<u64> {
    let n = words.len();
    let swapped = |words: Vec<u64>| Order::BitReversed.arrange(0, &words);
    let mut words = if is_inverse { swapped(words) } else { words };
    if q == goldilocks::P {
        if let Ok(plan) = NttPlan::new(n) {
            if is_inverse {
                plan.inverse(&mut words);
            } else {
                plan.forward(&mut words);
            }
        }
    } else if q >> 31 == 0 {
        if let Ok(plan) = Ntt32Plan::new(n, q) {
            let mut narrow: Vec<u32> = words.iter().map(|word| *word as u32).collect();
            if is_inverse {
                plan.inverse(&mut narrow);
            } else {
                plan.forward(&mut narrow);
            }
            words = narrow.into_iter().map(u64::from).collect();
        }
    } else if let Ok(plan) = Ntt63Plan::new(n, q) {
        if is_inverse {
            plan.inverse(&mut words);
        } else {
            plan.forward(&mut words);
        }
    }
    if is_inverse { words } else { swapped(words) }
}

/// X_k = sum over i of x_i w^(i k), for the moduli for which the library has no transform.
fn sums(words: &[u64], w: u64, q: u64) -> Vec<u64> {
    if words.len() == 1 {
        return words.to_vec();
    }
    let part = |first: usize| {
        let words: Vec<u64> = words[first..].iter().step_by(2).copied().collect();
        sums(&words, prime::mul(w, w, q), q)
    };
    let (even, odd) = (part(0), part(1));
    let half = even.len();
    let mut values = vec![0; 2 * half];
    let mut power = 1;
    for k in 0..half {
        let product = u128::from(prime::mul(odd[k], power, q));
        let (even, q_wide) = (u128::from(even[k]), u128::from(q));
        values[k] = ((even + product) % q_wide) as u64;
        values[k + half] = ((even + q_wide - product) % q_wide) as u64;
        power = prime::mul(power, w, q);
    }
    values
}

/// The root of unity of a transform of 2^`log_n` words: of order 2 N, or N for a cyclic one.
pub(crate) fn root(q: u64, log_n: u32, is_cyclic: bool) -> u64 {
    let psi = |log_n: u32| match q {
        goldilocks::P => goldilocks::psi(1 << log_n),
        q => prime::psi(1 << log_n, q),
    };
    let root = match is_cyclic {
        true => psi(log_n - 1),
        false => psi(log_n),
    };
    // `Plan::new` has seen that there is one.
    root.unwrap_or(1)
}
