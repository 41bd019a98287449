//! The records behind a datagram's header, one after another.

use std::{iter::FusedIterator, marker::PhantomData};

use super::{Header, Kind, Malformed, RECORD_ALIGN};

/// A record of which a datagram may hold many.
pub trait Record<'a>: Sized {
    /// The kind of the datagrams that hold it.
    const KIND: Kind;

    /// Reads the record at the front of `records`; returns it and the bytes behind it.
    fn parse(records: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed>;
}

/// The records of a datagram, in order; ends with the first one that cannot be read.
/// Bytes behind the last one are ignored.
#[derive(Clone, Debug)]
pub struct Records<'a, R> {
    records: &'a [u8],
    left: u16,
    of: PhantomData<R>,
}

impl<'a, R: Record<'a>> Records<'a, R> {
    /// The records of `datagram`, whose header is `header`: none if that is of another kind.
    #[inline]
    pub(super) fn new(datagram: &'a [u8], header: &Header) -> Self {
        let left = if header.kind == R::KIND { header.count } else { 0 };
        Self { records: header.body(datagram), left, of: PhantomData }
    }
}

impl<'a, R: Record<'a>> Iterator for Records<'a, R> {
    type Item = Result<R, Malformed>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(match R::parse(self.records) {
            Ok((record, behind)) => {
                self.records = behind;
                Ok(record)
            }
            Err(malformed) => {
                self.left = 0;
                Err(malformed)
            }
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left.min(1)), Some(usize::from(self.left)))
    }
}

impl<'a, R: Record<'a>> FusedIterator for Records<'a, R> {}

/// The bytes behind the padding of a record of `record_bytes`; `behind` begins with the padding.
#[inline]
pub(super) fn behind_padding(behind: &[u8], record_bytes: usize) -> Result<&[u8], Malformed> {
    let padding_bytes = record_bytes.wrapping_neg() % RECORD_ALIGN;
    behind.get(padding_bytes..).ok_or(Malformed::Record)
}
