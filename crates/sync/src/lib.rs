//! Rings, locks and relaxed-atomic word copies, behind one loom facade.

#![deny(unsafe_op_in_unsafe_fn)]
