//! Datagrams, record by record, at the end of a buffer.

use super::{
    DATAGRAM_BYTES_MAX, Flags, HEADER_BYTES, Header, Operation, REPLY_HEAD_BYTES, ReplyRecord, SealKey,
    TAG_BYTES, padded,
};

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
        if self.out.len() + padded(record.bytes()) > self.end_max {
            return false;
        }
        let mut head = [0; REPLY_HEAD_BYTES];
        record.write_head(&mut head);
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(record.value);
        self.out.resize(self.start + padded(self.bytes()), 0);
        self.header.count += 1;
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
}
