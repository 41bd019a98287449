//! The quick tests of the engine. One program has them all: each of its own would compile the engine's generic code
//! once more.

mod chains;
mod common;
mod eviction;
mod flush;
mod large;
mod model;
mod noted_reads;
mod operations;
mod read_only;
mod reads_only;
mod restart;
mod sizes;
mod staged;
mod tiered;
