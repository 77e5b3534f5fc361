//! The TFHE scheme: parameter sets, keys, samples, bootstrapping, noise and serialization.
