//! Commands for keys that other nodes of the rack own.
//!
//! A command goes to the owner of its keys as it is. One for keys of several nodes is divided if its reply can be put
//! together again, and refused otherwise, as in Redis Cluster.

use std::sync::{Arc, OnceLock};

use minos_base::{Exptime, SizeClass};
use minos_engine::Mode;
use minos_proto::resp::{Flag, Id, Keys, Version, compose, unsigned};
use parking_lot::Mutex;

use super::{
    call::{Call, Done, Failure, end, fail, pause},
    execute::{aborted, all_keys, keys_left},
    relayed::{self, Kind, Midway, PART_KEYS, array, frame, put_watched},
    rights, scan, scratch, server,
    session::{RespSession, Transaction, Unique, Watched},
    tracking,
    transaction::{note_watched, watched_here},
    walks,
};
use crate::{
    ops::{Context, Fetch, Next, Placement},
    rack::{Flushing, Forward, Intent, NOT_OWNER, NOWHERE, Owner, RackView, Translate},
};

/// Redis Cluster's words.
pub(super) const OTHER_SLOTS: &str = "CROSSSLOT Keys in request don't hash to the same slot";
pub(super) const ON_THE_MOVE: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
const NO_WALK: &str = "ERR a transaction in a rack has no commands about all keys";
const ONLY_KEYS: &str = "ERR a transaction for another node of the rack has only commands with keys";
const FRAME_TOO_LONG: &str = "ERR the command is too long for a node of the rack: it exceeds --max-buffer";

/// Executes a command that other nodes have a part in; `None` if this node executes it alone.
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Option<Done<M>> {
    match call.spec.id {
        // They look at each key, in the memory of its owner if that can be.
        Id::Get | Id::MGet => None,
        Id::Exec => exec(cx, rack, session, tx),
        Id::Watch if session.transaction.is_open => None,
        Id::Watch => watch(cx, rack, session, call, tx),
        Id::FlushAll | Id::FlushDb => Some(flush(cx, rack, session, call, tx)),
        Id::DbSize => Some(size(cx, rack, session, call, tx)),
        Id::Scan => walks::scan(cx, rack, session, call, tx),
        Id::KeysOf => Some(walks::keys(cx, rack, session, call, tx)),
        _ if call.spec.keys == Keys::NONE => None,
        _ => with_keys(cx, rack, session, call, tx),
    }
}

/// What a command does with its keys.
fn intent(session: &RespSession, call: &Call<'_>) -> Intent {
    if call.spec.flags.has(Flag::WRITE) { Intent::Change } else { session.read_intent() }
}

fn with_keys<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Option<Done<M>> {
    let intent = intent(session, call);
    let place = |key| rack.elsewhere(key, || intent);
    if session.progress.own.is_some() {
        let places: Vec<Option<Owner>> = all_keys(call).map(place).collect();
        return Some(divide(cx, session, call, &places, tx));
    }
    if session.progress.done > 0 {
        // Micro-shards may have moved since it has begun here.
        let has_moved = keys_left(call, session.progress.done).any(|key| place(key).is_some());
        return has_moved.then(|| fail(ON_THE_MOVE));
    }
    let places: Vec<Option<Owner>> = all_keys(call).map(place).collect();
    let Some(owner) = places.iter().flatten().next().copied() else {
        // One of them may have waited for its micro-shard.
        let may_read = all_keys(call).all(|key| cx.holes.may_read(cx.store.hash(key)));
        return (!may_read).then(|| pause(Next::Yield));
    };
    let is_divisible = matches!(call.spec.id, Id::Del | Id::Unlink | Id::Exists | Id::Touch | Id::MSet);
    Some(match (&places[..], place_of_all(places.iter().copied())) {
        ([_], _) => forward(cx, session, call, owner, tx),
        _ if is_divisible => divide(cx, session, call, &places, tx),
        (_, Place::At(owner)) => forward(cx, session, call, owner, tx),
        _ => fail(OTHER_SLOTS),
    })
}

/// Who has all keys of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    /// The owner of this one of them, which is not known if its micro-shard is on the move: the others may be there.
    At(Owner),
    Several,
}

