//! A transaction in one step: its commands are executed on copies of their items, whose changes are then made together.
//!
//! The copies lie in a small table of the worker, so that every command is executed by the same code. If another client
//! has changed one of the keys meanwhile, the transaction is executed again on new copies.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use minos_base::{KeyHash, SizeClass};
use minos_engine::{Backing, Change, Engine, Mode, Pinned, Seen, StoreConfig, StoreMode, Then};
use minos_proto::resp::{Flag, Id, Keys, Parsed, compose, parse};
use minos_sched::WorkerId;

use super::{
    call::{Call, Interrupt, NO_MEMORY, entry, fail, kept, pin},
    execute::{Outcome, all_keys, run},
    serve::{CHECKED, request},
    session::{Progress, RespSession, Watched},
    together,
};
use crate::{
    ops::{Context, Fetched, Next, Placement, Standstill},
    rack::RackView,
};

/// Attempts to execute a transaction, each of which fails if another client changes one of its keys meanwhile.
const ATTEMPTS_MAX: usize = 64;
/// Memory of the table for copies: a part of the store's, and room for a few of the largest values.
const MEMORY_PART: u64 = 16;
const MEMORY_BYTES_MIN: u64 = 16 << 20;
const LARGEST_VALUES: u64 = 4;

const TOO_LARGE: &str = "ERR transaction exceeds the memory for its items and replies";
const TOO_BUSY: &str = "ERR transaction was overtaken too often";

thread_local! {
    /// The table of this worker, once it has executed a transaction.
    static TABLE: RefCell<Option<Arc<Engine<StoreMode>>>> = const { RefCell::new(None) };
}

/// Serves every value where it is.
struct Here;

impl Placement for Here {
    fn is_here(&mut self, _class: SizeClass) -> bool {
        true
    }

    fn serves(&self, _class: SizeClass) -> bool {
        true
    }

    fn home(&self, _class: SizeClass) -> Option<WorkerId> {
        None
    }
}

/// The keys of a transaction, each with the item that it had, and true if a client watches it.
type Items<'q, M> = BTreeMap<&'q [u8], Option<Pinned<M>>>;

/// How a transaction in one step ended.
pub(super) enum Ended {
    /// The replies are composed.
    Done,
    /// A watched key has changed.
    Changed,
}

/// True if every command of a transaction is about the keys that it names, and no other one changes which of them are
/// tracked, or waits.
pub(super) fn suits(queued: &[u8]) -> bool {
    commands(queued).all(|call| {
        let touches_items = call.spec.flags.has(Flag::READONLY) || call.spec.flags.has(Flag::WRITE);
        let is_apart = matches!(call.spec.id, Id::ClientTracking | Id::ClientCaching | Id::ClientPause);
        (call.spec.keys != Keys::NONE || !touches_items) && !is_apart
    })
}

/// The commands of a transaction, as the table knows them. One that is not known was not queued.
pub(super) fn commands(queued: &[u8]) -> impl Iterator<Item = Call<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let Some(Parsed::Command(command, bytes)) =
            queued.get(at..).filter(|rest| !rest.is_empty()).map(|rest| parse(rest, &CHECKED))
        else {
            return None;
        };
        at += bytes;
        Call::of(command)
    })
}

/// Executes the `count` commands in `queued`, if the watched keys are as they were.
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    (queued, count): (&[u8], usize),
    watched: &[Watched],
    tx: &mut Vec<u8>,
) -> Result<Ended, Box<Interrupt<M>>> {
    let start = tx.len();
    let table = table(cx)?;
    for _ in 0..ATTEMPTS_MAX {
        tx.truncate(start);
        // Of items that expire at one moment, its commands see all or none.
        let _standstill = Standstill::begin();
        let Some(items) = items(cx, queued, watched)? else { return Ok(Ended::Changed) };
        let uniques = copy(&table, &items, cx.now)?;
        compose::array(tx, count);
        let executed = execute_on(cx, &table, session, queued, tx).and_then(|failed| {
            admit(cx, session, tx.len() - start)?;
            Ok(failed)
        });
        let is_done =
            executed.and_then(|failed| Ok((change(cx, session, &table, (&items, &uniques))?, failed)));
        items.keys().for_each(|key| {
            table.entry(table.hash(key), key, cx.now).remove();
        });
        match is_done {
            Ok((true, failed)) => {
                commands(queued).for_each(|call| cx.counters.resp_calls.count(call.spec.id));
                failed.into_iter().for_each(|id| cx.counters.resp_failed.count(id));
                return Ok(Ended::Done);
            }
            Ok((false, _)) => {}
            Err(interrupt) => {
                tx.truncate(start);
                return Err(interrupt);
            }
        }
    }
    tx.truncate(start);
    fail(TOO_BUSY)
}

/// Takes memory for replies that are longer than others may be, until the client has read them.
fn admit<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    bytes: usize,
) -> Result<(), Box<Interrupt<M>>> {
    session.replies_permit = None;
    if bytes > session.replies_bytes_max {
        session.replies_permit = cx.admin.admit(bytes as u64);
        if session.replies_permit.is_none() {
            return fail(NO_MEMORY);
        }
    }
    Ok(())
}

/// This worker's table for copies.
fn table<M: Mode, P>(cx: &Context<'_, M, P>) -> Result<Arc<Engine<StoreMode>>, Box<Interrupt<M>>> {
    TABLE.with_borrow_mut(|table| {
        if let Some(table) = table {
            return Ok(Arc::clone(table));
        }
        let value_bytes_max = cx.store.value_bytes_max();
        let bytes = (cx.store.memory_limit() / MEMORY_PART).max(value_bytes_max * LARGEST_VALUES);
        let config = StoreConfig {
            backing: Backing::SmallPages,
            partitions: Some(1),
            value_bytes_max,
            ..StoreConfig::new(bytes.max(MEMORY_BYTES_MIN))
        };
        match Engine::create(&config) {
            Ok(engine) => Ok(Arc::clone(table.insert(Arc::new(engine)))),
            Err(_) => fail(TOO_LARGE),
        }
    })
}

