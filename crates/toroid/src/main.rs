//! The command line of Toroid.
fn main() {}
