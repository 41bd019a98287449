//! Large values on their way out: half windows of fragments, of which the next leaves when the last but one has
//! arrived.

use std::collections::VecDeque;

use minos_proto::native::{
    AckHead, AckState, Composer, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, FragmentRange, Fragments, Grant,
    Header, Kind, Malformed, ReplyRecord,
};

use super::{NativeLink, STALL_NS};
use crate::{driver::datagram::ledger::Place, model::Body};

/// A question what has arrived: the datagram that it was, and the end of the fragments it was about.
#[derive(Clone, Copy, Debug)]
struct Question {
    sequence: u64,
    end: u32,
}

/// A value that is being sent.
pub(super) struct Upload {
    pub(super) place: Place,
    pub(super) serial: u64,
    grant: Grant,
    fragments: Fragments,
    body: Body,
    /// Fragments below this have been sent.
    sent_end: u32,
    /// Those that were not answered, oldest first.
    questions: VecDeque<Question>,
    /// When something was last heard or sent.
    active_ns: u64,
}

impl Upload {
    /// Half a window of fragments that have not been sent; none at the end.
    fn next_range(&mut self) -> Option<FragmentRange> {
        let half = u32::from(self.grant.window / 2).max(1);
        let (first, count) = (self.sent_end, half.min(self.fragments.count() - self.sent_end));
        self.sent_end += count;
        (count > 0).then_some(FragmentRange { first, count })
    }

    /// Up to which fragment the question with this sequence number asked; older questions are forgotten.
    fn answered(&mut self, sequence: u64) -> Option<u32> {
        let at = self.questions.iter().position(|question| question.sequence == sequence)?;
        self.questions.drain(..=at).next_back().map(|question| question.end)
    }
}

