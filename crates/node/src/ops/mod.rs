//! Operations on items, below every protocol: their effects, counters and results.
//!
//! Operations compose no replies. A protocol calls them and reports their results in its own words.

mod append;
mod arithmetic;
mod cold;
mod context;
pub(crate) mod counters;
mod delete;
mod facts;
mod flush;
mod next;
mod pending;
mod prefixes;
mod read;
pub(crate) mod receiving;
mod report;
mod store;
mod store_operation;
mod touch;
mod work;

pub(crate) use arithmetic::{CountOperation, Counted, Failure, count};
pub(crate) use cold::{
    Below, CACHE_WAITS_MAX, Cold, Failed, Fetch, Fetched, FlashAnswer, ItemCopy, Need, WAITS_MAX,
    awaits_room, below, cold, entry, may_wait,
};
pub use context::Placement;
pub(crate) use context::{Admin, Context};
pub(crate) use delete::{DeleteOperation, Deleted, delete};
pub(crate) use facts::Facts;
pub(crate) use flush::{flush, flush_if_due};
pub(crate) use next::Next;
pub(crate) use pending::{PendingStore, Step};
pub(crate) use prefixes::{DELIMITER, Prefixes};
pub(crate) use read::{Read, count_get, read};
pub(crate) use report::report;
pub(crate) use store::{drop_for_too_large, item_class, store};
pub(crate) use store_operation::{StoreOperation, Stored};
pub(crate) use touch::{count_touch, touch};
pub(crate) use work::{AnswerStore, Finished, LargeStore, LargeStored, Work};
