//! `mg`.

use minos_base::{Exptime, Seconds, SizeClass};
use minos_engine::{Entry, Get, ItemMeta, ItemView, Mode, Staged};
use minos_proto::memcache::{self as protocol, MetaFlags, OPAQUE_BYTES_MAX, Reply, compose, text};

use super::session::{meta_facts, next_of};
use crate::ops::{self, Below, Context, Facts, Lookup, Next, Placement, Read, Work};
use crate::rack::{self, Forward, Intent, Owner, Remote};

/// An `mg` and the combined meaning of its flags.
pub(super) struct MetaGet<'a> {
    request: &'a protocol::Get<'a>,
    key: &'a [u8],
    lookup: Lookup<'a>,
    flags: MetaFlags<'a>,
    quiet: bool,
    wants_value: bool,
    /// True if the request writes to the item or reads its state before the access changes it.
    needs_entry: bool,
    opaque_is_too_long: bool,
}

/// The result of an `mg` on a locked item.
enum Answer {
    /// There is no such item.
    Missing,
    /// The transmit buffer holds the reply, without the end of the line or the value.
    Composed(Facts),
    /// An opaque token turned out to be too long.
    Refused,
}

/// True for flags that write to the item or read its state before the access changes it.
fn needs_entry(flag: u8) -> bool {
    matches!(flag, b'T' | b'N' | b'R' | b'l' | b'h' | b'u')
}

/// True if one of these flags does so.
pub(super) fn need_entry(flags: MetaFlags<'_>) -> bool {
    flags.iter().any(|flag| needs_entry(flag[0]))
}

impl<'a> MetaGet<'a> {
    /// Parses the flags.
    pub(super) fn new(
        request: &'a protocol::Get<'a>,
        lookup: Lookup<'a>,
        key: &'a [u8],
        flags: MetaFlags<'a>,
        quiet: bool,
    ) -> Self {
        let mut get = Self {
            request,
            key,
            lookup,
            flags,
            quiet,
            wants_value: false,
            needs_entry: false,
            opaque_is_too_long: false,
        };
        for flag in flags.iter() {
            match flag[0] {
                b'v' => get.wants_value = true,
                flag if needs_entry(flag) => get.needs_entry = true,
                b'O' => get.opaque_is_too_long = flag.len() > OPAQUE_BYTES_MAX,
                _ => {}
            }
        }
        get
    }

    pub(super) fn execute<M: Mode, P: Placement>(
        &self,
        cx: &mut Context<'_, M, P>,
        tx: &mut Vec<u8>,
    ) -> Next<M> {
        if let Some(owner) = self.lookup.owner {
            return self.read_elsewhere(cx, owner, tx);
        }
        let staged = self.lookup.staged(cx.store);
        let class = || staged.size_class().or_else(|| cx.store.size_class(self.lookup.hash));
        let class = if self.wants_value { class() } else { None };
        let is_here = class.is_none_or(|class| cx.placement.is_here(class));
        if self.opaque_is_too_long && !self.needs_entry {
            tx.extend_from_slice(text::META_OPAQUE_TOO_LONG);
            return Next::Continue;
        }
        if self.needs_entry || !is_here {
            return self.with_entry(cx, tx);
        }
        match self.read(cx, &staged, class, tx) {
            Some(Read::Copied) => {
                count(cx, false, true);
                tx.extend_from_slice(text::LINE_END);
                Next::Continue
            }
            Some(Read::Missing) => match ops::below(cx, self.lookup.hash, self.key) {
                Below::Missing => self.miss(cx, tx),
                Below::Copied(facts, _) if facts.is_marked() => self.with_entry(cx, tx),
                Below::Copied(facts, value) => {
                    if self.wants_value {
                        // Memory did not tell its size.
                        cx.placement.is_here(SizeClass::of(facts.value_bytes));
                    }
                    self.compose(cx.now, facts, tx, |tx| tx.extend_from_slice(value));
                    count(cx, false, true);
                    tx.extend_from_slice(text::LINE_END);
                    Next::Continue
                }
                Below::Cold(cold) => next_of(cold, (self.lookup.hash, self.key), Reply::LOUD, tx),
            },
            Some(Read::Longer(_)) | None => self.with_entry(cx, tx),
        }
    }

