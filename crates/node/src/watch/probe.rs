//! A worker's probe: which requests are looked at, and their times so far.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Instant,
};

use minos_base::{KeyHash, Seconds, SizeClass};

use super::{Keyed, ShownKey, Size, Stage, Watched};

/// Chooses the requests that are looked at. Only its worker's thread uses it.
pub(crate) struct Probe {
    watched: Option<Arc<Watched>>,
    one_in: Cell<u32>,
    requests: Countdown,
    /// Of keys in lines of several.
    keys: Countdown,
    random: Cell<u64>,
    /// The largest small class.
    small_max: Cell<SizeClass>,
    is_pending: Cell<bool>,
    /// The request whose reply is not sent yet.
    pending: RefCell<Sample>,
    /// The large request that is about to be handed over.
    away: RefCell<Option<Box<Timed>>>,
}

/// Counts down to the next sample.
struct Countdown {
    left: Cell<u32>,
    /// Requests from the last sample to the next one, for which that one stands.
    span: Cell<u32>,
    /// Requests for which the last sample stands.
    weight: Cell<u32>,
}

/// A request that was chosen.
struct Sample {
    command: &'static str,
    hash: Option<KeyHash>,
    key: ShownKey,
    bytes: u64,
    requests: u64,
    begun: Instant,
    executed: Instant,
}

/// A large request on its way between workers.
pub(crate) struct Timed {
    command: &'static str,
    hash: KeyHash,
    key: ShownKey,
    begun: Instant,
    handed: Instant,
    taken: Option<Instant>,
}

impl Countdown {
    fn new(first: u32) -> Self {
        Self { left: Cell::new(first), span: Cell::new(first), weight: Cell::new(first) }
    }

    fn restart(&self, first: u32) {
        [&self.left, &self.span].iter().for_each(|count| count.set(first));
    }
}

impl Probe {
    pub(super) fn new(watched: Arc<Watched>, one_in: u32, seed: u64) -> Self {
        let seed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self::of(Some(watched), one_in, seed)
    }

    /// A probe that looks at nothing.
    pub(crate) fn off() -> Self {
        Self::of(None, 0, 1)
    }

    fn of(watched: Option<Arc<Watched>>, one_in: u32, seed: u64) -> Self {
        let first = if one_in == 0 { u32::MAX } else { one_in };
        let now = Instant::now();
        Self {
            watched,
            one_in: Cell::new(one_in),
            requests: Countdown::new(first),
            keys: Countdown::new(first),
            random: Cell::new(seed),
            small_max: Cell::new(SizeClass::MAX),
            is_pending: Cell::new(false),
            pending: RefCell::new(Sample {
                command: "",
                hash: None,
                key: ShownKey::default(),
                bytes: 0,
                requests: 0,
                begun: now,
                executed: now,
            }),
            away: RefCell::default(),
        }
    }

    /// Takes over the largest small class of a plan.
    pub(crate) fn set_small_max(&self, class: SizeClass) {
        self.small_max.set(class);
    }

    /// Looks at one request in so many from now on; 0: at none.
    pub(crate) fn set_one_in(&self, one_in: u32) {
        if self.one_in.replace(one_in) != one_in {
            let first = if one_in == 0 { u32::MAX } else { one_in };
            [&self.requests, &self.keys].iter().for_each(|countdown| countdown.restart(first));
        }
    }

    /// Counts `requests` that come together; the position of the one to look at, if there is one.
    #[inline]
    pub(crate) fn choose(&self, requests: usize) -> Option<usize> {
        self.count_down(&self.requests, requests as u32)
    }

    /// As [`choose`](Self::choose), of keys in a line of several, which are noted by [`note`](Self::note).
    #[inline]
    pub(crate) fn choose_key(&self, keys: usize) -> Option<usize> {
        self.count_down(&self.keys, keys as u32)
    }

    #[inline]
    fn count_down(&self, countdown: &Countdown, requests: u32) -> Option<usize> {
        let left = countdown.left.get();
        if left > requests {
            countdown.left.set(left - requests);
            return None;
        }
        self.choose_at(countdown, requests)
    }

