//! The scheme as a whole: keys, bootstrapping and noise.

// A failed set-up is a failed test.
#![allow(clippy::unwrap_used)]

mod bootstrap;
mod columns;
mod common;
mod directory;
mod key_switch;
mod keys;
mod loaders;
mod noise;
mod private;
mod seeded;
mod together;
mod wopbs;
