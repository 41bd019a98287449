//! Comparison of two reply streams by meaning.

use std::{collections::HashMap, fmt, time::Duration};

use crate::excuses::Excuse;

/// Seconds by which remaining times may differ: the servers' clocks tick at different moments, and memcached's late on a
/// busy machine. There a command may also reach one of them seconds later than the other.
const SECONDS_APART: u64 = 2;

/// The answer to a command that counts, about a value that is no number.
const NON_NUMERIC: &str = "\"CLIENT_ERROR cannot increment or decrement non-numeric value\"";

/// The first lines that differ, in words.
#[derive(Debug)]
pub(crate) struct Difference {
    left: String,
    right: String,
}

impl Difference {
    /// What excuses it, if it is seldom.
    pub(crate) fn excuse(&self) -> Option<Excuse> {
        let unread = self.left.replace(" h1", " h0").replace("fetch=yes", "fetch=no");
        if self.left.starts_with(NON_NUMERIC) {
            Some(Excuse::Confused)
        } else {
            (unread == self.right).then_some(Excuse::Unrecorded)
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} against {}", self.left, self.right)
    }
}

/// Compares replies of two servers on one sequence of commands.
///
/// CAS uniques are private to a server. They agree when each was first seen at the same place.
#[derive(Default)]
pub(crate) struct Comparison {
    seconds_apart: u64,
    left_uniques: HashMap<u64, usize>,
    right_uniques: HashMap<u64, usize>,
}

impl Comparison {
    /// The first difference in replies that have come so long after the first command.
    pub(crate) fn difference(&mut self, left: &[u8], right: &[u8], after: Duration) -> Option<Difference> {
        self.seconds_apart = SECONDS_APART + after.as_secs();
        let (mut lefts, mut rights) = (Lines::new(left), Lines::new(right));
        loop {
            match (lefts.next(), rights.next()) {
                (None, None) => return None,
                (Some(left), Some(right)) if self.is_same_line(left, right) => {}
                (left, right) => return Some(Difference { left: shown(left), right: shown(right) }),
            }
        }
    }

    fn is_same_line(&mut self, left: Line<'_>, right: Line<'_>) -> bool {
        if left.text.starts_with(b"VERSION ") && right.text.starts_with(b"VERSION ") {
            return true;
        }
        let lefts: Vec<&[u8]> = left.text.split(|&byte| byte == b' ').collect();
        let rights: Vec<&[u8]> = right.text.split(|&byte| byte == b' ').collect();
        left.value == right.value
            && lefts.len() == rights.len()
            && (0..lefts.len()).all(|field| {
                lefts[field] == rights[field] && unique(lefts[0], field, lefts[field]).is_none()
                    || self.is_same_meaning((lefts[0], field), lefts[field], rights[field])
            })
    }

    fn is_same_meaning(&mut self, (kind, field): (&[u8], usize), left: &[u8], right: &[u8]) -> bool {
        if let (Some(left), Some(right)) = (unique(kind, field, left), unique(kind, field, right)) {
            return self.is_same_unique(left, right);
        }
        if let (Some(left), Some(right)) = (seconds(left), seconds(right)) {
            return left.0 == right.0 && left.1.abs_diff(right.1) <= self.seconds_apart;
        }
        // Values of debug fields that are private to a server: only their names must agree.
        kind == b"ME" && is_private(left) && is_private(right) && name(left) == name(right)
    }

    fn is_same_unique(&mut self, left: u64, right: u64) -> bool {
        let (next_left, next_right) = (self.left_uniques.len(), self.right_uniques.len());
        let left = *self.left_uniques.entry(left).or_insert(next_left);
        let right = *self.right_uniques.entry(right).or_insert(next_right);
        left == right
    }
}

/// One line of a reply, with the value that follows it, if any.
#[derive(Clone, Copy)]
struct Line<'a> {
    text: &'a [u8],
    value: &'a [u8],
}

struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&byte| byte == b'\n').map_or(self.rest.len(), |at| at + 1);
        let line = self.take(end);
        // A line with another end than \r\n keeps it, and so differs.
        let text = line.strip_suffix(b"\r\n").unwrap_or(line);
        let value = value_bytes(text).map_or(&[][..], |bytes| self.take(bytes + 2));
        Some(Line { text, value })
    }
}

