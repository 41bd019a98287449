//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR; SUBSCRIBE and UNSUBSCRIBE for its channel, the only one; and the
//! notices themselves.

use std::{collections::BTreeSet, sync::Arc};

use minos_access::Access;
use minos_base::{KeyHash, limits::KEY_BYTES_MAX};
use minos_engine::Mode;
use minos_proto::resp::{Flag, Id, Version, compose, integer};

use super::{
    call::{Call, Done, Failure, NO_INTEGER, SYNTAX, fail},
    client::{self, told},
    execute::all_keys,
    rights, scratch,
    session::RespSession,
};
use crate::{
    ops::{Context, Next},
    rack::{Intent, Translate},
    tracking::{Inbox, Notice, Origin, Tracker, Tracking, set_origin},
};

/// The channel of notices to a client of RESP2.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// Prefixes of one connection.
const PREFIXES_MAX: usize = 1024;

const NO_CACHING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
                          mode enabled";
const OTHER_MODE: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                          re-enabling it with a different mode.";
const OTHER_CHOICE: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                            re-enabling it with a different mode.";

/// The tracking of a connection. It ends when this is dropped.
pub(super) struct Tracked {
    tracking: Arc<Tracking>,
    tracker: Arc<Tracker>,
    mode: TrackMode,
    /// The next command is the exception to the mode.
    is_caching: bool,
    /// In [`TrackMode::Broadcast`].
    prefixes: BTreeSet<Box<[u8]>>,
}

/// Which keys a connection is told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrackMode {
    /// Those that it has read.
    #[default]
    Read,
    /// Those that it has read by commands behind CLIENT CACHING YES.
    OptIn,
    /// Those that it has read but by commands behind CLIENT CACHING NO.
    OptOut,
    /// All that have one of its prefixes.
    Broadcast,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.tracking.leave(&self.tracker, self.prefixes.iter().map(|prefix| &**prefix));
    }
}

impl Tracked {
    /// True if the keys that the command reads are told of.
    fn wants_reads(&self) -> bool {
        match self.mode {
            TrackMode::Read => true,
            TrackMode::OptIn => self.is_caching,
            TrackMode::OptOut => !self.is_caching,
            TrackMode::Broadcast => false,
        }
    }

    /// The letters of its state in CLIENT LIST.
    pub(super) fn letters(&self) -> String {
        let broken = if self.tracker.is_broken() { "R" } else { "" };
        let broadcast = if self.mode == TrackMode::Broadcast { "B" } else { "" };
        format!("t{broken}{broadcast}")
    }

    /// The connection that gets the notices; 0 for this one.
    pub(super) fn redirected(&self) -> i64 {
        self.tracker.redirected().map_or(0, told)
    }
}

impl RespSession {
    /// How keys are read: what a client caches is not from a copy, which nobody tells of.
    #[inline]
    pub(super) fn read_intent(&self) -> Intent {
        if self.tracked.is_some() { Intent::Read } else { Intent::ReadCopy }
    }

    /// As whose changes other nodes mark those of this client, if it is not to be told of them.
    pub(super) fn origin<M: Mode, P>(&self, cx: &Context<'_, M, P>) -> Origin {
        let is_marked = self.tracked.as_ref().is_some_and(|tracked| tracked.tracker.has_no_loop());
        cx.rack.filter(|_| is_marked).map_or(Origin::default(), |rack| Origin::new(rack.number(), self.id))
    }

    /// Marks the changes of the following commands as those of this client, if it is not to be told of them.
    pub(crate) fn mark_changes(&self) {
        if self.tracked.as_ref().is_some_and(|tracked| tracked.tracker.has_no_loop()) {
            set_origin(Some(self.id));
        }
    }

    /// Appends notices behind the replies so far, if `next` says that no command is halfway.
    pub(crate) fn go_on<M: Mode>(&mut self, next: &Next<M>, inbox: Option<&Inbox>, tx: &mut Vec<u8>) {
        // What a command reads after that may be older than a notice.
        self.is_between = !self.is_midway() && !matches!(next, Next::Fetch(_) | Next::Owner(_));
        if matches!(next, Next::Continue | Next::NeedMore { .. } | Next::Yield | Next::Unpaused) {
            self.deliver(inbox, tx);
        }
    }

    /// Appends the notices that there are, unless a command is halfway.
    pub(crate) fn deliver(&mut self, inbox: Option<&Inbox>, tx: &mut Vec<u8>) {
        if let Some(inbox) = inbox.filter(|inbox| self.is_between && inbox.has_notices()) {
            for notice in inbox.take() {
                if self.may_know(&notice) {
                    self.tell(&notice, tx);
                }
            }
        }
    }

