//! Handling of replies, grants, fragments and acknowledgements; from reply statuses to outcomes.

use minos_proto::native::{AckHead, DataHead, Grant, Header, Opcode, Ranges, ReplyRecord, Status};

use super::{
    Core, OpId,
    fetch::{Arrived, Fetch, Found, WINDOWS_KEPT_MAX},
    operation::{Operation, Phase},
    store::{Next, Store},
};
use crate::{Error, Outcome, Value, Verb};

/// Longest time until a client asks again that waits in line: the server keeps its place for a bit more than twice as long.
const LINE_REST_MAX_NS: u64 = 100_000_000;

impl Core {
    pub(super) fn on_record(&mut self, header: &Header, record: &ReplyRecord<'_>, now_ns: u64) {
        if matches!(record.status, Status::Gone | Status::TimedOut) {
            let is_asked = |store: &Store| store.unacknowledged.contains(&header.sequence);
            let asked = self.stores_under_way().find(|(.., store)| is_asked(store)).map(|(id, ..)| id);
            if let Some(id) = asked {
                // Answers a fragment of a transfer that the server has dropped.
                return self.begin_again(id, now_ns);
            }
        }
        let id = OpId(record.request);
        let expected = self.operations.get(id).filter(|operation| operation.expects(header.sequence));
        let Some(operation) = expected else {
            self.counters.ignored += 1;
            return;
        };
        let Operation { request, phase, .. } = operation;
        if record.opcode == request.verb.opcode() {
            let is_of_request = match phase {
                Phase::Storing(store) => !store.is_answered_by(header.sequence),
                Phase::Fetching(_) => true,
                _ => false,
            };
            self.on_status(id, header, record, is_of_request, now_ns);
        } else if record.opcode == Opcode::Fetch && matches!(phase, Phase::Fetching(_)) {
            match record.status {
                Status::Gone | Status::NotFound | Status::NotOwner => self.begin_again(id, now_ns),
                Status::Busy => self.ask_again(id),
                // Repeated after its time-out, as without an answer.
                _ => {}
            }
        } else {
            self.counters.ignored += 1;
        }
    }

    /// Asks for a window again that the server did not send, because it had sent much already. What was asked for before
    /// has arrived, or is lost.
    fn ask_again(&mut self, id: OpId) {
        if let Some(Phase::Fetching(fetch)) =
            self.operations.get_mut(id).map(|operation| &mut operation.phase)
        {
            fetch.repair();
        }
        self.queue_transfer(id);
    }

    /// Handles the status of an operation; `is_of_request` says that its large value is on its way, and that the status
    /// answers the request that began this.
    fn on_status(
        &mut self,
        id: OpId,
        header: &Header,
        record: &ReplyRecord<'_>,
        is_of_request: bool,
        now_ns: u64,
    ) {
        match record.status {
            // A request sent twice was answered twice, the second time by a worker without the transfer:
            // large values may have moved to another worker.
            Status::Busy | Status::InProgress | Status::NotOwner if is_of_request => {
                self.counters.ignored += 1
            }
            Status::Large => self.on_large(id, header, record, now_ns),
            Status::Granted => self.on_granted(id, header.session, record, now_ns),
            Status::Busy => self.on_busy(id, header.sequence, record.cas, now_ns),
            Status::InProgress => self.rest(id, u64::MAX, now_ns),
            Status::NotOwner => {
                self.leave(id, now_ns);
                self.on_not_owner(id, record, now_ns);
            }
            Status::NoSession => {
                if self.take_back(id) {
                    self.leave(id, now_ns);
                    self.assign(id, now_ns, 0);
                }
                self.session_lost = Some(header.session);
            }
            Status::TooOld => self.finish(id, Err(Error::OutcomeUnknown), now_ns),
            Status::Gone | Status::TimedOut => self.begin_again(id, now_ns),
            _ => self.on_final(id, record, now_ns),
        }
    }

    /// Lets an operation wait that a bound hinders. A large value may have a `place` in line, above 0: then the server grants
    /// it unasked when its turn has come, as long as the client asks now and then.
    #[cold]
    fn on_busy(&mut self, id: OpId, sequence: u64, place: u64, now_ns: u64) {
        let longest_ns = if place > 0 { LINE_REST_MAX_NS } else { u64::MAX };
        self.rest(id, longest_ns, now_ns);
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.note_busy(sequence);
        if operation.gets_on(place) {
            operation.deadline_ns = now_ns.saturating_add(operation.timeout_ns);
        }
        self.take_over(id, now_ns);
    }

