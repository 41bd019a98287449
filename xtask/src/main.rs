//! `cargo xtask`: installs what the tests need and runs them.

#![forbid(unsafe_code)]

fn main() {}
