//! Notices that wait until a worker visits their connection.

use std::sync::atomic::{AtomicBool, Ordering};

use minos_base::KeyHash;
use minos_net::Token;
use parking_lot::Mutex;

/// Where a connection is at home: its RX queue, and its token there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) queue: usize,
    pub(crate) token: Token,
}

/// What a connection is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// This key has changed.
    Key(Box<[u8]>),
    /// Every key may have.
    All,
    /// The connection of this number, which was to get the notices, is gone.
    Broken(u64),
    /// For a node: this key has changed, by the connection with this origin.
    Change(Box<[u8]>, u64),
    /// For a node: an item on flash is gone whose key has this hash.
    Lost(KeyHash),
    /// For a node: items on flash are gone that looked like that of another key, in an index of so many buckets.
    LostAlike(u32, KeyHash),
}

impl Notice {
    /// The key that it names.
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Key(key) | Self::Change(key, _) => Some(key),
            Self::All | Self::Broken(_) | Self::Lost(_) | Self::LostAlike(..) => None,
        }
    }
}

/// The notices to one connection. Any thread puts, and the worker that has the connection takes.
#[derive(Debug)]
pub(crate) struct Inbox {
    number: u64,
    seat: Seat,
    /// True from the first notice until they are taken. Changed under the lock.
    is_full: AtomicBool,
    /// True once somebody wants the connection to be closed.
    is_killed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    notices: Vec<Notice>,
    bytes: usize,
    is_closed: bool,
}

/// What became of a notice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Put {
    /// The connection is to be called.
    pub(super) is_first: bool,
    /// There were too many: one that tells of all has taken their place.
    pub(super) has_collapsed: bool,
}

impl Inbox {
    /// That of connection `number`.
    pub(crate) fn new(number: u64, seat: Seat) -> Self {
        Self {
            number,
            seat,
            is_full: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// The number of the connection.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn seat(&self) -> Seat {
        self.seat
    }

    /// True if there may be notices.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        // Relaxed: whoever puts the first one calls the connection.
        self.is_full.load(Ordering::Relaxed)
    }

    /// Takes all notices.
    pub(crate) fn take(&self) -> Vec<Notice> {
        let mut state = self.state.lock();
        self.is_full.store(false, Ordering::Relaxed);
        state.bytes = 0;
        std::mem::take(&mut state.notices)
    }

    /// Wants the connection to be closed. Whoever calls this calls the connection.
    pub(super) fn kill(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
    }

    /// True if the connection is to be closed.
    #[inline]
    pub(crate) fn is_killed(&self) -> bool {
        // Relaxed: the connection is called afterwards.
        self.is_killed.load(Ordering::Relaxed)
    }

    /// Takes nothing any more: the connection is closed.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        *state = State { is_closed: true, ..State::default() };
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Adds a notice. Beyond `bytes_max`, those of keys become one of all.
    pub(super) fn put(&self, notice: Notice, bytes_max: usize) -> Put {
        let mut state = self.state.lock();
        let tells_of_all = state.notices.first() == Some(&Notice::All);
        if state.is_closed || (tells_of_all && !matches!(notice, Notice::Broken(_))) {
            return Put::default();
        }
        let bytes = size_of::<Notice>() + notice.key().map_or(0, <[u8]>::len);
        let has_collapsed = state.bytes + bytes > bytes_max;
        if has_collapsed || notice == Notice::All {
            state.notices = vec![Notice::All];
            state.bytes = size_of::<Notice>();
        } else if state.notices.last() != Some(&notice) {
            state.notices.push(notice);
            state.bytes += bytes;
        }
        Put { is_first: !self.is_full.swap(true, Ordering::Relaxed), has_collapsed }
    }
}
