//! Sends large values to clients: fragments, gathered into trains straight from the item.

use std::io::IoSlice;

use arrayvec::ArrayVec;
use minos_proto::native::{
    DATA_HEAD_BYTES, DataHead, Fragments, HEADER_BYTES, Header, Kind, SealKey, TAG_BYTES, TRAIN_BYTES_MAX,
    TRAIN_SEGMENTS_MAX,
};

use crate::datagram::native::{AnswerTo, Egress};

/// Bytes before those of a fragment.
pub(super) const HEAD_BYTES: usize = HEADER_BYTES + DATA_HEAD_BYTES;

/// A value being sent, and the request that it answers.
pub(super) struct Source<'a> {
    pub(super) request: u32,
    pub(super) value: &'a [u8],
    pub(super) cas: u64,
    pub(super) item_flags: u32,
    pub(super) fragment_bytes: u32,
    pub(super) fragments: Fragments,
}

/// Sends fragments. It allocates its memory once.
pub(super) struct DataSender {
    heads: Box<[[u8; HEAD_BYTES]]>,
    tags: Box<[[u8; TAG_BYTES]]>,
}

/// The fragments of one train.
type Train = ArrayVec<u32, TRAIN_SEGMENTS_MAX>;

impl DataSender {
    pub(super) fn new() -> Self {
        Self {
            heads: vec![[0; HEAD_BYTES]; TRAIN_SEGMENTS_MAX].into(),
            tags: vec![[0; TAG_BYTES]; TRAIN_SEGMENTS_MAX].into(),
        }
    }

    /// Sends these fragments of `source` in as few trains as possible. Indexes behind the last fragment are
    /// skipped.
    pub(super) fn send(
        &mut self,
        to: &AnswerTo,
        seal: Option<&SealKey>,
        source: &Source<'_>,
        indexes: impl Iterator<Item = u32>,
        egress: &mut impl Egress,
    ) {
        let segment_bytes = HEAD_BYTES + source.fragment_bytes as usize + to.header.tag_bytes();
        let segments_max = segments_max(segment_bytes);
        let mut train = Train::new();
        for index in indexes {
            let Some(range) = source.fragments.range(index) else { continue };
            train.push(index);
            // Only a train's last segment may be shorter than its others.
            if range.len() < source.fragment_bytes as usize || train.len() == segments_max {
                self.send_train(to, seal, source, &train, segment_bytes, egress);
                train.clear();
            }
        }
        if !train.is_empty() {
            self.send_train(to, seal, source, &train, segment_bytes, egress);
        }
    }

    /// The bytes go from the item to the socket, without a copy in between.
    fn send_train(
        &mut self,
        to: &AnswerTo,
        seal: Option<&SealKey>,
        source: &Source<'_>,
        train: &Train,
        segment_bytes: usize,
        egress: &mut impl Egress,
    ) {
        let bytes_of = |index| &source.value[source.fragments.range(index).unwrap_or_default()];
        for ((head, tag), &index) in self.heads.iter_mut().zip(&mut self.tags).zip(train) {
            let bytes = bytes_of(index);
            write_head(head, to, source, index, bytes.len());
            if let Some(key) = seal {
                *tag = key.tag([head.as_slice(), bytes]);
            }
        }
        let mut pieces: ArrayVec<IoSlice<'_>, { 3 * TRAIN_SEGMENTS_MAX }> = ArrayVec::new();
        for ((head, tag), &index) in self.heads.iter().zip(&self.tags).zip(train) {
            pieces.push(IoSlice::new(head));
            pieces.push(IoSlice::new(bytes_of(index)));
            if seal.is_some() {
                pieces.push(IoSlice::new(tag));
            }
        }
        egress.send_gather(to.peer, &pieces, segment_bytes);
    }
}

/// Most segments of this size in one train.
pub(super) fn segments_max(segment_bytes: usize) -> usize {
    (TRAIN_BYTES_MAX / segment_bytes).clamp(1, TRAIN_SEGMENTS_MAX)
}

fn write_head(out: &mut [u8; HEAD_BYTES], to: &AnswerTo, source: &Source<'_>, index: u32, bytes: usize) {
    let length = HEAD_BYTES + bytes + to.header.tag_bytes();
    let header = Header { kind: Kind::Data, length: length as u16, count: 0, ..to.header };
    let data = DataHead {
        request: source.request,
        index,
        value_bytes: source.value.len() as u64,
        cas: source.cas,
        item_flags: source.item_flags,
        fragment_bytes: source.fragment_bytes,
    };
    if let Some((first, rest)) = out.split_first_chunk_mut()
        && let Some((second, _)) = rest.split_first_chunk_mut()
    {
        header.write(first);
        data.write(second);
    }
}