    fn on_final(&mut self, id: OpId, record: &ReplyRecord<'_>, now_ns: u64) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let result = outcome_of(operation.request.verb, record, self.config.value_bytes_max);
        let Ok(Outcome::Text(lines)) = &result else { return self.finish(id, result, now_ns) };
        let is_directory = operation.request.verb == Verb::Directory;
        if is_directory && !operation.pages_of(record.cas) {
            // It has changed between two pages.
            return self.begin_again(id, now_ns);
        }
        let all = if is_directory { record.cas & u64::from(u32::MAX) } else { record.cas };
        // Each reply is a page of lines; a page that came before is skipped.
        if operation.request.operand >= u64::from(record.item_flags) && !lines.is_empty() {
            return;
        }
        operation.text.extend_from_slice(lines);
        operation.request.operand = u64::from(record.item_flags);
        if lines.is_empty() || u64::from(record.item_flags) >= all {
            let text = std::mem::take(&mut operation.text);
            return self.finish(id, Ok(Outcome::Text(text)), now_ns);
        }
        self.leave(id, now_ns);
        self.note_progress(id, now_ns);
        self.assign(id, now_ns, 0);
    }

    /// Handles a value that is too large for a datagram: begins its fetch, or updates a fetch in progress.
    #[inline(never)]
    fn on_large(&mut self, id: OpId, header: &Header, record: &ReplyRecord<'_>, now_ns: u64) {
        let Ok(grant) = Grant::parse(record.value) else {
            return self.finish(id, Err(Error::Protocol("a grant that makes no sense")), now_ns);
        };
        let Ok(fragments) = grant.fragments() else { return };
        let (value_bytes, cas, item_flags) = (grant.value_bytes, record.cas, record.item_flags);
        let found = Found { fragments, value_bytes, cas, item_flags };
        self.on_found(id, &found, header.sequence, now_ns);
        let Some(operation) = self.operations.get_mut(id) else { return };
        let Phase::Fetching(fetch) = &mut operation.phase else { return };
        if fetch.is_of(cas, fragments) {
            fetch.learn(&grant);
            // Its fragments may have arrived before the grant named the queue to ask.
            if fetch.is_active && fetch.may_ask_more() {
                self.queue_transfer(id);
            }
        }
    }

    /// Begins to fetch the large value that a grant or a fragment describes, unless its fetch is under way.
    fn on_found(&mut self, id: OpId, found: &Found, sequence: u64, now_ns: u64) {
        let Some(operation) = self.operations.get(id) else { return };
        let keeps = operation.request.verb.keeps_value();
        match &operation.phase {
            _ if !operation.request.verb.reads_value() => return,
            Phase::Fetching(fetch) if fetch.is_of(found.cas, found.fragments) => return,
            // A late answer describes an older value.
            Phase::Fetching(fetch) if fetch.begun_by >= sequence => return,
            Phase::Storing(_) => return,
            _ => {}
        }
        let bytes_max = self.config.value_bytes_max;
        if found.value_bytes > bytes_max {
            return self.finish(id, Err(Error::TooLarge { bytes_max }), now_ns);
        }
        if found.fragments.count() == 0 {
            return self.finish(id, Err(Error::Protocol("an empty value in fragments")), now_ns);
        }
        if self.changes_too_often(id, found.cas) {
            return self.finish(id, Err(Error::Unstable), now_ns);
        }
        self.leave(id, now_ns);
        let window = self.link.directory().map_or(1, |directory| directory.window);
        let mut fetch = Fetch::new(found, window, sequence);
        let has_turn = self.fetches.take();
        if has_turn {
            fetch.activate(keeps);
            fetch.expect_first();
        } else {
            if self.fetches.waiting.len() < WINDOWS_KEPT_MAX {
                fetch.keep_first(keeps);
            }
            self.fetches.waiting.push_back(id);
        }
        if let Some(operation) = self.operations.get_mut(id) {
            operation.phase = Phase::Fetching(Box::new(fetch));
            operation.deadline_ns = u64::MAX;
        }
        if has_turn {
            self.note_progress(id, now_ns);
        }
    }