    /// Chooses the request at which the countdown ends. Distances are random, because requests may come in a rhythm.
    #[cold]
    fn choose_at(&self, countdown: &Countdown, requests: u32) -> Option<usize> {
        if self.one_in.get() == 0 {
            countdown.left.set(u32::MAX);
            return None;
        }
        let left = countdown.left.get();
        let behind = requests - left;
        // Only one of a burst is chosen, and no place in the next one is preferred.
        let mut next = self.distance();
        while next <= behind {
            next += self.distance();
        }
        countdown.weight.set(countdown.span.get());
        countdown.span.set(next);
        countdown.left.set(next - behind);
        Some(left as usize - 1)
    }

    /// 1 to 2 N - 1, N on average.
    fn distance(&self) -> u32 {
        let mut random = self.random.get();
        // Xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let range = 2 * u64::from(self.one_in.get()) - 1;
        1 + (random % range) as u32
    }

    /// Keeps a chosen request that was executed from `begun` on, until its reply is sent. `hash` is `None` if its key is
    /// not to be noted.
    pub(crate) fn executed(
        &self,
        command: &'static str,
        (hash, key): (Option<KeyHash>, &[u8]),
        bytes: u64,
        (begun, now): (Instant, Seconds),
    ) {
        if self.is_pending.get() {
            // Both replies leave together, so that the first one has waited until now at least.
            let found = self.pending.borrow().begun;
            self.sent(found, now, String::new);
        }
        let mut pending = self.pending.borrow_mut();
        (pending.command, pending.hash, pending.bytes) = (command, hash, bytes);
        pending.key.set(key);
        pending.requests = self.requests.weight.get().into();
        (pending.begun, pending.executed) = (begun, Instant::now());
        self.is_pending.set(true);
    }

    /// True if a chosen request was executed, and [`sent`](Self::sent) has not been called since.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.get()
    }

    /// Ends the request that [`is_pending`](Self::is_pending): it was found by the poll at `found`, and its reply has just
    /// been sent.
    #[cold]
    pub(crate) fn sent(&self, found: Instant, now: Seconds, client: impl FnOnce() -> String) {
        self.is_pending.set(false);
        let Some(watched) = &self.watched else { return };
        let sample = self.pending.borrow();
        let (sent, since) = (Instant::now(), Instant::saturating_duration_since);
        let times = [
            (Stage::Rx, since(&sample.begun, found)),
            (Stage::Service, since(&sample.executed, sample.begun)),
            (Stage::Tx, since(&sent, sample.executed)),
            (Stage::Total, since(&sent, found)),
        ];
        let (command, hash, key, bytes) = (sample.command, sample.hash, &sample.key, sample.bytes);
        let keyed = Keyed { command, hash, key, bytes, size: self.size(SizeClass::of(bytes)) };
        watched.record(&keyed, &times, (sample.requests, now), client);
    }

    /// Notes the key of a line that [`choose_key`](Self::choose_key) chose, and the length of its value.
    #[cold]
    pub(crate) fn note(&self, key: (KeyHash, &[u8]), bytes: u64, now: Seconds) {
        self.note_for(&self.keys, key, bytes, now);
    }

    /// Notes only the key of a request that [`choose`](Self::choose) chose.
    #[cold]
    pub(crate) fn note_chosen(&self, key: (KeyHash, &[u8]), bytes: u64, now: Seconds) {
        self.note_for(&self.requests, key, bytes, now);
    }

    fn note_for(&self, countdown: &Countdown, (hash, key): (KeyHash, &[u8]), bytes: u64, now: Seconds) {
        if let Some(watched) = &self.watched {
            watched.note((hash, &ShownKey::of(key)), bytes, countdown.weight.get().into(), now);
        }
    }

    /// Keeps a large request that is about to be handed over; [`take_away`](Self::take_away) follows.
    #[cold]
    pub(crate) fn goes_away(&self, command: &'static str, hash: KeyHash, key: &[u8]) {
        if self.watched.is_some() && self.one_in.get() > 0 {
            let (key, now) = (ShownKey::of(key), Instant::now());
            let timed = Timed { command, hash, key, begun: now, handed: now, taken: None };
            *self.away.borrow_mut() = Some(Box::new(timed));
        }
    }

    /// The large request that is handed over, found by the poll at `found`.
    pub(crate) fn take_away(&self, found: Instant) -> Option<Box<Timed>> {
        let mut timed = self.away.borrow_mut().take()?;
        timed.begun = found;
        Some(timed)
    }

    /// Ends a large request, of which `stage` was the last part, and whose value has `bytes`.
    pub(crate) fn ended(
        &self,
        timed: &Timed,
        (stage, bytes): (Stage, u64),
        now: Seconds,
        client: impl FnOnce() -> String,
    ) {
        let Some(watched) = &self.watched else { return };
        let (ended, since) = (Instant::now(), Instant::saturating_duration_since);
        let taken = timed.taken.unwrap_or(timed.handed);
        let times = [
            (Stage::Rx, since(&timed.handed, timed.begun)),
            (Stage::Ring, since(&taken, timed.handed)),
            (stage, since(&ended, taken)),
            (Stage::Total, since(&ended, timed.begun)),
        ];
        let size = self.size(SizeClass::of(bytes));
        let keyed = Keyed { command: timed.command, hash: Some(timed.hash), key: &timed.key, bytes, size };
        watched.record(&keyed, &times, (1, now), client);
    }

    fn size(&self, class: SizeClass) -> Size {
        if class <= self.small_max.get() { Size::Small } else { Size::Large }
    }
}

