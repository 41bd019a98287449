//! Protocol parsers and composers without I/O: memcache text and meta, the native
//! datagrams, RESP for the load generator.

#![forbid(unsafe_code)]

pub mod client;
pub mod memcache;
pub mod native;
