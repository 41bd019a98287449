//! The state of a connection that speaks Redis' protocol.

use std::sync::{Arc, OnceLock};

use minos_base::KeyHash;
use minos_proto::resp::{Limits, Version};

use super::{elsewhere::Own, serve::CHECKED, tracking::Tracked};
use crate::{
    access::Guard,
    ops::receiving::ReceivePermit,
    rack::Flushing,
    server::pause::{Pause, Paused},
};

/// The bounds of a client that has not said yet who it is, as in Redis.
const STRANGER: Limits = Limits { bulk_bytes_max: 16 << 10, command_bytes_max: 64 << 10 };

/// Redis' protocol's state of one connection.
pub(crate) struct RespSession {
    pub(crate) limits: Limits,
    /// Bytes of replies after which they are sent before another command is executed.
    pub(crate) replies_bytes_max: usize,
    /// Memory for longer replies of a transaction, until they are sent.
    pub(super) replies_permit: Option<ReceivePermit>,
    /// The number of the connection.
    pub(super) id: u64,
    pub(super) version: Version,
    /// The name that the client gave to its connection.
    pub(super) name: Box<[u8]>,
    /// The name and version of the client's library, as it says.
    pub(super) library: [Box<[u8]>; 2],
    /// The rest of a refused command, which is still to come.
    pub(super) discard: Discard,
    /// Where a command goes on that has paused.
    pub(super) progress: Progress,
    pub(super) replies: Replies,
    pub(super) transaction: Transaction,
    /// The array that a line of words became.
    pub(super) rewritten: Vec<u8>,
    /// A command since the last reply may have changed something, in a store above flash.
    pub(crate) has_changed: bool,
    /// Who the client is, if the server has users.
    pub(crate) guard: Option<Box<Guard>>,
    /// Its tracking of keys, if it does that.
    pub(super) tracked: Option<Box<Tracked>>,
    /// It gets notices as messages, in RESP2.
    pub(super) is_subscribed: bool,
    /// The commands that wait for the end of CLIENT PAUSE.
    pub(super) pause: Option<Paused>,
    /// One does.
    pub(crate) is_paused: bool,
    /// It neither tracks nor subscribes, no pause is under way, and the server has no users: every command may be executed
    /// as it comes.
    pub(super) is_plain: bool,
    /// No command is halfway.
    pub(super) is_between: bool,
    /// Its commands come from another node of the rack, or are parts of one or of a transaction: their keys are here.
    pub(super) is_part: bool,
    /// The command in front has come to the worker for its value, or was to.
    pub(super) has_come: bool,
}

/// The rest of a refused command.
#[derive(Clone, Copy, Default)]
pub(super) struct Discard {
    /// Bytes of the bulk string that is arriving.
    pub(super) bytes: u64,
    /// Bulk strings behind it.
    pub(super) bulks: usize,
}

/// Where a command goes on that has paused. All zero for one that begins.
#[derive(Default)]
pub(super) struct Progress {
    /// Arguments that are done with, the name included; 0 at the beginning.
    pub(super) done: usize,
    /// The result so far, if it is a number.
    pub(super) count: i64,
    /// The place in the table, for a command that walks over it.
    pub(super) cursor: u64,
    /// Keys found so far by a walk, as bulk strings.
    pub(super) found: Vec<u8>,
    /// The reply of another node to a step of a walk, once it is there.
    pub(super) asked: Option<Arc<OnceLock<Vec<u8>>>>,
    /// The flush of all nodes that is under way.
    pub(super) flushing: Option<Flushing>,
    /// This node's part of a command that is divided among nodes, if that has paused.
    pub(super) own: Option<Box<Own>>,
}

/// Whether the client wants replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Replies {
    /// It does.
    #[default]
    On,
    /// It does not.
    Off,
    /// It does, but for the next command.
    SkipNext,
    /// It does, but for this command.
    Skip,
}

