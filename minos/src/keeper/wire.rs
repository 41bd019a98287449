//! Lines between a keeper and the processes whose memory it keeps.

use std::{
    fmt,
    io::{self, Read},
    str::FromStr,
};

/// Longest line, its end included.
pub(super) const LINE_BYTES_MAX: usize = 256;
/// Longest name of a memory.
const NAME_BYTES_MAX: usize = 64;

/// The pages of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Those of any memfd: 2 MiB where `shmem_enabled` allows it.
    Usual,
    /// Reserved ones of 2 MiB.
    Huge,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Usual => "memfd",
            Self::Huge => "hugetlb",
        })
    }
}

impl FromStr for Pages {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "memfd" => Ok(Self::Usual),
            "hugetlb" => Ok(Self::Huge),
            _ => Err(()),
        }
    }
}

/// What a process asks a keeper for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Take(&'a str),
    Create { bytes: u64, pages: Pages },
    Publish,
    Remove,
    List,
    Drop(&'a str),
}

impl<'a> Request<'a> {
    /// The request in a line; `None` if it is none.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let request = match words.next()? {
            "take" => Self::Take(words.next().filter(|name| is_name(name))?),
            "create" => {
                let bytes = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
                Self::Create { bytes: bytes.parse().ok()?, pages: words.next()?.parse().ok()? }
            }
            "publish" => Self::Publish,
            "remove" => Self::Remove,
            "list" => Self::List,
            "drop" => Self::Drop(words.next().filter(|name| is_name(name))?),
            _ => return None,
        };
        words.next().is_none().then_some(request)
    }
}

/// True for the name of a memory: letters, digits, `.`, `_` and `-`.
pub(crate) fn is_name(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_fit)
}

/// Reads a line, and nothing behind it, because a descriptor may follow. `None` at the end of the stream.
///
/// # Errors
/// The line is too long or cut off, or the stream fails.
pub(super) fn read_line<'a>(
    stream: &mut impl Read,
    line: &'a mut [u8; LINE_BYTES_MAX],
) -> io::Result<Option<&'a [u8]>> {
    for at in 0..LINE_BYTES_MAX {
        match stream.read_exact(&mut line[at..=at]) {
            Err(error) if at == 0 && error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if line[at] == b'\n' {
            return Ok(Some(&line[..at]));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_known_to_the_letter() {
        let parse = |line: &'static str| Request::parse(line.as_bytes());
        assert_eq!(parse("take r-0.x_1"), Some(Request::Take("r-0.x_1")));
        let create = Request::Create { bytes: 2 << 20, pages: Pages::Huge };
        assert_eq!(parse("create 2097152 hugetlb"), Some(create));
        assert_eq!(parse("publish"), Some(Request::Publish));
        for wrong in
            ["", "take", "take ", "take a b", "take a/b", "take \u{e4}", "create 1", "create -1 memfd"]
        {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        for wrong in ["create +1 memfd", "create 99999999999999999999 memfd", "list x", "Take a", "drop"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(Request::parse(&[b't', 0xff]), None);
        assert!(is_name(&"n".repeat(NAME_BYTES_MAX)) && !is_name(&"n".repeat(NAME_BYTES_MAX + 1)));
    }

    #[test]
    fn a_line_ends_where_it_ends() {
        let mut line = [0; LINE_BYTES_MAX];
        let mut stream = &b"one\n\nrest"[..];
        assert_eq!(read_line(&mut stream, &mut line).unwrap(), Some(&b"one"[..]));
        assert_eq!(read_line(&mut stream, &mut line).unwrap(), Some(&b""[..]));
        assert_eq!(stream, b"rest");
        assert!(read_line(&mut stream, &mut line).is_err(), "cut off");
        assert_eq!(read_line(&mut stream, &mut line).unwrap(), None);
        assert!(read_line(&mut &[b'x'; LINE_BYTES_MAX][..], &mut line).is_err(), "too long");
    }
}