    /// Answers from the memory of the node that owns the key, or lets that answer.
    fn read_elsewhere<M: Mode, P: Placement>(
        &self,
        cx: &mut Context<'_, M, P>,
        owner: Owner,
        tx: &mut Vec<u8>,
    ) -> Next<M> {
        if self.opaque_is_too_long {
            tx.extend_from_slice(text::META_OPAQUE_TOO_LONG);
            return Next::Continue;
        }
        let get = Get { hash: self.lookup.hash, key: self.key };
        let remote = rack::read(cx, (owner, self.lookup.staged_there), &get, tx, |facts, item, tx| {
            let is_here = !self.wants_value || cx.placement.serves(SizeClass::of(facts.value_bytes));
            if facts.is_marked() || !is_here {
                return false;
            }
            self.compose(cx.now, facts, tx, |tx| item.copy_value_to(tx));
            true
        });
        match remote {
            Remote::Missing => self.miss(cx, tx),
            Remote::Copied(class) => {
                if self.wants_value {
                    cx.placement.is_here(class);
                }
                count(cx, false, true);
                tx.extend_from_slice(text::LINE_END);
                Next::Continue
            }
            Remote::AskOwner => self.ask_owner(cx, owner, tx),
        }
    }

    /// Lets the owner of the key answer. Its value may be large.
    fn ask_owner<M: Mode, P>(&self, cx: &mut Context<'_, M, P>, owner: Owner, tx: &[u8]) -> Next<M> {
        let forward =
            Forward { is_large: self.wants_value, is_read: !self.needs_entry, ..Forward::to(owner) };
        cx.holes.push(tx.len(), Some(self.lookup.hash), forward);
        Next::Continue
    }

