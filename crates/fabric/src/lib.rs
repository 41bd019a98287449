//! Fabrics by which [`minos_engine::remote`] reads a table that lies in another process or on another machine.
//!
//! With the feature `ucx`: `ucx`, one-sided reads over shared memory or RDMA.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(feature = "ucx")]
pub mod ucx;
