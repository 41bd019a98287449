//! Two servers that get the same commands.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use minos_base::seeded;
use minos_testkit::Server;
use rand::{RngExt, rngs::StdRng};

use crate::{commands::Command, excuses::Excuses, replies::Comparison};

/// Commands sent before the replies are read, at most.
const BATCH_MAX: usize = 20;

/// Nothing else has its answer, MN: it ends the replies of a batch.
const END_OF_BATCH: &[u8] = b"mn\r\n";

/// Silence of a server after which its replies count as missing.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A change to replies before they are compared.
pub(crate) type Alteration = fn(&mut Vec<u8>);

/// Leaves replies unchanged.
pub(crate) fn unaltered(_: &mut Vec<u8>) {}

/// Two servers, and the change to the second one's replies.
pub(crate) struct Pair {
    left: SocketAddr,
    right: SocketAddr,
    alter: Alteration,
    excuses: Excuses,
}

impl Pair {
    pub(crate) fn new(left: &Server, right: &Server, alter: Alteration) -> Self {
        Self { left: left.address(), right: right.address(), alter, excuses: Excuses::default() }
    }

    /// Sends `sequence`, split by `seed`, on new connections and with new keys.
    ///
    /// # Errors
    /// The first difference, in words.
    pub(crate) fn run(&mut self, seed: u64, sequence: &[Command]) -> Result<(), String> {
        let prefix = format!("r{}_", self.excuses.begin());
        let (mut random, begun) = (seeded(seed), Instant::now());
        let mut sides = [Side::new(self.left, &prefix), Side::new(self.right, &prefix)];
        let mut comparison = Comparison::default();
        let mut rest = sequence;
        while !rest.is_empty() {
            let (batch, behind) = rest.split_at(batch_length(rest, &mut random));
            rest = behind;
            let cuts: u64 = random.random();
            let [left, mut right] = sides.each_mut().map(|side| side.exchange(batch, cuts));
            (self.alter)(&mut right.bytes);
            if let Some(difference) = comparison.difference(&left.bytes, &right.bytes, begun.elapsed()) {
                let is_excused = difference.excuse().is_some_and(|excuse| self.excuses.accept(excuse));
                return if is_excused { Ok(()) } else { Err(difference.to_string()) };
            }
            if left.end != right.end || left.end == End::Silence {
                return Err(format!("the replies end in {:?} against {:?}", left.end, right.end));
            }
            if left.end != End::Complete {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The length of the next batch, up to the next command that must begin one.
fn batch_length(rest: &[Command], random: &mut StdRng) -> usize {
    let wanted = random.random_range(1..=BATCH_MAX.min(rest.len()));
    let barrier = rest.iter().enumerate().position(|(index, command)| index > 0 && command.begins_batch());
    wanted.min(barrier.unwrap_or(rest.len()))
}

/// The end of the replies to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Closed,
    Silence,
}

struct Replies {
    bytes: Vec<u8>,
    end: End,
}

/// A connection to one of the servers.
struct Side<'a> {
    stream: TcpStream,
    prefix: &'a str,
}

/// All bytes that `server` answers to `input`, up to the end of the batch or of the connection.
pub(crate) fn answer(server: &Server, input: &[u8]) -> Vec<u8> {
    let mut side = Side::new(server.address(), "");
    side.send_in_pieces(&[input, END_OF_BATCH].concat(), &mut seeded(0));
    side.read_replies().bytes
}

impl<'a> Side<'a> {
    fn new(address: SocketAddr, prefix: &'a str) -> Self {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
        stream.set_write_timeout(Some(SILENCE_MAX)).unwrap();
        Self { stream, prefix }
    }

    /// Sends a batch in random pieces and reads all replies to it.
    fn exchange(&mut self, batch: &[Command], cuts: u64) -> Replies {
        let cas = batch.first().and_then(Command::needs_cas).map_or(0, |key| self.cas_of(key));
        let mut bytes: Vec<u8> = batch.iter().flat_map(|command| command.bytes(self.prefix, cas)).collect();
        if !batch.iter().any(Command::closes) {
            bytes.extend_from_slice(END_OF_BATCH);
        }
        self.send_in_pieces(&bytes, &mut seeded(cuts));
        self.read_replies()
    }

    fn send_in_pieces(&mut self, mut bytes: &[u8], random: &mut StdRng) {
        let longest = *[7, 100, 100_000].get(random.random_range(0..6usize)).unwrap_or(&usize::MAX);
        // Many tiny writes of a long value would only take time.
        let longest = longest.max(bytes.len() / 200);
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(random.random_range(1..=longest.min(bytes.len())));
            // The replies show if the server has closed the connection.
            if self.stream.write_all(piece).is_err() {
                return;
            }
            bytes = rest;
        }
    }

    fn read_replies(&mut self) -> Replies {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let end = match self.stream.read(&mut buffer) {
                Ok(0) => End::Closed,
                Ok(length) => {
                    bytes.extend_from_slice(&buffer[..length]);
                    if !bytes.ends_with(b"MN\r\n") {
                        continue;
                    }
                    End::Complete
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Closed,
                // This process was stopped and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => End::Silence,
            };
            return Replies { bytes, end };
        }
    }

    /// The CAS unique of `key` on this server; if there is no such item, a value that no item has.
    fn cas_of(&mut self, key: u8) -> u64 {
        let key = crate::commands::key_text(self.prefix, key);
        self.send_in_pieces(format!("mg {key} c\r\nmn\r\n").as_bytes(), &mut seeded(0));
        let replies = self.read_replies();
        let text = String::from_utf8_lossy(&replies.bytes).into_owned();
        let cas = text.strip_prefix("HD c").and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        cas.unwrap_or(u64::from(u32::MAX))
    }
}
