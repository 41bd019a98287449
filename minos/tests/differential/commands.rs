//! Random commands: classic and meta, valid and slightly invalid.
//!
//! Commands that memcached 1.6.18 answers differently from the version that Minos follows are excluded; they
//! are in `accepted.rs`.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use minos_base::seeded;
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};

/// Keys of a sequence; few, so that commands hit the same items.
const KEYS: u8 = 6;
/// Keys from here on are only ever spelled in base64. memcached stores an item with the spelling of its key,
/// and answers to the flag `k` in that spelling; Minos answers in that of the request.
const BASE64_KEYS: u8 = 50;
/// Positions of the longest allowed key, and of a key that is one byte longer.
const KEY_LONGEST: u8 = 100;
const KEY_TOO_LONG: u8 = 101;

/// A part of a command; keys and CAS uniques are filled in when it is sent.
#[derive(Clone, Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Key(u8),
    Base64Key(u8),
    /// The CAS unique that the key has now, plus an offset.
    Cas(u8, u64),
}

/// A command with its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    pieces: Vec<Piece>,
    closes: bool,
    begins_batch: bool,
}

/// The text of a key on the wire.
pub(crate) fn key_text(prefix: &str, key: u8) -> String {
    match key {
        KEY_LONGEST => format!("{prefix:k<250}"),
        KEY_TOO_LONG => format!("{prefix:k<251}"),
        key => format!("{prefix}{key}"),
    }
}

impl Command {
    /// The key whose CAS unique must be known before this is sent.
    pub(crate) fn needs_cas(&self) -> Option<u8> {
        self.pieces.iter().find_map(|piece| if let Piece::Cas(key, _) = piece { Some(*key) } else { None })
    }

    /// True if all earlier replies must have been read before it is sent.
    pub(crate) fn begins_batch(&self) -> bool {
        self.begins_batch || self.needs_cas().is_some()
    }

    /// True if the server closes the connection after it.
    pub(crate) fn closes(&self) -> bool {
        self.closes
    }

    /// The bytes of the command, with the CAS unique that it needs.
    pub(crate) fn bytes(&self, prefix: &str, cas: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(part) => bytes.extend_from_slice(part),
                Piece::Key(key) => bytes.extend_from_slice(key_text(prefix, *key).as_bytes()),
                Piece::Base64Key(key) => {
                    let key = &(BASE64_KEYS + key);
                    bytes.extend_from_slice(STANDARD.encode(key_text(prefix, *key)).as_bytes());
                }
                Piece::Cas(_, more) => bytes.extend_from_slice((cas + more).to_string().as_bytes()),
            }
        }
        bytes
    }

    fn text(mut self, text: impl AsRef<[u8]>) -> Self {
        self.pieces.push(Piece::Bytes(text.as_ref().to_vec()));
        self
    }

    fn key(mut self, key: u8) -> Self {
        self.pieces.push(Piece::Key(key));
        self
    }

    fn piece(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes("r_", 0);
        let shown = &bytes[..bytes.len().min(400)];
        write!(f, "  {}{}", shown.escape_ascii(), if shown.len() < bytes.len() { "..." } else { "" })
    }
}

fn command(text: impl AsRef<[u8]>) -> Command {
    Command::default().text(text)
}

pub(crate) fn sequence(seed: u64) -> Vec<Command> {
    let mut random = seeded(seed);
    let length = random.random_range(5..80);
    let mut sequence: Vec<Command> = (0..length).map(|_| any(&mut random)).collect();
    if random.random_ratio(1, 10) {
        sequence.push(Command { closes: true, ..command("quit\r\n") });
    }
    sequence
}

fn any(random: &mut StdRng) -> Command {
    match random.random_range(0..100) {
        0..18 => store(random),
        18..30 => get(random),
        30..34 => get_and_touch(random),
        34..38 => compare_and_set(random),
        38..44 => arithmetic(random),
        44..48 => delete(random),
        48..51 => touch(random),
        51..66 => meta_get(random),
        66..78 => meta_set(random),
        78..84 => meta_delete(random),
        84..91 => meta_arithmetic(random),
        91..92 => meta_debug(random),
        92..94 => other(random),
        _ => broken(random),
    }
}