    /// Composes the reply for an item of at most `class` without a lock; `None` if the item's marks require
    /// the lock.
    fn read<M: Mode, P>(
        &self,
        cx: &Context<'_, M, P>,
        staged: &Staged<'_>,
        class: Option<SizeClass>,
        tx: &mut Vec<u8>,
    ) -> Option<Read> {
        let start = tx.len();
        let get = Get { hash: self.lookup.hash, key: self.key };
        let value_bytes_max = class.map_or(0, SizeClass::bytes_max);
        let compose = |item: &ItemView<'_>| {
            tx.truncate(start);
            let facts = Facts::from(&**item);
            if facts.is_marked() {
                return None;
            }
            if self.wants_value && facts.value_bytes > value_bytes_max {
                return Some(Read::Longer(SizeClass::of(facts.value_bytes)));
            }
            self.compose(cx.now, &facts, tx, |tx| item.copy_value_to(tx));
            Some(Read::Copied)
        };
        let read = cx.store.read_staged(staged, &get, cx.now, compose).unwrap_or(Some(Read::Missing));
        if !matches!(read, Some(Read::Copied)) {
            tx.truncate(start);
        }
        read
    }

    /// Composes the reply for an item without marks, but for the line end.
    pub(super) fn compose(
        &self,
        now: Seconds,
        facts: &Facts,
        tx: &mut Vec<u8>,
        copy_value: impl FnOnce(&mut Vec<u8>),
    ) {
        self.compose_code(facts, tx);
        let meta = meta_facts(facts, self.key, now);
        self.flags.iter().for_each(|flag| compose::meta_get_flag(tx, flag, &meta));
        if self.wants_value {
            tx.extend_from_slice(text::LINE_END);
            copy_value(tx);
        }
    }

    fn compose_code(&self, facts: &Facts, tx: &mut Vec<u8>) {
        if self.wants_value {
            compose::meta_value_head(tx, facts.value_bytes);
        } else {
            tx.extend_from_slice(b"HD");
        }
    }

    /// Answers under the partition's lock.
    fn with_entry<M: Mode, P: Placement>(&self, cx: &mut Context<'_, M, P>, tx: &mut Vec<u8>) -> Next<M> {
        let start = tx.len();
        if let Some(owner) = cx.rack.and_then(|rack| rack.elsewhere(self.key, || Intent::Change)) {
            // Its micro-shard is about to leave: a mark that is set now would be lost.
            return self.ask_owner(cx, owner, tx);
        }
        if let Some(worker) = cx.owner(self.lookup.hash, || false) {
            return Next::Owner(worker);
        }
        let mut entry = match ops::entry(cx, self.lookup.hash, self.key) {
            Ok(entry) => entry,
            Err(cold) => return next_of(cold, (self.lookup.hash, self.key), Reply::LOUD, tx),
        };
        let facts = match self.answer(cx, &mut entry, tx) {
            Answer::Composed(facts) => facts,
            Answer::Missing => {
                drop(entry);
                return self.miss(cx, tx);
            }
            Answer::Refused => {
                tx.truncate(start);
                tx.extend_from_slice(text::META_OPAQUE_TOO_LONG);
                return Next::Continue;
            }
        };
        let touched = self.request.touch.is_some();
        tx.extend_from_slice(text::LINE_END);
        if !self.wants_value {
            count(cx, touched, true);
            return Next::Continue;
        }
        if !cx.placement.serves(SizeClass::of(facts.value_bytes))
            && let Some(item) = entry.pin(cx.store)
        {
            count(cx, touched, true);
            return Next::Away(Work::send(item, text::LINE_END));
        }
        let Some(item) = entry.item() else {
            // A large value of a cache can be evicted from under its entry.
            tx.truncate(start);
            drop(entry);
            return self.miss(cx, tx);
        };
        count(cx, touched, true);
        tx.extend_from_slice(item.value());
        tx.extend_from_slice(text::LINE_END);
        Next::Continue
    }

    /// Applies the flags to the item in their order and composes its line. A flag that returns a value before
    /// another changes it shows the old one.
    fn answer<M: Mode, P>(
        &self,
        cx: &Context<'_, M, P>,
        entry: &mut Entry<'_, M>,
        tx: &mut Vec<u8>,
    ) -> Answer {
        let found = entry.item().map(|item| Facts::from(&*item));
        let created = found.is_none();
        let Some(mut facts) = found.or_else(|| self.vivify(cx, entry)) else { return Answer::Missing };
        let mut has_won = false;
        self.compose_code(&facts, tx);
        for flag in self.flags.iter() {
            match flag[0] {
                b'O' if flag.len() > OPAQUE_BYTES_MAX => return Answer::Refused,
                b'T' => facts.expiry = self.expire(cx, self.request.touch, entry),
                b'N' if created => {
                    facts.expiry = self.expire(cx, self.request.vivify, entry);
                    has_won = true;
                }
                // The item expires so soon that the client should store it anew.
                b'R' => {
                    let before = self.request.recache.unwrap_or_default().on(cx.clock, cx.now);
                    has_won |= !created && !facts.win_sent && facts.expiry != 0 && facts.expiry < before;
                }
                _ => {
                    let meta = meta_facts(&facts, self.key, cx.now);
                    compose::meta_get_flag(tx, flag, &meta);
                }
            }
        }
        self.compose_marks(&facts, has_won, entry, tx);
        if !self.request.unseen {
            entry.mark_fetched(cx.now);
        }
        Answer::Composed(facts)
    }

    /// Creates an empty item for the client to fill, if the request asks for that and there is room.
    fn vivify<M: Mode, P>(&self, cx: &Context<'_, M, P>, entry: &mut Entry<'_, M>) -> Option<Facts> {
        self.request.vivify?;
        let cas = entry.insert(&[], ItemMeta::default()).ok()?;
        cx.counters.total_items.count();
        Some(Facts { cas, last_access: cx.now, ..Facts::default() })
    }

    fn expire<M: Mode, P>(
        &self,
        cx: &Context<'_, M, P>,
        exptime: Option<Exptime>,
        entry: &mut Entry<'_, M>,
    ) -> Seconds {
        let expiry = exptime.unwrap_or_default().on(cx.clock, cx.now);
        entry.set_expiry(expiry);
        expiry
    }

    /// Appends the marks: W, this client is to recache the item; X, the value is stale; Z, another client is
    /// recaching it.
    fn compose_marks<M: Mode>(
        &self,
        facts: &Facts,
        has_won: bool,
        entry: &mut Entry<'_, M>,
        tx: &mut Vec<u8>,
    ) {
        if facts.win_sent {
            compose::meta_mark(tx, b'Z');
        }
        if facts.stale {
            compose::meta_mark(tx, b'X');
        }
        if has_won || (facts.stale && !facts.win_sent) {
            compose::meta_mark(tx, b'W');
            entry.set_win_sent(true);
        }
    }

    fn miss<M: Mode, P>(&self, cx: &Context<'_, M, P>, tx: &mut Vec<u8>) -> Next<M> {
        count(cx, false, false);
        self.compose_miss(tx);
        Next::Continue
    }

    /// Composes the reply for no item.
    pub(super) fn compose_miss(&self, tx: &mut Vec<u8>) {
        if self.opaque_is_too_long {
            tx.extend_from_slice(text::META_OPAQUE_TOO_LONG);
        } else if !self.quiet {
            tx.extend_from_slice(b"EN");
            for flag in self.flags.iter() {
                compose::meta_echo_flag(tx, flag, self.key, self.request.key.is_base64());
            }
            tx.extend_from_slice(text::LINE_END);
        }
    }
}

/// Counts one `mg`, as a touch if it gave the item another expiry.
fn count<M: Mode, P>(cx: &Context<'_, M, P>, touched: bool, found: bool) {
    if touched { ops::count_touch(cx, true) } else { ops::count_get(cx, found) }
}
