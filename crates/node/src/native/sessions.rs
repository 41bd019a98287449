//! Sessions: what makes an operation happen once though its datagram comes twice.
//!
//! A client that wants that opens a session and numbers its operations. For each of the last [`native::ONCE_WINDOW`]
//! numbers the session knows whether the operation is new, under way or done, and how it ended: a retry is
//! answered and not executed again. Sealed datagrams also need a session, which remembers their numbers.
//!
//! The table is bounded, and a new session takes the place of the least recently used one that has nothing under
//! way. A session that is not known any more is never guessed at: whoever asks learns that nothing was executed
//! now. Any worker may take a retry, so a session is behind a lock, one of [`SHARDS`], for a few instructions.

mod window;

#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use minos_proto::native::{self, Status};
use minos_sync::{SpinGuard, SpinLock};
use siphasher::sip::SipHasher24;

use super::replay::ReplayWindow;
use window::{OnceWindow, Seen};

/// Operations that a session tells apart: a client has at most so many numbers open, from the oldest one it
/// still wants an answer for to the newest.
const ONCE_WINDOW: u32 = native::ONCE_WINDOW as u32;

/// Locks over which the sessions are spread.
pub const SHARDS: usize = 64;

/// Bits of an identity that say where its session lies; the others are random.
const SLOT_BITS: u32 = 16;

/// Most sessions a table can have.
pub const SESSIONS_MAX: usize = 1 << SLOT_BITS;

/// Looks at the table before opening is given up because all that was found idle is in use again.
const OPEN_TRIES: u32 = 4;

/// Bounds on sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionsConfig {
    /// Sessions in all, from 1 to [`SESSIONS_MAX`]; each takes about 5 KB.
    pub sessions_max: usize,
    /// Sessions of one IP address.
    pub per_address_max: usize,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self { sessions_max: 1024, per_address_max: 64 }
    }
}

/// How an operation ended, as far as a retry has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the client is told.
    pub status: Status,
    /// Client flags of the item, or zero.
    pub item_flags: u32,
    /// The CAS unique that the operation gave the item, or zero.
    pub cas: u64,
    /// The number that INCR and DECR answer with.
    pub number: Option<u64>,
}

/// The right to execute an operation. Dropped, it says that nothing was executed, so that a retry may be.
///
/// The session stays as long as there are tickets of it.
#[derive(Debug)]
#[must_use = "dropped, it says that nothing was executed"]
pub struct Ticket {
    table: Arc<Table>,
    session: u64,
    once: u32,
    outcome: Option<Outcome>,
}

impl Ticket {
    /// The operation was executed: from now on a retry is told `outcome`.
    #[inline]
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// The session of the operation.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The operation's number within the session.
    pub fn once(&self) -> u32 {
        self.once
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.session);
        // It is there: one with something under way is not evicted.
        if let Some(found) = find(&mut shard.places, self.session) {
            found.in_progress -= 1;
            found.once.end(self.once, self.outcome);
        }
    }
}

/// What to do with an operation that is to happen once.
#[derive(Debug)]
pub enum Begin {
    /// It is new: execute it.
    Execute(Ticket),
    /// It was executed and ended so.
    Done(Outcome),
    /// Another copy is being executed.
    InProgress,
    /// Its number is too far behind the newest one to know whether it was executed.
    TooOld,
    /// There is no such session.
    Unknown,
}

/// What to do with an authenticated datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// It is new.
    Fresh,
    /// It was seen before, or is too old to tell.
    Replayed,
    /// There is no such session.
    Unknown,
}

/// Every session that could make room has an operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all sessions have operations under way")]
pub struct SessionsBusy;

/// What happened to sessions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Sessions there are.
    pub open: u64,
    /// Operations under way in them.
    pub in_progress: u64,
    /// Sessions opened.
    pub opened: u64,
    /// Sessions that made room for others.
    pub evicted: u64,
    /// Openings refused because all sessions were in use.
    pub refused: u64,
    /// Operations and datagrams of sessions that there are not.
    pub unknown: u64,
    /// Operations answered from memory.
    pub repeated: u64,
    /// Operations that came again while they were under way.
    pub repeated_early: u64,
    /// Operations whose number was too old.
    pub too_old: u64,
    /// Datagrams refused as replayed.
    pub replayed: u64,
}

/// All sessions of a server. Workers share one; clones are the same.
#[derive(Clone, Debug)]
pub struct Sessions {
    table: Arc<Table>,
}