/// MULTI and WATCH.
#[derive(Default)]
pub(super) struct Transaction {
    /// True between MULTI and EXEC.
    pub(super) is_open: bool,
    /// True if EXEC has begun.
    pub(super) is_executing: bool,
    /// Its commands are executed one by one, not in one step.
    pub(super) is_stepwise: bool,
    /// A command was refused, so that EXEC refuses too.
    pub(super) is_broken: bool,
    /// The commands, as arrays of bulk strings.
    pub(super) queued: Vec<u8>,
    /// Their number.
    pub(super) commands: usize,
    /// Bytes of them that are executed.
    pub(super) executed_bytes: usize,
    pub(super) watched: Vec<Watched>,
    /// How many were watched before the last WATCH.
    pub(super) watched_before: usize,
}

impl Transaction {
    /// Forgets the keys of the last WATCH if it has failed: an owner of some has told no CAS unique, and its client knows
    /// that. To be called once all replies to it are there.
    pub(super) fn forget_failed(&mut self) {
        let last = self.watched.get(self.watched_before..).unwrap_or_default();
        if last.iter().any(|watched| watched.unique.known().is_none()) {
            self.watched.truncate(self.watched_before);
        }
    }
}

/// A key that EXEC depends on.
pub(super) struct Watched {
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
    pub(super) unique: Unique,
}

/// The CAS unique of a watched key's item; `None` if there was none.
pub(super) enum Unique {
    Known(Option<u64>),
    /// The owner of the key, another node of the rack, is to tell it.
    Asked(Arc<OnceLock<Option<u64>>>),
}

impl Unique {
    /// It, unless its owner has not told it.
    pub(super) fn known(&self) -> Option<Option<u64>> {
        match self {
            Self::Known(unique) => Some(*unique),
            Self::Asked(asked) => asked.get().copied(),
        }
    }
}

impl RespSession {
    /// The state of connection `id`, which has not sent anything yet.
    pub(crate) fn new(limits: Limits, replies_bytes_max: usize, id: u64, guard: Option<Box<Guard>>) -> Self {
        Self {
            limits,
            replies_bytes_max,
            replies_permit: None,
            id,
            version: Version::Two,
            name: Box::default(),
            library: Default::default(),
            discard: Discard::default(),
            progress: Progress::default(),
            replies: Replies::On,
            transaction: Transaction::default(),
            rewritten: Vec::new(),
            has_changed: false,
            pause: None,
            is_paused: false,
            is_plain: guard.is_none(),
            guard,
            tracked: None,
            is_subscribed: false,
            is_between: true,
            is_part: false,
            has_come: false,
        }
    }

    /// The state for a command that another node of the rack has sent, and checked.
    pub(super) fn relayed(version: Version) -> Self {
        Self { version, is_part: true, ..Self::new(CHECKED, usize::MAX, 0, None) }
    }

    /// True if a command has paused, and goes on with what was fetched for it.
    pub(crate) fn is_midway(&self) -> bool {
        self.progress.done > 0 || self.transaction.is_executing
    }

    /// Sets everything back to what it was when the connection was opened.
    pub(super) fn reset(&mut self) {
        let guard = self.guard.as_ref().map(|guard| guard.anew());
        // The replies before it may have to wait for changes, and its own with them.
        let (pause, has_changed) = (self.pause, self.has_changed);
        *self = Self::new(self.limits, self.replies_bytes_max, self.id, guard);
        (self.pause, self.has_changed) = (pause, has_changed);
        self.note_plain();
    }

    /// Takes note of the pause under way.
    pub(crate) fn set_pause(&mut self, pause: Option<Pause>) {
        (self.pause, self.is_paused) = (pause.map(|pause| pause.paused), false);
        self.note_plain();
    }

    /// Notes whether commands need checks.
    pub(super) fn note_plain(&mut self) {
        let may_track = self.tracked.is_some() || self.is_subscribed;
        self.is_plain = self.guard.is_none() && self.pause.is_none() && !may_track;
    }

    /// The bounds of what the client may send.
    pub(super) fn limits(&mut self) -> Limits {
        if self.guard.as_mut().is_some_and(|guard| guard.user().is_none()) { STRANGER } else { self.limits }
    }
}