    /// False for the name of a key that no rule of the user is about. Whoever has one may ask whether there is such a key.
    fn may_know(&mut self, notice: &Notice) -> bool {
        match (&mut self.guard, notice) {
            (Some(guard), Notice::Key(key)) => {
                guard.user().is_some_and(|user| user.may_access(key, Access::Any))
            }
            _ => true,
        }
    }

    /// Appends a notice; none to a client that cannot take it for one.
    fn tell(&self, notice: &Notice, tx: &mut Vec<u8>) {
        if let Notice::Broken(number) = notice {
            if self.version == Version::Three {
                compose::push(tx, 2);
                compose::bulk(tx, b"tracking-redir-broken");
                compose::integer(tx, told(*number));
            }
            return;
        }
        match (self.version, self.is_subscribed) {
            (Version::Three, _) => {
                compose::push(tx, 2);
                compose::bulk(tx, b"invalidate");
            }
            (Version::Two, true) => {
                compose::array(tx, 3);
                compose::bulk(tx, b"message");
                compose::bulk(tx, CHANNEL);
            }
            (Version::Two, false) => return,
        }
        match notice {
            Notice::Key(key) => {
                compose::array(tx, 1);
                compose::bulk(tx, key);
            }
            _ => compose::null(tx, self.version),
        }
    }
}

/// Checks what few clients need: rights, the commands of a subscriber, a pause; and notes the keys that a tracking client
/// reads. False if the command is to wait for the end of the pause.
pub(super) fn check<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
) -> Result<bool, Failure> {
    rights::check(cx, session, call)?;
    let id = call.spec.id;
    let may_subscriber = matches!(id, Id::Ping | Id::Subscribe | Id::Unsubscribe | Id::Quit | Id::Reset);
    if session.is_subscribed && session.version == Version::Two && !may_subscriber {
        return Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            call.spec.name
        )
        .into());
    }
    session.is_paused = client::is_paused(session, call);
    if session.is_paused {
        return Ok(false);
    }
    note_reads(cx, session, call);
    Ok(true)
}

/// Lets a client that tracks be told of what it changes at another node right behind the reply, as on one server: that node
/// may tell of it later.
pub(super) fn told_at_once<'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    keys: impl Iterator<Item = &'a [u8]>,
    translate: Translate,
) -> Translate {
    let (Some(tracked), Some(rack)) = (&session.tracked, cx.rack) else { return translate };
    let (tracking, me, origin) = (Arc::clone(&tracked.tracking), rack.number(), session.origin(cx));
    let keys: Vec<(KeyHash, Box<[u8]>)> = keys.map(|key| (cx.store.hash(key), key.into())).collect();
    Box::new(move |said| {
        let reply = translate(said);
        keys.iter().for_each(|(hash, key)| tracking.tell_change((*hash, key), origin, me));
        reply
    })
}

/// Notes the keys that a command is about to read.
fn note_reads<M: Mode, P>(cx: &Context<'_, M, P>, session: &mut RespSession, call: &Call<'_>) {
    let transaction = &session.transaction;
    // Those of a transaction in one step were noted when it began.
    let is_noted = transaction.is_executing && !transaction.is_stepwise;
    let Some(tracked) = session.tracked.as_mut().filter(|_| !is_noted) else { return };
    let is_queued = transaction.is_open && !call.spec.flags.has(Flag::AT_ONCE);
    if !is_queued && tracked.wants_reads() {
        let note = |call: &Call<'_>| {
            if call.spec.flags.has(Flag::READONLY) {
                all_keys(call)
                    .for_each(|key| tracked.tracking.note_read((cx.store.hash(key), key), &tracked.tracker));
            }
        };
        match call.spec.id {
            Id::Exec if transaction.is_open => {
                scratch::commands(&transaction.queued).for_each(|call| note(&call))
            }
            _ => note(call),
        }
    }
}

/// A command has ended: with it CLIENT CACHING, which holds for the next command, or the next transaction.
#[cold]
pub(super) fn end_caching(session: &mut RespSession, call: &Call<'_>) {
    let transaction = &session.transaction;
    let is_queued = transaction.is_open && !call.spec.flags.has(Flag::AT_ONCE);
    let goes_on = transaction.is_executing
        || is_queued
        || call.spec.id == Id::Multi
        || call.spec.name.starts_with("client");
    if let Some(tracked) = &mut session.tracked {
        tracked.is_caching &= goes_on;
    }
}

