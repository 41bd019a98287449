//! The parser of commands.

use memchr::memchr;

use super::{
    command::{Command, NEAR},
    number,
};

/// Longest line in bytes: of a count, a length, or a command for people, as in Redis.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Fewest bytes of a bulk string: `$0` and two line ends.
const BULK_BYTES_MIN: usize = 6;
/// Most arguments that a client may announce, as in Redis.
const ARGUMENTS_MAX: i64 = i32::MAX as i64;

/// Bounds on what is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string in bytes.
    pub bulk_bytes_max: u64,
    /// Longest command in bytes, but for a value that is received apart.
    pub command_bytes_max: usize,
}

/// The front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A whole command of so many bytes.
    Command(Command<'a>, usize),
    /// An array without elements, of so many bytes: there is no reply.
    Nothing(usize),
    /// A line of words without its line end, and the bytes of both; see [`rewrite_inline`](super::rewrite_inline).
    Inline(&'a [u8], usize),
    /// It ends within a command, which has at least this many bytes.
    NeedMore(usize),
    /// It ends within a bulk string whose length is known.
    Begun(Begun<'a>),
    /// Bytes that are no command, and Redis' text for them. The client cannot be understood any further.
    Malformed(&'static str),
    /// Another byte where a bulk string begins.
    NoBulk(u8),
}

/// A command with a part of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun<'a> {
    /// The command, with the arguments that are there.
    pub command: Command<'a>,
    /// Arguments of the whole command.
    pub arguments: usize,
    /// Length of the bulk string that is arriving.
    pub bulk_bytes: u64,
    /// Offset of its first byte.
    pub at: usize,
}

impl Begun<'_> {
    /// Bytes of the whole command, at least.
    pub fn wanted_bytes(&self) -> u64 {
        let behind = self.arguments - self.command.len() - 1;
        self.at as u64 + self.bulk_bytes + 2 + (behind as u64).saturating_mul(BULK_BYTES_MIN as u64)
    }
}

/// A line's end: where it is, or what is missing.
enum Line {
    At(usize),
    Missing,
    TooLong,
}

/// The number in a line behind its first byte, and the offset of the next line.
enum Count {
    Is(i64, usize),
    NoNumber,
    Missing,
    TooLong,
}

/// Reads the command at the front of `input`, which is not empty.
#[inline]
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    if input.first() != Some(&b'*') {
        return line_of_words(input);
    }
    let (count, mut at) = match count(input, 1) {
        Count::Is(count, at) => (count, at),
        Count::NoNumber => return Parsed::Malformed("invalid multibulk length"),
        Count::Missing => return Parsed::NeedMore(input.len() + 1),
        Count::TooLong => return Parsed::Malformed("too big mbulk count string"),
    };
    if count <= 0 {
        return Parsed::Nothing(at);
    }
    let fewest_bytes = count.saturating_mul(BULK_BYTES_MIN as i64);
    if count > ARGUMENTS_MAX {
        return Parsed::Malformed("invalid multibulk length");
    }
    if fewest_bytes > limits.command_bytes_max as i64 {
        return Parsed::Malformed("command exceeds --max-buffer, which CONFIG SET max-buffer can raise");
    }
    let arguments = count as usize;
    let mut command = Command { near: [&[]; NEAR], rest: &[], len: 0 };
    let mut rest_at = at;
    while command.len < arguments {
        let behind = (arguments - command.len) * BULK_BYTES_MIN;
        let (bulk_bytes, body) = match bulk_head(input, at, limits) {
            Head::Bulk(bytes, body) => (bytes, body),
            Head::Missing => return Parsed::NeedMore((at + behind).max(input.len() + 1)),
            Head::Malformed(text) => return Parsed::Malformed(text),
            Head::NoBulk(byte) => return Parsed::NoBulk(byte),
        };
        let end = body as u64 + bulk_bytes + 2;
        if end > input.len() as u64 {
            command.rest = &input[rest_at..at];
            return Parsed::Begun(Begun { command, arguments, bulk_bytes, at: body });
        }
        if command.len < NEAR {
            command.near[command.len] = &input[body..body + bulk_bytes as usize];
            rest_at = end as usize;
        }
        command.len += 1;
        at = end as usize;
    }
    command.rest = &input[rest_at..at];
    Parsed::Command(command, at)
}

/// The bulk string at the front of `input`, which is whole, and the input behind it.
#[inline]
pub(super) fn bulk(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let Count::Is(bytes, at) = count(input, 1) else { return None };
    let bytes = usize::try_from(bytes).ok()?;
    Some((input.get(at..at.checked_add(bytes)?)?, input.get(at + bytes + 2..)?))
}

/// The head of a bulk string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Its length, and the offset of its first byte.
    Bulk(u64, usize),
    /// It is not whole.
    Missing,
    /// Redis' text for a length that is none.
    Malformed(&'static str),
    /// Another byte.
    NoBulk(u8),
}