fn place_of_all(places: impl Iterator<Item = Option<Owner>>) -> Place {
    let (mut nodes, mut owner, mut moving) = (Vec::new(), None, None);
    for place in places {
        match place {
            Some(on_the_move) if on_the_move.node == NOWHERE => moving = Some(on_the_move),
            _ => {
                nodes.push(place.map(|owner| owner.node));
                owner = owner.or(place);
            }
        }
    }
    nodes.dedup();
    match moving.or(owner) {
        _ if nodes.len() > 1 => Place::Several,
        Some(owner) => Place::At(owner),
        None => Place::Here,
    }
}

/// Sends a command to a node, behind those before it.
fn forward<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    owner: Owner,
    tx: &[u8],
) -> Done<M> {
    let is_single = call.spec.keys.is_single();
    let bytes = command(session, call.command.arguments(0))?;
    let returns_value =
        matches!(call.spec.id, Id::GetDel | Id::GetEx | Id::GetSet | Id::GetRange | Id::SubStr | Id::Lcs)
            || call.spec.id == Id::Set && call.command.len() > 3;
    let is_large = returns_value || !cx.placement.serves(SizeClass::of(bytes.len() as u64));
    let key = all_keys(call).next().unwrap_or_default();
    let hash = cx.store.hash(key);
    if !is_single && !cx.holes.is_empty() || !may_leave(cx, hash, is_large) {
        return pause(Next::Yield);
    }
    let is_read = !call.spec.flags.has(Flag::WRITE);
    let changed = all_keys(call).filter(|_| !is_read);
    let translate = Some(tracking::told_at_once(cx, session, changed, translated(session, reply_of)));
    cx.holes.push(
        tx.len(),
        Some(hash),
        Forward { bytes, is_large, is_read, translate, command: Some(call.spec.id), ..Forward::to(owner) },
    );
    // What follows may be about its other keys.
    if is_single { Ok(()) } else { end(Next::Yield) }
}

/// True if a command for a key does not overtake an earlier one.
fn may_leave<M: Mode, P>(cx: &Context<'_, M, P>, hash: minos_base::KeyHash, is_large: bool) -> bool {
    // One that finds its micro-shard on the move is sent again, and a read may end later than what follows it.
    let may_overtake = cx.rack.is_some_and(RackView::may_overtake);
    cx.holes.may_forward(hash, is_large) && (!may_overtake || cx.holes.may_read(hash))
}

/// The frame for a command of these words.
pub(super) fn command<'a>(
    session: &RespSession,
    words: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, Failure> {
    within(session, frame(session.version, Kind::Command, |bytes| array(words, bytes)))
}

/// A frame, if the other node takes so many bytes. All have the same `--max-buffer`.
fn within(session: &RespSession, frame: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if frame.len() > session.limits.command_bytes_max { Err(FRAME_TOO_LONG.into()) } else { Ok(frame) }
}

/// The reply to a client that wants one.
pub(super) fn translated(
    session: &RespSession,
    make: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static,
) -> Translate {
    if session.mutes() { Box::new(|_| Vec::new()) } else { Box::new(make) }
}

