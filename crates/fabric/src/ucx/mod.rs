//! One-sided reads by UCX (`ucp_get_nbx`): over shared memory on one machine, over RDMA where there is some.
//!
//! The owner makes its table in a [`UcxMemory`], and gives the advertisement of that to its readers in any way it likes.
//! Over shared memory the owner need not run, nor live. UCX must have allocated the memory: its transports over shared
//! memory register no other, and reads would become messages that the owner answers.
//!
//! ```
//! use minos_engine::{Store, StoreConfig, remote::{Completion, Fabric, RemoteSketch}};
//! use minos_fabric::ucx::{Ucx, UcxMemory, Way};
//! use std::sync::Arc;
//!
//! let memory = Arc::new(UcxMemory::allocate(None, 2 << 20)?);
//! let config = StoreConfig { backing: memory.backing(), ..StoreConfig::new(2 << 20) };
//! let store: Store = Store::create(&config)?;
//!
//! // In another process:
//! let mut fabric = Ucx::open(None, Way::Get)?;
//! // SAFETY: the memory is of this program.
//! let peer = unsafe { fabric.connect(memory.advertisement()) }?;
//! fabric.read(peer, &[RemoteSketch::HEADER], 7);
//! let mut is_table = false;
//! while !is_table {
//!     memory.progress();
//!     fabric.poll(|Completion { words, .. }| is_table = words.and_then(RemoteSketch::of).is_some());
//! }
//! # drop(store);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Within a line, `ucp_get_nbx` over shared memory copies upwards, so that what stands behind a version is not older than
//! it. UCX does not promise that: `tests/ucx` looks for the contrary. [`Way::Load`] is sure of it.

mod advertisement;
mod memory;
mod reader;
mod sys;
mod window;
mod worker;

pub use memory::UcxMemory;
pub use reader::{Ucx, Way};
pub use window::UcxWindow;

/// Why UCX cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UcxError {
    /// UCX refused.
    #[error("UCX cannot {action}: {reason}")]
    Refused {
        /// The attempted action.
        action: &'static str,
        /// UCX's reason.
        reason: String,
    },
    /// The memory cannot be mapped.
    #[error("no transport over shared memory leads there")]
    Unmapped,
    /// It is damaged, or of another version of UCX.
    #[error("this is no advertisement of memory by this version of UCX")]
    Advertisement,
}

/// The result of a function of the shim.
fn check(status: i32, action: &'static str) -> Result<(), UcxError> {
    if status == 0 { Ok(()) } else { Err(UcxError::Refused { action, reason: sys::text(status) }) }
}
