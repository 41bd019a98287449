//! Where answers go: their addressee and his key, and how replies come into datagrams, datagrams into trains.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use minos_proto::native::{
    HEADER_BYTES, Header, Kind, RECORD_ALIGN, REPLY_HEAD_BYTES, ReplyRecord, SealKey, SealKeys, Secret,
    TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, padded,
};

use super::counters::NativeCounters;
use crate::ops::counters::Counters;

/// A datagram shorter than this part of its train's segments ends the train: padding it to a whole segment
/// would cost more than another message.
const PADDED_PART: usize = 4;

/// Sends trains of datagrams, at the end of a burst or when enough are queued.
///
/// A train is sent to one peer as a whole: datagrams of `segment_bytes` each, of which only the last may be
/// shorter, at most [`TRAIN_SEGMENTS_MAX`](minos_proto::native::TRAIN_SEGMENTS_MAX) of them and at most
/// [`TRAIN_BYTES_MAX`](minos_proto::native::TRAIN_BYTES_MAX) bytes. Trains that cannot be sent are dropped:
/// this is a datagram protocol.
pub trait Egress {
    /// The bytes of the queued trains. The next train is composed at the end, so that a value is copied once,
    /// from its item to the memory that the kernel reads; the bytes before it stay unchanged.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Queues the train in this part of [`Egress::buffer`], which stays unchanged.
    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize);

    /// True if two more trains may be queued before [`Egress::flush`].
    fn has_room(&mut self) -> bool;

    /// Sends the queued trains and empties the buffer. Called when no train is being composed.
    fn flush(&mut self);

    /// Sends a train that consists of concatenated pieces; segments may begin anywhere in them. The pieces
    /// may change once the call returns. Called when no train is being composed.
    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize);

    /// Flushes if there is little room. Called when no train is being composed.
    fn make_room(&mut self) {
        if !self.has_room() {
            self.flush();
        }
    }

    /// Queues a train from elsewhere. Called when no train is being composed.
    fn send(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) {
        self.make_room();
        let buffer = self.buffer();
        let start = buffer.len();
        buffer.extend_from_slice(bytes);
        let train = start..buffer.len();
        self.queue_train(peer, train, segment_bytes);
    }
}

/// The keys of a server's secrets: two while one is being replaced.
#[derive(Debug)]
pub(crate) struct Seals(Box<[SealKeys]>);

impl Seals {
    /// The keys of these secrets; `None` without secrets, and then nothing is sealed.
    pub(crate) fn of(secrets: &[Secret]) -> Option<Self> {
        (!secrets.is_empty()).then(|| Self(secrets.iter().map(SealKeys::of).collect()))
    }

    /// True if `datagram` was sealed by a client that knows one of the secrets.
    pub(crate) fn verify(&self, header: &Header, datagram: &[u8]) -> bool {
        self.find(header.secret).is_some_and(|keys| keys.to_server.verify(datagram))
    }

    /// The key that seals an answer with this header: that of the client's secret.
    pub(crate) fn answer_key(&self, header: &Header) -> Option<&SealKey> {
        let keys = self.find(header.secret).filter(|_| header.is_sealed())?;
        Some(&keys.to_client)
    }

    fn find(&self, id: u8) -> Option<&SealKeys> {
        self.0.iter().find(|keys| keys.to_server.id() == id)
    }
}

/// The addressee of an answer, and the content of its header.
///
/// Taken from a request with a valid cookie and, where there is a secret, a valid tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTo {
    pub(crate) peer: SocketAddr,
    /// The header of a reply; other answers differ in kind, length and count. The session is the client's, or
    /// 0.
    pub(crate) header: Header,
    /// Largest datagram, in bytes, that both sides accept.
    pub(crate) datagram_bytes_max: usize,
    /// Number of the request's datagram in its burst; answers to the same datagram share one as far as they
    /// fit.
    pub(crate) number: u32,
}

impl AnswerTo {
    /// The header of an answer of another kind.
    pub(crate) fn header_of(&self, kind: Kind) -> Header {
        Header { kind, ..self.header }
    }