/// The length of the value that the line announces.
fn value_bytes(line: &[u8]) -> Option<usize> {
    let mut fields = line.split(|&byte| byte == b' ');
    let length = match fields.next()? {
        b"VALUE" => fields.nth(2)?,
        b"VA" => fields.next()?,
        _ => return None,
    };
    number(length)
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The CAS unique in a field: the last of a VALUE line, `c` in a meta reply, `cas=` in a debug one.
fn unique(kind: &[u8], field: usize, text: &[u8]) -> Option<u64> {
    match kind {
        b"VALUE" if field == 4 => number(text),
        b"HD" | b"VA" | b"EN" | b"NS" | b"EX" | b"NF" => number(text.strip_prefix(b"c")?),
        b"ME" => number(text.strip_prefix(b"cas=")?),
        _ => None,
    }
}

/// A time: to live, since access, or absolute in a debug line; with its name, which must agree too.
///
/// memcached prints an expired time to live as an unsigned number that wrapped below zero.
fn seconds(field: &[u8]) -> Option<(&[u8], i64)> {
    let named = |name: &'static [u8]| Some((name, number(field.strip_prefix(name)?)?));
    let (name, seconds) = [&b"t"[..], b"l", b"exp=", b"la="].into_iter().find_map(named)?;
    Some((name, if seconds > i64::from(i32::MAX) { 0 } else { seconds }))
}

fn is_private(field: &[u8]) -> bool {
    field.starts_with(b"cls=") || field.starts_with(b"size=")
}

fn name(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == b'=').next().unwrap_or(field)
}

fn shown(line: Option<Line<'_>>) -> String {
    let Some(Line { text, value }) = line else { return "nothing".to_owned() };
    let head = &value[..value.len().min(60)];
    format!("\"{}\" with {} bytes \"{}\"", text.escape_ascii(), value.len(), head.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(left: &str, right: &str) -> bool {
        is_same_after(left, right, 0)
    }

    fn is_same_after(left: &str, right: &str, seconds: u64) -> bool {
        let after = Duration::from_secs(seconds);
        Comparison::default().difference(left.as_bytes(), right.as_bytes(), after).is_none()
    }

    #[test]
    fn two_differences_have_an_excuse() {
        let excuse = |left: &str, right: &str| {
            Comparison::default().difference(left.as_bytes(), right.as_bytes(), Duration::ZERO)?.excuse()
        };
        let refusal = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        assert_eq!(excuse(refusal, "7\r\n"), Some(Excuse::Confused));
        assert_eq!(excuse("7\r\n", refusal), None);
        assert_eq!(excuse("HD Ot7 h1 s3\r\n", "HD Ot7 h0 s3\r\n"), Some(Excuse::Unrecorded));
        assert_eq!(excuse("HD Ot7 h0 s3\r\n", "HD Ot7 h1 s3\r\n"), None);
        assert_eq!(excuse("HD h1 s3\r\n", "HD h0 s4\r\n"), None);
    }

    #[test]
    fn uniques_agree_by_their_first_place() {
        assert!(is_same("HD c5\r\nHD c9\r\nHD c5\r\n", "HD c70\r\nHD c3\r\nHD c70\r\n"));
        assert!(!is_same("HD c5\r\nHD c9\r\nHD c5\r\n", "HD c70\r\nHD c3\r\nHD c3\r\n"));
        assert!(!is_same("VALUE a 0 1 1\r\nx\r\nHD c1\r\n", "VALUE a 0 1 1\r\nx\r\nHD c2\r\n"));
        // The same number need not mean the same write.
        assert!(!is_same("HD c1\r\nHD c2\r\nHD c2\r\n", "HD c2\r\nHD c1\r\nHD c2\r\n"));
    }

    #[test]
    fn times_may_be_two_seconds_apart() {
        assert!(is_same("HD t100 l0\r\n", "HD t99 l1\r\n"));
        assert!(is_same("HD t4294967235\r\n", "HD t0\r\n"));
        assert!(is_same("HD t100\r\n", "HD t98\r\n") && !is_same("HD t100\r\n", "HD t97\r\n"));
        assert!(is_same_after("HD t100\r\n", "HD t96\r\n", 2));
        assert!(!is_same_after("HD t100\r\n", "HD t95\r\n", 2));
        assert!(!is_same("HD t1\r\n", "HD l1\r\n"));
        assert!(!is_same("HD t-1\r\n", "HD t100\r\n"));
    }

    #[test]
    fn everything_else_agrees_to_the_byte() {
        assert!(is_same("VALUE a 0 4\r\nHD\r\n\r\nEND\r\n", "VALUE a 0 4\r\nHD\r\n\r\nEND\r\n"));
        for (left, right) in [
            ("END\r\n", "END\n"),
            ("ERROR\r\n", "CLIENT_ERROR bad command line format\r\n"),
            ("END\r\n", ""),
            ("HD\r\n", "HD \r\n"),
            ("VALUE a 0 2\r\nt1\r\n", "VALUE a 0 2\r\nt2\r\n"),
            ("VA 2 f1\r\nab\r\n", "VA 2 f2\r\nab\r\n"),
            ("1\r\n", "2\r\n"),
        ] {
            assert!(!is_same(left, right), "{left:?} {right:?}");
        }
    }
}