/// Asks another node for what only reads. Its reply, translated, comes to this place.
pub(super) fn ask_node<M: Mode, P>(
    cx: &mut Context<'_, M, P>,
    at: usize,
    (call, node): (&Call<'_>, u16),
    (bytes, translate): (Vec<u8>, Translate),
) {
    let (command, translate) = (Some(call.spec.id), Some(translate));
    let forward = Forward { bytes, is_read: true, translate, command, ..Forward::to_node(Some(node)) };
    cx.holes.push(at, None, forward);
}

/// The reply to a command that was sent to another node, of what that has said, or this one in its place.
pub(super) fn reply_of(said: &[u8]) -> Vec<u8> {
    let line_bytes = said.iter().position(|&byte| byte == b'\n').map_or(said.len(), |at| at + 1);
    let (line, value) = said.split_at(line_bytes);
    if line.starts_with(b"VA ") {
        return value.strip_suffix(compose::LINE_END).unwrap_or(value).to_vec();
    }
    let mut reply = Vec::new();
    compose::error(&mut reply, &error_of(line));
    reply
}

/// The error for a line of memcached's protocol.
fn error_of(line: &[u8]) -> Vec<u8> {
    if line == NOT_OWNER {
        return ON_THE_MOVE.as_bytes().to_vec();
    }
    let line = line.trim_ascii();
    let words = line.strip_prefix(b"SERVER_ERROR ").unwrap_or(line);
    let code: &[u8] = if words.starts_with(b"out of memory") { b"OOM " } else { b"ERR " };
    [code, words].concat()
}

/// The replies to the parts of a command, which other nodes have sent one behind the other.
fn replies_of(mut said: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let line_bytes = said.iter().position(|&byte| byte == b'\n')? + 1;
        let value_bytes =
            said[..line_bytes].strip_prefix(b"VA ").and_then(|rest| unsigned(rest.trim_ascii_end()));
        let bytes = line_bytes + value_bytes.map_or(0, |bytes| bytes as usize + compose::LINE_END.len());
        let (reply, rest) = said.split_at(bytes.min(said.len()));
        said = rest;
        Some(reply_of(reply))
    })
}

/// The replies to the parts of a command, put together.
#[derive(Default)]
struct Total {
    sum: i64,
    failure: Option<Vec<u8>>,
}

impl Total {
    fn add(&mut self, reply: Vec<u8>) {
        match reply.strip_prefix(b":").and_then(|rest| unsigned(rest.trim_ascii_end())) {
            Some(count) => self.sum += count as i64,
            None if reply == compose::OK => {}
            None => self.failure = self.failure.take().or(Some(reply)),
        }
    }

    /// The first error, or else the sum or OK.
    fn reply(self, is_count: bool) -> Vec<u8> {
        let mut reply = Vec::new();
        match self.failure {
            Some(failure) => return failure,
            None if is_count => compose::integer(&mut reply, self.sum),
            None => reply.extend_from_slice(compose::OK),
        }
        reply
    }
}

/// Puts the replies to several commands together. With the last one it returns that to the client.
struct Gather {
    /// Replies that are to come, and the others.
    parts: Mutex<(usize, Total)>,
    is_count: bool,
}

impl Gather {
    fn new(parts: usize, is_count: bool) -> Arc<Self> {
        Arc::new(Self { parts: Mutex::new((parts, Total::default())), is_count })
    }

    /// Takes in a reply. Returns that to the client with the last one.
    fn take(&self, reply: Vec<u8>) -> Vec<u8> {
        let mut parts = self.parts.lock();
        let (left, total) = &mut *parts;
        *left -= 1;
        total.add(reply);
        if *left > 0 { Vec::new() } else { std::mem::take(total).reply(self.is_count) }
    }

    fn part(self: &Arc<Self>, session: &RespSession) -> Translate {
        let gather = Arc::clone(self);
        translated(session, move |said| gather.take(reply_of(said)))
    }
}