    /// Longest value, in bytes, that a reply may carry.
    pub(crate) fn value_bytes_max(&self) -> usize {
        let records_bytes = self.datagram_bytes_max - HEADER_BYTES - self.header.tag_bytes();
        // The record's padding needs room as well.
        records_bytes / RECORD_ALIGN * RECORD_ALIGN - REPLY_HEAD_BYTES
    }
}

/// Composes replies at the end of the egress's buffer, so that each value is sent from where it was composed.
///
/// The receive buffer is not reused: replies to reads are longer than their requests, the operations of a
/// chunk still borrow from their datagrams while earlier ones are answered, and the kernel copies either way.
/// Only the few replies shorter than their requests could be built there, to no gain.
///
/// A datagram answers one request, or a part of it. Consecutive datagrams to one peer form a train: the first
/// one sets the segment length, shorter ones are padded, and a longer one begins another train.
pub(super) struct Outlet<'e, E> {
    egress: &'e mut E,
    seals: Option<&'e Seals>,
    native: &'e NativeCounters,
    counters: &'e Counters,
    /// Holds a record that did not fit.
    moved: &'e mut Vec<u8>,
    /// The datagram that is being composed, at the end of the buffer.
    open: Option<Open>,
    /// The train before it, to which it may be added.
    train: Option<Train>,
}

struct Open {
    to: AnswerTo,
    start: usize,
    /// Where records must end.
    end_max: usize,
    records: u16,
}

struct Train {
    start: usize,
    /// End of its last datagram; the padding to a segment follows when another datagram does.
    end: usize,
    segment_bytes: usize,
    segments: usize,
    peer: SocketAddr,
}

impl<'e, E: Egress> Outlet<'e, E> {
    pub(super) fn new(
        egress: &'e mut E,
        moved: &'e mut Vec<u8>,
        seals: Option<&'e Seals>,
        (native, counters): (&'e NativeCounters, &'e Counters),
    ) -> Self {
        Self { egress, seals, native, counters, moved, open: None, train: None }
    }

    pub(super) fn reply(&mut self, to: &AnswerTo, record: &ReplyRecord<'_>) {
        self.reply_with(to, |buffer| {
            buffer.extend_from_slice(&[0; REPLY_HEAD_BYTES]);
            buffer.extend_from_slice(record.value);
            Some(*record)
        });
    }

