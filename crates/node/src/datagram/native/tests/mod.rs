//! The small path, over a network that loses nothing.

mod admission;
mod direction;
mod large;
mod once;
mod operations;
mod rack;
mod secrecy;
pub(super) mod site;
mod trains;