/// Executes a command that is divided among nodes, first what concerns keys of this node. The rest is divided by node where
/// it leaves, and again where a node does not own all its keys any more.
fn divide<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    places: &[Option<Owner>],
    tx: &mut Vec<u8>,
) -> Done<M> {
    if !cx.holes.is_empty() {
        return pause(Next::Yield);
    }
    let step = usize::from(call.spec.keys.step.max(1));
    if !(call.command.len() - 1).is_multiple_of(step) {
        return fail(format!("ERR wrong number of arguments for '{}' command", call.spec.name));
    }
    let arguments: Vec<&[u8]> = call.command.arguments(1).collect();
    let words_of = |keys: &[usize]| {
        let words = keys.iter().flat_map(|key| &arguments[key * step..(key + 1) * step]).copied();
        std::iter::once(call.argument(0)).chain(words).collect::<Vec<_>>()
    };
    if session.progress.own.is_none() {
        // If the rest is too long to be sent, nothing is done here either.
        let others: Vec<usize> = (0..places.len()).filter(|key| places[*key].is_some()).collect();
        command(session, words_of(&others).into_iter())?;
    }
    let mut own = session.progress.own.take().unwrap_or_else(|| Box::new(Own::new(places.len())));
    match own.advance(cx, session.version, places, words_of) {
        Ok(true) => {}
        Ok(false) => return go_on_later(session, own, Next::Yield),
        Err(Some(fetch)) => return go_on_later(session, own, Next::Fetch(fetch)),
        Err(None) => return fail(ON_THE_MOVE),
    }
    let Own { is_done, total, .. } = *own;
    let is_count = call.spec.id != Id::MSet;
    let others: Vec<usize> = (0..places.len()).filter(|key| !is_done[*key]).collect();
    if others.is_empty() {
        tx.extend_from_slice(&total.reply(is_count));
        return Ok(());
    }
    let bytes = command(session, words_of(&others).into_iter())?;
    let translate = translated(session, move |said| {
        let mut total = total;
        replies_of(said).for_each(|reply| total.add(reply));
        total.reply(is_count)
    });
    let is_read = !call.spec.flags.has(Flag::WRITE);
    let changed = others.iter().filter(|_| !is_read).map(|key| arguments[key * step]);
    let forward = Forward {
        is_large: !cx.placement.serves(SizeClass::of(bytes.len() as u64)),
        is_read,
        divide: Some(relayed::divide),
        command: Some(call.spec.id),
        bytes,
        translate: Some(tracking::told_at_once(cx, session, changed, translate)),
        ..Forward::to_node(None)
    };
    cx.holes.push(tx.len(), None, forward);
    end(Next::Yield)
}

fn go_on_later<M: Mode>(session: &mut RespSession, own: Box<Own>, next: Next<M>) -> Done<M> {
    (session.progress.done, session.progress.own) = (1, Some(own));
    pause(next)
}

/// How far this node has come with its own keys of a command that is divided.
pub(super) struct Own {
    /// Of each key of the command.
    is_done: Vec<bool>,
    total: Total,
    /// The keys that are under way, and the command with these, as an array of bulk strings.
    step: Option<(Vec<usize>, Vec<u8>, Midway)>,
}

impl Own {
    fn new(keys: usize) -> Self {
        Self { is_done: vec![false; keys], total: Total::default(), step: None }
    }

    /// Executes the command with some of the keys that this node owns; true if none is left.
    ///
    /// # Errors
    /// It pauses; or, without a fetch, keys that are under way have moved.
    fn advance<'a, M: Mode, P: Placement>(
        &mut self,
        cx: &mut Context<'_, M, P>,
        version: Version,
        places: &[Option<Owner>],
        words_of: impl Fn(&[usize]) -> Vec<&'a [u8]>,
    ) -> Result<bool, Option<Box<Fetch<M>>>> {
        let (keys, body, mut midway) = self.step.take().unwrap_or_else(|| {
            let keys: Vec<usize> = self.keys_left(places).take(PART_KEYS).collect();
            let mut body = Vec::new();
            array(words_of(&keys).into_iter(), &mut body);
            (keys, body, Midway::of(version))
        });
        if keys.is_empty() {
            return Ok(true);
        }
        if keys.iter().any(|key| places[*key].is_some()) {
            return Err(None);
        }
        if let Some(fetch) = midway.execute(cx, &body) {
            self.step = Some((keys, body, midway));
            return Err(Some(fetch));
        }
        self.total.add(midway.reply);
        keys.iter().for_each(|key| self.is_done[*key] = true);
        Ok(self.keys_left(places).next().is_none())
    }

    /// The keys of this node with which nothing has been done yet.
    fn keys_left(&self, places: &[Option<Owner>]) -> impl Iterator<Item = usize> {
        let is_left = |key: &usize| places[*key].is_none() && !self.is_done[*key];
        (0..places.len()).filter(is_left)
    }
}

