//! Every byte read is checked while others overwrite, delete, evict, move, pin, grow and flush.
//!
//! The control is the same tests with readers that skip the version check; each must fail then:
//!
//! ```text
//! MINOS_LEFT_OUT=version-check cargo test -p minos-engine --test stress
//! ```

mod cache;
mod read_only;
mod restarts;
mod store;
mod values;
mod writers;
