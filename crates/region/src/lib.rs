//! One mapped memory region per store: huge pages, offsets, a segregated-fits heap.

#![deny(unsafe_op_in_unsafe_fn)]
