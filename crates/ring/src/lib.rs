//! Moduli, polynomials and every transform of Toroid: negacyclic NTT and FFT with their naive oracles.
