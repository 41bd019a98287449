//! Tells clients which keys have changed, so that they may cache values: Redis' `CLIENT TRACKING`.
//!
//! The engine tells of each change, under the lock of the key's partition, and only while somebody tracks
//! ([`minos_engine::Observer`]). A notice goes to the [`Inbox`] of a connection, which the worker that visits it next empties.
//! A client that reads a key is noted in the [`Table`](table::Table) before the value is read, so that no change behind that
//! value stays untold.

mod broadcast;
mod inbox;
mod nodes;
mod table;

use std::{
    cell::Cell,
    fmt::{self, Debug},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use minos_base::{KeyHash, Seconds};
use minos_engine::Observer;
use minos_net::Waker;
use parking_lot::{Mutex, RwLock};

use broadcast::Broadcast;
pub(crate) use inbox::{Inbox, Notice, Seat};
pub(crate) use nodes::{Heard, Origin, Telling, read_heard, set_heard_origin, tell_only};
use nodes::{NodeCounters, is_told_here};
use table::{Displaced, Table};

/// What tracking needs of the server.
pub(crate) trait Host: Send + Sync {
    /// Lets the engine tell `observer` of changes, or nobody.
    fn observe(&self, observer: Option<&Arc<dyn Observer>>);

    /// Lets a worker visit the connection of this seat soon.
    fn call(&self, seat: Seat);
}

/// Who is told of which changes.
pub(crate) struct Tracking {
    host: OnceLock<Box<dyn Host>>,
    /// The connections that track, and the nodes that are told. Locked while the engine is told whom to tell, which waits for
    /// writers: no observer takes it.
    switch: Mutex<usize>,
    trackers: Mutex<Vec<Arc<Tracker>>>,
    table: Table,
    broadcast: RwLock<Broadcast>,
    /// Bytes of notices that wait for one connection.
    notices_bytes_max: usize,
    sent: AtomicU64,
    collapsed: AtomicU64,
    /// Who is still to be told of keys that are not known: of items on flash that are gone, or elsewhere.
    lost: AtomicU8,
    /// When somebody was, the last time.
    lost_told: AtomicU32,
    /// How often somebody was told that items are gone.
    losses: AtomicU64,
    nodes: NodeCounters,
    /// Wakes the thread that hears the other nodes of the rack.
    hearing: OnceLock<Arc<Waker>>,
}

/// Those who track prefixes are to be told: the key that was lost is not known.
const LOST_KEY: u8 = 1;
/// All are to be told.
const LOST_SOME: u8 = 2;
/// Those who track prefixes are to be told, of keys that went to another node with their items: nothing is lost.
const MOVED: u8 = 4;

/// A connection that tracks.
pub(crate) struct Tracker {
    own: Arc<Inbox>,
    route: Mutex<Route>,
}

/// Where a tracker's notices go.
#[derive(Default)]
struct Route {
    /// Another connection that gets them.
    to: Option<Arc<Inbox>>,
    /// Changes by the connection itself are not told.
    no_loop: bool,
    /// The other connection is gone.
    is_broken: bool,
    /// It tracks no more.
    is_over: bool,
}

thread_local! {
    /// The number of the connection whose commands this thread executes, or its [`Origin`] at another node, if it wants no
    /// notices of its own changes.
    static ORIGIN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Marks the changes that this thread makes from now on as those of a connection, or of none.
pub(crate) fn set_origin(number: Option<u64>) {
    ORIGIN.set(number);
}

/// Tells of something that is nobody's change: one whose command has led to it is told too.
fn as_nobodys(tell: impl FnOnce()) {
    let own = ORIGIN.take();
    tell();
    ORIGIN.set(own);
}

impl Debug for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracking").finish_non_exhaustive()
    }
}

