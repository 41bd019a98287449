//! The bounded table of all sessions: admission and replacement.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::atomic::AtomicBool,
    time::Instant,
};

use minos_sync::{SpinGuard, SpinLock};
use siphasher::sip::SipHasher24;

use super::{
    super::replay::ReplayWindow,
    terms::{SESSIONS_MAX, SHARDS, SLOT_BITS, SessionTotals, SessionsBusy, SessionsConfig},
    window::OnceWindow,
};

/// Attempts to find a slot before opening is given up because the sessions checked are in use.
const OPEN_TRIES: u32 = 4;

/// Sessions of a full table that an attempt checks; it replaces the least recently used of them. All of a
/// small table, and of a large one those not checked for longest, so that opening takes constant time.
pub(super) const LOOKS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Table {
    config: SessionsConfig,
    /// Each copy of an operation is executed: the control of tests.
    pub(super) is_forgetful: AtomicBool,
    /// Makes identities that cannot be guessed.
    identities: SipHasher24,
    /// Held while a session is opened, around the locks of shards.
    opening: SpinLock<Opening>,
    shards: Box<[SpinLock<Shard>]>,
}

/// The slots in use, and their addresses.
#[derive(Debug, Default)]
struct Opening {
    /// Sessions opened so far.
    opened: u64,
    /// Slots in use, the one checked last at the back. Sessions are replaced and never closed, so the slots
    /// from its length on are free.
    order: VecDeque<usize>,
    /// The slots of each address.
    owned: HashMap<IpAddr, Vec<usize>>,
    /// Sessions checked so far.
    looks: u64,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Slot `s` of the table is place `s / SHARDS` of shard `s % SHARDS`.
    places: Vec<Option<Box<Session>>>,
    /// The shard's part of the totals; some are counted only when asked for.
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
    /// A table without sessions, with its bounds clamped to the possible range.
    pub(super) fn new(mut config: SessionsConfig, key: &[u8; 16]) -> Self {
        config.sessions_max = config.sessions_max.clamp(1, SESSIONS_MAX);
        config.per_address_max = config.per_address_max.clamp(1, config.sessions_max);
        let places = |shard| (shard..config.sessions_max).step_by(SHARDS).map(|_| None).collect();
        let shard = |shard| SpinLock::new(Shard { places: places(shard), totals: SessionTotals::default() });
        Self {
            config,
            is_forgetful: AtomicBool::new(false),
            identities: SipHasher24::new_with_key(key),
            opening: SpinLock::new(Opening::default()),
            shards: (0..SHARDS).map(shard).collect(),
        }
    }

    /// Opens a session, or finds the one opened for the same `nonce`.
    pub(super) fn open(&self, peer: SocketAddr, nonce: u64, now: Instant) -> Result<u64, SessionsBusy> {
        let mut opening = self.opening.lock();
        for _ in 0..OPEN_TRIES {
            let slot = match self.choose(&mut opening, peer, nonce) {
                Some(Choice::Twin(id)) => return Ok(id),
                Some(Choice::Slot(slot)) => slot,
                None => continue,
            };
            opening.opened += 1;
            let id = self.identity(opening.opened, slot);
            if let Ok(evicted) = self.put(slot, Box::new(Session::new(id, peer, nonce, now))) {
                opening.disown(evicted, slot);
                opening.own(peer, slot);
                return Ok(id);
            }
        }
        self.shards[0].lock().totals.refused += 1;
        Err(SessionsBusy)
    }

