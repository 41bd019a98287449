//! Changes in a rack: a node whose clients track is told by every other node of what changes there, and tells its clients.
//!
//! So it does not matter which node has executed a write, who owns the key now, and where its value was read. A node that is
//! not heard may have changed everything: clients are told so, and again once it is heard.
//!
//! What a node says on the connection on which it was asked to:
//!
//! ```text
//! change: 1 u8 | origin u64 | bytes u16 | key        lost on flash: 2 u8 | hash of the key u64        everything: 3 u8
//! lost on flash, of other keys that look alike: 4 u8 | buckets u32 | hash of a key u64
//! ```
//!
//! Numbers are little-endian. Replies to no-ops, which come in between, begin with another byte.

use std::{
    cell::RefCell,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use minos_base::{KeyHash, is_left_out};
use minos_net::Waker;

use super::{Inbox, Notice, ORIGIN, Seat, Tracking, set_origin};

const CHANGE: u8 = 1;
const LOST: u8 = 2;
const ALL: u8 = 3;
const LOST_ALIKE: u8 = 4;
/// Where the number of its node is in an origin.
const NODE_SHIFT: u32 = 48;

/// A connection anywhere in the rack. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin(pub(crate) u64);

impl Origin {
    /// Connection `number` of a node.
    pub(crate) fn new(node: u16, number: u64) -> Self {
        Self((u64::from(node) + 1) << NODE_SHIFT | number)
    }

    /// The number of the connection, if it is one of this node.
    fn number_at(self, node: u16) -> Option<u64> {
        (self.0 >> NODE_SHIFT == u64::from(node) + 1).then_some(self.0 & ((1 << NODE_SHIFT) - 1))
    }
}

/// Marks the changes that this thread makes from now on as those of a connection of another node, or of none.
pub(crate) fn set_heard_origin(origin: Origin) {
    set_origin((origin != Origin::default()).then_some(origin.0));
}

/// Whether a change of a key is told of.
type IsTold = Box<dyn Fn(&[u8]) -> bool>;

thread_local! {
    /// Without it, every change by this thread is told of.
    static TOLD: RefCell<Option<IsTold>> = const { RefCell::new(None) };
}

/// Lets this thread's changes be told of only for such keys: copies of what others own are none.
pub(crate) fn tell_only(is_told: impl Fn(&[u8]) -> bool + 'static) {
    TOLD.set(Some(Box::new(is_told)));
}

/// True if a change of a key by this thread is told of.
pub(super) fn is_told_here(key: &[u8]) -> bool {
    TOLD.with_borrow(|is_told| is_told.as_ref().is_none_or(|is_told| is_told(key)))
}

/// What is counted of other nodes.
#[derive(Default)]
pub(super) struct NodeCounters {
    heard: AtomicU64,
    gaps: AtomicU64,
}

/// The connection of another node, which is told of changes until this is dropped.
pub(crate) struct Telling {
    tracking: Arc<Tracking>,
    inbox: Arc<Inbox>,
}

impl Telling {
    /// Tells the node with the connection of this seat of every change from now on.
    pub(crate) fn begin(tracking: &Arc<Tracking>, seat: Seat) -> Self {
        let inbox = Arc::new(Inbox::new(0, seat));
        tracking.switch_on(|| tracking.write_broadcast(|broadcast| broadcast.add_node(&inbox)));
        Self { tracking: Arc::clone(tracking), inbox }
    }

    /// Appends what the node is to be told.
    pub(crate) fn deliver(&self, tx: &mut Vec<u8>) {
        if self.inbox.has_notices() {
            compose_all(&self.inbox.take(), tx);
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.inbox.close();
        let leave = || self.tracking.write_broadcast(|broadcast| broadcast.remove_node(&self.inbox));
        self.tracking.switch_off(leave);
    }
}

/// Appends notices as a node is told them.
fn compose_all(notices: &[Notice], tx: &mut Vec<u8>) {
    for notice in notices {
        match notice {
            Notice::Change(key, origin) => {
                tx.push(CHANGE);
                tx.extend_from_slice(&origin.to_le_bytes());
                tx.extend_from_slice(&(key.len() as u16).to_le_bytes());
                tx.extend_from_slice(key);
            }
            Notice::Lost(hash) => {
                tx.push(LOST);
                tx.extend_from_slice(&hash.0.to_le_bytes());
            }
            Notice::LostAlike(buckets, hash) => {
                tx.push(LOST_ALIKE);
                tx.extend_from_slice(&buckets.to_le_bytes());
                tx.extend_from_slice(&hash.0.to_le_bytes());
            }
            _ => tx.push(ALL),
        }
    }
}

/// What another node has said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    Change(&'a [u8], Origin),
    Lost(KeyHash),
    LostAlike(u32, KeyHash),
    All,
    /// Something else, such as the reply to a no-op.
    Other,
}

/// What stands at the front of `input`, and its bytes; `None` if it has not come whole.
pub(crate) fn read_heard(input: &[u8]) -> Option<(Heard<'_>, usize)> {
    let (first, rest) = input.split_first()?;
    Some(match *first {
        CHANGE => {
            let (origin, rest) = rest.split_first_chunk()?;
            let (bytes, rest) = rest.split_first_chunk()?;
            let bytes = usize::from(u16::from_le_bytes(*bytes));
            let change = Heard::Change(rest.get(..bytes)?, Origin(u64::from_le_bytes(*origin)));
            (change, input.len() - rest.len() + bytes)
        }
        LOST => {
            let (hash, rest) = rest.split_first_chunk()?;
            (Heard::Lost(KeyHash(u64::from_le_bytes(*hash))), input.len() - rest.len())
        }
        LOST_ALIKE => {
            let (buckets, rest) = rest.split_first_chunk()?;
            let (hash, rest) = rest.split_first_chunk()?;
            let hash = KeyHash(u64::from_le_bytes(*hash));
            (Heard::LostAlike(u32::from_le_bytes(*buckets), hash), input.len() - rest.len())
        }
        ALL => (Heard::All, 1),
        _ => (Heard::Other, 0),
    })
}

impl Tracking {
    /// Names the thread that hears the other nodes.
    pub(crate) fn hear_with(&self, hearing: Arc<Waker>) {
        // There is one.
        let _ = self.hearing.set(hearing);
    }

    /// True while clients of this node track.
    pub(crate) fn has_clients(&self) -> bool {
        !self.trackers.lock().is_empty()
    }

    /// Tells clients of this node of a change that another one has said.
    pub(crate) fn hear_change(&self, (hash, key): (KeyHash, &[u8]), origin: Origin, me: u16) {
        self.nodes.heard.fetch_add(1, Relaxed);
        self.tell_change((hash, key), origin, me);
    }

    /// Tells clients of this node of a change at another one. The key is hashed as at this node, whose number is `me`.
    pub(crate) fn tell_change(&self, (hash, key): (KeyHash, &[u8]), origin: Origin, me: u16) {
        set_origin(origin.number_at(me));
        self.tell_clients(hash, key);
        set_origin(None);
    }

    /// Tells clients of this node of an item that another one has lost.
    pub(crate) fn hear_loss(&self, hash: KeyHash) {
        self.tell_clients_of_loss(hash);
    }

    /// Tells clients of this node of items that another one may have lost, of keys that look like the one with this hash.
    pub(crate) fn hear_loss_alike(&self, buckets: u32, hash: KeyHash) {
        self.tell_readers(self.table.take_alike(buckets, hash));
    }

    /// Tells clients of this node that every key may have changed at another one.
    pub(crate) fn hear_all(&self) {
        self.tell_clients_of_all();
    }

    /// Tells clients of this node that every key may have changed, because another one was not heard.
    pub(crate) fn miss(&self) {
        self.tell_clients_of_all();
        self.nodes.gaps.fetch_add(1, Relaxed);
    }

    /// Tells clients of this node that keys for which `has_moved` is true are elsewhere, maybe with older values.
    pub(crate) fn move_keys(&self, has_moved: impl Fn(&[u8]) -> bool) {
        self.tell_readers(self.table.take_all(has_moved));
        self.lost.fetch_or(super::MOVED, Relaxed);
    }

    pub(super) fn tell_nodes(&self, notice: impl Fn(u64) -> Notice) {
        let broadcast = self.broadcast.read();
        if broadcast.nodes().is_empty() || is_left_out("telling") {
            return;
        }
        // Connections of this node are nobody elsewhere.
        let origin = ORIGIN.get().filter(|origin| origin >> NODE_SHIFT != 0).unwrap_or(0);
        broadcast.nodes().iter().for_each(|node| self.put(node, notice(origin)));
    }

    pub(super) fn emit_nodes(&self, emit: &mut dyn FnMut(&str, &dyn Display)) {
        emit("tracking_nodes", &self.broadcast.read().nodes().len());
        emit("tracking_heard", &self.nodes.heard.load(Relaxed));
        emit("tracking_gaps", &self.nodes.gaps.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use minos_engine::Observer as _;
    use minos_net::Token;

    use super::*;

    const SEAT: Seat = Seat { queue: 0, token: Token(1) };

    /// What a node is told, as it hears it.
    fn heard(telling: &Telling) -> Vec<String> {
        let mut bytes = Vec::new();
        telling.deliver(&mut bytes);
        let (mut input, mut heard) = (bytes.as_slice(), Vec::new());
        while let Some((one, bytes)) = read_heard(input) {
            heard.push(format!("{one:?}"));
            input = &input[bytes..];
        }
        assert!(input.is_empty());
        heard
    }

    #[test]
    fn a_node_is_told_of_every_change_but_of_those_that_it_hears() {
        let tracking = Tracking::new(100, 1 << 20);
        let node = Telling::begin(&tracking, SEAT);
        let origin = Origin::new(3, 7);
        tracking.changed(KeyHash(1), b"a");
        set_heard_origin(origin);
        tracking.changed(KeyHash(1), b"b");
        // A connection of this node.
        set_origin(Some(7));
        tracking.changed(KeyHash(1), b"c");
        set_heard_origin(origin);
        tracking.gone(KeyHash(1), b"e");
        set_origin(None);
        tracking.lost(KeyHash(9));
        tracking.lost_alike(64, KeyHash(8));
        tracking.hear_change((KeyHash(1), b"d"), origin, 3);
        tracking.hear_all();
        let none = Origin::default();
        let expected = [
            Heard::Change(b"a", none),
            Heard::Change(b"b", origin),
            Heard::Change(b"c", none),
            Heard::Change(b"e", none),
            Heard::Lost(KeyHash(9)),
            Heard::LostAlike(64, KeyHash(8)),
        ];
        assert_eq!(heard(&node), expected.map(|heard| format!("{heard:?}")));
        tracking.flushed();
        assert_eq!(heard(&node), ["All"]);
        drop(node);
        assert_eq!(tracking.broadcast.read().nodes().len(), 0);
    }

    #[test]
    fn those_who_track_prefixes_are_told_of_a_move_which_is_no_loss() {
        let tracking = Tracking::new(100, 1 << 20);
        let own = Arc::new(Inbox::new(7, SEAT));
        let tracker = tracking.join(Arc::clone(&own));
        tracking.broadcast(b"x", &tracker);
        let losses = || tracking.losses.load(Relaxed);
        tracking.move_keys(|_| true);
        tracking.tell_lost(1);
        assert_eq!((own.take(), losses()), (vec![Notice::All], 0));
        tracking.move_keys(|_| true);
        tracking.lost(KeyHash(1));
        tracking.tell_lost(2);
        tracking.tell_lost(3);
        assert_eq!((own.take(), losses()), (vec![Notice::All], 1));
    }

    #[test]
    fn clients_are_told_of_what_is_heard_but_not_of_their_own_changes() {
        let tracking = Tracking::new(100, 1 << 20);
        let own = Arc::new(Inbox::new(7, SEAT));
        let tracker = tracking.join(Arc::clone(&own));
        let read = |key: &[u8]| tracking.note_read((KeyHash(u64::from(key[0])), key), &tracker);
        let hear = |key: &[u8], origin| {
            tracking.hear_change((KeyHash(u64::from(key[0])), key), origin, 3);
            own.take()
        };
        let told = |key: &[u8]| vec![Notice::Key(key.into())];
        read(b"a");
        assert_eq!([hear(b"b", Origin::default()), hear(b"a", Origin::new(3, 7))], [vec![], told(b"a")]);
        tracker.redirect(None, true);
        for (origin, expected) in
            [(Origin::new(3, 7), vec![]), (Origin::new(2, 7), told(b"a")), (Origin::new(3, 6), told(b"a"))]
        {
            read(b"a");
            assert_eq!(hear(b"a", origin), expected, "{origin:?}");
        }
        read(b"a");
        read(b"b");
        tracking.move_keys(|key| key == b"b");
        assert_eq!(own.take(), told(b"b"));
        tracking.miss();
        assert_eq!((own.take(), tracking.sizes()[1]), (vec![Notice::All], 0));
    }

    #[test]
    fn a_thread_that_copies_tells_of_what_is_owned_here() {
        let tracking = Tracking::new(100, 1 << 20);
        let node = Telling::begin(&tracking, SEAT);
        tell_only(|key| key == b"own");
        tracking.changed(KeyHash(1), b"copy");
        assert_eq!(heard(&node), [""; 0]);
        tracking.changed(KeyHash(1), b"own");
        assert_eq!(heard(&node).len(), 1);
        TOLD.set(None);
    }

    #[test]
    fn what_has_not_come_whole_is_waited_for() {
        let mut bytes = Vec::new();
        let notices = [
            Notice::Change(b"key".as_slice().into(), 5),
            Notice::Lost(KeyHash(1)),
            Notice::LostAlike(64, KeyHash(2)),
        ];
        compose_all(&notices, &mut bytes);
        let expected =
            [Heard::Change(b"key", Origin(5)), Heard::Lost(KeyHash(1)), Heard::LostAlike(64, KeyHash(2))];
        let mut input = bytes.as_slice();
        for expected in expected {
            let (heard, bytes) = read_heard(input).unwrap();
            assert_eq!(heard, expected);
            assert!((0..bytes).all(|cut| read_heard(&input[..cut]).is_none()));
            input = &input[bytes..];
        }
        assert!(input.is_empty());
        assert_eq!(read_heard(b"MN\r\n"), Some((Heard::Other, 0)));
    }
}