impl Tracking {
    /// Nobody tracks. At most `pairs_max` pairs of a key and a connection are remembered, and about `notices_bytes_max` bytes
    /// of notices to one connection.
    pub(crate) fn new(pairs_max: usize, notices_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            host: OnceLock::new(),
            switch: Mutex::new(0),
            trackers: Mutex::default(),
            table: Table::new(pairs_max),
            broadcast: RwLock::default(),
            notices_bytes_max,
            sent: AtomicU64::new(0),
            collapsed: AtomicU64::new(0),
            lost: AtomicU8::new(0),
            lost_told: AtomicU32::new(0),
            losses: AtomicU64::new(0),
            nodes: NodeCounters::default(),
            hearing: OnceLock::new(),
        })
    }

    /// Names the server, once it is there.
    pub(crate) fn serve(&self, host: Box<dyn Host>) {
        // There is one server.
        let _ = self.host.set(host);
    }

    /// Lets the connection of `own` track. When this returns, every later change is told.
    pub(crate) fn join(self: &Arc<Self>, own: Arc<Inbox>) -> Arc<Tracker> {
        let tracker = Arc::new(Tracker { own, route: Mutex::default() });
        self.switch_on(|| self.trackers.lock().push(Arc::clone(&tracker)));
        if let Some(hearing) = self.hearing.get() {
            hearing.wake();
        }
        tracker
    }

    /// Ends a connection's tracking, with the prefixes that it has.
    pub(crate) fn leave<'a>(&self, tracker: &Arc<Tracker>, prefixes: impl Iterator<Item = &'a [u8]>) {
        tracker.route.lock().is_over = true;
        self.write_broadcast(|broadcast| prefixes.for_each(|prefix| broadcast.remove(prefix, tracker)));
        self.switch_off(|| self.trackers.lock().retain(|other| !Arc::ptr_eq(other, tracker)));
    }

    /// Lets one more be told of changes.
    fn switch_on(self: &Arc<Self>, join: impl FnOnce()) {
        let mut told = self.switch.lock();
        join();
        *told += 1;
        if *told == 1 {
            let observer: Arc<dyn Observer> = Arc::clone(self) as Arc<dyn Observer>;
            self.host.get().into_iter().for_each(|host| host.observe(Some(&observer)));
        }
    }

    /// Lets one fewer be told.
    fn switch_off(&self, leave: impl FnOnce()) {
        let mut told = self.switch.lock();
        leave();
        *told -= 1;
        if *told == 0 {
            self.host.get().into_iter().for_each(|host| host.observe(None));
        }
        if self.trackers.lock().is_empty() {
            self.table.clear();
        }
    }

    /// Notes that a connection is about to read a key.
    pub(crate) fn note_read(&self, (hash, key): (KeyHash, &[u8]), tracker: &Arc<Tracker>) {
        // Keys that had to make room are taken for changed.
        self.tell_readers(self.table.note(hash, key, tracker));
    }

    /// Tells a connection of all changes of keys with this prefix.
    pub(crate) fn broadcast(&self, prefix: &[u8], tracker: &Arc<Tracker>) {
        self.write_broadcast(|broadcast| broadcast.add(prefix, tracker));
    }

    /// Closes a connection, as soon as a worker visits it.
    pub(crate) fn kill(&self, inbox: &Inbox) {
        inbox.kill();
        self.host.get().into_iter().for_each(|host| host.call(inbox.seat()));
    }

    /// Connections that track, keys that they have read, pairs of a key and a connection, and prefixes.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let (keys, pairs) = self.table.sizes();
        let prefixes = self.broadcast.read().len();
        [self.trackers.lock().len(), keys, pairs, prefixes]
    }

    /// Most pairs of a key and a connection.
    pub(crate) fn pairs_max(&self) -> usize {
        self.table.pairs_max()
    }

    /// Gives every counter under its name.
    pub(crate) fn emit(&self, emit: &mut dyn FnMut(&str, &dyn fmt::Display)) {
        let [clients, keys, pairs, prefixes] = self.sizes();
        emit("tracking_clients", &clients);
        emit("tracking_keys", &keys);
        emit("tracking_items", &pairs);
        emit("tracking_prefixes", &prefixes);
        emit("tracking_notices", &self.sent.load(Relaxed));
        emit("tracking_collapsed", &self.collapsed.load(Relaxed));
        emit("tracking_losses", &self.losses.load(Relaxed));
        emit("tracking_displaced", &self.table.displaced());
        self.emit_nodes(emit);
    }

    /// Tells of items that are gone from flash or to another node, and whose keys are not known, as of a flush: at most once a
    /// second.
    pub(crate) fn tell_lost(&self, now: Seconds) {
        // Relaxed: what is noted meanwhile is told in the next second.
        if self.lost.load(Relaxed) == 0 || self.lost_told.swap(now, Relaxed) == now {
            return;
        }
        let lost = self.lost.swap(0, Relaxed);
        if lost & LOST_SOME != 0 {
            // The other nodes hear of it too.
            self.flushed();
        } else if lost != 0 {
            let trackers: Vec<_> = self.broadcast.read().trackers().cloned().collect();
            trackers.iter().for_each(|tracker| self.tell(tracker, &Notice::All));
        }
        self.losses.fetch_add(u64::from(lost & (LOST_KEY | LOST_SOME) != 0), Relaxed);
    }

    /// Tells this node's clients that a key has changed.
    fn tell_clients(&self, hash: KeyHash, key: &[u8]) {
        let readers = self.table.take(hash, key);
        let notice = || Notice::Key(key.into());
        if !readers.is_empty() {
            let notice = notice();
            readers.iter().for_each(|reader| self.tell(reader, &notice));
        }
        self.broadcast.read().each(key, |tracker| self.tell(tracker, &notice()));
    }

    /// Tells this node's clients that every key may have changed.
    fn tell_clients_of_all(&self) {
        self.table.clear();
        // Out of the lock: to tell one takes others.
        let trackers = self.trackers.lock().clone();
        trackers.iter().for_each(|tracker| self.tell(tracker, &Notice::All));
    }

    /// Tells this node's clients that an item on flash is gone.
    fn tell_clients_of_loss(&self, hash: KeyHash) {
        self.tell_readers(self.table.take_hash(hash));
        self.lost.fetch_or(LOST_KEY, Relaxed);
    }

    /// Tells of keys those who have read them.
    fn tell_readers(&self, read: impl IntoIterator<Item = Displaced>) {
        as_nobodys(|| {
            for (key, readers) in read {
                readers.iter().for_each(|reader| self.tell(reader, &Notice::Key(key.clone())));
            }
        });
    }

    fn write_broadcast(&self, change: impl FnOnce(&mut Broadcast)) {
        change(&mut self.broadcast.write());
    }

    fn tell(&self, tracker: &Tracker, notice: &Notice) {
        let mut route = tracker.route.lock();
        // That all keys are gone is told in any case, as by Redis.
        let is_own = || *notice != Notice::All && ORIGIN.get() == Some(tracker.number());
        if route.is_over || (route.no_loop && is_own()) {
            return;
        }
        match route.to.clone() {
            None => self.put(&tracker.own, notice.clone()),
            Some(to) if to.is_closed() => {
                route.is_broken = true;
                self.put(&tracker.own, Notice::Broken(to.number()));
            }
            Some(to) => self.put(&to, notice.clone()),
        }
    }

    fn put(&self, inbox: &Inbox, notice: Notice) {
        let put = inbox.put(notice, self.notices_bytes_max);
        self.sent.fetch_add(1, Relaxed);
        self.collapsed.fetch_add(u64::from(put.has_collapsed), Relaxed);
        if put.is_first {
            self.host.get().into_iter().for_each(|host| host.call(inbox.seat()));
        }
    }
}