    /// Counts a change of the large value; returns true if it changes too often.
    fn changes_too_often(&mut self, id: OpId, cas: u64) -> bool {
        let Some(operation) = self.operations.get_mut(id) else { return false };
        let (last, changes) = &mut operation.found;
        if std::mem::replace(last, cas) == cas || *changes == u32::MAX {
            return false;
        }
        let is_first = *changes == 0;
        *changes += 1;
        self.counters.refetches += u64::from(!is_first);
        *changes > self.config.refetches_max.saturating_add(1)
    }

    /// Handles a fragment of a value.
    #[inline(never)]
    pub(super) fn on_data(&mut self, header: &Header, datagram: &[u8], now_ns: u64) {
        let Ok((head, data)) = DataHead::parse(header.body(datagram)) else {
            self.counters.ignored += 1;
            return;
        };
        let id = OpId(head.request);
        let expected = self.operations.get(id).is_some_and(|operation| operation.expects(header.sequence));
        let Some(fragments) = head.fragments().ok().filter(|_| expected) else {
            self.counters.ignored += 1;
            return;
        };
        let DataHead { value_bytes, cas, item_flags, .. } = head;
        self.on_found(id, &Found { fragments, value_bytes, cas, item_flags }, header.sequence, now_ns);
        let Some(operation) = self.operations.get_mut(id) else { return };
        let Phase::Fetching(fetch) = &mut operation.phase else { return };
        let is_active = fetch.is_active;
        match fetch.take(&head, data) {
            Arrived::Useless => self.counters.ignored += 1,
            // It has no deadline before its turn, and asks for nothing.
            Arrived::More | Arrived::Ask if !is_active => {}
            Arrived::More => self.note_progress(id, now_ns),
            Arrived::Ask => {
                self.note_progress(id, now_ns);
                self.queue_transfer(id);
            }
            Arrived::Whole => {
                let (flags, cas, number) = (fetch.item_flags, fetch.cas, fetch.value_bytes);
                let outcome = match operation.request.verb.keeps_value() {
                    true => Outcome::Value(Value { bytes: fetch.take_value(), flags, cas }),
                    false => Outcome::Number { number, cas },
                };
                self.finish(id, Ok(outcome), now_ns);
            }
        }
    }

    /// The server has made room for a large value.
    #[inline(never)]
    fn on_granted(&mut self, id: OpId, session: u64, record: &ReplyRecord<'_>, now_ns: u64) {
        let Some(operation) = self.operations.get(id) else { return };
        if matches!(operation.phase, Phase::Storing(_)) || !record.opcode.is_store() {
            self.counters.ignored += 1;
            return;
        }
        let grant = Grant::parse(record.value).ok();
        let (value_bytes, next) = (operation.request.value.len(), self.sequence_next);
        let Some(store) = grant.and_then(|grant| Store::new(&grant, value_bytes, session, next)) else {
            return self.finish(id, Err(Error::Protocol("a grant that makes no sense")), now_ns);
        };
        self.leave(id, now_ns);
        if let Some(operation) = self.operations.get_mut(id) {
            operation.phase = Phase::Storing(Box::new(store));
            (operation.place, operation.was_in_line) = (0, false);
            self.storing.push(id);
        }
        self.note_progress(id, now_ns);
        self.queue_transfer(id);
    }

    /// Handles an acknowledgement of fragments.
    #[inline(never)]
    pub(super) fn on_ack(&mut self, header: &Header, head: &AckHead, missing: Ranges<'_>, now_ns: u64) {
        let found = self.stores_under_way().find(|(_, operation, store)| {
            store.transfer == head.transfer && operation.expects(header.sequence)
        });
        let Some(id) = found.map(|(id, ..)| id) else {
            self.counters.ignored += 1;
            return;
        };
        let Some(Phase::Storing(store)) = self.operations.get_mut(id).map(|it| &mut it.phase) else { return };
        let gets_on = store.acknowledge(header.sequence, head.state, missing);
        let has_more = store.next() != Next::Nothing;
        if gets_on {
            self.note_progress(id, now_ns);
        }
        if has_more {
            self.queue_transfer(id);
        }
    }

    fn stores_under_way(&self) -> impl Iterator<Item = (OpId, &Operation, &Store)> {
        self.storing.iter().filter_map(|&id| {
            let operation = self.operations.get(id)?;
            let Phase::Storing(store) = &operation.phase else { return None };
            Some((id, operation, &**store))
        })
    }
}