/// The items of all keys of a transaction; `None` if a watched one has changed.
fn items<'q, M: Mode, P>(
    cx: &Context<'_, M, P>,
    queued: &'q [u8],
    watched: &'q [Watched],
) -> Result<Option<Items<'q, M>>, Box<Interrupt<M>>> {
    let mut items = Items::new();
    for Watched { hash, key, unique } in watched {
        let item = pin_or_bury(cx, *hash, key)?;
        if Some(item.as_ref().map(|item| item.cas())) != unique.known() {
            return Ok(None);
        }
        items.insert(key, item);
    }
    for call in commands(queued) {
        for key in all_keys(&call) {
            if items.contains_key(key) {
                continue;
            }
            items.insert(key, pin_or_bury(cx, cx.store.hash(key), key)?);
        }
    }
    Ok(Some(items))
}

/// The item of a key; one that has just expired is removed, because the store would still find it.
fn pin_or_bury<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
) -> Result<Option<Pinned<M>>, Box<Interrupt<M>>> {
    let item = pin(cx, (hash, key))?;
    if item.is_none() {
        entry(cx, hash, key)?;
    }
    Ok(item)
}

/// Puts copies of the items into the table, and returns their CAS uniques there. They are not the items': the table gives
/// its own to what changes there, and one of them could be the same.
fn copy<M: Mode>(
    table: &Arc<Engine<StoreMode>>,
    items: &Items<'_, M>,
    now: minos_base::Seconds,
) -> Result<Vec<Option<u64>>, Box<Interrupt<M>>> {
    let copy_one = |(key, item): (&&[u8], &Option<Pinned<M>>)| {
        let Some(item) = item else { return Ok(None) };
        let hash = table.hash(key);
        let Ok(mut reservation) = table.reserve(hash, key, item.value().len() as u64) else {
            return fail(TOO_LARGE);
        };
        reservation.value_mut().copy_from_slice(item.value());
        match table.entry(hash, key, now).commit(reservation, kept(item)) {
            Ok(unique) => Ok(Some(unique)),
            Err(_) => fail(TOO_LARGE),
        }
    };
    items.iter().map(copy_one).collect()
}

/// Executes the commands on the copies; returns those that failed.
fn execute_on<M: Mode, P>(
    cx: &Context<'_, M, P>,
    table: &Arc<Engine<StoreMode>>,
    session: &mut RespSession,
    queued: &[u8],
    tx: &mut Vec<u8>,
) -> Result<Vec<Id>, Box<Interrupt<M>>> {
    let mut inner = Context {
        store: table,
        clock: cx.clock,
        now: cx.now,
        counters: cx.counters,
        placement: &mut Here,
        admin: cx.admin,
        probe: cx.probe,
        prefixes: None,
        fetched: None,
        rack: None,
        holes: crate::rack::Holes::default(),
    };
    let replies_bytes_max = session.replies_bytes_max;
    session.replies_bytes_max = tx.len() + table.memory_limit() as usize;
    let is_part = std::mem::replace(&mut session.is_part, true);
    let (mut is_whole, mut failed) = (true, Vec::new());
    for call in commands(queued) {
        let (request, at) = (request(&inner, call.command), tx.len());
        let outcome = loop {
            let outcome = run(&mut inner, session, &request, &mut usize::MAX.clone(), tx);
            // Nobody else waits for what it does in steps.
            if !matches!(outcome, Outcome::Paused(Next::Yield)) || tx.len() >= session.replies_bytes_max {
                break outcome;
            }
        };
        is_whole = matches!(outcome, Outcome::Done) && tx.len() < session.replies_bytes_max;
        if !is_whole {
            break;
        }
        failed.extend(Some(call.spec.id).filter(|_| tx.get(at) == Some(&b'-')));
    }
    (session.replies_bytes_max, session.is_part) = (replies_bytes_max, is_part);
    session.progress = Progress::default();
    if is_whole { Ok(failed) } else { fail(TOO_LARGE) }
}

/// Makes the changes of the copies; false if another client has changed an item meanwhile.
fn change<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    session: &mut RespSession,
    table: &Arc<Engine<StoreMode>>,
    (items, uniques): (&Items<'_, M>, &[Option<u64>]),
) -> Result<bool, Box<Interrupt<M>>> {
    let copies: Vec<_> = items.keys().map(|key| table.pin(table.hash(key), key, cx.now)).collect();
    let mut changes: Vec<_> = items
        .iter()
        .zip(copies.iter().zip(uniques))
        .map(|((key, item), (copy, unique))| {
            let then = match copy {
                Some(copy) if Some(copy.cas()) == *unique => Then::Keep,
                Some(copy) => Then::Store(copy.value(), kept(copy)),
                None if unique.is_some() => Then::Remove,
                None => Then::Keep,
            };
            let seen = item.as_ref().map_or(Seen::Nothing, |item| Seen::Cas(item.cas()));
            Change { hash: cx.store.hash(key), key, seen, then }
        })
        .collect();
    // If memory has no room for what is stored, nothing is gone yet.
    changes.sort_by_key(|change| matches!(change.then, Then::Remove));
    let matters = M::HAS_FLASH || cx.rack.is_some_and(RackView::is_managed);
    if matters && changes.iter().any(|change| !matches!(change.then, Then::Keep)) {
        session.has_changed = true;
        cx.fetched.into_iter().for_each(Fetched::outdate);
    }
    together::change(cx, &changes)
}
