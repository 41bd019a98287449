//! Connections over TCP and Unix sockets: an RX queue names those that are ready, a visit receives, executes and
//! replies, and a transfer takes a connection to another worker for the time of one large value.

pub(crate) mod connection;
pub(crate) mod queue;
pub(crate) mod registry;
mod slab;
pub(crate) mod transfer;
pub(crate) mod visit;
