//! fft