/// FLUSHALL and FLUSHDB, at all nodes.
fn flush<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    if !cx.holes.is_empty() {
        return pause(Next::Yield);
    }
    let progress = &mut session.progress;
    if let Some(flushing) = progress.flushing.take_if(|flushing| flushing.is_over()) {
        if let Some(line) = flushing.failure() {
            return fail(Failure(error_of(line).into()));
        }
        tx.extend_from_slice(compose::OK);
        return Ok(());
    }
    let start = tx.len();
    server::flush(cx, call, tx)?;
    tx.truncate(start);
    let flushing = progress.flushing.get_or_insert_with(|| Flushing::new(rack));
    flushing.go_round(rack, Exptime(0), (&mut cx.holes, start));
    progress.done = 1;
    pause(Next::Yield)
}

/// DBSIZE: the sum of all nodes'.
fn size<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    if !cx.holes.is_empty() {
        // Those before it may be on another link.
        return pause(Next::Yield);
    }
    let mut own = Vec::new();
    scan::size::<M, P>(cx, &mut own)?;
    let Some(others) = rack.others_now() else { return fail(scan::NO_LEASE) };
    let gather = Gather::new(others.len() + 1, true);
    let reply = gather.take(own);
    for node in others {
        let bytes = command(session, call.command.arguments(0))?;
        ask_node(cx, tx.len(), (call, node), (bytes, gather.part(session)));
    }
    tx.extend_from_slice(&reply);
    // What follows may change the number of keys.
    end(Next::Yield)
}

/// WATCH of keys of which another node has some.
fn watch<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &[u8],
) -> Option<Done<M>> {
    let keys: Vec<(&[u8], Option<Owner>)> =
        all_keys(call).map(|key| (key, rack.elsewhere(key, || Intent::Read))).collect();
    if keys.iter().all(|(_, owner)| owner.is_none()) {
        return None;
    }
    if !cx.holes.is_empty() {
        return Some(pause(Next::Yield));
    }
    Some(watch_elsewhere(cx, session, &keys, tx))
}

fn watch_elsewhere<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    keys: &[(&[u8], Option<Owner>)],
    tx: &[u8],
) -> Done<M> {
    // Those may pause.
    let own = keys.iter().filter(|(_, owner)| owner.is_none());
    let own = own.map(|(key, _)| watched_here(cx, key)).collect::<Result<Vec<_>, _>>()?;
    let others = keys.iter().filter_map(|(key, owner)| Some((key, (*owner)?)));
    let ask = |(key, owner): (&&[u8], Owner)| {
        let asked = Arc::new(OnceLock::new());
        let unique = Unique::Asked(Arc::clone(&asked));
        let watched = Watched { hash: cx.store.hash(key), key: (*key).into(), unique };
        Ok((watched, (owner, command(session, [b"WATCH".as_slice(), key].into_iter())?, asked)))
    };
    let asked = others.map(ask).collect::<Result<Vec<_>, Failure>>()?;
    let (watched, asked): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    note_watched(session, own.into_iter().chain(watched))?;
    let (gather, is_muted) = (Gather::new(asked.len(), false), session.mutes());
    for (owner, bytes, asked) in asked {
        let gather = Arc::clone(&gather);
        // What is watched is noted also if nobody reads the reply.
        let translate: Translate = Box::new(move |said| {
            let reply = gather.take(note_unique(&asked, reply_of(said)));
            if is_muted { Vec::new() } else { reply }
        });
        let forward = Forward {
            bytes,
            is_read: true,
            translate: Some(translate),
            command: Some(Id::Watch),
            ..Forward::to(owner)
        };
        cx.holes.push(tx.len(), None, forward);
    }
    end(Next::Yield)
}

/// Notes the CAS unique in the reply to WATCH at another node; returns OK, or the error.
fn note_unique(asked: &OnceLock<Option<u64>>, reply: Vec<u8>) -> Vec<u8> {
    let unique = match reply.first() {
        Some(b'$') if reply != b"$-1\r\n" => reply
            .split(|&byte| byte == b'\n')
            .nth(1)
            .and_then(|line| unsigned(line.trim_ascii_end()))
            .map(Some),
        Some(b'$' | b'_') => Some(None),
        _ => None,
    };
    match unique {
        Some(unique) => {
            // Nobody else sets it.
            let _ = asked.set(unique);
            compose::OK.to_vec()
        }
        None => reply,
    }
}