impl Timed {
    /// Notes that a worker has taken it up, if none had.
    pub(crate) fn taken(&mut self) {
        self.taken.get_or_insert_with(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{server::config::WatchConfig, watch::Watch};
    use minos_base::Clock;

    fn probe(sample_one_in: u32) -> Probe {
        let config = WatchConfig { sample_one_in, ..WatchConfig::default() };
        Watch::new(config, vec![Arc::default()], Clock::new()).probe(0)
    }

    #[test]
    fn one_in_so_many_is_chosen_and_stands_for_all() {
        for (one_in, burst) in [(1, 1), (1, 32), (7, 3), (128, 1), (128, 32)] {
            let probe = probe(one_in);
            let (mut seen, mut stands_for, mut chosen) = (0u64, 0u64, 0u64);
            for _ in 0..100_000 {
                if let Some(at) = probe.choose(burst) {
                    assert!(at < burst);
                    chosen += 1;
                    stands_for += u64::from(probe.requests.weight.get());
                }
                seen += burst as u64;
            }
            // All but those behind the last one.
            assert!(stands_for <= seen && seen - stands_for < 2 * u64::from(one_in) + burst as u64);
            // Of a burst with several, one.
            let rough = seen as f64 / f64::from(one_in).max(burst as f64);
            let share = chosen as f64 / rough;
            assert!((0.6..1.1).contains(&share), "{one_in} {burst}: {chosen} of {seen}");
        }
    }

    #[test]
    fn a_rhythm_of_requests_is_seen_evenly() {
        let probe = probe(128);
        let mut seen = [0u32; 64];
        (0..64 * 10_000).for_each(|n| seen[n % 64] += u32::from(probe.choose(1).is_some()));
        // About 78 of each; with a fixed distance only one would be seen.
        assert!(seen.iter().all(|count| (30..160).contains(count)), "{seen:?}");
    }

    /// Replies of several bursts leave in one send. Control: without the first lines of `executed`, this fails.
    #[test]
    fn a_request_that_follows_before_the_send_hides_none() {
        let watch = Watch::new(WatchConfig::default(), vec![Arc::default()], Clock::new());
        let probe = watch.probe(0);
        let begun = Instant::now();
        for key in [b"one", b"two"] {
            probe.executed("get", (Some(KeyHash(key[0].into())), key), 10, (begun, 5));
        }
        assert!(probe.is_pending());
        probe.sent(begun, 5, String::new);
        assert!(!probe.is_pending());
        assert_eq!(watch.large_keys().len(), 2);
    }

    #[test]
    fn where_it_is_off_nothing_is_chosen() {
        for probe in [Probe::off(), probe(0)] {
            assert!((0..1000).all(|_| probe.choose(32).is_none()));
            probe.requests.left.set(1);
            assert!(probe.choose(1).is_none() && probe.choose(1).is_none());
            probe.goes_away("get", KeyHash(1), b"k");
            assert!(probe.take_away(Instant::now()).is_none());
        }
    }
}
