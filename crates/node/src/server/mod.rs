//! The server around its workers: options, start and stop, and the state that all threads share. The control
//! thread accepts connections, ends epochs and switches designs.

mod admin;
pub mod config;
pub(crate) mod control;
mod gate;
pub(crate) mod handshakes;
pub(crate) mod keeping;
mod mailbox;
pub(crate) mod operator;
mod owned;
pub(crate) mod pause;
mod seats;
pub mod settings;
pub(crate) mod shared;
pub(crate) mod start;
mod stop;
mod tls;

pub use control::LISTENERS_MAX;
pub use mailbox::SwitchError;
pub use operator::{Health, Operator};
pub use start::{Server, StartError, ThreadPanicked};
pub use stop::Stop;
