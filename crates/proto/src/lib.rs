//! Protocol parsers and composers without I/O: memcache text and meta, the native
//! datagrams, RESP.

#![forbid(unsafe_code)]

pub mod client;
pub mod memcache;
pub mod native;
pub mod resp;