/// Reads the head of a bulk string at offset `at`.
#[inline]
pub fn bulk_head(input: &[u8], at: usize, limits: &Limits) -> Head {
    match count(&input[at..], 1) {
        Count::Missing => Head::Missing,
        Count::TooLong => Head::Malformed("too big bulk count string"),
        _ if input[at] != b'$' => Head::NoBulk(input[at]),
        Count::Is(bytes @ 0.., next) if bytes as u64 <= limits.bulk_bytes_max => {
            Head::Bulk(bytes as u64, at + next)
        }
        Count::Is(..) | Count::NoNumber => Head::Malformed("invalid bulk length"),
    }
}

/// Reads the number from offset `from` to the end of the line.
#[inline]
fn count(input: &[u8], from: usize) -> Count {
    // Nearly all have one digit or two.
    match input.get(from..) {
        Some([a @ b'0'..=b'9', b'\r', b'\n', ..]) => return Count::Is(i64::from(a - b'0'), from + 3),
        Some([a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..]) => {
            return Count::Is(i64::from(a - b'0') * 10 + i64::from(b - b'0'), from + 4);
        }
        _ => {}
    }
    match line(input, b'\r') {
        // A byte must follow; Redis does not look which.
        Line::At(end) if end + 1 < input.len() => match input.get(from..end).and_then(number::integer) {
            Some(number) => Count::Is(number, end + 2),
            None => Count::NoNumber,
        },
        Line::At(_) | Line::Missing => Count::Missing,
        Line::TooLong => Count::TooLong,
    }
}

fn line(input: &[u8], end: u8) -> Line {
    match memchr(end, &input[..input.len().min(LINE_BYTES_MAX + 1)]) {
        Some(at) => Line::At(at),
        None if input.len() > LINE_BYTES_MAX => Line::TooLong,
        None => Line::Missing,
    }
}

#[cold]
fn line_of_words(input: &[u8]) -> Parsed<'_> {
    match line(input, b'\n') {
        Line::At(end) => {
            let text = &input[..end];
            Parsed::Inline(text.strip_suffix(b"\r").unwrap_or(text), end + 1)
        }
        Line::Missing => Parsed::NeedMore(input.len() + 1),
        Line::TooLong => Parsed::Malformed("too big inline request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bulk_bytes_max: 1000, command_bytes_max: 5000 };

    fn words(input: &[u8]) -> Vec<Vec<u8>> {
        let Parsed::Command(command, consumed) = parse(input, &LIMITS) else { panic!("no command") };
        assert_eq!(consumed, input.len());
        command.arguments(0).map(<[u8]>::to_vec).collect()
    }

    fn array(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[test]
    fn arguments_are_what_was_sent() {
        let long = [b'x'; 999];
        let all: [&[u8]; 7] = [b"MSET", b"a", b"", b"\r\n$5\r\n", b"*", &long, b"last"];
        for count in 1..=all.len() {
            let bytes = array(&all[..count]);
            assert_eq!(words(&bytes), all[..count]);
            let Parsed::Command(command, _) = parse(&bytes, &LIMITS) else { unreachable!() };
            for from in 0..9 {
                let behind: Vec<_> = command.arguments(from).collect();
                assert_eq!(behind, all[..count].get(from..).unwrap_or_default(), "{from} of {count}");
                assert_eq!(command.argument(from), all[..count].get(from).copied());
            }
        }
    }

    #[test]
    fn what_redis_refuses_is_refused_in_its_words() {
        for (input, text) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*03\r\n", "invalid multibulk length"),
            ("*2147483648\r\n", "invalid multibulk length"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$1001\r\n", "invalid bulk length"),
            ("*1\r\n$x\r\n", "invalid bulk length"),
        ] {
            assert_eq!(parse(input.as_bytes(), &LIMITS), Parsed::Malformed(text), "{input:?}");
        }
        assert_eq!(parse(b"*1\r\nGET\r\n", &LIMITS), Parsed::NoBulk(b'G'));
        assert_eq!(parse(b"*-1\r\n*1", &LIMITS), Parsed::Nothing(5));
        let long = [b'1'; LINE_BYTES_MAX + 2];
        for (front, text) in [
            ("*", "too big mbulk count string"),
            ("*1\r\n$", "too big bulk count string"),
            ("GET", "too big inline request"),
        ] {
            let input = [front.as_bytes(), &long].concat();
            assert_eq!(parse(&input, &LIMITS), Parsed::Malformed(text), "{front}");
        }
    }

    #[test]
    fn a_front_of_a_command_tells_how_much_is_missing() {
        let whole = array(&[b"SET", b"key", &[7; 300], b"PX", b"1000", b"GET"]);
        for length in 1..whole.len() {
            let wanted = match parse(&whole[..length], &LIMITS) {
                Parsed::NeedMore(wanted) => wanted,
                Parsed::Begun(begun) => {
                    assert_eq!(begun.arguments, 6);
                    let there: Vec<_> = begun.command.arguments(0).collect();
                    let all: Vec<_> = words(&whole);
                    assert_eq!(there, all[..there.len()], "{length}");
                    assert_eq!(all[there.len()].len() as u64, begun.bulk_bytes);
                    begun.wanted_bytes() as usize
                }
                other => panic!("{length}: {other:?}"),
            };
            assert!(length < wanted && wanted <= whole.len(), "{length} {wanted}");
        }
    }
}
