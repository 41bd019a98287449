//! Client of Minos' native datagram protocol.
//!
//! [`blocking::Client`] is for programs with threads, [`tokio::Client`] (feature `tokio`, on by default) for
//! asynchronous ones, and [`core::Core`], on which both are built, does no I/O at all.
//!
//! ```no_run
//! use minos_client::{Config, StoreOptions, blocking::Client};
//!
//! let mut client = Client::connect("minos://127.0.0.1:11311", Config::new())?;
//! client.put("greeting", "hello")?;
//! if let Some(value) = client.get("greeting")? {
//!     println!("{}", String::from_utf8_lossy(&value.bytes));
//! }
//! // A vector travels in as few datagrams as hold it.
//! for result in client.get_many(["a", "b", "c"]) {
//!     println!("{:?}", result?.map(|value| value.bytes.len()));
//! }
//! let visits = client.incr_or_create("visits", 1, 1, StoreOptions::default())?;
//! println!("{visits} visits");
//! # Ok::<(), minos_client::Error>(())
//! ```
//!
//! The client learns the server's geometry and sends each operation to the queue that executes it (Minos
//! §3.1, MICA §4.2). It packs operations for the same queue into datagrams, and datagrams into trains (vector
//! interfaces §3.1). It resends unanswered requests, and numbers operations that must not be executed twice.
//! It transfers values of any size in windows, and notices when the server was restarted.

#![forbid(unsafe_code)]

mod address;
pub mod blocking;
mod calls;
mod config;
pub mod core;
mod error;
mod meaning;
mod options;
#[cfg(test)]
mod played;
pub mod rack;
mod request;
#[cfg(feature = "tokio")]
pub mod tokio;
mod wire;

pub use address::{Address, DEFAULT_PORT};
pub use config::{Config, OPERATIONS_MAX, OnceFor, QueueBy, ReadBy};
pub use error::Error;
pub use minos_proto::native::{BadSecret, Secret};
pub use options::{Compared, StoreOptions};
pub use request::{Outcome, Request, Value, Verb};