#[derive(Debug)]
struct Table {
    config: SessionsConfig,
    /// Each copy of an operation is executed: the control of tests.
    is_forgetful: AtomicBool,
    /// Makes identities that nobody can guess.
    identities: SipHasher24,
    /// Held while a session is opened, around the locks of shards; and how many were opened.
    opening: SpinLock<u64>,
    shards: Box<[SpinLock<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// Slot `s` of the table is place `s / SHARDS` of shard `s % SHARDS`.
    places: Vec<Option<Box<Session>>>,
    /// Its part of the totals, but for what is counted when asked.
    totals: SessionTotals,
}

#[derive(Debug)]
struct Session {
    id: u64,
    peer: SocketAddr,
    nonce: u64,
    used: Instant,
    in_progress: u32,
    once: OnceWindow,
    replay: ReplayWindow,
}

impl Sessions {
    /// A table without sessions. `key` must be random and secret: identities are made from it.
    ///
    /// Bounds outside what is possible are brought inside.
    pub fn new(mut config: SessionsConfig, key: &[u8; 16]) -> Self {
        config.sessions_max = config.sessions_max.clamp(1, SESSIONS_MAX);
        config.per_address_max = config.per_address_max.clamp(1, config.sessions_max);
        let places = |shard| (shard..config.sessions_max).step_by(SHARDS).map(|_| None).collect();
        let shard = |shard| SpinLock::new(Shard { places: places(shard), totals: SessionTotals::default() });
        let table = Table {
            config,
            is_forgetful: AtomicBool::new(false),
            identities: SipHasher24::new_with_key(key),
            opening: SpinLock::new(0),
            shards: (0..SHARDS).map(shard).collect(),
        };
        Self { table: Arc::new(table) }
    }

    /// Opens a session for `peer` and returns its identity, which is never zero.
    ///
    /// A `nonce` is a client's name for the session: if its request to open one comes again, the answer is the
    /// same session.
    ///
    /// # Errors
    /// There is no room, and none can be made without losing an operation that is under way.
    pub fn open(&self, peer: SocketAddr, nonce: u64, now: Instant) -> Result<u64, SessionsBusy> {
        let table = &*self.table;
        let mut opening = table.opening.lock();
        for _ in 0..OPEN_TRIES {
            let slot = match table.survey(peer, nonce).choose(table.config.per_address_max) {
                Some(Choice::Twin(id)) => return Ok(id),
                Some(Choice::Slot(slot)) => slot,
                None => break,
            };
            *opening += 1;
            let id = table.identity(*opening, slot);
            if table.put(slot, Box::new(Session::new(id, peer, nonce, now))) {
                return Ok(id);
            }
        }
        table.shards[0].lock().totals.refused += 1;
        Err(SessionsBusy)
    }

    /// What to do with operation `once` of `session`.
    #[inline]
    pub fn begin(&self, session: u64, once: u32, now: Instant) -> Begin {
        let mut shard = self.table.shard(session);
        let Shard { places, totals } = &mut *shard;
        let Some(found) = find(places, session) else {
            totals.unknown += 1;
            return Begin::Unknown;
        };
        found.used = now;
        // Relaxed: it is set before anything begins.
        let is_forgetful = self.table.is_forgetful.load(Ordering::Relaxed);
        let seen = if is_forgetful { Seen::Fresh } else { found.once.begin(once) };
        match seen {
            Seen::Fresh => {
                found.in_progress += 1;
                let table = Arc::clone(&self.table);
                Begin::Execute(Ticket { table, session, once, outcome: None })
            }
            Seen::Done(outcome) => {
                totals.repeated += 1;
                Begin::Done(outcome)
            }
            Seen::InProgress => {
                totals.repeated_early += 1;
                Begin::InProgress
            }
            Seen::TooOld => {
                totals.too_old += 1;
                Begin::TooOld
            }
        }
    }

    /// Takes note of datagram `sequence` of `session`, whose tag must have been verified.
    #[inline]
    pub fn accept(&self, session: u64, sequence: u64, now: Instant) -> Acceptance {
        let mut shard = self.table.shard(session);
        let Shard { places, totals } = &mut *shard;
        let Some(found) = find(places, session) else {
            totals.unknown += 1;
            return Acceptance::Unknown;
        };
        if !found.replay.accept(sequence) {
            totals.replayed += 1;
            return Acceptance::Replayed;
        }
        found.used = now;
        Acceptance::Fresh
    }

    /// Whether `session` is there.
    pub fn is_known(&self, session: u64) -> bool {
        find(&mut self.table.shard(session).places, session).is_some()
    }

    /// From now on executes every copy of an operation: a test that does not fail then sees nothing.
    #[doc(hidden)]
    pub fn forget_outcomes(&self) {
        self.table.is_forgetful.store(true, Ordering::Relaxed);
    }

