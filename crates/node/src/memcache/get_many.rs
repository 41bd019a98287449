//! `get`, `gets`, `gat` and `gats` of several keys.

use arrayvec::ArrayVec;
use minos_base::{SizeClass, limits::BURST_MAX};
use minos_engine::{Mode, Pinned};
use minos_proto::memcache::{Command, GetMany, Reply, Resume, Tokens, text};

use super::{
    answer::Answer as _,
    get::ValueLine,
    remote,
    session::{Executed, MemcacheSession, Unread},
    timed,
};
use crate::ops::{Cold, Context, Failed, Fetch, Found, Lookup, Need, Next, Placement, Work, find};
use crate::rack::{Intent, Owner};

/// A key and the keys behind it.
struct Wanted<'a> {
    key: &'a [u8],
    lookup: Lookup<'a>,
    /// The keys from this one on.
    from: Tokens<'a>,
    following: Tokens<'a>,
}

/// Answers a request for any number of keys. It stops at the first value to be sent from its item, at a full
/// transmit buffer, or after `requests_left` keys; the resumed request serves the rest.
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    request: GetMany<'_>,
    command: &Command<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let with_cas = matches!(command.reply, Reply::Classic { with_cas: true, .. });
    let line = Line { request, with_cas, begin: tx.len() };
    let resume = |keys: Tokens<'_>| Resume {
        touch: request.touch,
        with_cas: line.with_cas,
        ends_badly: request.ends_badly,
        keys_bytes: keys.rest().len(),
        line_end_bytes: command.line_end_bytes,
    };
    let mut keys = request.keys;
    loop {
        let may_read = || request.touch.is_none();
        let next = keys.clone().next().and_then(|key| cx.owner(cx.store.hash(key), may_read));
        if let Some(worker) = next {
            return pause(session, resume(keys), Next::Owner(worker));
        }
        let read = if session.is_peer { Intent::Read } else { Intent::ReadCopy };
        let intent = if request.touch.is_some() { Intent::Change } else { read };
        let group = gather(cx, &mut keys, intent);
        *requests_left = requests_left.saturating_sub(group.len());
        if let Some(at) = cx.probe.choose_key(group.len()) {
            timed::note_key(cx, &group[at].lookup, group[at].key);
        }
        if let Some((stop, following)) = line.answer(cx, &group, session.replies_bytes_max, tx) {
            let item = match stop {
                Stop::Pinned(item) => item,
                Stop::Full => return pause(session, resume(following), Next::Yield),
                Stop::Cold(fetch) => {
                    return pause(session, resume(following), Next::Fetch(fetch));
                }
                Stop::BehindHoles => return pause(session, resume(following), Next::Yield),
                Stop::Failed(failed) => {
                    Reply::LOUD.failed(failed, tx);
                    return Executed::DONE;
                }
            };
            if following.clone().next().is_none() {
                return Executed::then(Next::Away(Work::send(item, text::VALUE_END)));
            }
            return pause(session, resume(following), Next::Away(Work::send(item, text::LINE_END)));
        }
        if keys.clone().next().is_none() {
            // memcached finds a key that is too long only when it reaches it.
            tx.extend_from_slice(if request.ends_badly { text::BAD_FORMAT } else { text::END });
            return Executed::DONE;
        }
        if *requests_left == 0 {
            return pause(session, resume(keys), Next::Yield);
        }
    }
}

/// Pauses the request; the connection goes on with `next` and then with the keys left.
fn pause<M: Mode>(session: &mut MemcacheSession, resume: Resume, next: Next<M>) -> Executed<M> {
    session.resume = Some(resume);
    Executed { next, unread: Unread::End(resume.unread_bytes()) }
}

/// Why the replies to a group of keys stop before its end.
enum Stop<M: Mode> {
    /// The value of the last key is to be sent from its item.
    Pinned(Pinned<M>),
    /// The transmit buffer is full, and there are more keys.
    Full,
    /// The items of these keys may be on flash.
    Cold(Box<Fetch<M>>),
    /// An earlier command for the key is under way to its owner.
    BehindHoles,
    /// An item on flash could not be read.
    Failed(Failed),
}

