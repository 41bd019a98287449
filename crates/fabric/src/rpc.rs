//! Reads by messages over a stream: a thread of the owner copies the words.
//!
//! ```text
//! request   ranges 4 | of each: first word 8, words 4
//! reply     words 4 | those words, 8 each; or 0xffff_ffff: they cannot be had
//! ```
//!
//! Numbers are little endian. Replies come in the order of their requests. Whoever has the stream reads all items: it is
//! to be one between processes of the same user, or between nodes that have proven to know a secret.
//!
//! ```
//! use minos_engine::{Backing, Store, StoreConfig, remote::{Completion, Fabric, RemoteSketch}};
//! use minos_fabric::rpc::{Rpc, serve};
//! use minos_region::Image;
//! use std::os::unix::net::UnixStream;
//!
//! let config = StoreConfig { backing: Backing::Memfd, ..StoreConfig::new(2 << 20) };
//! let store: Store = Store::create(&config)?;
//! let image = Image::from_descriptor(store.descriptor_to_read()?)?;
//! let (here, mut there) = UnixStream::pair()?;
//! let owner = std::thread::spawn(move || serve(&mut there, image.view()));
//!
//! // In another process:
//! here.set_nonblocking(true)?;
//! let mut fabric = Rpc::default();
//! let peer = fabric.add(here);
//! fabric.read(peer, &[RemoteSketch::HEADER], 7);
//! let mut is_table = false;
//! while !is_table {
//!     fabric.poll(|Completion { words, .. }| is_table = words.and_then(RemoteSketch::of).is_some());
//! }
//! drop(fabric);
//! owner.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use minos_engine::remote::{Completion, Fabric, Range, copy_words};
use minos_region::View;
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
};

/// Ranges of one read, at most.
pub const RANGES_MAX: usize = 16;
/// Words of one read, at most.
pub const WORDS_MAX: usize = 1 << 17;

const HEAD_BYTES: usize = 4;
const RANGE_BYTES: usize = 12;
const WORD_BYTES: usize = 8;
/// In place of a number of words.
const NOT_THERE: u32 = u32::MAX;
/// Bytes that are received at a time.
const RECEIVED_BYTES_MAX: usize = 16 << 10;

/// Answers the reads of one stream, which blocks, until it ends.
///
/// # Errors
/// The stream fails, is cut off within a request, or brings a request beyond [`RANGES_MAX`] or [`WORDS_MAX`].
pub fn serve(stream: &mut (impl Read + Write), view: &View) -> io::Result<()> {
    let (mut ranges, mut words, mut reply) = (Vec::new(), Vec::new(), Vec::new());
    while take_request(stream, &mut ranges)? {
        words.clear();
        reply.clear();
        if copy_words(view, &ranges, &mut words) {
            reply.extend((words.len() as u32).to_le_bytes());
            reply.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        } else {
            reply.extend(NOT_THERE.to_le_bytes());
        }
        stream.write_all(&reply)?;
    }
    Ok(())
}

/// False at the end of the stream.
fn take_request(stream: &mut impl Read, ranges: &mut Vec<Range>) -> io::Result<bool> {
    let mut head = [0; HEAD_BYTES];
    // The first byte alone may be missing.
    match stream.read_exact(&mut head[..1]) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
        read => read?,
    }
    stream.read_exact(&mut head[1..])?;
    let mut bytes = [0; RANGES_MAX * RANGE_BYTES];
    let count = u32::from_le_bytes(head) as usize;
    let bytes = bytes.get_mut(..count.saturating_mul(RANGE_BYTES)).ok_or(ErrorKind::InvalidData)?;
    stream.read_exact(bytes)?;
    ranges.clear();
    ranges.extend(bytes.as_chunks::<RANGE_BYTES>().0.iter().map(|bytes| {
        let (start, words) = bytes.split_at(8);
        let start = start.iter().rev().fold(0, |start, &byte| start << 8 | u64::from(byte));
        let words = words.iter().rev().fold(0, |words, &byte| words << 8 | usize::from(byte));
        Range { start, words }
    }));
    if is_possible(ranges) { Ok(true) } else { Err(ErrorKind::InvalidData.into()) }
}

fn is_possible(ranges: &[Range]) -> bool {
    let sum = ranges.iter().try_fold(0, |sum: usize, range| sum.checked_add(range.words));
    ranges.len() <= RANGES_MAX && sum.is_some_and(|sum| sum <= WORDS_MAX)
}