impl Observer for Tracking {
    fn changed(&self, hash: KeyHash, key: &[u8]) {
        if is_told_here(key) {
            self.tell_clients(hash, key);
            self.tell_nodes(|origin| Notice::Change(key.into(), origin));
        }
    }

    fn gone(&self, hash: KeyHash, key: &[u8]) {
        as_nobodys(|| self.changed(hash, key));
    }

    fn flushed(&self) {
        self.tell_clients_of_all();
        self.tell_nodes(|_| Notice::All);
    }

    fn lost(&self, hash: KeyHash) {
        self.tell_clients_of_loss(hash);
        self.tell_nodes(|_| Notice::Lost(hash));
    }

    // Those who track prefixes are not told: nearly always it was an older item of the key itself that is gone.
    fn lost_alike(&self, buckets: u32, hash: KeyHash) {
        self.tell_readers(self.table.take_alike(buckets, hash));
        self.tell_nodes(|_| Notice::LostAlike(buckets, hash));
    }

    fn lost_some(&self) {
        self.lost.fetch_or(LOST_SOME, Relaxed);
    }
}

impl Tracker {
    /// The number of its connection.
    fn number(&self) -> u64 {
        self.own.number()
    }

    /// Sends its notices to another connection, or none; with `no_loop`, not those of its own changes.
    pub(crate) fn redirect(&self, to: Option<Arc<Inbox>>, no_loop: bool) {
        let mut route = self.route.lock();
        (route.to, route.no_loop, route.is_broken) = (to, no_loop, false);
    }

