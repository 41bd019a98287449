//! Every byte read is checked while others overwrite, delete, evict, move, pin, grow and flush.
//!
//! The control is the same tests in a build whose readers skip the version check; each must fail there:
//!
//! ```text
//! RUSTFLAGS="--cfg minos_no_version_check" CARGO_TARGET_DIR=target/control \
//!     cargo test -p minos-engine --test stress
//! ```

mod cache;
mod read_only;
mod restarts;
mod store;
mod values;
mod writers;