/// Executes CLIENT TRACKING.
pub(super) fn track<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
) -> Result<(), Failure> {
    let asked = Asked::read(cx, call)?;
    if call.is(2, "off") {
        session.tracked = None;
        return Ok(());
    }
    if !call.is(2, "on") {
        return Err(SYNTAX.into());
    }
    let mode = asked.mode(session.tracked.as_ref().map(|tracked| tracked.mode))?;
    if mode == TrackMode::Broadcast {
        asked.check_prefixes(session.tracked.as_ref().map(|tracked| &tracked.prefixes))?;
    }
    let (Some(tracking), Some(own)) = (cx.admin.tracking(), cx.admin.inbox(session.id)) else {
        return Err("ERR this connection cannot track keys".into());
    };
    let tracked = session.tracked.get_or_insert_with(|| {
        let tracker = tracking.join(own);
        let (mode, prefixes) = (TrackMode::default(), BTreeSet::new());
        Box::new(Tracked { tracking: Arc::clone(tracking), tracker, mode, is_caching: false, prefixes })
    });
    tracked.mode = mode;
    tracked.tracker.redirect(asked.redirect, asked.no_loop);
    if mode == TrackMode::Broadcast {
        let all: &[&[u8]] = &[b""];
        for prefix in if asked.prefixes.is_empty() { all } else { &asked.prefixes } {
            if tracked.prefixes.insert((*prefix).into()) {
                tracking.broadcast(prefix, &tracked.tracker);
            }
        }
    }
    session.note_plain();
    session.mark_changes();
    Ok(())
}

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct Asked<'a> {
    redirect: Option<Arc<Inbox>>,
    prefixes: Vec<&'a [u8]>,
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    no_loop: bool,
}

impl<'a> Asked<'a> {
    fn read<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'a>) -> Result<Self, Failure> {
        let mut asked = Self::default();
        let mut arguments = call.command.arguments(3);
        while let Some(word) = arguments.next() {
            match (word.to_ascii_lowercase().as_slice(), arguments.len()) {
                (b"redirect", 1..) if asked.redirect.is_some() => {
                    return Err("ERR A client can only redirect to a single other client".into());
                }
                (b"redirect", 1..) => match integer(arguments.next().unwrap_or_default()) {
                    None => return Err(NO_INTEGER.into()),
                    Some(id) => {
                        let number = u64::try_from(id).ok().and_then(|id| id.checked_sub(1));
                        asked.redirect = number.and_then(|number| cx.admin.inbox(number));
                        if asked.redirect.is_none() {
                            return Err("ERR The client ID you want redirect to does not exist".into());
                        }
                    }
                },
                (b"prefix", 1..) => asked.prefixes.push(arguments.next().unwrap_or_default()),
                (b"bcast", _) => asked.is_broadcast = true,
                (b"optin", _) => asked.is_opt_in = true,
                (b"optout", _) => asked.is_opt_out = true,
                (b"noloop", _) => asked.no_loop = true,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(asked)
    }

    /// The mode, if the options go together, and with the mode before, if there is one.
    fn mode(&self, old: Option<TrackMode>) -> Result<TrackMode, Failure> {
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        if old.is_some_and(|old| (old == TrackMode::Broadcast) != self.is_broadcast) {
            return Err(OTHER_MODE.into());
        }
        let mode = match (self.is_broadcast, self.is_opt_in, self.is_opt_out) {
            (true, false, false) => TrackMode::Broadcast,
            (true, _, _) => return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into()),
            (_, true, true) => return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into()),
            (_, true, _) => TrackMode::OptIn,
            (_, _, true) => TrackMode::OptOut,
            _ => TrackMode::Read,
        };
        let is_other = matches!(
            (old, mode),
            (Some(TrackMode::OptIn), TrackMode::OptOut) | (Some(TrackMode::OptOut), TrackMode::OptIn)
        );
        if is_other { Err(OTHER_CHOICE.into()) } else { Ok(mode) }
    }

    /// Refuses prefixes of which one begins with another, and more than there may be.
    fn check_prefixes(&self, old: Option<&BTreeSet<Box<[u8]>>>) -> Result<(), Failure> {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        let refuse = |prefix: &[u8], kind: &str, other: &[u8]| {
            let text = [
                b"ERR Prefix '".as_slice(),
                prefix,
                b"' overlaps with ",
                kind.as_bytes(),
                b" prefix '",
                other,
                b"'. Prefixes for a single client must not overlap.",
            ];
            Err(Failure(text.concat().into()))
        };
        if old.map_or(0, BTreeSet::len) + self.prefixes.len() > PREFIXES_MAX {
            return Err("ERR more than 1024 prefixes".into());
        }
        for (at, prefix) in self.prefixes.iter().enumerate() {
            if prefix.len() > KEY_BYTES_MAX {
                return Err("ERR prefix is longer than 250 bytes".into());
            }
            if let Some(other) = old.into_iter().flatten().find(|other| overlap(prefix, other)) {
                return refuse(prefix, "an existing", other);
            }
            if let Some(other) = self.prefixes[at + 1..].iter().find(|other| overlap(prefix, other)) {
                return refuse(prefix, "another provided", other);
            }
        }
        Ok(())
    }
}

