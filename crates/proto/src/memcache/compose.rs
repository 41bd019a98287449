//! Replies to bytes. Every function appends to the transmit buffer and formats nothing it need not.

use std::fmt::Display;
use std::io::Write;

use super::{base64, text};

/// Appends a whole number.
#[inline]
pub fn number(tx: &mut Vec<u8>, number: u64) {
    tx.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the line of a number, the reply to `incr` and `decr`.
pub fn number_line(tx: &mut Vec<u8>, value: u64) {
    number(tx, value);
    tx.extend_from_slice(text::LINE_END);
}

/// Appends the line before a value in a reply to `get`, and, for `gets`, with `cas`.
#[inline]
pub fn value_head(tx: &mut Vec<u8>, key: &[u8], flags: u32, value_bytes: u64, cas: Option<u64>) {
    tx.extend_from_slice(b"VALUE ");
    tx.extend_from_slice(key);
    tx.push(b' ');
    number(tx, u64::from(flags));
    tx.push(b' ');
    number(tx, value_bytes);
    if let Some(cas) = cas {
        tx.push(b' ');
        number(tx, cas);
    }
    tx.extend_from_slice(text::LINE_END);
}

/// Appends a line of counters or settings. Control characters in `value` become spaces, so that
/// nothing can end the line early.
pub fn stat(tx: &mut Vec<u8>, name: &str, value: &dyn Display) {
    tx.extend_from_slice(b"STAT ");
    tx.extend_from_slice(name.as_bytes());
    tx.push(b' ');
    let start = tx.len();
    // Writing to a Vec fails only if the value's own formatting does; the line then stays short.
    let _ = write!(tx, "{value}");
    tx[start..].iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b' ');
    tx.extend_from_slice(text::LINE_END);
}

/// Appends a line of `stats detail dump`: a prefix with its counts of gets, hits, sets and deletes. Control characters,
/// which keys of the binary protocol may have, become spaces.
pub fn prefix(tx: &mut Vec<u8>, prefix: &[u8], [gets, hits, sets, deletes]: [u64; 4]) {
    tx.extend_from_slice(b"PREFIX ");
    tx.extend(prefix.iter().map(|&byte| if byte.is_ascii_control() { b' ' } else { byte }));
    // Writing to a Vec does not fail.
    let _ = write!(tx, " get {gets} hit {hits} set {sets} del {deletes}\r\n");
}

/// The facts that `lru_crawler metadump` gives about an item.
#[derive(Clone, Copy, Debug)]
pub struct DumpFacts {
    /// When it expires, in seconds since 1970; `None` for never.
    pub expires_unix_s: Option<u64>,
    /// When it was last read or stored, in seconds since 1970.
    pub accessed_unix_s: u64,
    /// The CAS unique.
    pub cas: u64,
    /// True if it was read since it was stored.
    pub is_fetched: bool,
    /// The number of its size class.
    pub class: usize,
    /// Bytes of key and value.
    pub bytes: u64,
}

/// Appends a line of `lru_crawler metadump`. Bytes of the key that are not letters, digits or one of `-._~` are
/// percent-encoded.
pub fn dump(tx: &mut Vec<u8>, key: &[u8], facts: &DumpFacts) {
    tx.extend_from_slice(b"key=");
    for &byte in key {
        // Writing to a Vec does not fail.
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => tx.push(byte),
            _ => write!(tx, "%{byte:02X}").unwrap_or_default(),
        }
    }
    let DumpFacts { expires_unix_s, accessed_unix_s, cas, is_fetched, class, bytes } = facts;
    let expires = expires_unix_s.map_or(-1, |seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
    let fetched = if *is_fetched { "yes" } else { "no" };
    let _ = writeln!(
        tx,
        " exp={expires} la={accessed_unix_s} cas={cas} fetch={fetched} cls={class} size={bytes}"
    );
}

/// Appends the reply to `version`.
pub fn version(tx: &mut Vec<u8>) {
    tx.extend_from_slice(b"VERSION ");
    tx.extend_from_slice(text::VERSION_NUMBER.as_bytes());
    tx.extend_from_slice(text::LINE_END);
}

/// The facts that a meta reply can give about an item.
#[derive(Clone, Copy, Debug)]
pub struct MetaFacts<'a> {
    /// The key, decoded.
    pub key: &'a [u8],
    /// True if the key is written in base64.
    pub key_is_base64: bool,
    /// Length of the value in bytes.
    pub value_bytes: u64,
    /// The client's flags.
    pub flags: u32,
    /// The CAS unique.
    pub cas: u64,
    /// Seconds until the item expires; `None` for never.
    pub ttl_s: Option<u32>,
    /// Seconds since the last access.
    pub idle_s: u32,
    /// True if the item was read before.
    pub fetched: bool,
}

