//! Keys as they stand in a request.

use minos_base::limits::KEY_BYTES_MAX;

use super::base64;

/// Room for a decoded key. Costs nothing until a key has to be decoded.
#[derive(Clone, Debug, Default)]
pub struct KeyBuffer(Option<[u8; KEY_BYTES_MAX]>);

/// A key as it stands in the input, 1 to [`KEY_BYTES_MAX`] bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The bytes themselves.
    Plain(&'a [u8]),
    /// The base64 form of the bytes. The parser has seen that it decodes.
    Base64(&'a [u8]),
}

impl<'a> Key<'a> {
    /// The key's bytes, decoded into `buffer` where that is needed.
    ///
    /// Decoding waits until here so that a request stays a few words long and nothing is copied for
    /// the common, plain key. A text that does not decode gives the empty key, which no store holds.
    #[inline]
    pub fn bytes<'b>(self, buffer: &'b mut KeyBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Base64(text) => {
                let room = buffer.0.insert([0; KEY_BYTES_MAX]);
                let decoded_bytes = base64::decode(text, room).unwrap_or(0);
                &room[..decoded_bytes]
            }
        }
    }

    /// True if the client sent the key in base64, so that replies use base64 too.
    pub fn is_base64(self) -> bool {
        matches!(self, Self::Base64(_))
    }
}
