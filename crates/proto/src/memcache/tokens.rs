//! The words of a line.

/// The words of a line, separated by spaces, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The words of `line`.
    pub fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// The input not walked yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| byte != b' ')?;
        let from_token = &self.rest[start..];
        let end = from_token.iter().position(|&byte| byte == b' ').unwrap_or(from_token.len());
        let (token, rest) = from_token.split_at(end);
        self.rest = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_order_without_spaces() {
        let words: Vec<&[u8]> = Tokens::new(b"  a bb   c ").collect();
        assert_eq!(words, [&b"a"[..], b"bb", b"c"]);
        assert_eq!(Tokens::new(b"   ").next(), None);
    }

    #[test]
    fn the_rest_follows_the_last_word_taken() {
        let mut tokens = Tokens::new(b"a bb c");
        tokens.next();
        tokens.next();
        assert_eq!(tokens.rest(), b" c");
    }
}
