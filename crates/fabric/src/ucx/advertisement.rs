//! What a reader must know of memory:
//!
//! ```text
//! magic 8 | version 4 | bytes of the address 4 | base 8 | bytes of the memory 8 | address | key
//! ```
//!
//! Numbers are little endian. Address and key are UCX's own, and change with its version.

use super::{UcxError, sys};

const MAGIC: [u8; 8] = *b"minosucx";
const HEAD_BYTES: usize = 32;

/// An advertisement, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advertisement<'a> {
    /// Where the memory begins in its owner's process.
    pub(super) base: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
    pub(super) address: &'a [u8],
    pub(super) key: &'a [u8],
}

impl<'a> Advertisement<'a> {
    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(sys::minos_ucx_version().to_le_bytes());
        out.extend((self.address.len() as u32).to_le_bytes());
        out.extend(self.base.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend_from_slice(self.address);
        out.extend_from_slice(self.key);
        out
    }

    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, UcxError> {
        Self::parse(bytes).ok_or(UcxError::Advertisement)
    }

    fn parse(all: &'a [u8]) -> Option<Self> {
        let (head, rest) = all.split_first_chunk::<HEAD_BYTES>()?;
        let (magic, head) = head.split_first_chunk::<8>()?;
        let (version, head) = head.split_first_chunk::<4>()?;
        let (address_bytes, head) = head.split_first_chunk::<4>()?;
        let (base, head) = head.split_first_chunk::<8>()?;
        let bytes = u64::from_le_bytes(*head.first_chunk::<8>()?);
        let base = u64::from_le_bytes(*base);
        if *magic != MAGIC || u32::from_le_bytes(*version) != sys::minos_ucx_version() {
            return None;
        }
        base.checked_add(bytes)?;
        let (address, key) = rest.split_at_checked(u32::from_le_bytes(*address_bytes) as usize)?;
        (!address.is_empty() && !key.is_empty()).then_some(Self { base, bytes, address, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_is_read() {
        let good = Advertisement { base: 4096, bytes: 8192, address: b"address", key: b"key" }.to_vec();
        let read = Advertisement::of(&good).unwrap();
        assert_eq!(
            (read.base, read.bytes, read.address, read.key),
            (4096, 8192, &b"address"[..], &b"key"[..])
        );
        for length in 0..=HEAD_BYTES + b"address".len() {
            assert!(Advertisement::of(&good[..length]).is_err(), "{length} bytes");
        }
        // Another magic, version, a length of the address beyond the end, and an end that comes round.
        for (at, byte) in [(0, 0), (8, 0xff), (15, 0xff), (23, 0xff)] {
            let mut bad = good.clone();
            bad[at] = byte;
            if at == 23 {
                bad[16..32].fill(0xff);
            }
            assert!(Advertisement::of(&bad).is_err(), "byte {at}");
        }
    }
}