fn one_of<'a>(random: &mut StdRng, choices: &[&'a str]) -> &'a str {
    choices.choose(random).copied().unwrap_or_default()
}

fn any_key(random: &mut StdRng) -> u8 {
    match random.random_range(0..60) {
        0 => KEY_LONGEST,
        1 => KEY_TOO_LONG,
        _ => random.random_range(0..KEYS),
    }
}

/// A key that is not too long.
fn any_short_key(random: &mut StdRng) -> u8 {
    match any_key(random) {
        KEY_TOO_LONG => KEY_LONGEST,
        key => key,
    }
}

fn any_valid_exptime(random: &mut StdRng) -> &'static str {
    const TIMES: [&str; 12] =
        ["0", "0", "0", "0", "0", "100", "1000", "2592000", "-1", "1000000000", "2000000000", "-2147483648"];
    one_of(random, &TIMES)
}

fn any_exptime(random: &mut StdRng) -> &'static str {
    if random.random_ratio(1, 60) {
        return one_of(random, &["abc", "1.5", "99999999999999999999"]);
    }
    any_valid_exptime(random)
}

fn any_flags(random: &mut StdRng) -> String {
    match random.random_range(0..30) {
        0 => one_of(random, &["4294967296", "+1"]).to_owned(),
        1..6 => random.random::<u32>().to_string(),
        _ => random.random_range(0..3).to_string(),
    }
}

/// A value: mostly short text, often a number, seldom large enough for another worker.
fn any_value(random: &mut StdRng) -> Vec<u8> {
    match random.random_range(0..40) {
        0 => bytes_of(random, 60_000, 200_000),
        1..4 => bytes_of(random, 1_000, 20_000),
        4..14 => random.random_range(0..1000).to_string().into_bytes(),
        14..18 => one_of(
            random,
            &[
                "18446744073709551615",
                "18446744073709551616",
                "-1",
                "007",
                " 12",
                "12 ",
                "0",
                "1a",
                "",
                "x\r\nEND\r\n",
            ],
        )
        .into(),
        _ => b"abcdefghijklnopqrstuvwxyz"[..random.random_range(0..25)].to_vec(),
    }
}

/// Bytes of all kinds in short lines: after an erroneous command line, memcached reads the value as commands,
/// and closes the connection at 2 048 bytes without a line end.
fn bytes_of(random: &mut StdRng, min: usize, max: usize) -> Vec<u8> {
    let length = random.random_range(min..max);
    let start: u8 = random.random();
    let byte = |index: usize| if index % 61 == 60 { b'\n' } else { start.wrapping_add((index % 251) as u8) };
    (0..length).map(byte).collect()
}

fn any_number(random: &mut StdRng) -> String {
    match random.random_range(0..12) {
        0 => {
            one_of(random, &["18446744073709551615", "18446744073709551616", "-1", "abc", "1a", "0x5"]).into()
        }
        1 => random.random::<u64>().to_string(),
        _ => random.random_range(0..120).to_string(),
    }
}

fn noreply(random: &mut StdRng) -> &'static str {
    if random.random_ratio(1, 8) { " noreply" } else { "" }
}

/// Ends the line with the length of `value`, sometimes a wrong one, and appends the value.
fn with_value(line: Command, tail: &str, value: &[u8], random: &mut StdRng) -> Command {
    if random.random_ratio(1, 25) {
        return with_wrong_length(line, tail, random);
    }
    line.text(format!("{}{tail}\r\n", value.len())).text(value).text("\r\n")
}

/// Ends the line with a length that differs from that of the value. The remainder is a line of its own and
/// not a command; it has at least four bytes, as shorter ones are among the accepted differences.
fn with_wrong_length(line: Command, tail: &str, random: &mut StdRng) -> Command {
    const BEHIND: &str = "a value that is none\r\nand one more line\r\n";
    let length = if random.random() { random.random_range(0..17) } else { random.random_range(21..32) };
    line.text(format!("{length}{tail}\r\n{BEHIND}"))
}

fn store(random: &mut StdRng) -> Command {
    let verb = one_of(random, &["set", "set", "set", "set", "add", "replace", "append", "prepend"]);
    let line = command(format!("{verb} ")).key(any_short_key(random)).text(format!(
        " {} {} ",
        any_flags(random),
        any_valid_exptime(random)
    ));
    let (tail, value) = (noreply(random), any_value(random));
    with_value(line, tail, &value, random)
}

