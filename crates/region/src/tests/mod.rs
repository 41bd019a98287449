//! Memory as a whole: its heaps against a model, and its life on a file.

mod heap;
mod restart;
