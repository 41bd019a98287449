//! Replies to packets. Every function appends to the transmit buffer.

use std::{fmt::Display, io::Write};

use super::{HEADER_BYTES, Reply, Status};

/// First byte of a reply.
const MAGIC: u8 = 0x81;

/// Bytes of the client's flags before a value.
const FLAGS_BYTES: usize = 4;

/// What a header says of the parts behind it.
#[derive(Clone, Copy, Default)]
struct Parts {
    status: u16,
    key_bytes: usize,
    extras_bytes: usize,
    /// Extras, key and value.
    body_bytes: u64,
    cas: u64,
}

#[inline]
fn header(reply: Reply, parts: Parts) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = MAGIC;
    bytes[1] = reply.opcode;
    // Keys have at most 250 bytes, and items at most a gibibyte.
    bytes[2..4].copy_from_slice(&(parts.key_bytes as u16).to_be_bytes());
    bytes[4] = parts.extras_bytes as u8;
    bytes[6..8].copy_from_slice(&parts.status.to_be_bytes());
    bytes[8..12].copy_from_slice(&(parts.body_bytes as u32).to_be_bytes());
    bytes[12..16].copy_from_slice(&reply.opaque);
    bytes[16..24].copy_from_slice(&parts.cas.to_be_bytes());
    bytes
}

/// Appends all that stands before a value: header, flags, and the key if the client wants it.
#[inline]
pub fn value_head(tx: &mut Vec<u8>, reply: Reply, key: &[u8], flags: u32, value_bytes: u64, cas: u64) {
    let key = if reply.with_key { key } else { &[] };
    let body_bytes = (FLAGS_BYTES + key.len()) as u64 + value_bytes;
    let parts = Parts { status: 0, key_bytes: key.len(), extras_bytes: FLAGS_BYTES, body_bytes, cas };
    tx.extend_from_slice(&header(reply, parts));
    tx.extend_from_slice(&flags.to_be_bytes());
    tx.extend_from_slice(key);
}

/// Appends the reply to a read whose item is not there, unless that goes without saying.
#[inline]
pub fn miss(tx: &mut Vec<u8>, reply: Reply, key: &[u8]) {
    if reply.quiet {
        return;
    }
    if !reply.with_key {
        return error(tx, reply, Status::NotFound);
    }
    let status = Status::NotFound.code();
    let parts = Parts { status, key_bytes: key.len(), body_bytes: key.len() as u64, ..Parts::default() };
    tx.extend_from_slice(&header(reply, parts));
    tx.extend_from_slice(key);
}

/// Appends the reply to a command that has succeeded, unless that goes without saying. `cas` is the item's unique, or 0.
#[inline]
pub fn done(tx: &mut Vec<u8>, reply: Reply, cas: u64, value: &[u8]) {
    if !reply.quiet {
        let parts = Parts { body_bytes: value.len() as u64, cas, ..Parts::default() };
        tx.extend_from_slice(&header(reply, parts));
        tx.extend_from_slice(value);
    }
}

/// Appends the reply to a command that has failed.
pub fn error(tx: &mut Vec<u8>, reply: Reply, status: Status) {
    error_with(tx, reply, status, status.text().as_bytes());
}

/// As [`error`], with another text.
pub fn error_with(tx: &mut Vec<u8>, reply: Reply, status: Status, text: &[u8]) {
    let parts = Parts { status: status.code(), body_bytes: text.len() as u64, ..Parts::default() };
    tx.extend_from_slice(&header(reply, parts));
    tx.extend_from_slice(text);
}

/// Appends a packet of counters or settings. The last one has no name and no value.
pub fn stat(tx: &mut Vec<u8>, reply: Reply, name: &str, value: &dyn Display) {
    let start = tx.len();
    tx.resize(start + HEADER_BYTES, 0);
    tx.extend_from_slice(name.as_bytes());
    // Writing to a Vec fails only if the value's own formatting does; the packet then stays short.
    let _ = write!(tx, "{value}");
    let body_bytes = (tx.len() - start - HEADER_BYTES) as u64;
    let parts = Parts { key_bytes: name.len(), body_bytes, ..Parts::default() };
    tx[start..start + HEADER_BYTES].copy_from_slice(&header(reply, parts));
}