fn compare_and_set(random: &mut StdRng) -> Command {
    let key = random.random_range(0..KEYS);
    let (value, tail) = (any_value(random), noreply(random));
    let more = u64::from(random.random_ratio(1, 4)) * 1_000_000;
    command("cas ")
        .key(key)
        .text(format!(" {} {} {} ", any_flags(random), any_valid_exptime(random), value.len()))
        .piece(Piece::Cas(key, more))
        .text(format!("{tail}\r\n"))
        .text(value)
        .text("\r\n")
}

/// Some keys, each after a space.
///
/// On a key that is too long memcached discards all replies that it has not sent yet, even those to other
/// commands. Their number depends on timing, so there must be none.
fn keys(mut line: Command, random: &mut StdRng) -> Command {
    for _ in 0..random.random_range(1..5) {
        let key = any_key(random);
        line = line.text(" ").key(key);
        line.begins_batch |= key == KEY_TOO_LONG;
    }
    line.text(one_of(random, &["\r\n", "\r\n", "\r\n", "\n", " \r\n"]))
}

fn get(random: &mut StdRng) -> Command {
    let line = command(one_of(random, &["get", "get", "gets"]));
    keys(line, random)
}

fn get_and_touch(random: &mut StdRng) -> Command {
    let line = command(format!("{} {}", one_of(random, &["gat", "gats"]), any_exptime(random)));
    keys(line, random)
}

/// memcached changes a number in place, padded with spaces, unless an unsent reply refers to the item: then
/// it makes a new one. To be deterministic, the command begins a batch.
fn arithmetic(random: &mut StdRng) -> Command {
    Command { begins_batch: true, ..command(format!("{} ", one_of(random, &["incr", "decr"]))) }
        .key(any_key(random))
        .text(format!(" {}{}\r\n", any_number(random), noreply(random)))
}

fn delete(random: &mut StdRng) -> Command {
    let tail = one_of(random, &["", "", "", "", " 0", " 0 noreply", " noreply"]);
    command("delete ").key(any_key(random)).text(format!("{tail}\r\n"))
}

fn touch(random: &mut StdRng) -> Command {
    command("touch ").key(any_key(random)).text(format!(" {}{}\r\n", any_exptime(random), noreply(random)))
}

/// A key of a meta command, sometimes in base64 with the flag for it.
fn meta_key(line: Command, random: &mut StdRng) -> (Command, &'static str) {
    if random.random_ratio(1, 8) {
        let key = random.random_range(0..KEYS);
        return (line.piece(Piece::Base64Key(key)), " b");
    }
    (line.key(any_short_key(random)), "")
}

/// Some of `choices`, each once, in random order.
fn meta_flags(choices: &[String], random: &mut StdRng) -> String {
    let count = random.random_range(0..=choices.len().min(5));
    choices.sample(random, count).map(|flag| format!(" {flag}")).collect()
}

fn texts(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|&flag| flag.to_owned()).collect()
}

fn ttl(random: &mut StdRng) -> &'static str {
    one_of(random, &["0", "30", "100", "1000", "-1", "2000000000"])
}

fn meta_get(random: &mut StdRng) -> Command {
    let mut choices = texts(&["c", "f", "h", "k", "l", "q", "s", "t", "v", "v", "Oq1", "Ot7"]);
    choices.push(format!("T{}", ttl(random)));
    let (line, base64) = meta_key(command("mg "), random);
    // memcached forgets the base64 spelling of a key when it creates the item itself.
    if base64.is_empty() && random.random_ratio(1, 4) {
        // None of the items' times to live: with an equal one the reply would depend on the second in which
        // it runs.
        let recache = one_of(random, &["0", "50", "500", "-1", "2000000000"]);
        choices.extend([format!("N{}", ttl(random)), format!("R{recache}")]);
    }
    if random.random_ratio(1, 30) {
        choices.extend(texts(&["b", "z", "Tx", "N", "vv", "O123456789012345678901234567890123"]));
    }
    line.text(format!("{base64}{}\r\n", meta_flags(&choices, random)))
}

