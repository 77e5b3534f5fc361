//! Keys from bytes that are not keys.

use toroid_ring::simd::SimdLevel;
use toroid_tfhe::TfheError;
use toroid_tfhe::arithmetic::Ntt;
use toroid_tfhe::bootstrap::BootstrappingKeyLoader;
use toroid_tfhe::key_loader::{SeededBootstrappingKeyLoader, SeededKeySwitchingKeyLoader};
use toroid_tfhe::key_switch::KeySwitchingKeyLoader;
use toroid_tfhe::modulus::Goldilocks;
use toroid_tfhe::params::TINY;
use toroid_tfhe::seeded::KeyForm;

/// Bytes that are refused do not count as part of the key, and others can take their place.
fn refused_bytes_leave_no_trace<L, K>(
    key_bytes: u64,
    new: impl Fn() -> Result<L, TfheError>,
    write: impl Fn(&mut L, &[u8]) -> Result<(), TfheError>,
    finish: impl Fn(L) -> Result<K, TfheError>,
) {
    let last = TINY.ring_degree * 8;
    let most = key_bytes as usize - last;
    for corrected in [false, true] {
        let mut loader = new().unwrap();
        write(&mut loader, &vec![0; most]).unwrap();
        let refused = write(&mut loader, &vec![0xFF; last]);
        assert!(matches!(refused, Err(TfheError::NotCanonical { .. })));
        let refused = write(&mut loader, &vec![0; last + 1]);
        assert!(matches!(refused, Err(TfheError::Length { .. })));
        if corrected {
            write(&mut loader, &vec![0; last]).unwrap();
        }
        assert_eq!(finish(loader).is_ok(), corrected);
    }
}

#[test]
fn refused_bytes_leave_no_trace_in_a_bootstrapping_key() {
    type Loader = BootstrappingKeyLoader<Goldilocks, Ntt>;
    refused_bytes_leave_no_trace(
        TINY.bootstrapping_key_bytes(),
        || Loader::new(&TINY, SimdLevel::best()),
        Loader::write,
        Loader::finish,
    );
}

#[test]
fn refused_bytes_leave_no_trace_in_a_seeded_bootstrapping_key() {
    type Loader = SeededBootstrappingKeyLoader<Goldilocks, Ntt>;
    refused_bytes_leave_no_trace(
        KeyForm::Seeded.bootstrapping_key_bytes(&TINY),
        || Loader::new(&TINY, SimdLevel::best()),
        Loader::write,
        Loader::finish,
    );
}

/// Every word of the 32-bit torus is one of a key-switching key; bytes beyond its end are refused and leave no trace.
fn a_key_switching_key_ends<L, K>(
    key_bytes: u64,
    mut loader: L,
    write: impl Fn(&mut L, &[u8]) -> Result<(), TfheError>,
    finish: impl Fn(L) -> Result<K, TfheError>,
) {
    let bytes = vec![0xFF; key_bytes as usize];
    let (first, last) = bytes.split_at(1001);
    write(&mut loader, first).unwrap();
    let refused = write(&mut loader, &bytes);
    assert!(matches!(refused, Err(TfheError::Length { .. })));
    write(&mut loader, last).unwrap();
    let refused = write(&mut loader, &[0]);
    assert!(matches!(refused, Err(TfheError::Length { .. })));
    assert!(finish(loader).is_ok());
}

#[test]
fn key_switching_keys_end() {
    a_key_switching_key_ends(
        TINY.key_switching_key_bytes(),
        KeySwitchingKeyLoader::<Goldilocks>::new(&TINY, SimdLevel::best()).unwrap(),
        KeySwitchingKeyLoader::write,
        KeySwitchingKeyLoader::finish,
    );
    a_key_switching_key_ends(
        KeyForm::Seeded.key_switching_key_bytes(&TINY),
        SeededKeySwitchingKeyLoader::<Goldilocks>::new(&TINY, SimdLevel::best()).unwrap(),
        SeededKeySwitchingKeyLoader::write,
        SeededKeySwitchingKeyLoader::finish,
    );
}

/// Bytes and rows of coefficients, one after the other: bytes go on where coefficients end between two batches, and are
/// refused elsewhere.
#[test]
fn bytes_and_coefficients_take_turns() {
    let row = TINY.glwe_words();
    let rows = TINY.lwe_dimension * TINY.ggsw_rows();
    let batch = 32;
    assert_eq!(rows, 2 * batch);
    for (bytes_first, coefficients) in [(0, 1), (0, batch), (batch, 1), (batch, batch)] {
        let mut loader =
            BootstrappingKeyLoader::<Goldilocks, Ntt>::new(&TINY, SimdLevel::best()).unwrap();
        loader.write(&[]).unwrap();
        loader.write(&vec![0; bytes_first * row * 8]).unwrap();
        loader
            .write_coefficients(&vec![0; coefficients * row])
            .unwrap();
        loader.write(&[]).unwrap();
        let left = rows - bytes_first - coefficients;
        let written = loader.write(&vec![0; left * row * 8]);
        assert_eq!(written.is_ok(), coefficients == batch || left == 0);
        if left > 0 && written.is_err() {
            assert!(matches!(written, Err(TfheError::Length { .. })));
            loader.write_coefficients(&vec![0; left * row]).unwrap();
        }
        assert!(loader.finish().is_ok());
    }
}