/// Appends `VA` and the length of the value that will follow.
#[inline]
pub fn meta_value_head(tx: &mut Vec<u8>, value_bytes: u64) {
    tx.extend_from_slice(b"VA ");
    number(tx, value_bytes);
}

/// Appends a space and one letter, such as a win, a stale or a sent token.
#[inline]
pub fn meta_mark(tx: &mut Vec<u8>, letter: u8) {
    tx.extend_from_slice(&[b' ', letter]);
}

/// Appends the fact that `flag` requests from a read of an item, if it requests one.
#[inline]
pub fn meta_get_flag(tx: &mut Vec<u8>, flag: &[u8], facts: &MetaFacts<'_>) {
    match flag[0] {
        b's' => meta_number(tx, b's', facts.value_bytes),
        b'f' => meta_number(tx, b'f', u64::from(facts.flags)),
        b'l' => meta_number(tx, b'l', u64::from(facts.idle_s)),
        b'h' => meta_number(tx, b'h', u64::from(facts.fetched)),
        _ => meta_change_flag(tx, flag, facts),
    }
}

/// Appends the fact that `flag` requests from a change of an item, if it requests one.
pub fn meta_change_flag(tx: &mut Vec<u8>, flag: &[u8], facts: &MetaFacts<'_>) {
    match (flag[0], facts.ttl_s) {
        (b'c', _) => meta_number(tx, b'c', facts.cas),
        (b't', Some(ttl_s)) => meta_number(tx, b't', u64::from(ttl_s)),
        (b't', None) => tx.extend_from_slice(b" t-1"),
        _ => meta_echo_flag(tx, flag, facts.key, facts.key_is_base64),
    }
}

/// Appends the fact that `flag` requests from a store; `cas` is the CAS unique of the stored item, or 0.
pub fn meta_store_flag(tx: &mut Vec<u8>, flag: &[u8], cas: u64, key: &[u8], key_is_base64: bool) {
    match flag[0] {
        b'c' => meta_number(tx, b'c', cas),
        _ => meta_echo_flag(tx, flag, key, key_is_base64),
    }
}

/// Appends the fact that `flag` requests from any meta command, item or not: the opaque token or the key.
pub fn meta_echo_flag(tx: &mut Vec<u8>, flag: &[u8], key: &[u8], key_is_base64: bool) {
    match flag[0] {
        b'O' => {
            tx.push(b' ');
            tx.extend_from_slice(flag);
        }
        b'k' => {
            meta_mark(tx, b'k');
            meta_key(tx, key, key_is_base64);
        }
        _ => {}
    }
}

fn meta_key(tx: &mut Vec<u8>, key: &[u8], key_is_base64: bool) {
    if key_is_base64 {
        base64::encode(key, tx);
        meta_mark(tx, b'b');
    } else {
        tx.extend_from_slice(key);
    }
}

fn meta_number(tx: &mut Vec<u8>, letter: u8, value: u64) {
    meta_mark(tx, letter);
    number(tx, value);
}

/// The facts that the reply to `me` gives beside the key.
#[derive(Clone, Copy, Debug)]
pub struct DebugFacts {
    /// Seconds until the item expires, negated as memcached does; -1 for never.
    pub expiry_s: i64,
    /// Seconds since the last access.
    pub idle_s: u32,
    /// The CAS unique.
    pub cas: u64,
    /// True if the item was read before.
    pub fetched: bool,
    /// Position of the item's size class.
    pub class: usize,
    /// Bytes that the item takes in all.
    pub item_bytes: u64,
}

/// Appends the reply to `me`.
pub fn meta_debug(tx: &mut Vec<u8>, key: &[u8], key_is_base64: bool, facts: &DebugFacts) {
    tx.extend_from_slice(b"ME ");
    if key_is_base64 {
        base64::encode(key, tx);
    } else {
        tx.extend_from_slice(key);
    }
    tx.extend_from_slice(b" exp=");
    tx.extend_from_slice(itoa::Buffer::new().format(facts.expiry_s).as_bytes());
    for (name, value) in [(&b" la="[..], u64::from(facts.idle_s)), (b" cas=", facts.cas)] {
        tx.extend_from_slice(name);
        number(tx, value);
    }
    tx.extend_from_slice(if facts.fetched { b" fetch=yes" } else { b" fetch=no" });
    for (name, value) in [(&b" cls="[..], facts.class as u64), (b" size=", facts.item_bytes)] {
        tx.extend_from_slice(name);
        number(tx, value);
    }
    tx.extend_from_slice(text::LINE_END);
}
