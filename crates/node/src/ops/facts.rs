//! The properties of an item, independent of how it is held.

use minos_base::Seconds;
use minos_engine::ItemState;

/// The parts of an item that decide replies and conditions; a request may change them as it proceeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bytes of the value.
    pub(crate) value_bytes: u64,
    /// The client's flags.
    pub(crate) flags: u32,
    /// Its CAS unique.
    pub(crate) cas: u64,
    pub(crate) expiry: Seconds,
    pub(crate) last_access: Seconds,
    pub(crate) fetched: bool,
    pub(crate) stale: bool,
    pub(crate) win_sent: bool,
    /// True if the client that stored the item sent its key in base64.
    pub(crate) key_is_base64: bool,
}

impl Facts {
    /// True if a client has marked the item: a read of it may change the marks.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.stale || self.win_sent
    }
}

impl From<&ItemState> for Facts {
    #[inline]
    fn from(item: &ItemState) -> Self {
        Self {
            value_bytes: item.value_bytes() as u64,
            flags: item.flags(),
            cas: item.cas(),
            expiry: item.expiry(),
            last_access: item.last_access(),
            fetched: item.was_fetched(),
            stale: item.is_stale(),
            win_sent: item.is_win_sent(),
            key_is_base64: item.has_encoded_key(),
        }
    }
}
