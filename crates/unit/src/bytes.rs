//! Reads and writes numbers, little-endian.

/// Bytes that break a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message: {0}")]
pub struct BadBytes(pub(crate) &'static str);

pub(crate) fn put(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend(number.to_le_bytes());
}

pub(crate) fn put_long(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend(number.to_le_bytes());
}

/// The bytes that are left.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], BadBytes> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(BadBytes("too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], BadBytes> {
        let (array, rest) = self.0.split_first_chunk().ok_or(BadBytes("too short"))?;
        self.0 = rest;
        Ok(*array)
    }

    pub(crate) fn number(&mut self) -> Result<u32, BadBytes> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<u64, BadBytes> {
        self.array().map(u64::from_le_bytes)
    }

    /// One byte, 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, BadBytes> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(BadBytes("a flag")),
        }
    }

    pub(crate) fn at_most(&mut self, max: u32, fault: &'static str) -> Result<u32, BadBytes> {
        self.number().and_then(|number| (number <= max).then_some(number).ok_or(BadBytes(fault)))
    }

    /// A list with its length before it. Memory is taken as items are read, so that a length alone takes none.
    pub(crate) fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, BadBytes>,
    ) -> Result<Vec<T>, BadBytes> {
        let length = self.number()?;
        let mut list = Vec::new();
        for _ in 0..length {
            list.push(item(self)?);
        }
        Ok(list)
    }

    pub(crate) fn end(self) -> Result<(), BadBytes> {
        self.0.is_empty().then_some(()).ok_or(BadBytes("bytes are left"))
    }
}