/// The properties that all keys of a line share.
struct Line<'a> {
    request: GetMany<'a>,
    with_cas: bool,
    /// Where its reply begins in the transmit buffer.
    begin: usize,
}

impl Line<'_> {
    /// Appends the replies to a group of keys. If it stops early, returns the reason and the keys left. If
    /// the line ends badly, the items are only accessed.
    fn answer<'a, M: Mode, P: Placement>(
        &self,
        cx: &mut Context<'_, M, P>,
        group: &[Wanted<'a>],
        replies_bytes_max: usize,
        tx: &mut Vec<u8>,
    ) -> Option<(Stop<M>, Tokens<'a>)> {
        for wanted in group {
            if !cx.holes.may_read(wanted.lookup.hash) {
                return Some((Stop::BehindHoles, wanted.from));
            }
            if let Some(owner) = wanted.lookup.owner
                && self.request.touch.is_some()
            {
                self.ask_owner(cx, owner, wanted, tx);
                continue;
            }
            let start = tx.len();
            let found = find(
                cx,
                wanted.lookup,
                wanted.key,
                self.request.touch,
                ValueLine { with_cas: self.with_cas },
                tx,
            );
            match found {
                Found::Cold(Cold::Unknown(class, need)) => {
                    return Some((Stop::Cold(fetch(cx, wanted, (class, need))), wanted.from));
                }
                Found::Cold(Cold::Failed(failed)) => return Some((Stop::Failed(failed), wanted.from)),
                Found::AskOwner(owner) => {
                    self.ask_owner(cx, owner, wanted, tx);
                    continue;
                }
                _ => {}
            }
            if let Some(prefixes) = cx.prefixes {
                prefixes.count_get(wanted.key, !matches!(found, Found::Missing));
            }
            if self.request.ends_badly {
                tx.truncate(start);
                continue;
            }
            match found {
                Found::Missing => {}
                Found::Copied => tx.extend_from_slice(text::LINE_END),
                Found::Pinned(item) => {
                    cx.probe.goes_away("get", wanted.lookup.hash, wanted.key);
                    return Some((Stop::Pinned(item), wanted.following));
                }
                Found::Cold(_) | Found::AskOwner(_) => {}
            }
            if tx.len() >= replies_bytes_max && wanted.following.clone().next().is_some() {
                return Some((Stop::Full, wanted.following));
            }
        }
        None
    }

    /// Lets the owner of a key answer, unless the line ends badly: then nobody gets its values.
    fn ask_owner<M: Mode, P>(
        &self,
        cx: &mut Context<'_, M, P>,
        owner: Owner,
        wanted: &Wanted<'_>,
        tx: &[u8],
    ) {
        if !self.request.ends_badly {
            let forward = remote::one_of_many(owner, wanted.key, self.request.touch, self.with_cas);
            cx.holes.push_key((tx.len(), self.begin), wanted.lookup.hash, forward);
        }
    }
}

/// The fetch of a key and of those behind it in its line: the vector of the client becomes one of the device
/// (Vector Interfaces §4.1).
fn fetch<M: Mode, P>(
    cx: &Context<'_, M, P>,
    wanted: &Wanted<'_>,
    (class, need): (SizeClass, Need),
) -> Box<Fetch<M>> {
    let others = wanted.following.map(|key| (cx.store.hash(key), key));
    Box::new(Fetch::of(wanted.lookup.hash, wanted.key, class, need).with(cx, others))
}

/// Takes the next keys and looks them up in their prefetched buckets, so that the cache misses overlap (MICA
/// §4.3.2).
fn gather<'a, M: Mode, P: Placement>(
    cx: &Context<'a, M, P>,
    keys: &mut Tokens<'a>,
    intent: Intent,
) -> ArrayVec<Wanted<'a>, BURST_MAX> {
    let mut group = ArrayVec::new();
    while !group.is_full() {
        let from = *keys;
        let Some(key) = keys.next() else { break };
        let lookup = Lookup::of(cx, key, || intent);
        if cx.owner(lookup.hash, || intent != Intent::Change).is_some() {
            *keys = from;
            break;
        }
        lookup.prefetch(cx);
        group.push(Wanted { key, lookup, from, following: *keys });
    }
    for Wanted { lookup, .. } in &mut group {
        lookup.stage(cx);
    }
    group
}
