//! Patterns of KEYS and SCAN.

/// Longest pattern in bytes. A match takes at most as many steps as pattern and key have bytes, multiplied.
pub(super) const PATTERN_BYTES_MAX: usize = 1024;

/// True if `text` matches `pattern`, as in Redis: `*`, `?`, `[a-z]`, `[^a]` and `\` before any of them.
pub(super) fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    // Where to go on if the present attempt fails: behind the last star, a byte later.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        match (one(pattern, text.first().copied()), text) {
            (One::End, []) => return true,
            (One::Match(rest), [_, behind @ ..]) => (pattern, text) = (rest, behind),
            _ => match retry {
                Some((behind_star, [_, later @ ..])) => {
                    retry = Some((behind_star, later));
                    (pattern, text) = (behind_star, later);
                }
                _ => return false,
            },
        }
    }
}

/// The front of a pattern against one byte.
enum One<'a> {
    /// The pattern has ended.
    End,
    /// It matches; this follows.
    Match(&'a [u8]),
    Differs,
}

fn one(pattern: &[u8], byte: Option<u8>) -> One<'_> {
    let (front, rest) = match pattern {
        [] => return One::End,
        [b'[', set @ ..] => {
            let (is_in, rest) = in_set(set, byte.unwrap_or(0));
            return if is_in && byte.is_some() { One::Match(rest) } else { One::Differs };
        }
        [b'?', rest @ ..] => return if byte.is_some() { One::Match(rest) } else { One::Differs },
        [b'\\', escaped, rest @ ..] => (*escaped, rest),
        [front, rest @ ..] => (*front, rest),
    };
    if byte == Some(front) { One::Match(rest) } else { One::Differs }
}

/// True if `byte` is in the set that `set` begins with, and the pattern behind it. One that is not closed ends with the
/// pattern.
fn in_set(set: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_negated, mut rest) = match set {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_in = false;
    loop {
        rest = match rest {
            [] => return (is_in != is_negated, rest),
            [b']', behind @ ..] => return (is_in != is_negated, behind),
            [b'\\', escaped, behind @ ..] => {
                is_in |= *escaped == byte;
                behind
            }
            [low, b'-', high, behind @ ..] => {
                is_in |= (*low.min(high)..=*low.max(high)).contains(&byte);
                behind
            }
            [single, behind @ ..] => {
                is_in |= *single == byte;
                behind
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a**b*", "ab", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("[a", "a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*a*b*c", "xxaxxbxxbxc", true),
            ("*a*b*c", "xxaxxbxxbxcd", false),
            ("[\\]]", "]", true),
            ("k:?", "k:", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time_beyond_the_bound() {
        let pattern = "*a".repeat(500);
        assert!(!matches(pattern.as_bytes(), "a".repeat(250).as_bytes()));
    }
}