fn meta_set(random: &mut StdRng) -> Command {
    let mut choices = texts(&["c", "k", "q", "Oq2", "I", "F5", "F4294967295"]);
    choices.push(format!("T{}", ttl(random)));
    choices.push(one_of(random, &["MS", "ME", "MA", "MP", "MR", "ma", "Mx"]).to_owned());
    if random.random_ratio(1, 30) {
        choices.extend(texts(&["b", "Fx", "Tx", "z", "S5"]));
    }
    let (line, base64) = meta_key(command("ms "), random);
    let flags = meta_flags(&choices, random);
    let value = any_value(random);
    if random.random_ratio(1, 6) {
        let key = random.random_range(0..KEYS);
        let more = u64::from(random.random_ratio(1, 3)) * 1_000_000;
        return command("ms ")
            .key(key)
            .text(format!(" {}{flags} C", value.len()))
            .piece(Piece::Cas(key, more))
            .text("\r\n")
            .text(value)
            .text("\r\n");
    }
    with_value(line.text(" "), &format!("{base64}{flags}"), &value, random)
}

fn meta_delete(random: &mut StdRng) -> Command {
    let mut choices = texts(&["k", "q", "Oq3", "I"]);
    choices.push(format!("T{}", ttl(random)));
    if random.random_ratio(1, 5) {
        let key = random.random_range(0..KEYS);
        let more = u64::from(random.random_ratio(1, 3)) * 1_000_000;
        return command("md ")
            .key(key)
            .text(format!("{} C", meta_flags(&choices, random)))
            .piece(Piece::Cas(key, more))
            .text("\r\n");
    }
    let (line, base64) = meta_key(command("md "), random);
    line.text(format!("{base64}{}\r\n", meta_flags(&choices, random)))
}

fn meta_arithmetic(random: &mut StdRng) -> Command {
    let mut choices = texts(&["c", "k", "q", "t", "v", "v", "Oq4"]);
    choices.push(format!("D{}", any_number(random)));
    let mut mode = String::new();
    if random.random_ratio(1, 2) {
        choices.push(one_of(random, &["MI", "MD", "M+", "M-", "Mx"]).to_owned());
    } else {
        // A new time to live only here: memcached loses it when the number grows by a digit.
        mode = format!(" {} T{}", one_of(random, &["MD", "M-"]), ttl(random));
    }
    let begin = Command { begins_batch: true, ..command("ma ") };
    let (line, base64) = meta_key(begin, random);
    if base64.is_empty() && random.random_ratio(1, 3) {
        choices.extend([format!("N{}", ttl(random)), format!("J{}", any_number(random))]);
    }
    line.text(format!("{base64}{mode}{}\r\n", meta_flags(&choices, random)))
}

fn meta_debug(random: &mut StdRng) -> Command {
    command("me ").key(any_key(random)).text("\r\n")
}

fn other(random: &mut StdRng) -> Command {
    command(one_of(
        random,
        &[
            "version\r\n",
            "verbosity 0\r\n",
            "verbosity 0 noreply\r\n",
            "verbosity x\r\n",
            "flush_all\r\n",
            "flush_all 0\r\n",
            "flush_all noreply\r\n",
            "flush_all x\r\n",
        ],
    ))
}

/// Lines that are almost commands, and one that announces too large a value and sends all of it.
fn broken(random: &mut StdRng) -> Command {
    if random.random_ratio(1, 40) {
        let value = bytes_of(random, 1_100_000, 1_300_000);
        return command("set ").key(0).text(format!(" 0 0 {}\r\n", value.len())).text(value).text("\r\n");
    }
    command(one_of(
        random,
        &[
            "  \r\n",
            "GET a\r\n",
            "gett a\r\n",
            "set a 0 0 -1\r\n",
            "set a 0 0 x\r\n",
            "add a 0 0 99999999999999999999\r\n",
            "delete a 5\r\n",
            "delete a 0 x\r\n",
            "delete a b c d\r\n",
            "gat x a\r\n",
            "ms a\r\n",
            "ms a x\r\n",
            "ms a -1\r\n",
            "ms a S1\r\n",
            "me\r\n",
            "mx a\r\n",
            "mg !!! b\r\n",
            "mg a v v\r\n",
            "stats nonsense here\r\n",
            "nonsense\r\n",
            "\0 a\r\n",
        ],
    ))
}
