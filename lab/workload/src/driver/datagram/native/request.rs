//! Composing requests.

use minos_base::KeyHash;
use minos_proto::native::{
    Composer, Detail, FragmentRange, HEADER_BYTES, Kind, LONG_HEAD_BYTES, OpFlags, Opcode, Operation,
    RANGE_BYTES, RECORD_ALIGN, push_ranges,
};

use super::{NativeLink, directory::Direction};
use crate::{
    OpKind,
    driver::{
        datagram::ledger::{Asked, Outcome, Place},
        recorder::{ErrorKind, Recorder},
    },
    model::Body,
};

/// Ranges of fragments that are asked for at once: with the longest key they fit the smallest datagram that a
/// server may want.
pub(super) const FETCH_RANGES_MAX: usize = 16;

/// An operation that is being composed.
#[derive(Clone, Copy, Debug)]
struct Line {
    index: u32,
    /// Its key lies here in [`Composing::keys`].
    key: (usize, usize),
    hash: KeyHash,
    direction: Direction,
}

/// Room for composing, taken once.
#[derive(Debug, Default)]
pub(super) struct Composing {
    keys: Vec<u8>,
    lines: Vec<Line>,
    value: Vec<u8>,
}

impl NativeLink<'_> {
    /// Composes the open operations of the request in `slot`, or only the one at `only`: as few datagrams as they
    /// fit, those of each direction together.
    pub(super) fn compose(&mut self, slot: u32, only: Option<u32>, now_ns: u64, recorder: &mut Recorder) {
        self.direct(slot, only);
        let lines = std::mem::take(&mut self.composing.lines);
        for part in lines.chunk_by(|one, next| one.direction == next.direction) {
            let mut rest = part;
            while !rest.is_empty() {
                let taken = self.compose_datagram(slot, rest);
                if taken == 0 {
                    // Its file is not there any more, or its key is too long for a datagram.
                    let place = Place { slot, index: rest[0].index };
                    self.ledger.settle(place, Outcome::Failed(ErrorKind::File), now_ns, recorder);
                }
                rest = &rest[taken.max(1)..];
            }
        }
        self.composing.lines = lines;
    }

    /// Writes down the keys of the open operations and which way each goes, sorted by that.
    fn direct(&mut self, slot: u32, only: Option<u32>) {
        let Self { composing: Composing { keys, lines, .. }, ledger, directory, .. } = self;
        keys.clear();
        lines.clear();
        let any = directory.any_queue();
        let indexes = only.map_or(0..ledger.operation_count(slot), |index| index..index + 1);
        for index in indexes {
            let asked = ledger.asked(Place { slot, index });
            if !asked.is_open {
                continue;
            }
            let begin = keys.len();
            ledger.dataset.write_key(asked.item, keys);
            let hash = directory.welcome.direction(&keys[begin..]);
            let direction = directory.direction(hash, is_read(&asked), any);
            lines.push(Line { index, key: (begin, keys.len()), hash, direction });
        }
        if directory.welcome.queues > 1 {
            lines.sort_by_key(|line| line.direction);
        }
    }

    /// Composes a datagram of as many of `lines` as fit, all of one direction. Says how many; none if the first
    /// cannot be composed.
    fn compose_datagram(&mut self, slot: u32, lines: &[Line]) -> usize {
        let Self { composing: Composing { keys, value, .. }, ledger, directory, outbox, .. } = self;
        let Direction { sent_to, executed_by } = lines[0].direction;
        let header = directory.header(Kind::Request, executed_by, ledger.serial(slot));
        // What pads records counts too.
        let limit = directory.datagram_bytes_max / RECORD_ALIGN * RECORD_ALIGN;
        let begin = outbox.room().len();
        let mut composer = Composer::begin(outbox.room(), header, limit);
        let mut taken = 0;
        for line in lines {
            let place = Place { slot, index: line.index };
            let (asked, key) = (ledger.asked(place), &keys[line.key.0..line.key.1]);
            let number = ledger.number(place);
            let fits = if is_read(&asked) {
                composer.push_operation(&Operation::get(number, line.hash, key))
            } else if let Ok(body) = ledger.body(&asked) {
                let inline_max = limit - HEADER_BYTES - LONG_HEAD_BYTES - key.len();
                push_put(&mut composer, Operation::get(number, line.hash, key), &body, inline_max, value)
            } else {
                false
            };
            if !fits {
                break;
            }
            taken += 1;
        }
        composer.finish();
        if taken > 0 {
            outbox.end_datagram(directory.peer(sent_to));
        } else {
            outbox.room().truncate(begin);
        }
        taken
    }

    /// Asks for fragments of the value of an operation: those of `ranges`, of which there are at most
    /// [`FETCH_RANGES_MAX`].
    pub(super) fn fetch(&mut self, place: Place, cas: u64, queue: u16, ranges: &[FragmentRange]) {
        let Self { composing: Composing { keys, .. }, ledger, directory, outbox, .. } = self;
        keys.clear();
        ledger.dataset.write_key(ledger.asked(place).item, keys);
        let mut value = Vec::with_capacity(FETCH_RANGES_MAX * RANGE_BYTES);
        push_ranges(&mut value, ranges.iter().copied());
        let hash = directory.welcome.direction(keys);
        let operation = Operation {
            opcode: Opcode::Fetch,
            detail: Detail { operand: cas, ..Detail::default() },
            value: &value,
            ..Operation::get(ledger.number(place), hash, keys)
        };
        let header = directory.header(Kind::Request, queue, ledger.serial(place.slot));
        let mut composer = Composer::begin(outbox.room(), header, directory.datagram_bytes_max);
        composer.push_operation(&operation);
        composer.finish();
        outbox.end_datagram(directory.peer(queue));
    }
}

/// Appends a PUT with its value, or the announcement of a value that fits no datagram.
fn push_put(
    composer: &mut Composer<'_>,
    operation: Operation<'_>,
    body: &Body,
    inline_max: usize,
    scratch: &mut Vec<u8>,
) -> bool {
    let put = Operation { opcode: Opcode::Put, ..operation };
    let value_bytes = body.value_bytes();
    if value_bytes > inline_max as u64 {
        // Values are below 2^30 bytes; a larger one is too large for the server, which says so.
        let value_bytes = u32::try_from(value_bytes).unwrap_or(u32::MAX);
        let detail = Detail { value_bytes, ..Detail::default() };
        return composer.push_operation(&Operation { flags: OpFlags::DEFERRED, detail, ..put });
    }
    let piece = body.piece(0);
    if piece.len() as u64 == value_bytes {
        return composer.push_operation(&Operation { value: piece, ..put });
    }
    scratch.clear();
    body.append_to(scratch);
    composer.push_operation(&Operation { value: scratch, ..put })
}

fn is_read(asked: &Asked) -> bool {
    matches!(asked.kind, OpKind::Get | OpKind::ReadModifyWrite)
}
