//! TLS 1.2 and 1.3 for the streams of clients, over wires that never block.
//!
//! An [`Acceptor`] has certificate, key and the authorities of clients, and reads them again when asked. It makes an
//! [`Incoming`] of each accepted wire, whose handshake is bounded by its caller in time and number, and by rustls in
//! bytes. Once it is through, [`Incoming::open`] gives a [`Stream`].
//!
//! A value is copied once into records, which are sealed where they lie. Nothing is buffered while a stream is idle but
//! 4 KiB; one whose other end does not read keeps at most 66 KiB of records, and one with a record that is not whole at
//! most 18 KiB.

#![forbid(unsafe_code)]

mod acceptor;
mod incoming;
mod stream;
#[cfg(test)]
mod tests;

pub use acceptor::{Acceptor, Files, LoadError};
pub use incoming::{Incoming, Refusal};
pub use stream::Stream;
