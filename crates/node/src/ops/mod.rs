//! Operations on items, below every protocol: their effects, counters and results.
//!
//! Operations compose no replies. A protocol calls them and reports their results in its own words.

mod arithmetic;
mod cold;
mod context;
pub(crate) mod counters;
mod delete;
mod fetched;
mod find;
mod flush;
mod lookup;
mod moment;
mod pending;
mod prefixes;
mod read;
pub(crate) mod receiving;
mod report;
mod store;
mod work;

pub(crate) use arithmetic::{CountOperation, Counted, Failure, count};
pub(crate) use cold::{Below, RETRY, awaits_room, below, cold, entry, entry_for, may_wait, waits_max};
pub use context::Placement;
pub(crate) use context::{Admin, Client, Context};
pub(crate) use delete::{DeleteOperation, Deleted, delete, deleted_on_flash};
pub(crate) use fetched::{Cold, Failed, Fetched, FlashAnswer, Need, Walked};
pub(crate) use find::{Found, Head, find};
pub(crate) use flush::{flush, flush_if_due, flush_in_turn};
pub(crate) use lookup::Lookup;
pub(crate) use moment::{Moment, Standstill, bury, now_ms};
pub(crate) use pending::{PendingStore, Step};
pub(crate) use prefixes::{DELIMITER, Prefixes};
pub(crate) use read::{Facts, Read, count_get, count_touch, read, touch};
pub(crate) use report::report;
pub(crate) use store::{Life, StoreOperation, Stored, drop_for_too_large, item_class, put, store};
pub(crate) use work::{
    AnswerStore, Fetch, Finished, LINE_END, LargeStore, LargeStored, Next, ReadTrailer, TrailerEnd, WalkWish,
    Work,
};