/// Peers that answer reads on streams, which must not block.
#[derive(Debug)]
pub struct Rpc<S> {
    peers: Vec<Peer<S>>,
    /// Reads that were impossible from the beginning.
    refused: VecDeque<u64>,
    /// Words of the completion that is reported.
    words: Vec<u64>,
}

#[derive(Debug)]
struct Peer<S> {
    stream: S,
    unsent: Vec<u8>,
    received: Vec<u8>,
    /// Tokens and numbers of words, in the order of the requests.
    under_way: VecDeque<(u64, usize)>,
    /// It has ended, or said what is no reply.
    is_lost: bool,
}

impl<S> Default for Rpc<S> {
    fn default() -> Self {
        Self { peers: Vec::new(), refused: VecDeque::new(), words: Vec::new() }
    }
}

impl<S> Rpc<S> {
    /// Adds the peer at the other end of a stream; returns its number.
    pub fn add(&mut self, stream: S) -> usize {
        let (unsent, received, under_way) = (Vec::new(), Vec::new(), VecDeque::new());
        self.peers.push(Peer { stream, unsent, received, under_way, is_lost: false });
        self.peers.len() - 1
    }

    /// Gives a peer up that is silent: its reads end without words.
    pub fn lose(&mut self, peer: usize) {
        self.peers.get_mut(peer).into_iter().for_each(|peer| peer.is_lost = true);
    }
}

impl<S: Read + Write> Fabric for Rpc<S> {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        match self.peers.get_mut(peer).filter(|peer| !peer.is_lost && is_possible(ranges)) {
            Some(peer) => peer.ask(ranges, token),
            None => self.refused.push_back(token),
        }
    }

    fn poll(&mut self, mut done: impl FnMut(Completion<'_>)) {
        for token in self.refused.drain(..) {
            done(Completion { token, words: None });
        }
        for peer in &mut self.peers {
            peer.move_bytes();
            while let Some((token, is_there)) = peer.take_reply(&mut self.words) {
                done(Completion { token, words: is_there.then_some(&self.words) });
            }
            if peer.is_lost {
                for (token, _) in peer.under_way.drain(..) {
                    done(Completion { token, words: None });
                }
            }
        }
    }
}

impl<S: Read + Write> Peer<S> {
    fn ask(&mut self, ranges: &[Range], token: u64) {
        self.under_way.push_back((token, ranges.iter().map(|range| range.words).sum()));
        self.unsent.extend((ranges.len() as u32).to_le_bytes());
        for range in ranges {
            self.unsent.extend(range.start.to_le_bytes());
            self.unsent.extend((range.words as u32).to_le_bytes());
        }
        self.send();
    }

    fn send(&mut self) {
        while !self.unsent.is_empty() && !self.is_lost {
            match self.stream.write(&self.unsent) {
                Ok(0) => self.is_lost = true,
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_lost = true,
            }
        }
    }

    /// Sends what can be sent, and receives what there is of the replies, and no more.
    fn move_bytes(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        self.send();
        let mut chunk = [0; RECEIVED_BYTES_MAX];
        let expected: usize = self.under_way.iter().map(|(_, words)| HEAD_BYTES + words * WORD_BYTES).sum();
        while !self.is_lost && self.received.len() < expected {
            let room = (expected - self.received.len()).min(chunk.len());
            match self.stream.read(&mut chunk[..room]) {
                Ok(0) => self.is_lost = true,
                Ok(count) => self.received.extend(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_lost = true,
            }
        }
    }

    /// The oldest read, once its reply is there; whether it brings words, which are in `words` then.
    fn take_reply(&mut self, words: &mut Vec<u64>) -> Option<(u64, bool)> {
        let &(token, expected) = self.under_way.front()?;
        let (&head, rest) = self.received.split_first_chunk::<HEAD_BYTES>()?;
        let count = u32::from_le_bytes(head);
        let is_there = count != NOT_THERE;
        let bytes = if is_there { expected * WORD_BYTES } else { 0 };
        if is_there && count as usize != expected {
            self.is_lost = true;
            return None;
        }
        words.clear();
        words.extend(rest.get(..bytes)?.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)));
        self.received.drain(..HEAD_BYTES + bytes);
        self.under_way.pop_front();
        Some((token, is_there))
    }
}
