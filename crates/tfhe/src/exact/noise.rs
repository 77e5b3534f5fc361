//! Noise
