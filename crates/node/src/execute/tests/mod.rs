//! Bytes in, bytes out: every command and error, executed against a real store.

mod commands;
mod large;
mod meta;
mod random;
