//! Replies of memcached's protocol.

#![no_main]

mod replies;

use libfuzzer_sys::fuzz_target;
use minos_proto::client::Protocol;

fuzz_target!(|input: &[u8]| replies::check(Protocol::Memcache, input));
