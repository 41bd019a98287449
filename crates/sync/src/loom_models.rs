//! Loom models of the protocols in this crate; each has a control that must fail.
