//! The scheme as a whole: bootstrapping and noise.

mod bootstrap;
mod common;
mod noise;
