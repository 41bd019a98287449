//! Where the replies to a forwarded command end.

use minos_base::{VALUE_BYTES_MAX, number::digits};

use super::text::META_NOOP;

/// Longest line of a reply.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Finds the end of the replies to commands, behind which a no-op (`mn`) was sent: its reply ends them, also where
/// quiet commands have none of their own.
#[derive(Debug, Default)]
pub struct Replies {
    /// Bytes from the first one on that belong to known lines and values; some may not have arrived.
    known: usize,
}

/// A peer sent something that is no reply of memcached's text protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a reply of memcached's text protocol")]
pub struct BadReply;

impl Replies {
    /// Bytes of the reply to the no-op, which follow those that [`find_end`](Self::find_end) returns.
    pub const END_BYTES: usize = META_NOOP.len();

    /// The number of bytes of the replies at the front of `input`, if their end has arrived; the next search begins
    /// with the replies behind them. Otherwise it is called again with the same bytes and more.
    ///
    /// # Errors
    /// A line is too long, or announces a value that is none.
    pub fn find_end(&mut self, input: &[u8]) -> Result<Option<usize>, BadReply> {
        loop {
            let Some(rest) = input.get(self.known..) else { return Ok(None) };
            let Some(line_bytes) = memchr::memchr(b'\n', rest).map(|at| at + 1) else {
                return if rest.len() > LINE_BYTES_MAX { Err(BadReply) } else { Ok(None) };
            };
            let line = &rest[..line_bytes];
            if line == META_NOOP {
                return Ok(Some(std::mem::take(&mut self.known)));
            }
            self.known += line_bytes + value_bytes_behind(line)?;
        }
    }

    /// Bytes of the replies as far as their lengths are known.
    pub fn known_bytes(&self) -> usize {
        self.known
    }

    /// Forgets `count` bytes at the front, which were dropped.
    pub fn drop_front(&mut self, count: usize) {
        self.known -= count;
    }
}

/// Bytes of the value behind a line, its line end included.
fn value_bytes_behind(line: &[u8]) -> Result<usize, BadReply> {
    let mut tokens = line.trim_ascii_end().split(|&byte| byte == b' ');
    let bytes = match tokens.next() {
        Some(b"VALUE") => tokens.nth(2),
        Some(b"VA") => tokens.next(),
        _ => return Ok(0),
    };
    let bytes = bytes.and_then(digits).filter(|&bytes: &u64| bytes <= VALUE_BYTES_MAX).ok_or(BadReply)?;
    Ok(bytes as usize + b"\r\n".len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_end_at_the_no_op_and_not_within_a_value() {
        for replies in [
            "",
            "STORED\r\n",
            "VALUE k 0 4\r\nMN\r\n\r\nEND\r\n",
            "VALUE k 0 4 77\r\nMN\r\n\r\nVALUE l 1 0\r\n\r\nEND\r\n",
            "VA 4 f0 kMN\r\nMN\r\n\r\n",
            "HD Opaque\r\n",
            "SERVER_ERROR out of memory storing object\r\n",
        ] {
            let input = format!("{replies}MN\r\nrest");
            for cut in 0..=input.len() {
                let mut search = Replies::default();
                let first = search.find_end(&input.as_bytes()[..cut]).unwrap();
                let is_whole = cut >= replies.len() + Replies::END_BYTES;
                assert_eq!(first, is_whole.then_some(replies.len()), "{replies} cut at {cut}");
                if !is_whole {
                    assert_eq!(search.find_end(input.as_bytes()), Ok(Some(replies.len())), "{replies}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for line in ["VALUE k 0\r\n", "VALUE k 0 -1\r\n", "VA x\r\n", "VA 99999999999999\r\n"] {
            assert_eq!(Replies::default().find_end(line.as_bytes()), Err(BadReply), "{line}");
        }
        assert_eq!(Replies::default().find_end(&[b'x'; LINE_BYTES_MAX + 1]), Err(BadReply));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let (mut input, mut search) = (Vec::new(), Replies::default());
            for piece in pieces {
                input.extend(piece);
                let _ = search.find_end(&input);
            }
        }
    }
}
