//! Memory as a whole: its heaps against a model, and its life on a file.

mod heap;
pub(crate) mod kill;
mod rebuild;
mod restart;
