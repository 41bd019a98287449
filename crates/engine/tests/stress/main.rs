//! Every byte read is checked while others overwrite, delete, evict, move, pin, grow and flush.
//!
//! The control is the same tests with readers that skip the version check. Each must fail then, but for that of owners
//! which alone read what they stored:
//!
//! ```text
//! MINOS_LEFT_OUT=version-check cargo test -p minos-engine --test stress read
//! ```

mod cache;
mod read_only;
mod restarts;
mod store;
mod values;
mod writers;