/// EXEC of a transaction whose keys another node has, or several.
fn exec<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &mut RespSession,
    tx: &mut Vec<u8>,
) -> Option<Done<M>> {
    let transaction = &session.transaction;
    // One in one step has done nothing before it is over: if it has paused, its keys may be elsewhere now.
    let is_whole = transaction.is_open || transaction.is_executing && !transaction.is_stepwise;
    if !is_whole || transaction.is_broken {
        return None;
    }
    if !cx.holes.is_empty() {
        return Some(pause(Next::Yield));
    }
    let calls = || scratch::commands(&transaction.queued);
    let touches = |call: &Call<'_>| call.spec.flags.has(Flag::READONLY) || call.spec.flags.has(Flag::WRITE);
    let failure = if calls().any(|call| call.spec.keys == Keys::NONE && touches(&call)) {
        Some(NO_WALK)
    } else {
        let keys = calls().flat_map(|call| all_keys(&call));
        let keys = keys.chain(transaction.watched.iter().map(|watched| &*watched.key));
        match place_of_all(keys.map(|key| rack.elsewhere(key, || Intent::Change))) {
            Place::Here => return None,
            Place::At(owner) if calls().all(|call| is_for_any_node(&call)) => {
                return Some(exec_at(cx, session, owner, tx));
            }
            Place::At(_) => Some(ONLY_KEYS),
            Place::Several => Some(OTHER_SLOTS),
        }
    };
    session.transaction = Transaction::default();
    failure.map(fail)
}

/// True for a command that does the same at any node.
fn is_for_any_node(call: &Call<'_>) -> bool {
    call.spec.keys != Keys::NONE || matches!(call.spec.id, Id::Ping | Id::Echo | Id::Time)
}

/// Sends a transaction to a node.
fn exec_at<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    owner: Owner,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let Transaction { queued, watched, .. } = std::mem::take(&mut session.transaction);
    // The other node does not know who asks, and the user's rights may be others than when these were queued.
    scratch::commands(&queued).try_for_each(|call| rights::check(cx, session, &call)).map_err(aborted)?;
    let uniques: Option<Vec<_>> =
        watched.iter().map(|watched| Some((&*watched.key, watched.unique.known()?))).collect();
    let Some(uniques) = uniques else {
        // It is not known what was there.
        compose::null_array(tx, session.version);
        return Ok(());
    };
    let bytes = frame(session.version, Kind::Transaction, |bytes| {
        bytes.extend_from_slice(&(uniques.len() as u32).to_le_bytes());
        uniques.iter().for_each(|(key, unique)| put_watched(key, *unique, bytes));
        bytes.extend_from_slice(&queued);
    });
    let bytes = within(session, bytes)?;
    let changed = scratch::commands(&queued).filter(|call| call.spec.flags.has(Flag::WRITE));
    let changed = changed.flat_map(|call| all_keys(&call));
    let translate = Some(tracking::told_at_once(cx, session, changed, translated(session, reply_of)));
    // Its replies may be large.
    cx.holes.push(
        tx.len(),
        None,
        Forward { bytes, is_large: true, translate, command: Some(Id::Exec), ..Forward::to(owner) },
    );
    end(Next::Yield)
}

/// The reply to a GET of a key that only its owner can answer, or an element of that to another command.
pub(super) fn get<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    (owner, key, command_of): (Owner, &[u8], Option<Id>),
    tx: &[u8],
) -> Done<M> {
    let hash = cx.store.hash(key);
    if !may_leave(cx, hash, true) {
        return pause(Next::Yield);
    }
    let bytes = command(session, [b"GET".as_slice(), key].into_iter())?;
    let translate = Some(translated(session, reply_of));
    let forward = Forward {
        bytes,
        is_large: true,
        is_read: true,
        translate,
        command: command_of,
        ..Forward::to(owner)
    };
    cx.holes.push(tx.len(), Some(hash), forward);
    Ok(())
}

/// The reply to a store of a large value that was received for its owner.
pub(super) fn stored(session: &RespSession) -> Translate {
    translated(session, |said| if said == b"HD\r\n" { compose::OK.to_vec() } else { reply_of(said) })
}

