//! Reading replies of either protocol.

use super::{
    Protocol,
    reply::{Meaning, Progress, Reply, ReplyError, ReplySink, understand_memcache, understand_resp},
};

/// How far [`ReplyReader::advance`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that were read. All of them, unless a reply was finished.
    pub consumed: usize,
    /// The reply that ended there, if one did.
    pub reply: Option<Reply>,
}

/// Reads the replies on one connection, in any pieces.
#[derive(Debug)]
pub struct ReplyReader {
    protocol: Protocol,
    state: State,
    line: PartialLine,
    /// The progress in the current reply.
    pub(super) progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Line,
    Value { left: u64 },
    LineEnd { left: u8 },
}

impl ReplyReader {
    /// A reader at the beginning of a connection.
    pub const fn new(protocol: Protocol) -> Self {
        let progress = Progress { found: 0, position: 0, elements_left: 0 };
        Self { protocol, state: State::Line, line: PartialLine::new(), progress }
    }

    /// Bytes of the current value that have not been read yet. The caller may discard them in the kernel, and
    /// then must call [`ReplyReader::discarded`].
    pub fn value_bytes_left(&self) -> u64 {
        match self.state {
            State::Value { left } => left,
            State::Line | State::LineEnd { .. } => 0,
        }
    }

    /// Records that `bytes` of the value were dropped, at most [`ReplyReader::value_bytes_left`].
    pub fn discarded(&mut self, bytes: u64) {
        if let State::Value { left } = self.state {
            self.state = after_value(left.saturating_sub(bytes));
        }
    }

    /// Reads from `input` until a reply is finished or nothing is left.
    ///
    /// # Errors
    /// The input is no reply.
    pub fn advance(&mut self, input: &[u8], sink: &mut impl ReplySink) -> Result<Advance, ReplyError> {
        let mut consumed = 0;
        while consumed < input.len() {
            let rest = &input[consumed..];
            match self.state {
                State::Line => match self.line.find(rest) {
                    Found::TooLong => return Err(ReplyError),
                    Found::Part => consumed = input.len(),
                    Found::Whole { consumed: line_bytes } => {
                        consumed += line_bytes;
                        let reply = self.understand(&rest[..line_bytes], sink)?;
                        if reply.is_some() {
                            return Ok(Advance { consumed, reply });
                        }
                    }
                },
                State::Value { left } => {
                    let part = &rest[..rest.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
                    sink.bytes(part);
                    consumed += part.len();
                    self.state = after_value(left - part.len() as u64);
                }
                State::LineEnd { left } => {
                    if rest[0] != if left == 2 { b'\r' } else { b'\n' } {
                        return Err(ReplyError);
                    }
                    consumed += 1;
                    if let Some(reply) = self.after_line_end(left - 1) {
                        return Ok(Advance { consumed, reply: Some(reply) });
                    }
                }
            }
        }
        Ok(Advance { consumed, reply: None })
    }

    fn understand(&mut self, tail: &[u8], sink: &mut impl ReplySink) -> Result<Option<Reply>, ReplyError> {
        let line = self.line.joined(tail);
        let meaning = match self.protocol {
            Protocol::Memcache => understand_memcache(line, &mut self.progress, sink)?,
            Protocol::Resp => understand_resp(line, &mut self.progress, sink)?,
        };
        Ok(match meaning {
            Meaning::Value(bytes) => {
                self.state = after_value(bytes);
                None
            }
            Meaning::More => None,
            Meaning::Done(reply) => {
                self.progress = Progress::default();
                Some(reply)
            }
        })
    }

    /// After the line end of a value memcached sends another line; a RESP reply may be finished.
    fn after_line_end(&mut self, left: u8) -> Option<Reply> {
        if left > 0 {
            self.state = State::LineEnd { left };
            return None;
        }
        self.state = State::Line;
        if self.protocol == Protocol::Memcache || self.progress.elements_left > 0 {
            return None;
        }
        Some(Reply::Values { found: std::mem::take(&mut self.progress).found })
    }
}

fn after_value(left: u64) -> State {
    if left == 0 { State::LineEnd { left: 2 } } else { State::Value { left } }
}

/// Longest line a server may answer with, in bytes: a VALUE line with the longest key fits.
const LINE_BYTES_MAX: usize = 1024;

/// The beginning of a line whose end has not arrived yet.
#[derive(Debug)]
struct PartialLine {
    bytes: [u8; LINE_BYTES_MAX],
    len: usize,
}

/// The result of searching a piece of input for a line.
enum Found {
    /// The line ends in the input; its first part may lie in the partial line.
    Whole {
        /// Bytes of input up to and including the line feed.
        consumed: usize,
    },
    /// The input was kept; more is needed.
    Part,
    /// The line is longer than any server's.
    TooLong,
}

impl PartialLine {
    const fn new() -> Self {
        Self { bytes: [0; LINE_BYTES_MAX], len: 0 }
    }

    /// Searches for the end of the line in `input`, which is not empty.
    fn find(&mut self, input: &[u8]) -> Found {
        match memchr::memchr(b'\n', input) {
            Some(end) if self.len + end < LINE_BYTES_MAX => Found::Whole { consumed: end + 1 },
            None if self.len + input.len() <= LINE_BYTES_MAX => {
                self.keep(input);
                Found::Part
            }
            _ => Found::TooLong,
        }
    }

    /// The line whose last bytes are `tail`, without its line end. The partial line is empty afterwards.
    fn joined<'a>(&'a mut self, tail: &'a [u8]) -> &'a [u8] {
        let line = if self.len == 0 {
            tail
        } else {
            self.keep(tail);
            let len = std::mem::take(&mut self.len);
            &self.bytes[..len]
        };
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::reply::{NoSink, Refusal},
        *,
    };

