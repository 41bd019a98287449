//! Datagrams, record by record, at the end of a buffer.

use super::{
    DATAGRAM_BYTES_MAX, Flags, HEADER_BYTES, Header, Opcode, Operation, REPLY_HEAD_BYTES, ReplyRecord,
    SealKey, Status, TAG_BYTES, padded,
};

/// The outcome of an operation, returned by the function that writes its value: see [`Composer::reply_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The flags that the client stores with the item.
    pub item_flags: u32,
    /// The item's CAS unique.
    pub cas: u64,
}

impl Outcome {
    /// An outcome with a status only.
    pub const fn bare(status: Status) -> Self {
        Self { status, item_flags: 0, cas: 0 }
    }
}

/// One datagram that grows at the end of a buffer, up to a limit.
///
/// The buffer's earlier contents stay, so that it can hold a train. A record that does not fit changes
/// nothing. Nothing is allocated if the buffer has room for the limit behind its contents. The datagram is
/// complete only after [`Composer::finish`] or [`Composer::seal`].
#[derive(Debug)]
pub struct Composer<'b> {
    out: &'b mut Vec<u8>,
    header: Header,
    start: usize,
    /// Where records must end, in `out`.
    end_max: usize,
}

impl<'b> Composer<'b> {
    /// Begins a datagram of at most `limit_bytes`, which is at least a header and a tag, at the end of `out`.
    /// Keeps room for the tag if `header` has the sealed flag. Ignores the header's length and count.
    #[inline]
    pub fn begin(out: &'b mut Vec<u8>, header: Header, limit_bytes: usize) -> Self {
        debug_assert!(limit_bytes >= HEADER_BYTES + TAG_BYTES);
        let start = out.len();
        let end_max = start + limit_bytes.min(DATAGRAM_BYTES_MAX) - header.tag_bytes();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let header = Header { count: 0, ..header };
        Self { out, header, start, end_max }
    }

    /// Records so far.
    #[inline]
    pub fn count(&self) -> u16 {
        self.header.count
    }

    /// Bytes so far, without the tag.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.out.len() - self.start
    }

    /// Most bytes that the value of one more reply may have.
    #[inline]
    pub fn reply_room_bytes(&self) -> usize {
        // The value's padding needs room as well.
        let room_bytes = (self.end_max - self.start) / 8 * 8;
        room_bytes.saturating_sub(self.bytes() + REPLY_HEAD_BYTES)
    }

    /// True if one more record of `record_bytes`, before padding, fits.
    #[inline]
    pub fn fits(&self, record_bytes: usize) -> bool {
        self.out.len() + padded(record_bytes) <= self.end_max
    }

    /// Appends an operation, if it fits: its value as well, unless that is deferred or its opcode has none.
    #[inline(always)]
    pub fn push_operation(&mut self, operation: &Operation<'_>) -> bool {
        let start = self.out.len();
        let end = start + padded(operation.bytes());
        if end > self.end_max {
            return false;
        }
        self.out.reserve(end - start);
        self.out.extend_from_slice(&operation.head());
        if operation.opcode.is_long() {
            self.out.extend_from_slice(&operation.detail_bytes());
        }
        self.out.extend_from_slice(operation.key);
        if operation.opcode.is_long() {
            self.out.extend_from_slice(operation.value_here());
        }
        if self.out.len() < end {
            self.out.resize(end, 0);
        }
        self.header.count += 1;
        true
    }

    /// Appends a reply, if it fits.
    #[inline]
    pub fn push_reply(&mut self, record: &ReplyRecord<'_>) -> bool {
        if !self.fits(record.bytes()) {
            return false;
        }
        let mut head = [0; REPLY_HEAD_BYTES];
        record.write_head(&mut head);
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(record.value);
        self.end_record();
        true
    }

    /// Appends a reply; `write` appends its value to the end of the given buffer and changes nothing else. If
    /// the value does not fit, nothing is changed; [`Composer::reply_room_bytes`] gives the room in advance.
    #[inline]
    pub fn reply_with(
        &mut self,
        opcode: Opcode,
        request: u32,
        write: impl FnOnce(&mut Vec<u8>) -> Outcome,
    ) -> bool {
        if !self.fits(REPLY_HEAD_BYTES) {
            return false;
        }
        let at = self.out.len();
        self.out.extend_from_slice(&[0; REPLY_HEAD_BYTES]);
        let Outcome { status, item_flags, cas } = write(self.out);
        let record_bytes = self.out.len() - at;
        if at + padded(record_bytes) > self.end_max {
            self.out.truncate(at);
            return false;
        }
        let (_, record) = self.out.split_at_mut(at);
        if let Some((head, value)) = record.split_first_chunk_mut() {
            ReplyRecord { opcode, status, request, item_flags, cas, value }.write_head(head);
        }
        self.end_record();
        true
    }

    /// Appends bytes that are no record, a body or a part of one, if they fit.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> bool {
        let fits = self.out.len() + bytes.len() <= self.end_max;
        if fits {
            self.out.extend_from_slice(bytes);
        }
        fits
    }

    /// Appends zeros that count, up to the limit.
    pub fn fill(&mut self) {
        self.out.resize(self.end_max, 0);
    }

    /// Ends the datagram without a seal, and returns its length in bytes. Clears the header's sealed flag.
    #[inline]
    pub fn finish(mut self) -> usize {
        self.header.flags = self.header.flags.without(Flags::SEALED);
        self.header.secret = 0;
        self.write_header(0)
    }

    /// Ends the datagram with a tag under `key` and returns its length in bytes, tag included. Its header
    /// must have the sealed flag since [`Composer::begin`].
    pub fn seal(mut self, key: &SealKey) -> usize {
        debug_assert!(self.header.is_sealed());
        self.header.flags |= Flags::SEALED;
        self.header.secret = key.id();
        let length = self.write_header(TAG_BYTES);
        let tag = key.tag([&self.out[self.start..]]);
        self.out.extend_from_slice(&tag);
        length
    }

    /// Ends the datagram: with a tag if there is a key.
    #[inline]
    pub fn finish_with(self, key: Option<&SealKey>) -> usize {
        match key {
            Some(key) => self.seal(key),
            None => self.finish(),
        }
    }

    #[inline]
    fn write_header(&mut self, tag_bytes: usize) -> usize {
        let length = self.bytes() + tag_bytes;
        self.header.length = length as u16;
        if let Some(head) = self.out[self.start..].first_chunk_mut() {
            self.header.write(head);
        }
        length
    }

    /// Pads the record that was appended last.
    #[inline]
    fn end_record(&mut self) {
        let bytes = padded(self.bytes());
        self.out.resize(self.start + bytes, 0);
        self.header.count += 1;
    }
}