#[cfg(test)]
mod tests {
    use minos_proto::resp::{Parsed, Version, parse};

    use super::{
        super::{call::Interrupt, serve::CHECKED, tests::in_rack_of_two, transaction},
        *,
    };

    fn words(words: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        array(words.iter().map(|word| word.as_bytes()), &mut bytes);
        bytes
    }

    fn call(bytes: &[u8]) -> Call<'_> {
        let Parsed::Command(command, _) = parse(bytes, &CHECKED) else { panic!("no command") };
        Call::of(command).unwrap()
    }

    #[test]
    fn a_transaction_that_has_paused_follows_its_keys() {
        in_rack_of_two(|cx, view, [own, other]| {
            let mut leaves = |key, is_stepwise| {
                let mut session = RespSession::new(CHECKED, usize::MAX, 1, None);
                let queued = words(&["incr", key]);
                session.transaction = Transaction {
                    is_executing: true,
                    is_stepwise,
                    queued,
                    commands: 1,
                    ..Transaction::default()
                };
                let done = execute(cx, view, &mut session, &call(&words(&["exec"])), &mut Vec::new());
                assert_eq!(done.is_some(), !cx.holes.is_empty());
                cx.holes.take().len()
            };
            assert_eq!([leaves(own, false), leaves(other, false), leaves(other, true)], [0, 1, 0]);
        });
    }

    #[test]
    fn a_watch_that_has_failed_is_forgotten() {
        const LATE: &[u8] = b"SERVER_ERROR node 1 of the rack is late; the command may be done\r\n";
        in_rack_of_two(|cx, view, [own, other]| {
            let mut watched = |before: &[&str], said: &[u8], then: &str| {
                let mut session = RespSession::new(CHECKED, usize::MAX, 1, None);
                for keys in [before, &[own, other]] {
                    let watch = words(&[&["watch"], keys].concat());
                    let watch = call(&watch);
                    if execute(cx, view, &mut session, &watch, &mut Vec::new()).is_none() {
                        transaction::execute(cx, &mut session, &watch, &mut 1, &mut Vec::new()).ok().unwrap();
                    }
                    for hole in cx.holes.take() {
                        hole.forward.translate.unwrap()(said);
                    }
                }
                let then = words(&then.split(' ').collect::<Vec<_>>());
                transaction::execute(cx, &mut session, &call(&then), &mut 1, &mut Vec::new()).ok().unwrap();
                session.transaction.watched.len()
            };
            for then in ["multi", "watch another"] {
                let more = usize::from(then != "multi");
                assert_eq!(watched(&["key"], b"VA 9\r\n$2\r\n77\r\n\r\n", then), 3 + more);
                assert_eq!(watched(&["key"], LATE, then), 1 + more, "{then}");
            }
        });
    }

    #[test]
    fn a_divided_command_goes_on_if_its_keys_under_way_are_still_here() {
        in_rack_of_two(|cx, view, [own, other]| {
            let mut del = |under_way: &[usize], now: &[&str]| {
                let mut session = RespSession::new(CHECKED, usize::MAX, 1, None);
                let keys: Vec<&str> = under_way.iter().map(|key| now[key + 1]).collect();
                let body = words(&[&["del"], &keys[..]].concat());
                let step = Some((under_way.to_vec(), body, Midway::of(Version::Two)));
                let own = Own { step, ..Own::new(now.len() - 1) };
                (session.progress.done, session.progress.own) = (1, Some(Box::new(own)));
                let done = execute(cx, view, &mut session, &call(&words(now)), &mut Vec::new());
                let went_on = match done {
                    Some(Err(interrupt)) => match *interrupt {
                        Interrupt::Error(text) => {
                            assert_eq!(*text, *ON_THE_MOVE.as_bytes());
                            None
                        }
                        _ => Some(session.progress.own.is_some()),
                    },
                    Some(Ok(())) => Some(false),
                    None => panic!("it is executed as one that begins"),
                };
                (went_on, cx.holes.take().len())
            };
            assert_eq!(del(&[0], &["del", own, other]), (Some(false), 1));
            assert_eq!(del(&[0], &["del", own, own]), (Some(true), 0), "one has come");
            assert_eq!(del(&[0, 1], &["del", own, own]), (Some(false), 0), "all are here");
            assert_eq!(del(&[0, 1], &["del", own, other]), (None, 0), "one has gone");
            assert_eq!(del(&[0], &["del", other, other]), (None, 0), "all have gone");
        });
    }

    #[test]
    fn a_command_with_many_keys_of_this_node_lets_others_in() {
        in_rack_of_two(|cx, view, [own, other]| {
            let mut session = RespSession::new(CHECKED, usize::MAX, 1, None);
            let mut line = vec!["exists"];
            line.extend(vec![own; 2 * PART_KEYS + 1]);
            line.push(other);
            let (command, mut turns) = (words(&line), 0);
            while cx.holes.is_empty() {
                let _ = execute(cx, view, &mut session, &call(&command), &mut Vec::new());
                turns += 1;
            }
            assert_eq!(turns, 3);
        });
    }

    #[test]
    fn keys_on_the_move_are_where_the_others_are() {
        let at = |node| Some(Owner { node, micro_shard: u32::from(node) });
        let place = |places: &[Option<Owner>]| place_of_all(places.iter().copied());
        assert_eq!((place(&[]), place(&[None, None])), (Place::Here, Place::Here));
        assert_eq!(place(&[at(1), at(1)]), Place::At(at(1).unwrap()));
        let moving = at(NOWHERE);
        for all in [&[moving][..], &[at(1), moving, at(1)], &[None, moving]] {
            assert_eq!(place(all), Place::At(moving.unwrap()), "{all:?}");
        }
        for several in [&[at(1), at(2)][..], &[None, at(1)], &[at(1), moving, None]] {
            assert_eq!(place(several), Place::Several, "{several:?}");
        }
    }

    #[test]
    fn parts_are_put_together_with_the_last() {
        let gather = Gather::new(3, true);
        assert!(gather.take(b":2\r\n".to_vec()).is_empty() && gather.take(b":0\r\n".to_vec()).is_empty());
        assert_eq!(gather.take(b":5\r\n".to_vec()), b":7\r\n");
        let gather = Gather::new(2, false);
        assert!(gather.take(b"-ERR one\r\n".to_vec()).is_empty());
        assert_eq!(gather.take(compose::OK.to_vec()), b"-ERR one\r\n");
    }

    #[test]
    fn replies_that_follow_each_other_are_told_apart() {
        let said = [b"VA 4\r\n:2\r\n\r\n", NOT_OWNER, b"VA 5\r\n+OK\r\n\r\nVA 5\r\n$1\r\nk\r\n"].concat();
        let replies: Vec<_> = replies_of(&said).collect();
        assert_eq!(replies[0], b":2\r\n");
        assert!(replies[1].starts_with(b"-TRYAGAIN"));
        assert_eq!(replies[2..], [compose::OK.to_vec(), b"$1\r\nk".to_vec()]);
    }

    #[test]
    fn what_another_node_says_becomes_a_reply() {
        assert_eq!(reply_of(b"VA 7\r\n$1\r\nk\r\n\r\n"), b"$1\r\nk\r\n");
        assert_eq!(
            reply_of(b"SERVER_ERROR node 1 of the rack is late\r\n"),
            b"-ERR node 1 of the rack is late\r\n"
        );
        assert_eq!(reply_of(b"SERVER_ERROR out of memory\r\n"), b"-OOM out of memory\r\n");
        assert!(reply_of(NOT_OWNER).starts_with(b"-TRYAGAIN"));
    }

    #[test]
    fn a_unique_is_noted_if_there_is_one() {
        for (reply, expected) in [
            ("$2\r\n77\r\n", Some(Some(77))),
            ("$-1\r\n", Some(None)),
            ("_\r\n", Some(None)),
            ("-ERR x\r\n", None),
        ] {
            let asked = OnceLock::new();
            let said = note_unique(&asked, reply.into());
            assert_eq!(
                (asked.get().copied(), said == compose::OK),
                (expected, expected.is_some()),
                "{reply}"
            );
        }
    }
}