    #[derive(Debug, Default, PartialEq, Eq, Clone)]
    struct Seen(Vec<(Option<Vec<u8>>, u32, u64)>, Vec<u8>);

    impl ReplySink for Seen {
        fn value(&mut self, key: Option<&[u8]>, position: u32, value_bytes: u64) {
            self.0.push((key.map(<[u8]>::to_vec), position, value_bytes));
        }
        fn bytes(&mut self, part: &[u8]) {
            self.1.extend_from_slice(part);
        }
    }

    /// Reads `pieces` one after the other.
    fn read(protocol: Protocol, pieces: &[&[u8]]) -> Result<(Vec<Reply>, Seen), ReplyError> {
        let mut reader = ReplyReader::new(protocol);
        let (mut replies, mut seen) = (Vec::new(), Seen::default());
        for piece in pieces {
            let mut at = 0;
            while at < piece.len() {
                let advance = reader.advance(&piece[at..], &mut seen)?;
                assert!(advance.consumed > 0);
                assert!(advance.reply.is_some() || at + advance.consumed == piece.len());
                at += advance.consumed;
                replies.extend(advance.reply);
            }
        }
        Ok((replies, seen))
    }

    /// The input in one piece, split in two at each place, and byte by byte give the same.
    fn read_in_all_ways(protocol: Protocol, input: &[u8]) -> (Vec<Reply>, Seen) {
        let whole = read(protocol, &[input]).unwrap();
        for split in 1..input.len() {
            let parts = read(protocol, &[&input[..split], &input[split..]]).unwrap();
            assert_eq!(parts, whole, "split at {split}");
        }
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(read(protocol, &bytes).unwrap(), whole);
        whole
    }

    #[test]
    fn memcache_replies_in_any_pieces() {
        let input =
            b"VALUE a 0 5\r\nhe\r\no\r\nVALUE bb 7 0 99\r\n\r\nEND\r\nEND\r\nSTORED\r\nNOT_STORED\r\n\
                      SERVER_ERROR out of memory storing object\r\nERROR\r\nCLIENT_ERROR bad\r\n";
        let (replies, seen) = read_in_all_ways(Protocol::Memcache, input);
        assert_eq!(
            replies,
            [
                Reply::Values { found: 2 },
                Reply::Values { found: 0 },
                Reply::Stored,
                Reply::Refused(Refusal::NotStored),
                Reply::Refused(Refusal::Server),
                Reply::Refused(Refusal::Client),
                Reply::Refused(Refusal::Client),
            ]
        );
        assert_eq!(seen.0, [(Some(b"a".to_vec()), 0, 5), (Some(b"bb".to_vec()), 1, 0)]);
        assert_eq!(seen.1, b"he\r\no");
    }

    #[test]
    fn resp_replies_in_any_pieces() {
        let input = b"$5\r\nhe\r\no\r\n$-1\r\n+OK\r\n*3\r\n$1\r\nx\r\n$-1\r\n$0\r\n\r\n*1\r\n$-1\r\n\
                      -OOM command not allowed\r\n-ERR unknown\r\n*0\r\n";
        let (replies, seen) = read_in_all_ways(Protocol::Resp, input);
        assert_eq!(
            replies,
            [
                Reply::Values { found: 1 },
                Reply::Values { found: 0 },
                Reply::Stored,
                Reply::Values { found: 2 },
                Reply::Values { found: 0 },
                Reply::Refused(Refusal::Server),
                Reply::Refused(Refusal::Client),
                Reply::Values { found: 0 },
            ]
        );
        assert_eq!(seen.0, [(None, 0, 5), (None, 0, 1), (None, 2, 0)]);
        assert_eq!(seen.1, b"he\r\nox");
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let long = vec![b'x'; 2000];
        let cases: [(Protocol, &[u8]); 10] = [
            (Protocol::Memcache, b"\r\n"),
            (Protocol::Memcache, b"VALUE a 0\r\n"),
            (Protocol::Memcache, b"VALUE a 0 x\r\n"),
            (Protocol::Memcache, b"VALUE a 0 1\r\nabc"),
            (Protocol::Memcache, b"VALUE a 0 99999999999999999999\r\n"),
            (Protocol::Memcache, &long),
            (Protocol::Resp, b"VALUE a 0 1\r\n"),
            (Protocol::Resp, b"$\r\n"),
            (Protocol::Resp, b"$-2\r\n"),
            (Protocol::Resp, b"*2\r\n*2\r\n"),
        ];
        for (protocol, input) in cases {
            assert_eq!(read(protocol, &[input]), Err(ReplyError), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn a_value_may_be_dropped_unseen() {
        for (protocol, head, tail) in [
            (Protocol::Memcache, &b"VALUE a 0 1000\r\nab"[..], &b"\r\nEND\r\n"[..]),
            (Protocol::Resp, b"$1000\r\nab", b"\r\n"),
        ] {
            let mut reader = ReplyReader::new(protocol);
            assert_eq!(reader.value_bytes_left(), 0);
            reader.advance(head, &mut NoSink).unwrap();
            assert_eq!(reader.value_bytes_left(), 998);
            reader.discarded(900);
            reader.discarded(98);
            assert_eq!(reader.value_bytes_left(), 0);
            let advance = reader.advance(tail, &mut NoSink).unwrap();
            assert_eq!(advance, Advance { consumed: tail.len(), reply: Some(Reply::Values { found: 1 }) });
        }
    }
}
