//! Execution of commands against the store, one operation a file. Protocol and store meet here.
//!
//! A request for a small item is executed to completion and its reply appended to the transmit buffer.
//! What belongs elsewhere, or is better moved without a copy, comes back as an [`Outcome`] that owns
//! all it needs, so that it can be handed to another worker together with its connection.

mod append;
mod arithmetic;
mod debug;
mod delete;
mod flush;
mod get;
mod get_many;
#[cfg(any(test, fuzzing))]
mod harness;
mod item;
mod large;
mod meta_get;
mod outcome;
mod pending;
mod prefixes;
mod stats;
mod store;
mod touch;

#[cfg(fuzzing)]
pub mod fuzz;
#[cfg(test)]
mod tests;

use std::{fmt::Display, sync::Arc};

use minos_base::{Clock, KeyHash, Seconds, SizeClass};
use minos_command::{KeyBuffer, Request, ShutdownMode, StatsGroup};
use minos_engine::{Engine, Mode, Staged};
use minos_proto::memcache::{Command, Reply, compose, text};
use minos_sched::WorkerId;

use crate::counters::{Counters, Totals};
use crate::receiving::ReceivePermit;

// What the commands of every protocol come down to.
pub(crate) use arithmetic::{Counted, Failure, count};
pub(crate) use delete::{Deleted, delete};
pub(crate) use flush::{execute as flush, flush_if_due};
pub(crate) use get::{Read, count_get, count_touch, read};
pub(crate) use item::Facts;
pub(crate) use large::{LargeReply, LargeStore};
pub(crate) use outcome::{Executed, Outcome};
pub(crate) use pending::{PendingStore, Step};
pub(crate) use prefixes::{DELIMITER, Prefixes};
pub(crate) use stats::report;
pub(crate) use store::{Operation as StoreOperation, Stored, drop_for_too_large, item_class, store};
pub(crate) use touch::touch;

use meta_get::MetaGet;

/// Where requests are served, by the size of the value that they are about (Minos §3.1).
pub trait Placement {
    /// Counts a request for a value of `class` in the size histogram, and says whether this worker
    /// serves it from the transmit buffer. Called once a request.
    fn is_here(&mut self, class: SizeClass) -> bool;

    /// The same question without counting, for a request that was counted or will be.
    fn serves(&self, class: SizeClass) -> bool;

    /// The large worker whose size range holds `class`; none where it is small, or served where it arrives.
    fn home(&self, class: SizeClass) -> Option<WorkerId>;
}

/// What execution needs to know of the server as a whole, and may ask of it.
pub(crate) trait Admin {
    /// What all workers have counted since the counters were last reset.
    fn totals(&self) -> Totals;

    /// Where commands are counted by prefix, if there is such a place.
    fn prefixes(&self) -> Option<&Prefixes>;

    /// Sets the counters to zero.
    fn reset(&self);

    /// Reports what the server knows of `group` beside the commands and the store.
    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display));

    /// Sets how much is logged.
    fn set_verbosity(&self, level: u32);

    /// Everything stored is to be dead at `due` on the store's clock; 0 takes an earlier wish back.
    fn flush_at(&self, due: Seconds);

    /// Whether a client may end the server.
    fn allows_shutdown(&self) -> bool;

    /// Bytes of replies after which they are to be sent.
    fn replies_bytes_max(&self) -> usize;

    /// Memory for a value of `bytes` that is still arriving, unless too many are on their way.
    fn admit(&self, bytes: u64) -> Option<ReceivePermit>;
}

/// What a worker lends to the execution of one command after the other.
pub(crate) struct Context<'a, M: Mode, P> {
    /// The store.
    pub(crate) store: &'a Arc<Engine<M>>,
    /// The store's clock.
    pub(crate) clock: &'a Clock,
    /// What it shows, read once a burst.
    pub(crate) now: Seconds,
    /// The worker's counters.
    pub(crate) counters: &'a Counters,
    /// Where requests are served.
    pub(crate) placement: &'a mut P,
    /// The server.
    pub(crate) admin: &'a dyn Admin,
    /// Where commands are counted by prefix, if they are.
    pub(crate) prefixes: Option<&'a Prefixes>,
}

/// What is known of a command's key, or of its first one, before the command is executed.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    /// The key's hash, by which buckets and items of a burst can be prefetched.
    pub(crate) hash: KeyHash,
    /// What the key's bucket says, where it was looked at already.
    pub(crate) staged: Option<Staged<'a>>,
}

impl<'a> Lookup<'a> {
    /// Of a command; none if it has no key.
    #[inline]
    pub(crate) fn of<M: Mode>(store: &Engine<M>, command: &Command<'_>) -> Option<Self> {
        let mut buffer = KeyBuffer::default();
        command.request.key().map(|key| Self::of_key(store, key.bytes(&mut buffer)))
    }

    /// Of a key.
    #[inline]
    pub(crate) fn of_key<M: Mode>(store: &Engine<M>, key: &[u8]) -> Self {
        Self { hash: store.hash(key), staged: None }
    }