impl NativeLink<'_> {
    /// The server has made room for a value.
    pub(super) fn begin_upload(
        &mut self,
        place: Place,
        record: &ReplyRecord<'_>,
        now_ns: u64,
    ) -> Result<(), Malformed> {
        let grant = Grant::parse(record.value)?;
        let is_known = |upload: &Upload| upload.place == place && upload.grant.transfer == grant.transfer;
        if self.uploads.iter().any(is_known) {
            return Ok(());
        }
        let asked = self.ledger.asked(place);
        // A file that cannot be read any more is not sent: the request is lost in its time.
        let Ok(body) = self.ledger.body(&asked) else { return Ok(()) };
        let (serial, fragments) = (self.ledger.serial(place.slot), grant.fragments()?);
        self.uploads.retain(|upload| upload.place != place);
        self.uploads.push(Upload {
            place,
            serial,
            grant,
            fragments,
            body,
            sent_end: 0,
            questions: VecDeque::new(),
            active_ns: now_ns,
        });
        self.ledger.hear(place.slot, now_ns);
        for _ in 0..2 {
            self.send_next(self.uploads.len() - 1);
        }
        Ok(())
    }

    /// The server says which fragments have arrived.
    pub(super) fn take_ack(
        &mut self,
        datagram: &[u8],
        header: &Header,
        now_ns: u64,
    ) -> Result<(), Malformed> {
        let (head, missing) = AckHead::parse(header.body(datagram))?;
        let is_it = |upload: &Upload| upload.grant.transfer == head.transfer && upload.serial == header.stamp;
        let Some(at) = self.uploads.iter().position(is_it) else { return Ok(()) };
        let upload = &mut self.uploads[at];
        let Some(end) = upload.answered(header.sequence) else { return Ok(()) };
        upload.active_ns = now_ns;
        self.ledger.hear(upload.place.slot, now_ns);
        if head.state == AckState::Done {
            return Ok(());
        }
        // What was sent after the question may still be on its way.
        let lost: Vec<FragmentRange> = missing
            .filter(|range| range.first < end)
            .map(|range| FragmentRange { count: range.count.min(end - range.first), ..range })
            .collect();
        if lost.is_empty() {
            self.send_next(at);
        } else {
            self.send_fragments(at, &lost, end);
        }
        Ok(())
    }

    fn send_next(&mut self, at: usize) {
        let upload = &mut self.uploads[at];
        if let Some(range) = upload.next_range() {
            let end = upload.sent_end;
            self.send_fragments(at, &[range], end);
        }
    }

    /// Sends the fragments of `ranges`, a window at most, and asks with the last one which below `end` have arrived.
    fn send_fragments(&mut self, at: usize, ranges: &[FragmentRange], end: u32) {
        let window = usize::from(self.uploads[at].grant.window);
        let mut indexes = ranges.iter().flat_map(FragmentRange::indexes).take(window).peekable();
        while let Some(index) = indexes.next() {
            let flags = if indexes.peek().is_none() { Flags::ACK_WANTED } else { Flags::NONE };
            self.compose_fragment(at, index, flags, true);
        }
        self.ask_about(at, end);
    }

    /// The datagram that was composed last asks which fragments below `end` have arrived.
    fn ask_about(&mut self, at: usize, end: u32) {
        let sequence = self.directory.last_sequence();
        self.uploads[at].questions.push_back(Question { sequence, end });
    }

    fn compose_fragment(&mut self, at: usize, index: u32, flags: Flags, carries: bool) {
        let Self { uploads, directory, outbox, .. } = self;
        let upload = &uploads[at];
        let queue = upload.grant.queue;
        let header = Header { flags, ..directory.header(Kind::Fragment, queue, upload.serial) };
        let mut head = [0; FRAGMENT_HEAD_BYTES];
        FragmentHead { transfer: upload.grant.transfer, index }.write(&mut head);
        let mut composer = Composer::begin(outbox.room(), header, directory.datagram_bytes_max);
        // The server chose the size of fragments by the datagrams it takes.
        composer.push_bytes(&head);
        let range = upload.fragments.range(index).filter(|_| carries).unwrap_or_default();
        let mut from = range.start;
        while from < range.end {
            let piece = upload.body.piece(from as u64);
            let piece = &piece[..piece.len().min(range.end - from)];
            composer.push_bytes(piece);
            from += piece.len();
        }
        composer.finish();
        outbox.end_datagram(directory.peer(queue));
    }

    /// Asks what has arrived where nothing moves; the answer may also be what became of the value.
    pub(super) fn resume_uploads(&mut self, now_ns: u64) {
        for at in 0..self.uploads.len() {
            let upload = &mut self.uploads[at];
            if now_ns > upload.active_ns + STALL_NS {
                upload.active_ns = now_ns;
                let end = upload.sent_end;
                self.compose_fragment(at, 0, Flags::ACK_WANTED, false);
                self.ask_about(at, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, Workload};

    fn upload() -> Upload {
        let workload = Workload::open("etc", &Shape::default(), 1).unwrap();
        let grant = Grant {
            transfer: 5,
            value_bytes: 1050,
            fragment_bytes: 100,
            queue: 1,
            window: 6,
            first_follows: false,
        };
        Upload {
            place: Place { slot: 0, index: 0 },
            serial: 1,
            grant,
            fragments: grant.fragments().unwrap(),
            body: workload.dataset.body_of_bytes(0, 1050),
            sent_end: 0,
            questions: VecDeque::new(),
            active_ns: 0,
        }
    }

    #[test]
    fn half_windows_follow_each_other_to_the_end() {
        let mut upload = upload();
        let ranges: Vec<_> = std::iter::from_fn(|| upload.next_range()).collect();
        let range = |first, count| FragmentRange { first, count };
        assert_eq!(ranges, [range(0, 3), range(3, 3), range(6, 3), range(9, 2)]);
    }

    #[test]
    fn an_answer_is_to_its_question_and_to_older_ones() {
        let mut upload = upload();
        upload
            .questions
            .extend([(10, 3), (14, 6), (19, 9)].map(|(sequence, end)| Question { sequence, end }));
        assert_eq!(upload.answered(11), None);
        assert_eq!(upload.answered(14), Some(6));
        assert_eq!(upload.answered(10), None);
        assert_eq!(upload.questions.len(), 1);
    }
}
