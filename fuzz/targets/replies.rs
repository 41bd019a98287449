//! The client's parser of replies: it makes progress on any bytes, and the split into pieces does not change
//! the result.

use minos_proto::client::{Protocol, Reply, ReplyReader, ReplySink};

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    values: Vec<(Option<Vec<u8>>, u32, u64)>,
    bytes: Vec<u8>,
}

impl ReplySink for Seen {
    fn value(&mut self, key: Option<&[u8]>, position: u32, value_bytes: u64) {
        self.values.push((key.map(<[u8]>::to_vec), position, value_bytes));
    }

    fn bytes(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }
}

/// The replies parsed from `pieces`, and true if they were parsed to the end.
fn read(protocol: Protocol, pieces: &[&[u8]]) -> (Vec<Reply>, Seen, bool) {
    let mut reader = ReplyReader::new(protocol);
    let (mut replies, mut seen) = (Vec::new(), Seen::default());
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() {
            let Ok(advance) = reader.advance(piece, &mut seen) else { return (replies, seen, false) };
            assert!((1..=piece.len()).contains(&advance.consumed));
            piece = &piece[advance.consumed..];
            replies.extend(advance.reply);
        }
    }
    (replies, seen, true)
}

/// The first byte of the input says where the rest is split.
pub fn check(protocol: Protocol, input: &[u8]) {
    let [split, text @ ..] = input else { return };
    let (first, second) = text.split_at(usize::from(*split) * text.len() / 256);
    assert_eq!(read(protocol, &[first, second]), read(protocol, &[text]));
}