    /// What the key's bucket says.
    #[inline]
    pub(crate) fn staged<M: Mode>(&self, store: &'a Engine<M>) -> Staged<'a> {
        self.staged.unwrap_or_else(|| store.stage(self.hash))
    }
}

/// Executes `command` as [`execute_uncounted`] does, and counts it by prefix if that is asked for.
#[inline]
pub(crate) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    command: &Command<'_>,
    lookup: Option<Lookup<'_>>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let hits = cx.counters.get_hits.value();
    let executed = execute_uncounted(cx, command, lookup, requests_left, tx);
    if let Some(prefixes) = cx.prefixes {
        prefixes.count_request(&command.request, cx.counters.get_hits.value() - hits);
    }
    executed
}

/// Executes `command`, whose [`Lookup`] is known already if it was asked for. The reply, or the part of it
/// that is there, is appended to `tx`. Of `requests_left` a line of keys takes one a key, and pauses where none is left.
#[inline]
fn execute_uncounted<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    command: &Command<'_>,
    lookup: Option<Lookup<'_>>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let known = |key: &[u8]| lookup.map_or_else(|| cx.store.hash(key), |lookup| lookup.hash);
    let mut buffer = KeyBuffer::default();
    match &command.request {
        Request::Get(request) => {
            let key = request.key.bytes(&mut buffer);
            let lookup = lookup.unwrap_or_else(|| Lookup::of_key(cx.store, key));
            match command.reply {
                Reply::Classic { with_cas, .. } => {
                    get::execute(cx, lookup, key, request.touch, with_cas, tx).into()
                }
                Reply::Meta { flags, quiet } => {
                    MetaGet::new(request, lookup, key, flags, quiet).execute(cx, tx).into()
                }
            }
        }
        Request::GetMany(request) => get_many::execute(cx, *request, command, requests_left, tx),
        Request::Store(request) => {
            let key = request.key.bytes(&mut buffer);
            let hash = known(key);
            store::execute(cx, request, hash, key, command.reply, tx)
        }
        Request::Arithmetic(request) => {
            let key = request.key.bytes(&mut buffer);
            let hash = known(key);
            arithmetic::execute(cx, request, hash, key, command.reply, tx)
        }
        Request::Delete(request) => {
            let key = request.key.bytes(&mut buffer);
            let hash = known(key);
            delete::execute(cx, request, hash, key, command.reply, tx)
        }
        Request::Touch(request) => {
            let key = request.key.bytes(&mut buffer);
            let hash = known(key);
            touch::execute(cx, request, hash, key, command.reply, tx)
        }
        Request::Debug { key } => {
            let key = key.bytes(&mut buffer);
            debug::execute(cx, known(key), key, tx)
        }
        _ => administrate(cx, command, tx),
    }
}

/// The commands that name no key.
fn administrate<M: Mode, P>(
    cx: &mut Context<'_, M, P>,
    command: &Command<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let is_silent = command.reply.is_silent();
    let reply = match command.request {
        Request::FlushAll { delay } => flush::execute(cx, delay),
        Request::Stats(StatsGroup::Connections) => return Outcome::ListConnections.into(),
        Request::Stats(group) => {
            stats::execute(cx, group, tx);
            text::NOTHING
        }
        Request::StatsDetail(detail) => {
            cx.admin.prefixes().map_or(text::ERROR, |prefixes| prefixes.execute(detail, tx))
        }
        Request::Version => {
            compose::version(tx);
            text::NOTHING
        }
        Request::Verbosity { level } => {
            cx.admin.set_verbosity(level);
            text::OK
        }
        Request::MemoryLimit { mebibytes } => memory_limit(cx.store, mebibytes),
        Request::NoOp => text::META_NOOP,
        Request::Quit => return Outcome::Quit.into(),
        Request::Shutdown(mode) => return shutdown(cx, mode, tx),
        _ => text::ERROR,
    };
    if !is_silent {
        tx.extend_from_slice(reply);
    }
    Outcome::Done.into()
}

/// Sets another memory limit. The region of a store is mapped once, so that it can only be used less.
fn memory_limit<M: Mode>(store: &Engine<M>, mebibytes: u32) -> &'static [u8] {
    match mebibytes {
        0..8 => text::MEMLIMIT_TOO_SMALL,
        1_000_000_001.. => text::MEMLIMIT_NOT_MEGABYTES,
        _ if store.set_memory_limit(u64::from(mebibytes) << 20) => text::OK,
        _ => text::MEMLIMIT_FIXED,
    }
}

fn shutdown<M: Mode, P>(cx: &Context<'_, M, P>, mode: ShutdownMode, tx: &mut Vec<u8>) -> Executed<M> {
    let refusal = match mode {
        _ if !cx.admin.allows_shutdown() => text::SHUTDOWN_DISABLED,
        ShutdownMode::Now => return Outcome::Shutdown { graceful: false }.into(),
        ShutdownMode::Graceful => return Outcome::Shutdown { graceful: true }.into(),
        ShutdownMode::Unknown => text::INVALID_SHUTDOWN,
    };
    tx.extend_from_slice(refusal);
    Outcome::Done.into()
}
