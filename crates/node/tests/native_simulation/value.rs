//! Values that identify the operations that wrote them.

use std::fmt;

/// Bytes of a token before its pattern.
const HEAD_BYTES: usize = 8;

/// The content of an item: tokens in their order, or a number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    /// Tokens, each written by one operation.
    Tokens(Vec<Token>),
    /// A number, written as decimal digits.
    Number(u64),
}

/// Bytes that no other operation writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    /// The identity of the operation that wrote it.
    pub(crate) id: u32,
    pub(crate) pattern_bytes: u32,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Tokens(tokens) => f.debug_list().entries(tokens.iter().map(|token| token.id)).finish(),
        }
    }
}

impl Token {
    pub(crate) fn alone(self) -> Value {
        Value::Tokens(vec![self])
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.pattern_bytes.to_le_bytes());
        out.extend((0..self.pattern_bytes).map(|at| pattern(self.id, at)));
    }
}

/// The byte at `at` of a token. Neither two fragments of a token nor the bytes of two tokens are alike.
fn pattern(id: u32, at: u32) -> u8 {
    (id.wrapping_mul(0x9e37_79b1) ^ at.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0xc2b2_ae35).to_le_bytes()[3]
}

impl Value {
    /// The bytes that the item holds.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Number(number) => number.to_string().into_bytes(),
            Self::Tokens(tokens) => {
                let mut out = Vec::new();
                tokens.iter().for_each(|token| token.write(&mut out));
                out
            }
        }
    }

    /// Parses the content of an item. Bytes that no operation can have written are an error.
    pub(crate) fn parse(bytes: &[u8], is_number: bool) -> Result<Self, String> {
        if is_number {
            // A number that became shorter is padded with spaces, as memcached does.
            let text = String::from_utf8_lossy(bytes);
            return text.trim_end().parse().map(Self::Number).map_err(|_| format!("no number: {text:?}"));
        }
        let mut tokens = Vec::new();
        let mut left = bytes;
        while !left.is_empty() {
            let at = bytes.len() - left.len();
            let (token, behind) = read_token(left)
                .ok_or_else(|| format!("no token at {at} of {} bytes, behind {tokens:?}", bytes.len()))?;
            tokens.push(token);
            left = behind;
        }
        Ok(Self::Tokens(tokens))
    }
}

fn read_token(bytes: &[u8]) -> Option<(Token, &[u8])> {
    let (head, behind) = bytes.split_at_checked(HEAD_BYTES)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let token = Token { id: number(0), pattern_bytes: number(4) };
    let (written, behind) = behind.split_at_checked(token.pattern_bytes as usize)?;
    let is_whole = (0..).zip(written).all(|(at, &byte)| byte == pattern(token.id, at));
    is_whole.then_some((token, behind))
}

#[test]
fn values_tell_what_was_written() {
    let tokens = [(1, 0), (2, 5000), (1 << 30, 7)];
    let value = Value::Tokens(tokens.map(|(id, pattern_bytes)| Token { id, pattern_bytes }).to_vec());
    let mut bytes = value.bytes();
    assert_eq!(Value::parse(&bytes, false), Ok(value));
    assert_eq!(Value::parse(b"17  ", true), Ok(Value::Number(17)));
    assert_eq!(Value::parse(b"", false), Ok(Value::Tokens(Vec::new())));
    // Fragments in the wrong order, and a missing fragment.
    let swapped = [&bytes[..2000], &bytes[3000..4000], &bytes[2000..3000], &bytes[4000..]].concat();
    assert!(Value::parse(&swapped, false).is_err());
    assert!(Value::parse(&bytes[..bytes.len() - 1], false).is_err());
    bytes[3000] ^= 1;
    assert!(Value::parse(&bytes, false).is_err());
    assert!(Value::parse(b"17x", true).is_err());
}
