//! Which keys a user may use.

use std::fmt;

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Something is told that is not its value: that it is there, or of what kind and length it is.
    Any,
    /// Its value, or something about it, is told.
    Read,
    /// It is changed.
    Write,
    /// Both, as by a count.
    Both,
}

/// A rule for keys: those that begin with a prefix, or one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRule {
    prefix: Box<str>,
    /// The key ends with the prefix.
    is_exact: bool,
    reads: bool,
    writes: bool,
}

impl KeyRule {
    /// Reads `~PATTERN` or `%R~PATTERN`; `None` if the rule is another one.
    pub(crate) fn parse(rule: &str) -> Option<Result<Self, &'static str>> {
        let (rights, pattern) = match (rule.strip_prefix('~'), rule.strip_prefix('%')) {
            (Some(pattern), _) => ("RW", pattern),
            (None, Some(rest)) => match rest.split_once('~') {
                Some(parts) => parts,
                None => return Some(Err("expected %R~, %W~ or %RW~ and a pattern")),
            },
            (None, None) => return None,
        };
        Some(Self::of(rights, pattern))
    }

    fn of(rights: &str, pattern: &str) -> Result<Self, &'static str> {
        let (reads, writes) = match rights.to_ascii_uppercase().as_str() {
            "R" => (true, false),
            "W" => (false, true),
            "RW" | "WR" => (true, true),
            _ => return Err("expected %R~, %W~ or %RW~ and a pattern"),
        };
        let (prefix, is_exact) = pattern.strip_suffix('*').map_or((pattern, true), |prefix| (prefix, false));
        if prefix.contains(['*', '?', '[', ']', '\\']) {
            return Err("a pattern is a key, or a prefix and one * at its end");
        }
        // Of the file they make other words, or another line.
        if prefix.contains(|c: char| c.is_ascii_whitespace() || c.is_ascii_control()) {
            return Err("a pattern has no white space and no control characters");
        }
        if is_exact && prefix.is_empty() {
            return Err("no key is empty");
        }
        Ok(Self { prefix: prefix.into(), is_exact, reads, writes })
    }

    /// True if `key` may be used so by this rule alone.
    #[inline]
    pub(crate) fn allows(&self, key: &[u8], access: Access) -> bool {
        let has_rights = match access {
            Access::Any => true,
            Access::Read => self.reads,
            Access::Write => self.writes,
            Access::Both => self.reads && self.writes,
        };
        has_rights && self.matches(key)
    }

    #[inline]
    fn matches(&self, key: &[u8]) -> bool {
        let prefix = self.prefix.as_bytes();
        if self.is_exact { key == prefix } else { key.starts_with(prefix) }
    }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.reads, self.writes) {
            (true, true) => "~",
            (true, false) => "%R~",
            _ => "%W~",
        })?;
        f.write_str(&self.prefix)?;
        f.write_str(if self.is_exact { "" } else { "*" })
    }
}
