//! Protocol parsers and composers without I/O: memcache text and meta, RESP for the load generator.

#![forbid(unsafe_code)]

pub mod client;
pub mod memcache;
