//! The modes of a table as types (MICA §4.3): a mode decides how a table handles full memory.

use crate::{parts::Parts, restart::reopen::Reopen};

/// The behaviour of a table when its memory is full: [`crate::StoreMode`], [`crate::CacheMode`] or
/// [`crate::TieredMode`].
#[expect(private_bounds, reason = "there are no other modes than those of this crate")]
pub trait Mode: Parts + Reopen {
    /// Its name on the command line.
    const NAME: &'static str;
}