    /// The number of the connection that gets its notices in its place.
    pub(crate) fn redirected(&self) -> Option<u64> {
        self.route.lock().to.as_ref().map(|to| to.number())
    }

    /// True if it wants no notices of its own changes.
    pub(crate) fn has_no_loop(&self) -> bool {
        self.route.lock().no_loop
    }

    /// True if the connection that gets its notices is gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.route.lock().is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minos_net::Token;

    fn inbox(number: u64) -> Arc<Inbox> {
        Arc::new(Inbox::new(number, Seat { queue: 0, token: Token(number) }))
    }

    fn keys(inbox: &Inbox) -> Vec<String> {
        let text = |notice| match notice {
            Notice::Key(key) => String::from_utf8(key.into()).unwrap(),
            Notice::All => "*".to_owned(),
            Notice::Broken(number) => format!("broken {number}"),
            other => panic!("{other:?} is for nodes"),
        };
        inbox.take().into_iter().map(text).collect()
    }

    #[test]
    fn a_key_that_was_read_is_told_once() {
        let tracking = Tracking::new(100, 1 << 20);
        let (reader, other) = (inbox(1), inbox(2));
        let tracker = tracking.join(Arc::clone(&reader));
        let _other = tracking.join(Arc::clone(&other));
        tracking.note_read((KeyHash(7), b"a"), &tracker);
        tracking.note_read((KeyHash(7), b"a"), &tracker);
        tracking.changed(KeyHash(8), b"b");
        assert_eq!(keys(&reader), [""; 0]);
        tracking.changed(KeyHash(7), b"a");
        tracking.changed(KeyHash(7), b"a");
        assert_eq!(keys(&reader), ["a"]);
        // Of keys of one hash, the later one displaces the other.
        tracking.note_read((KeyHash(7), b"a"), &tracker);
        tracking.note_read((KeyHash(7), b"b"), &tracker);
        tracking.changed(KeyHash(7), b"b");
        assert_eq!(keys(&reader), ["a", "b"]);
        tracking.flushed();
        assert_eq!([keys(&reader), keys(&other)], [["*"], ["*"]]);
        tracking.leave(&tracker, std::iter::empty());
        tracking.note_read((KeyHash(7), b"a"), &tracker);
        tracking.changed(KeyHash(7), b"a");
        assert_eq!(keys(&reader), [""; 0]);
    }

    #[test]
    fn losses_are_told_by_key_or_of_all_once_a_second() {
        let tracking = Tracking::new(100, 1 << 20);
        let [reader, prefixes, idle] = [1, 2, 3].map(inbox);
        let [tracker, all, _idle] = [&reader, &prefixes, &idle].map(|inbox| tracking.join(Arc::clone(inbox)));
        tracking.broadcast(b"x", &all);
        tracking.note_read((KeyHash(7), b"a"), &tracker);
        let lose = |hash, now| {
            tracking.lost(KeyHash(hash));
            tracking.tell_lost(now);
            [&reader, &prefixes, &idle].map(|inbox| keys(inbox).concat())
        };
        assert_eq!(lose(8, 5), ["", "*", ""]);
        assert_eq!(lose(7, 5), ["a", "", ""], "in the same second");
        tracking.tell_lost(6);
        assert_eq!([keys(&reader).len(), keys(&prefixes).len()], [0, 1]);
        tracking.tell_lost(7);
        assert_eq!([keys(&reader).len(), keys(&prefixes).len()], [0, 0]);
        tracking.lost_some();
        assert_eq!(lose(9, 8), ["*"; 3]);
    }

