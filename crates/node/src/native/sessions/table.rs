//! The bounded table of all sessions: who gets in, and who has to go for it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::AtomicBool,
    time::Instant,
};

use minos_sync::{SpinGuard, SpinLock};
use siphasher::sip::SipHasher24;

use super::{
    super::replay::ReplayWindow, SESSIONS_MAX, SHARDS, SLOT_BITS, SessionTotals, SessionsBusy,
    SessionsConfig, window::OnceWindow,
};

/// Looks at the table before opening is given up because all that was found idle is in use again.
const OPEN_TRIES: u32 = 4;

#[derive(Debug)]
pub(super) struct Table {
    config: SessionsConfig,
    /// Each copy of an operation is executed: the control of tests.
    pub(super) is_forgetful: AtomicBool,
    /// Makes identities that nobody can guess.
    identities: SipHasher24,
    /// Held while a session is opened, around the locks of shards; and how many were opened.
    opening: SpinLock<u64>,
    shards: Box<[SpinLock<Shard>]>,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Slot `s` of the table is place `s / SHARDS` of shard `s % SHARDS`.
    places: Vec<Option<Box<Session>>>,
    /// Its part of the totals, but for what is counted when asked.
    pub(super) totals: SessionTotals,
}

#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    peer: SocketAddr,
    nonce: u64,
    pub(super) used: Instant,
    pub(super) in_progress: u32,
    pub(super) once: OnceWindow,
    pub(super) replay: ReplayWindow,
}

impl Table {
    /// A table without sessions, its bounds brought inside what is possible.
    pub(super) fn new(mut config: SessionsConfig, key: &[u8; 16]) -> Self {
        config.sessions_max = config.sessions_max.clamp(1, SESSIONS_MAX);
        config.per_address_max = config.per_address_max.clamp(1, config.sessions_max);
        let places = |shard| (shard..config.sessions_max).step_by(SHARDS).map(|_| None).collect();
        let shard = |shard| SpinLock::new(Shard { places: places(shard), totals: SessionTotals::default() });
        Self {
            config,
            is_forgetful: AtomicBool::new(false),
            identities: SipHasher24::new_with_key(key),
            opening: SpinLock::new(0),
            shards: (0..SHARDS).map(shard).collect(),
        }
    }

    /// Opens a session, or finds the one that was opened for the same `nonce`.
    pub(super) fn open(&self, peer: SocketAddr, nonce: u64, now: Instant) -> Result<u64, SessionsBusy> {
        let mut opening = self.opening.lock();
        for _ in 0..OPEN_TRIES {
            let slot = match self.survey(peer, nonce).choose(self.config.per_address_max) {
                Some(Choice::Twin(id)) => return Ok(id),
                Some(Choice::Slot(slot)) => slot,
                None => break,
            };
            *opening += 1;
            let id = self.identity(*opening, slot);
            if self.put(slot, Box::new(Session::new(id, peer, nonce, now))) {
                return Ok(id);
            }
        }
        self.shards[0].lock().totals.refused += 1;
        Err(SessionsBusy)
    }

    /// The shard that a session is in, if it is at all.
    pub(super) fn shard(&self, session: u64) -> SpinGuard<'_, Shard> {
        self.shards[slot_of(session) % SHARDS].lock()
    }

    /// What happened so far.
    pub(super) fn totals(&self) -> SessionTotals {
        let mut sum = SessionTotals::default();
        for shard in &self.shards {
            sum.add(&shard.lock());
        }
        sum
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

impl Shard {
    /// The session of this identity, and the totals beside it.
    #[inline]
    pub(super) fn find(&mut self, id: u64) -> (Option<&mut Session>, &mut SessionTotals) {
        let place = self.places.get_mut(slot_of(id) / SHARDS);
        let session = place.and_then(|place| place.as_deref_mut());
        (session.filter(|session| session.id == id), &mut self.totals)
    }
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