    /// The shard that holds a session, if it exists.
    pub(super) fn shard(&self, session: u64) -> SpinGuard<'_, Shard> {
        self.shards[slot_of(session) % SHARDS].lock()
    }

    pub(super) fn totals(&self) -> SessionTotals {
        let mut sum = SessionTotals { looks: self.opening.lock().looks, ..SessionTotals::default() };
        for shard in &self.shards {
            sum.add(&shard.lock());
        }
        sum
    }

    fn identity(&self, number: u64, slot: usize) -> u64 {
        let random = self.identities.hash(&number.to_le_bytes()) >> SLOT_BITS;
        random.max(1) << SLOT_BITS | slot as u64
    }

    /// The session opened for `nonce` before, or the slot for a new one.
    fn choose(&self, opening: &mut Opening, peer: SocketAddr, nonce: u64) -> Option<Choice> {
        let own = opening.owned.get(&address_of(peer)).map_or(&[][..], Vec::as_slice);
        opening.looks += own.len() as u64;
        let mut oldest = None;
        for &slot in own {
            let Some(seen) = self.look(slot) else { continue };
            if (seen.peer, seen.nonce) == (peer, nonce) {
                return Some(Choice::Twin(seen.id));
            }
            oldest = older(oldest, seen.idle_since, slot);
        }
        let has_share = own.len() >= self.config.per_address_max;
        if !has_share && opening.order.len() < self.config.sessions_max {
            let slot = opening.order.len();
            opening.order.push_back(slot);
            return Some(Choice::Slot(slot));
        }
        let oldest = if has_share { oldest } else { self.oldest(opening) };
        oldest.map(|(_, slot)| Choice::Slot(slot))
    }

    /// The least recently used idle session among those not checked for longest.
    fn oldest(&self, opening: &mut Opening) -> Option<(Instant, usize)> {
        let mut oldest = None;
        for _ in 0..opening.order.len().min(LOOKS_MAX) {
            let Some(slot) = opening.order.pop_front() else { break };
            opening.order.push_back(slot);
            opening.looks += 1;
            oldest = older(oldest, self.look(slot).and_then(|seen| seen.idle_since), slot);
        }
        oldest
    }

    fn look(&self, slot: usize) -> Option<Seen> {
        let shard = self.shards[slot % SHARDS].lock();
        let session = shard.places[slot / SHARDS].as_deref()?;
        let idle_since = (session.in_progress == 0).then_some(session.used);
        Some(Seen { id: session.id, peer: session.peer, nonce: session.nonce, idle_since })
    }

    /// Puts `session` into a slot that is empty or holds an idle session, whose client is returned; an error
    /// if that session is no longer idle.
    fn put(&self, slot: usize, session: Box<Session>) -> Result<Option<SocketAddr>, SessionsBusy> {
        let mut shard = self.shards[slot % SHARDS].lock();
        let Shard { places, totals } = &mut *shard;
        let place = &mut places[slot / SHARDS];
        if place.as_ref().is_some_and(|old| old.in_progress > 0) {
            return Err(SessionsBusy);
        }
        let evicted = place.replace(session);
        totals.opened += 1;
        totals.evicted += u64::from(evicted.is_some());
        // The memory is freed after the lock is released.
        drop(shard);
        Ok(evicted.map(|session| session.peer))
    }
}

impl Opening {
    fn own(&mut self, peer: SocketAddr, slot: usize) {
        self.owned.entry(address_of(peer)).or_default().push(slot);
    }

    fn disown(&mut self, peer: Option<SocketAddr>, slot: usize) {
        let Some(address) = peer.map(address_of) else { return };
        let Some(slots) = self.owned.get_mut(&address) else { return };
        slots.retain(|&other| other != slot);
        if slots.is_empty() {
            self.owned.remove(&address);
        }
    }
}

/// The state of a session that matters for opening another.
struct Seen {
    id: u64,
    peer: SocketAddr,
    nonce: u64,
    /// Time of its last use; `None` while an operation is in progress.
    idle_since: Option<Instant>,
}

enum Choice {
    /// The session is already open.
    Twin(u64),
    /// Empty, or with an idle session.
    Slot(usize),
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
    /// The session with this identity, and the shard's totals.
    #[inline]
    pub(super) fn find(&mut self, id: u64) -> (Option<&mut Session>, &mut SessionTotals) {
        let place = self.places.get_mut(slot_of(id) / SHARDS);
        let session = place.and_then(|place| place.as_deref_mut());
        (session.filter(|session| session.id == id), &mut self.totals)
    }
}

fn address_of(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// The idle session that was unused for longer.
fn older(one: Option<(Instant, usize)>, since: Option<Instant>, slot: usize) -> Option<(Instant, usize)> {
    one.into_iter().chain(since.map(|since| (since, slot))).min()
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
