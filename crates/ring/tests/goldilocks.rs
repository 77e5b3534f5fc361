//! The Goldilocks field against 128-bit and independently computed arithmetic.

use proptest::prelude::*;
use toroid_ring::RingError;
use toroid_ring::goldilocks::*;

fn modulo(x: u128) -> u64 {
    (x % u128::from(P)) as u64
}

/// Words near the places where a carry or a borrow starts.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    0x7fff_ffff,
    0xffff_fffe,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0001,
    P / 2,
    P / 2 + 1,
    P - 2,
    P - 1,
];

#[test]
fn reduce_known_answers() {
    assert_eq!(reduce(u128::MAX), 0xffff_fffe_0000_0000);
    assert_eq!(
        reduce(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210),
        9_838_263_503_344_180_921
    );
    assert_eq!(
        mul(0x1234_5678_9abc_def0, 0xfedc_ba98_7654_3210),
        18_080_541_965_438_139_092
    );
    assert_eq!(inv(0x1234_5678_9abc_def0), 14_736_413_637_906_284_881);
}

#[test]
fn edges() {
    let words = EDGES.into_iter().chain([P, P + 1, u64::MAX - 1, u64::MAX]);
    for high in words.clone() {
        for low in words.clone() {
            let x = u128::from(high) << 64 | u128::from(low);
            assert_eq!(reduce(x), modulo(x), "{x:#x}");
        }
    }
    for a in EDGES {
        for b in EDGES {
            check_operations(a, b);
        }
    }
}

fn check_operations(a: u64, b: u64) {
    let (wide_a, wide_b) = (u128::from(a), u128::from(b));
    assert_eq!(add(a, b), modulo(wide_a + wide_b));
    assert_eq!(sub(a, b), modulo(wide_a + u128::from(P) - wide_b));
    assert_eq!(mul(a, b), modulo(wide_a * wide_b));
    assert_eq!(neg(a), sub(0, a));
    if a != 0 {
        assert_eq!(mul(a, inv(a)), 1);
    }
}

#[test]
fn powers() {
    assert_eq!(pow(0, 0), 1);
    assert_eq!(pow(7, P - 1), 1);
    assert_eq!(inv(0), 0);
    assert_eq!(pow(2, 96), P - 1);
}

#[test]
fn roots_of_unity() {
    assert_eq!(mul(PSI_16384, PSI_16384), OMEGA_16384);
    assert_eq!(psi(16384), Ok(PSI_16384));
    let mut n = 2;
    while n <= MAX_DEGREE {
        let root = psi(n).unwrap();
        assert_eq!(
            pow(root, n as u64),
            P - 1,
            "the order of psi({n}) is not {}",
            2 * n
        );
        if 2 * n <= MAX_DEGREE {
            assert_eq!(pow(psi(2 * n).unwrap(), 2), root);
        }
        n *= 2;
    }
}

#[test]
fn degrees_without_a_root() {
    for n in [0, 1, 3, 24, 16383, 2 * MAX_DEGREE, usize::MAX] {
        let error = psi(n).unwrap_err();
        assert_eq!(
            error,
            RingError::Degree {
                found: n,
                min: 2,
                max: MAX_DEGREE
            }
        );
        assert!(error.to_string().contains(&n.to_string()));
    }
}

#[test]
fn signed_edges() {
    assert_eq!(to_centered(P - 1), -1);
    assert_eq!(to_centered(P / 2), (P / 2) as i64);
    assert_eq!(to_centered(P / 2 + 1), -((P / 2) as i64));
    assert_eq!(from_signed(-1), P - 1);
    assert_eq!(from_signed(i64::MIN), P - (1 << 63));
    assert_eq!(from_signed(i64::MAX), i64::MAX as u64);
}

#[test]
fn masked_arithmetic_is_that_of_the_others() {
    let edges = [
        0,
        1,
        2,
        (1 << 32) - 2,
        (1 << 32) - 1,
        1 << 32,
        P / 2,
        P / 2 + 1,
        P - 2,
        P - 1,
    ];
    for a in edges {
        for b in edges {
            assert_eq!(add_masked(a, b), add(a, b), "{a} + {b}");
            assert_eq!(sub_masked(a, b), sub(a, b), "{a} - {b}");
        }
        for count in [0, 1, 2, 3, (1 << 32) - 1, 1 << 32] {
            let sum = u128::from(a) * count;
            assert_eq!(reduce_sum_masked(sum), reduce(sum), "{count} times {a}");
        }
    }
    for x in [0, 1, -1, i64::from(u32::MAX), i64::MAX, -i64::MAX, i64::MIN] {
        assert_eq!(from_signed_masked(x), from_signed(x), "{x}");
    }
}

proptest! {
        #[test]
        fn masked_arithmetic_agrees(a in 0..P, b in 0..P, x: i64, count in 0..=1u64 << 32) {
            prop_assert_eq!(add_masked(a, b), add(a, b));
            prop_assert_eq!(sub_masked(a, b), sub(a, b));
            prop_assert_eq!(from_signed_masked(x), from_signed(x));
            let sum = u128::from(a) * u128::from(count);
            prop_assert_eq!(reduce_sum_masked(sum), reduce(sum));
        }

    #[test]
    fn reduce_is_the_remainder(x in any::<u128>()) {
        prop_assert_eq!(reduce(x), modulo(x));
    }

    #[test]
    fn operations(a in 0..P, b in 0..P) {
        check_operations(a, b);
    }

    #[test]
    fn signed_round_trip(a in 0..P, b in -((P / 2) as i64)..=(P / 2) as i64) {
        prop_assert_eq!(from_signed(to_centered(a)), a);
        prop_assert_eq!(to_centered(from_signed(b)), b);
    }
}
