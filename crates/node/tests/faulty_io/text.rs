//! Sessions of the memcached text protocol: bursts of pipelined commands on small and large values.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use minos_base::seeded_stream;
use rand::{RngExt as _, rngs::StdRng};

/// Connections at once, each with keys of its own.
const SESSIONS: u64 = 6;
const BURSTS: usize = 25;
const COMMANDS_MAX: usize = 12;
const KEYS: u32 = 8;

/// The bytes of all replies to each session, or why one ended. A server that says nothing for longer than
/// `patience` has lost the session.
pub(crate) fn sessions(server: SocketAddr, seed: u64, patience: Duration) -> Vec<Result<Vec<u8>, String>> {
    thread::scope(|scope| {
        let session = |name| {
            scope.spawn(move || {
                let stream = TcpStream::connect(server)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                session(&stream, &mut seeded_stream(seed, name), name)
            })
        };
        let sessions: Vec<_> = (0..SESSIONS).map(session).collect();
        sessions
            .into_iter()
            .map(|session| session.join().unwrap().map_err(|error| error.to_string()))
            .collect()
    })
}

fn session(mut stream: &TcpStream, random: &mut StdRng, name: u64) -> io::Result<Vec<u8>> {
    let (mut reader, mut replies) = (BufReader::new(stream), Vec::new());
    for _ in 0..BURSTS {
        let burst = burst(random, name);
        let pieces = pieces(random, &burst);
        thread::scope(|scope| {
            let writer = scope.spawn(move || pieces.iter().try_for_each(|piece| stream.write_all(piece)));
            while !replies.ends_with(b"\r\nMN\r\n") {
                if reader.read_until(b'\n', &mut replies)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            replies.extend(b"next burst\r\n");
            writer.join().unwrap()
        })?;
    }
    stream.write_all(b"quit\r\n")?;
    reader.read_to_end(&mut replies)?;
    Ok(replies)
}

/// Commands of one session, ended by one whose reply is known.
fn burst(random: &mut StdRng, name: u64) -> Vec<u8> {
    let mut burst = Vec::new();
    for _ in 0..random.random_range(1..=COMMANDS_MAX) {
        let key = format!("{name}-{}", random.random_range(0..KEYS));
        let other = format!("{name}-{}", random.random_range(0..KEYS));
        match random.random_range(0..10) {
            0..3 => store(&mut burst, "set", &key, &value(random)),
            3 => store(&mut burst, "append", &key, &value(random)),
            4 => burst.extend(format!("delete {key}\r\n").bytes()),
            5 => store(&mut burst, "set", &format!("{name}-number"), b"41"),
            6 => burst.extend(format!("incr {name}-number 7\r\n").bytes()),
            7 => burst.extend(format!("get {key} {other} {name}-number\r\n").bytes()),
            _ => burst.extend(format!("get {key}\r\n").bytes()),
        }
    }
    burst.extend(b"no-such-command\r\nmn\r\n");
    burst
}

fn store(burst: &mut Vec<u8>, verb: &str, key: &str, value: &[u8]) {
    burst.extend(format!("{verb} {key} 5 0 {}\r\n", value.len()).bytes());
    burst.extend(value);
    burst.extend(b"\r\n");
}

/// A value without a line: small, or large one time in six.
fn value(random: &mut StdRng) -> Vec<u8> {
    let bytes = if random.random_ratio(1, 6) { 1000..150_000 } else { 0..500 };
    let bytes = random.random_range(bytes);
    let first = random.random_range(0..26);
    (first..first + bytes).map(|at| b'a' + (at % 26) as u8).collect()
}

/// The burst in pieces that are sent one by one.
fn pieces<'a>(random: &mut StdRng, mut burst: &'a [u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while !burst.is_empty() {
        let bytes = [40, 20_000, burst.len()][random.random_range(0..3)];
        let (piece, rest) = burst.split_at(bytes.min(burst.len()));
        pieces.push(piece);
        burst = rest;
    }
    pieces
}