    /// What happened so far.
    pub fn totals(&self) -> SessionTotals {
        let mut sum = SessionTotals::default();
        for shard in &self.table.shards {
            sum.add(&shard.lock());
        }
        sum
    }
}

impl Table {
    fn shard(&self, session: u64) -> SpinGuard<'_, Shard> {
        self.shards[slot_of(session) % SHARDS].lock()
    }

    fn identity(&self, number: u64, slot: usize) -> u64 {
        let random = self.identities.hash(&number.to_le_bytes()) >> SLOT_BITS;
        random.max(1) << SLOT_BITS | slot as u64
    }

    /// Looks at all sessions, a shard at a time.
    fn survey(&self, peer: SocketAddr, nonce: u64) -> Survey {
        let mut survey = Survey::default();
        for (number, shard) in self.shards.iter().enumerate() {
            for (place, session) in shard.lock().places.iter().enumerate() {
                survey.look(place * SHARDS + number, session.as_deref(), peer, nonce);
            }
        }
        survey
    }

    /// Puts `session` where none is or an idle one; false if that is not idle any more.
    fn put(&self, slot: usize, session: Box<Session>) -> bool {
        let mut shard = self.shards[slot % SHARDS].lock();
        let Shard { places, totals } = &mut *shard;
        let place = &mut places[slot / SHARDS];
        if place.as_ref().is_some_and(|old| old.in_progress > 0) {
            return false;
        }
        let evicted = place.replace(session);
        totals.opened += 1;
        totals.evicted += u64::from(evicted.is_some());
        // Its memory is given back when the lock is open again.
        drop(shard);
        drop(evicted);
        true
    }
}

impl Session {
    fn new(id: u64, peer: SocketAddr, nonce: u64, now: Instant) -> Self {
        Self {
            id,
            peer,
            nonce,
            used: now,
            in_progress: 0,
            once: OnceWindow::default(),
            replay: ReplayWindow::default(),
        }
    }
}

fn slot_of(session: u64) -> usize {
    session as usize % SESSIONS_MAX
}

fn find(places: &mut [Option<Box<Session>>], id: u64) -> Option<&mut Session> {
    places.get_mut(slot_of(id) / SHARDS)?.as_deref_mut().filter(|session| session.id == id)
}

/// Where a new session may go, as far as one has looked.
#[derive(Debug, Default)]
struct Survey {
    twin: Option<u64>,
    free: Option<usize>,
    /// Sessions of the same address.
    own: usize,
    /// The least recently used idle one, and that of the same address.
    oldest: Option<(Instant, usize)>,
    own_oldest: Option<(Instant, usize)>,
}

enum Choice {
    /// It was opened already.
    Twin(u64),
    /// Empty, or with an idle session.
    Slot(usize),
}

impl Survey {
    fn look(&mut self, slot: usize, session: Option<&Session>, peer: SocketAddr, nonce: u64) {
        let Some(session) = session else {
            self.free = self.free.or(Some(slot));
            return;
        };
        if session.peer == peer && session.nonce == nonce {
            self.twin = Some(session.id);
        }
        let is_own = address_of(session.peer) == address_of(peer);
        self.own += usize::from(is_own);
        if session.in_progress == 0 {
            let candidate = Some((session.used, slot));
            self.oldest = older(self.oldest, candidate);
            self.own_oldest = if is_own { older(self.own_oldest, candidate) } else { self.own_oldest };
        }
    }

    fn choose(&self, per_address_max: usize) -> Option<Choice> {
        if let Some(id) = self.twin {
            return Some(Choice::Twin(id));
        }
        let slot = if self.own >= per_address_max {
            self.own_oldest.map(|(_, slot)| slot)
        } else {
            self.free.or(self.oldest.map(|(_, slot)| slot))
        };
        slot.map(Choice::Slot)
    }
}

fn address_of(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

fn older(one: Option<(Instant, usize)>, other: Option<(Instant, usize)>) -> Option<(Instant, usize)> {
    one.into_iter().chain(other).min()
}

impl SessionTotals {
    fn add(&mut self, shard: &Shard) {
        let sessions = || shard.places.iter().flatten();
        self.open += sessions().count() as u64;
        self.in_progress += sessions().map(|session| u64::from(session.in_progress)).sum::<u64>();
        self.opened += shard.totals.opened;
        self.evicted += shard.totals.evicted;
        self.refused += shard.totals.refused;
        self.unknown += shard.totals.unknown;
        self.repeated += shard.totals.repeated;
        self.repeated_early += shard.totals.repeated_early;
        self.too_old += shard.totals.too_old;
        self.replayed += shard.totals.replayed;
    }
}
