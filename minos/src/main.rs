//! The `minos` binary.

#![forbid(unsafe_code)]

fn main() {}
