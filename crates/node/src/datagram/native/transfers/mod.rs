//! Values that are too large for a datagram.
//!
//! A large GET keeps no state here: the client requests each window of fragments, and lost fragments, by the
//! CAS unique of the value. So a request is both acknowledgement and pacing. A large store has a slot: its
//! value arrives, in any order, in the memory of the future item. There are bounds on a worker's slots, on
//! the transfers and bytes of an address, on bytes in total, on the time of a window, and on the bytes sent
//! in each burst. A store that meets one of an address, or of the bytes in total, waits in line.

mod answers;
mod bounds;
mod budget;
mod calls;
mod data;
mod line;
mod received;
mod slot;
mod state;
mod stores;
#[cfg(test)]
mod tests;

pub(crate) use bounds::{Permit, TransferBounds, TransferLimits};
pub(crate) use budget::BudgetBounds;
pub(super) use line::Waiter;
pub(crate) use slot::HeldStore;
pub(crate) use state::{Around, NotBegunHere, Transfers, TransfersConfig};