/// The outcome of an operation from its final record.
#[inline]
fn outcome_of(verb: Verb, record: &ReplyRecord<'_>, value_bytes_max: u64) -> Result<Outcome, Error> {
    match record.status {
        Status::Ok => success_of(verb, record, value_bytes_max),
        Status::NotFound => Ok(Outcome::Missing),
        Status::Exists => Ok(Outcome::Exists),
        Status::NotStored => Ok(Outcome::NotStored),
        Status::NoMemory => Err(Error::NoMemory),
        // The server's limit stands in its directory, which is not known here.
        Status::TooLarge => Err(Error::TooLarge { bytes_max: value_bytes_max }),
        Status::NotANumber => Err(Error::NotANumber),
        Status::BadRequest => Err(Error::BadRequest),
        Status::Unsupported => Err(Error::Unsupported),
        Status::NotDurable => Err(Error::OutcomeUnknown),
        _ => Err(Error::Protocol("a status that is not known")),
    }
}

#[inline]
fn success_of(verb: Verb, record: &ReplyRecord<'_>, value_bytes_max: u64) -> Result<Outcome, Error> {
    let cas = record.cas;
    match verb {
        _ if verb.reads_value() && record.value.len() as u64 > value_bytes_max => {
            Err(Error::TooLarge { bytes_max: value_bytes_max })
        }
        Verb::Get | Verb::GetTouch => {
            Ok(Outcome::Value(Value { bytes: record.value.to_vec(), flags: record.item_flags, cas }))
        }
        Verb::Size => Ok(Outcome::Number { number: record.value.len() as u64, cas }),
        Verb::Incr | Verb::Decr => match <[u8; 8]>::try_from(record.value) {
            Ok(bytes) => Ok(Outcome::Number { number: u64::from_le_bytes(bytes), cas }),
            Err(_) => Err(Error::Protocol("a number that does not have 8 bytes")),
        },
        Verb::Stats | Verb::Directory => Ok(Outcome::Text(record.value.to_vec())),
        _ => Ok(Outcome::Done { cas }),
    }
}

#[cfg(test)]
mod tests {
    use minos_proto::native::Opcode;

    use super::*;

    fn record(status: Status, value: &[u8]) -> ReplyRecord<'_> {
        ReplyRecord { value, item_flags: 3, cas: 9, ..ReplyRecord::bare(Opcode::Get, status, 1) }
    }

    #[test]
    fn values_and_numbers_are_read() {
        let value = Value { bytes: b"12345678".to_vec(), flags: 3, cas: 9 };
        let found = record(Status::Ok, b"12345678");
        assert_eq!(outcome_of(Verb::Get, &found, 8), Ok(Outcome::Value(value)));
        assert_eq!(outcome_of(Verb::Get, &found, 7), Err(Error::TooLarge { bytes_max: 7 }));
        assert_eq!(outcome_of(Verb::Put, &found, 7), Ok(Outcome::Done { cas: 9 }));
        assert_eq!(outcome_of(Verb::Size, &found, 8), Ok(Outcome::Number { number: 8, cas: 9 }));
        let number = 258u64.to_le_bytes();
        let counted = record(Status::Ok, &number);
        assert_eq!(outcome_of(Verb::Incr, &counted, 7), Ok(Outcome::Number { number: 258, cas: 9 }));
        let short = record(Status::Ok, &number[1..]);
        assert!(matches!(outcome_of(Verb::Decr, &short, 7), Err(Error::Protocol(_))));
    }

    #[test]
    fn conditions_that_do_not_hold_are_no_errors() {
        for (status, outcome) in [
            (Status::NotFound, Outcome::Missing),
            (Status::Exists, Outcome::Exists),
            (Status::NotStored, Outcome::NotStored),
        ] {
            assert_eq!(outcome_of(Verb::Compare, &record(status, b""), 7), Ok(outcome));
        }
        assert_eq!(outcome_of(Verb::Put, &record(Status::NoMemory, b""), 7), Err(Error::NoMemory));
        assert_eq!(outcome_of(Verb::Put, &record(Status::NotDurable, b""), 7), Err(Error::OutcomeUnknown));
        assert!(outcome_of(Verb::Put, &record(Status::Unknown(99), b""), 7).is_err());
    }
}