    #[test]
    fn losses_of_keys_that_look_alike_are_told_to_their_readers() {
        let tracking = Tracking::new(100_000, 1 << 20);
        let [reader, prefixes] = [1, 2].map(inbox);
        let [tracker, all] = [&reader, &prefixes].map(|inbox| tracking.join(Arc::clone(inbox)));
        tracking.broadcast(b"", &all);
        // Tags 5; bucket bits 3, 3, 11 and 3; the last one is of another partition.
        let [own, alike, apart, far] = [0x3_0005, 0x103_0005, 0xb_0005, 1 << 63 | 0x3_0005].map(KeyHash);
        // The tag of both is 1.
        let [zero, one] = [KeyHash(0), KeyHash(1)];
        for (hash, key) in [(own, "own"), (alike, "alike"), (apart, "apart"), (far, "far"), (zero, "zero")] {
            tracking.note_read((hash, key.as_bytes()), &tracker);
        }
        tracking.lost_alike(16, own);
        assert_eq!(keys(&reader), ["alike", "far"]);
        tracking.lost_alike(4, own);
        assert_eq!(keys(&reader), ["apart"], "of fewer buckets more look alike");
        tracking.lost_alike(16, one);
        assert_eq!(keys(&reader), ["zero"]);
        tracking.tell_lost(5);
        assert_eq!((tracking.sizes()[1], keys(&prefixes)), (1, vec![]));
    }

    #[test]
    fn the_oldest_keys_make_room() {
        let tracking = Tracking::new(3, 1 << 20);
        let reader = inbox(1);
        let tracker = tracking.join(Arc::clone(&reader));
        for (hash, key) in ["a", "b", "a", "c", "d", "e"].iter().enumerate() {
            tracking.note_read((KeyHash(100 + hash as u64), key.as_bytes()), &tracker);
        }
        assert_eq!(keys(&reader), ["a", "b", "a"]);
        assert_eq!(tracking.sizes(), [1, 3, 3, 0]);
        // Keys that nobody has changed are told also to the client whose command has led to it.
        tracker.redirect(None, true);
        set_origin(Some(1));
        tracking.note_read((KeyHash(106), b"f"), &tracker);
        tracking.gone(KeyHash(106), b"f");
        tracking.changed(KeyHash(105), b"e");
        set_origin(None);
        assert_eq!(keys(&reader), ["c", "f"]);
        for round in 0..10_000u64 {
            tracking.note_read((KeyHash(round), b"k"), &tracker);
            tracking.changed(KeyHash(round), b"k");
        }
        assert!(tracking.table.order_len() < 1000);
    }

    #[test]
    fn prefixes_redirections_and_own_changes() {
        let tracking = Tracking::new(100, 1 << 20);
        let (own, other) = (inbox(1), inbox(2));
        let tracker = tracking.join(Arc::clone(&own));
        tracking.broadcast(b"user:", &tracker);
        tracking.broadcast(b"x", &tracker);
        for key in ["user:1", "use", "x", "y"] {
            tracking.changed(KeyHash(1), key.as_bytes());
        }
        assert_eq!(keys(&own), ["user:1", "x"]);
        tracker.redirect(Some(Arc::clone(&other)), true);
        set_origin(Some(1));
        tracking.changed(KeyHash(1), b"x");
        set_origin(None);
        tracking.changed(KeyHash(1), b"x1");
        assert_eq!((keys(&own).len(), keys(&other)), (0, vec!["x1".to_owned()]));
        other.close();
        tracking.changed(KeyHash(1), b"x");
        assert_eq!(keys(&own), ["broken 2"]);
        assert!(tracker.is_broken());
        tracking.leave(&tracker, [b"user:".as_slice(), b"x"].into_iter());
        tracking.changed(KeyHash(1), b"x");
        assert_eq!((keys(&own).len(), tracking.sizes()), (0, [0; 4]));
    }

    #[test]
    fn a_client_that_does_not_read_is_told_that_all_changed() {
        let tracking = Tracking::new(100, 1000);
        let own = inbox(1);
        let tracker = tracking.join(Arc::clone(&own));
        tracking.broadcast(b"", &tracker);
        for number in 0..1000 {
            tracking.changed(KeyHash(1), format!("key{number}").as_bytes());
        }
        assert_eq!(keys(&own), ["*"]);
        tracking.changed(KeyHash(1), b"k");
        assert_eq!(keys(&own), ["k"]);
    }
}