    /// Appends a reply that `write` composes at the end of the buffer: room for the head of a record, then
    /// the value. The value field of the returned record is ignored; `None` means that nothing was composed.
    #[inline]
    pub(super) fn reply_with<'r>(
        &mut self,
        to: &AnswerTo,
        write: impl FnOnce(&mut Vec<u8>) -> Option<ReplyRecord<'r>>,
    ) {
        self.open(to);
        let buffer = self.egress.buffer();
        let start = buffer.len();
        let Some(record) = write(buffer) else { return };
        if let Some((head, value)) = buffer[start..].split_first_chunk_mut() {
            ReplyRecord { value, ..record }.write_head(head);
        }
        buffer.resize(start + padded(buffer.len() - start), 0);
        self.end_record(to, start);
    }

    /// Ends the open datagram and train, so that anything sent directly through the egress follows them.
    pub(super) fn close(&mut self) -> &mut E {
        self.end_datagram();
        self.end_train();
        self.egress
    }

    /// Sends a datagram that is no reply: sets its length, and seals it if its header says so.
    pub(super) fn single(&mut self, peer: SocketAddr, header: Header, body: &[u8]) {
        let seals = self.seals;
        let egress = self.close();
        egress.make_room();
        let buffer = egress.buffer();
        let start = buffer.len();
        buffer.resize(start + HEADER_BYTES, 0);
        buffer.extend_from_slice(body);
        let length = (HEADER_BYTES + body.len() + header.tag_bytes()) as u16;
        finish(buffer, start, Header { length, ..header }, seals);
        let bytes = buffer.len() - start;
        self.native.datagrams_out.count();
        self.queue(peer, start..start + bytes, bytes);
    }

    /// Ensures that a datagram for `to` is open.
    #[inline]
    fn open(&mut self, to: &AnswerTo) {
        match &self.open {
            Some(open) if open.to.number == to.number => {}
            _ => self.begin(to),
        }
    }

    fn begin(&mut self, to: &AnswerTo) {
        self.end_datagram();
        let takes_more = |train: &Train| {
            let bytes = (train.segments + 1) * train.segment_bytes;
            train.peer == to.peer && train.segments < TRAIN_SEGMENTS_MAX && bytes <= TRAIN_BYTES_MAX
        };
        // The datagram may be longer, and so end the train: there must be room for both.
        if !self.train.as_ref().is_some_and(takes_more) || !self.egress.has_room() {
            self.end_train();
        }
        match &self.train {
            Some(Train { start, segment_bytes, segments, .. }) => {
                self.egress.buffer().resize(start + segments * segment_bytes, 0);
            }
            None => self.egress.make_room(),
        }
        let buffer = self.egress.buffer();
        let start = buffer.len();
        buffer.resize(start + HEADER_BYTES, 0);
        let end_max = start + to.datagram_bytes_max - to.header.tag_bytes();
        self.open = Some(Open { to: *to, start, end_max, records: 0 });
    }

    /// Counts the record that begins at `start`; one that does not fit goes into a datagram of its own.
    #[inline]
    fn end_record(&mut self, to: &AnswerTo, start: usize) {
        let end = self.egress.buffer().len();
        let Some(open) = &mut self.open else { return };
        if end > open.end_max && open.records > 0 {
            return self.move_record(to, start);
        }
        open.records += 1;
    }

    #[cold]
    fn move_record(&mut self, to: &AnswerTo, start: usize) {
        let buffer = self.egress.buffer();
        self.moved.clear();
        self.moved.extend_from_slice(&buffer[start..]);
        buffer.truncate(start);
        self.begin(to);
        self.egress.buffer().extend_from_slice(self.moved);
        if let Some(open) = &mut self.open {
            open.records += 1;
        }
    }

    fn end_datagram(&mut self) {
        let Some(open) = self.open.take() else { return };
        let buffer = self.egress.buffer();
        if open.records == 0 {
            return buffer.truncate(open.start);
        }
        let header = open.to.header;
        let length = (buffer.len() - open.start + header.tag_bytes()) as u16;
        finish(buffer, open.start, Header { length, count: open.records, ..header }, self.seals);
        self.native.datagrams_out.count();
        self.couple(open.to.peer, open.start);
    }

    /// Adds the datagram from `start` to the end of the buffer to the train, or begins another train with it.
    fn couple(&mut self, peer: SocketAddr, start: usize) {
        let end = self.egress.buffer().len();
        let bytes = end - start;
        match &mut self.train {
            Some(train) if bytes <= train.segment_bytes => {
                train.segments += 1;
                train.end = end;
                if bytes * PADDED_PART < train.segment_bytes {
                    self.end_train();
                }
            }
            _ => {
                self.end_train();
                self.train = Some(Train { start, end, segment_bytes: bytes, segments: 1, peer });
            }
        }
    }

    fn end_train(&mut self) {
        let Some(train) = self.train.take() else { return };
        self.queue(train.peer, train.start..train.end, train.segment_bytes);
    }

    fn queue(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) {
        self.native.trains_out.count();
        self.counters.bytes_written.add(train.len() as u64);
        self.egress.queue_train(peer, train, segment_bytes);
    }
}

/// Writes the header of the datagram that begins at `start` and ends `buffer`, and its tag if it is sealed.
fn finish(buffer: &mut Vec<u8>, start: usize, header: Header, seals: Option<&Seals>) {
    if let Some(head) = buffer[start..].first_chunk_mut() {
        header.write(head);
    }
    if let Some(key) = seals.and_then(|seals| seals.answer_key(&header)) {
        let tag = key.tag([&buffer[start..]]);
        buffer.extend_from_slice(&tag);
    }
}
