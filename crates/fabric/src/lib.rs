//! Fabrics by which [`minos_engine::remote`] reads a table that lies in another process or on another machine.
//!
//! [`rpc`] asks a thread of the owner, over a stream. With the feature `ucx`: `ucx`, one-sided reads over shared memory
//! or RDMA.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod rpc;
#[cfg(feature = "ucx")]
pub mod ucx;