/// Executes CLIENT CACHING.
pub(super) fn cache(session: &mut RespSession, call: &Call<'_>) -> Result<(), Failure> {
    let Some(tracked) = &mut session.tracked else { return Err(NO_CACHING.into()) };
    let (wanted, refusal) = match call.argument(2).to_ascii_lowercase().as_slice() {
        b"yes" => {
            (TrackMode::OptIn, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
        }
        b"no" => (
            TrackMode::OptOut,
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
        _ => return Err(SYNTAX.into()),
    };
    if tracked.mode != wanted {
        return Err(refusal.into());
    }
    tracked.is_caching = true;
    Ok(())
}

/// Executes CLIENT GETREDIR.
pub(super) fn redirection(session: &RespSession, tx: &mut Vec<u8>) {
    compose::integer(tx, session.tracked.as_ref().map_or(-1, |tracked| tracked.redirected()));
}

/// Executes CLIENT TRACKINGINFO.
pub(super) fn info(session: &RespSession, tx: &mut Vec<u8>) {
    let version = session.version;
    let tracked = session.tracked.as_deref();
    let mut flags = vec![if tracked.is_some() { "on" } else { "off" }];
    if let Some(tracked) = tracked {
        let (mode, exception) = match tracked.mode {
            TrackMode::Read => (None, None),
            TrackMode::Broadcast => (Some("bcast"), None),
            TrackMode::OptIn => (Some("optin"), Some("caching-yes")),
            TrackMode::OptOut => (Some("optout"), Some("caching-no")),
        };
        flags.extend(mode);
        flags.extend(exception.filter(|_| tracked.is_caching));
        flags.extend(tracked.tracker.has_no_loop().then_some("noloop"));
        flags.extend(tracked.tracker.is_broken().then_some("broken_redirect"));
    }
    compose::map(tx, 3, version);
    compose::bulk(tx, b"flags");
    compose::set(tx, flags.len(), version);
    flags.into_iter().for_each(|flag| compose::bulk(tx, flag.as_bytes()));
    compose::bulk(tx, b"redirect");
    redirection(session, tx);
    compose::bulk(tx, b"prefixes");
    let prefixes = tracked.map(|tracked| &tracked.prefixes);
    compose::array(tx, prefixes.map_or(0, BTreeSet::len));
    prefixes.into_iter().flatten().for_each(|prefix| compose::bulk(tx, prefix));
}

/// Executes SUBSCRIBE and UNSUBSCRIBE. There is one channel, in which only the server speaks.
pub(super) fn subscribe<M: Mode>(session: &mut RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    let begins = call.spec.id == Id::Subscribe;
    if begins && call.command.arguments(1).any(|channel| channel != CHANNEL) {
        return fail("ERR there is no other channel than __redis__:invalidate");
    }
    if call.command.len() == 1 {
        let channel = session.is_subscribed.then_some(CHANNEL);
        session.is_subscribed = false;
        answer(session, channel, false, tx);
        return Ok(());
    }
    for channel in call.command.arguments(1) {
        if channel == CHANNEL {
            session.is_subscribed = begins;
            session.note_plain();
        }
        answer(session, Some(channel), begins, tx);
    }
    Ok(())
}

/// The answer about one channel, with the number of those that are subscribed to.
fn answer(session: &RespSession, channel: Option<&[u8]>, begins: bool, tx: &mut Vec<u8>) {
    match session.version {
        Version::Two => compose::array(tx, 3),
        Version::Three => compose::push(tx, 3),
    }
    compose::bulk(tx, if begins { b"subscribe" } else { b"unsubscribe" });
    match channel {
        Some(channel) => compose::bulk(tx, channel),
        None => compose::null(tx, session.version),
    }
    compose::integer(tx, i64::from(session.is_subscribed));
}
