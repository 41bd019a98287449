//! Requests for values of several sizes, one at a time: from one datagram to the windows of a large value.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use minos_proto::native::{
    Composer, DATAGRAM_BYTES_ETHERNET, Detail, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, FragmentRange,
    Grant, HEADER_BYTES, Header, Kind, Opcode, Operation, Status, push_ranges,
};

use super::{
    Scale,
    native::{Asks, NOBODY, NativeServer, Sink, compose, first_reply, put},
    samples::{Stopwatch, Subject},
    table::{self, KEY_BYTES, Table},
};

/// Bytes of the values.
const SIZES: [f64; 8] = [64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];
/// Fewest and most requests of a sample.
const REQUESTS: std::ops::RangeInclusive<usize> = 2..=256;

/// Requests for values of several sizes.
pub(super) struct Transfers<'a> {
    name: &'static str,
    table: &'a Table,
    server: NativeServer,
    asks: Asks,
    sink: Sink,
    /// Bytes of all values of a size, enough to exceed the caches.
    size_bytes: usize,
    /// Requests made so far.
    made: usize,
    value: Vec<u8>,
}

impl<'a> Transfers<'a> {
    /// Bytes of the values of all sizes.
    pub(super) fn room_bytes(scale: &Scale) -> usize {
        let kinds = [Asks::Get, Asks::Put].len();
        kinds
            * SIZES
                .iter()
                .map(|&size| items(scale.size_bytes, size as usize) * (size as usize + 256))
                .sum::<usize>()
    }

    /// Stores the values; answers go to `sink`.
    pub(super) fn new(
        (name, asks): (&'static str, Asks),
        table: &'a Table,
        scale: &Scale,
        sink: Sink,
    ) -> Result<Self> {
        let server = NativeServer::new(table, NOBODY)?;
        let value = vec![b'v'; SIZES[SIZES.len() - 1] as usize];
        let size_bytes = scale.size_bytes;
        let transfers = Self { name, table, server, asks, sink, size_bytes, made: 0, value };
        for (place, &size) in SIZES.iter().enumerate() {
            for number in 0..items(size_bytes, size as usize) {
                table.insert(&transfers.key(place, number), &transfers.value[..size as usize])?;
            }
        }
        Ok(transfers)
    }

    fn key(&self, place: usize, number: usize) -> [u8; KEY_BYTES] {
        let kind = match self.asks {
            Asks::Get => table::Kind::Read,
            Asks::Put => table::Kind::Written,
        };
        table::key(kind, place << 32 | number)
    }

    /// Reads a value: the first answer's remainder is requested window by window.
    fn get(&mut self, key: &[u8], bytes: usize) -> Result<Duration> {
        let get = Operation::get(1, self.table.engine.hash(key), key);
        let mut datagram = Vec::new();
        compose(&mut datagram, self.server.header(), [get])?;
        let mut elapsed = self.server.time(0, &datagram, datagram.len(), &mut self.sink);
        let (status, value) = first_reply(&self.sink)?;
        if status != Status::Large {
            ensure!(status == Status::Ok && value.len() == bytes, "a GET ended with {status:?}");
            return Ok(elapsed);
        }
        let grant = Grant::parse(value).context("a grant")?;
        let operand = self.table.cas(key).context("an item is missing")?;
        let fragments = grant.fragments().context("a grant")?.count();
        for first in (0..fragments).step_by(grant.window.into()).skip(1) {
            let mut ranges = Vec::new();
            push_ranges(&mut ranges, [FragmentRange { first, count: grant.window.into() }]);
            let detail = Detail { operand, ..Detail::default() };
            let fetch = Operation { opcode: Opcode::Fetch, detail, value: &ranges, ..get };
            compose(&mut datagram, Header { queue: grant.queue, ..self.server.header() }, [fetch])?;
            elapsed += self.server.time(grant.queue.into(), &datagram, datagram.len(), &mut self.sink);
        }
        Ok(elapsed)
    }

    /// Stores a value: one that does not fit a datagram is sent window by window.
    fn put(&mut self, key: &[u8], bytes: usize) -> Result<Duration> {
        let is_whole = bytes + 128 <= DATAGRAM_BYTES_ETHERNET - HEADER_BYTES;
        let value = if is_whole { Ok(&self.value[..bytes]) } else { Err(bytes as u32) };
        let mut datagram = Vec::new();
        compose(&mut datagram, self.server.header(), [put(self.table, key, value)])?;
        let mut elapsed = self.server.time(0, &datagram, datagram.len(), &mut self.sink);
        let (status, value) = first_reply(&self.sink)?;
        if is_whole {
            ensure!(status == Status::Ok, "a PUT ended with {status:?}");
            return Ok(elapsed);
        }
        ensure!(status == Status::Granted, "a PUT ended with {status:?}");
        let grant = Grant::parse(value).context("a grant")?;
        let window_bytes = usize::from(grant.window) * grant.fragment_bytes as usize;
        let segment_bytes = HEADER_BYTES + FRAGMENT_HEAD_BYTES + grant.fragment_bytes as usize;
        for first in (0..bytes).step_by(window_bytes) {
            let end = bytes.min(first + window_bytes);
            let window = self.window(&grant, first..end)?;
            elapsed += self.server.time(grant.queue.into(), &window, segment_bytes, &mut self.sink);
        }
        ensure!(self.server.transfers_open() == 0, "a PUT of {bytes} bytes did not end");
        Ok(elapsed)
    }

    /// These bytes of the value, as consecutive fragments.
    fn window(&self, grant: &Grant, bytes: std::ops::Range<usize>) -> Result<Vec<u8>> {
        let fragment_bytes = grant.fragment_bytes as usize;
        let mut message = Vec::with_capacity(2 * bytes.len());
        for start in bytes.clone().step_by(fragment_bytes) {
            let end = bytes.end.min(start + fragment_bytes);
            // The last fragment requests an acknowledgement.
            let flags = if end == bytes.end { Flags::ACK_WANTED } else { Flags::NONE };
            let header = Header { kind: Kind::Fragment, queue: grant.queue, flags, ..self.server.header() };
            let mut head = [0; FRAGMENT_HEAD_BYTES];
            FragmentHead { transfer: grant.transfer, index: (start / fragment_bytes) as u32 }
                .write(&mut head);
            let mut composer = Composer::begin(&mut message, header, DATAGRAM_BYTES_ETHERNET);
            let fits = composer.push_bytes(&head) && composer.push_bytes(&self.value[start..end]);
            ensure!(fits, "a fragment does not fit its datagram");
            composer.finish();
        }
        Ok(message)
    }
}

/// The number of items whose values take `size_bytes` together.
fn items(size_bytes: usize, value_bytes: usize) -> usize {
    (size_bytes / value_bytes).clamp(2, 8192)
}

impl Subject for Transfers<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn places(&self) -> &[f64] {
        &SIZES
    }

    /// Nanoseconds of a request.
    fn sample(&mut self, place: usize) -> Result<f64> {
        let bytes = SIZES[place] as usize;
        let items = items(self.size_bytes, bytes);
        let requests = (self.size_bytes / 8 / bytes).clamp(*REQUESTS.start(), *REQUESTS.end());
        let mut watch = Stopwatch::default();
        for _ in 0..requests {
            self.made += 1;
            let key = self.key(place, self.made % items);
            let elapsed = match self.asks {
                Asks::Get => self.get(&key, bytes)?,
                Asks::Put => self.put(&key, bytes)?,
            };
            watch.note(elapsed, 1);
        }
        Ok(watch.typical_ns())
    }
}
