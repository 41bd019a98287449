//! Connections over TCP and Unix sockets. An RX queue reports ready connections; a visit receives, executes
//! and replies; a transfer takes a connection to another worker while one large value is sent or received.

pub(crate) mod connection;
pub(crate) mod patience;
pub(crate) mod queue;
pub(crate) mod registry;
#[cfg(test)]
mod script;
pub(crate) mod session;
pub(crate) mod transfer;
pub(crate) mod visit;
