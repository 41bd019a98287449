//! The environment in which operations are executed.

use std::{fmt::Display, sync::Arc};

use minos_base::{Clock, KeyHash, Seconds, SizeClass, StatsGroup, is_left_out};
use minos_engine::{Access, Engine, Mode};
use minos_sched::WorkerId;
use minos_tier::SyncId;

use super::{
    counters::{Counters, Totals},
    fetched::Fetched,
    prefixes::Prefixes,
    receiving::ReceivePermit,
};
use crate::{
    rack::{Holes, Intent, RackView},
    server::{
        pause::Pause,
        settings::{SettingError, Shown},
    },
    tracking::{Inbox, Tracking},
    watch::{Probe, Watch},
};

/// Decides where a request is served, by the size of its value (Minos §3.1).
pub trait Placement {
    /// Counts a request for a value of `class` in the size histogram; true if this worker serves it from the
    /// transmit buffer. Called once a request.
    fn is_here(&mut self, class: SizeClass) -> bool;

    /// Like `is_here`, without counting: for a request that was counted or will be.
    fn serves(&self, class: SizeClass) -> bool;

    /// The large worker whose size range holds `class`; `None` if the class is small or served where it
    /// arrives.
    fn home(&self, class: SizeClass) -> Option<WorkerId>;

    /// The worker that asks.
    fn worker(&self) -> WorkerId {
        WorkerId(0)
    }
}

/// An open connection.
pub(crate) struct Client<'a> {
    pub(crate) number: u64,
    pub(crate) descriptor: i32,
    /// The client's address.
    pub(crate) peer: &'a str,
    /// The address that it has connected to.
    pub(crate) local: &'a str,
    /// The name that it has given to the connection.
    pub(crate) name: &'a str,
    /// Its user, if the server has users and the client has said so.
    pub(crate) user: Option<&'a str>,
    pub(crate) age_s: u32,
    pub(crate) idle_s: u32,
}

/// The part of a server that executing commands needs. Unless said otherwise, there is no such part.
pub(crate) trait Admin {
    /// The counters of all workers since the last reset.
    fn totals(&self) -> Totals {
        Totals::default()
    }

    /// The counts by prefix, if they are kept.
    fn prefixes(&self) -> Option<&Prefixes> {
        None
    }

    /// What is observed of requests.
    fn watch(&self) -> Option<&Watch> {
        None
    }

    /// Sets the counters to zero.
    fn reset(&self) {}

    /// Emits the server's own statistics of `group`, besides those of commands and store.
    fn stats(&self, _group: StatsGroup, _emit: &mut dyn FnMut(&str, &dyn Display)) {}

    /// Times that a request waits for room, if a full memory is about to pass items to flash: each a moment.
    fn flash_waits_max(&self) -> u32 {
        0
    }

    /// Begins to remove everything from memory and flash; `None` if there is no flash.
    fn empty_flash(&self) -> Option<SyncId> {
        None
    }

    /// True if that has ended.
    fn is_emptied(&self, _: SyncId) -> bool {
        true
    }

    /// The settings that can change.
    fn settings(&self) -> Vec<Shown> {
        Vec::new()
    }

    /// Changes settings, pairs of a name and a text: all of them, or nothing.
    fn change(&self, changes: &[(&str, &str)]) -> Result<(), SettingError> {
        changes.first().map_or(Ok(()), |(name, _)| Err(SettingError::Unknown((*name).to_owned())))
    }

    /// Sets the log level by memcached's number.
    fn set_verbosity(&self, _level: u32) {}

    /// Expires everything stored at `due` on the store's clock; 0 cancels an earlier call.
    fn flush_at(&self, _due: Seconds) {}

    /// True if a client may stop the server.
    fn allows_shutdown(&self) -> bool {
        false
    }

    /// Stops the server; a graceful stop lets transfers in progress end.
    fn shut_down(&self, _graceful: bool) {}

    /// Lists open connections from number `from` on in `tx`, until it has `bytes_max` bytes. Returns the
    /// number to continue from, or `None` at the end.
    fn list_connections(&self, _from: u64, _tx: &mut Vec<u8>, _bytes_max: usize) -> Option<u64> {
        None
    }

    /// Tells of at most `max` open connections from number `from` on. Returns the number to continue from, or `None` at the
    /// end.
    fn list_clients(&self, _from: u64, _max: usize, _tell: &mut dyn FnMut(&Client<'_>)) -> Option<u64> {
        None
    }

    /// Names an open connection.
    fn name_client(&self, _number: u64, _name: &str) {}

    /// Which of Redis' clients are told of changes.
    fn tracking(&self) -> Option<&Arc<Tracking>> {
        None
    }

    /// The notices to the open connection of this number, if it speaks Redis' protocol.
    fn inbox(&self, _number: u64) -> Option<Arc<Inbox>> {
        None
    }

    /// Closes the open connection of this number; false if there is none that speaks Redis' protocol.
    fn kill_client(&self, _number: u64) -> bool {
        false
    }

    /// Closes the connections of users who are there no more, as far as they speak Redis' protocol.
    fn kill_deleted(&self) {}

    /// Lets Redis' clients wait. Returns the version of the plan that has the pause.
    fn pause_clients(&self, _pause: Pause) -> u64 {
        0
    }

    /// True if every worker has taken up that plan.
    fn is_taken_up(&self, _version: u64) -> bool {
        true
    }

    /// Ends the pause of Redis' clients.
    fn resume_clients(&self) {}

    /// Takes memory for an arriving value of `bytes`; `None` if too much is in use.
    fn admit(&self, _bytes: u64) -> Option<ReceivePermit> {
        None
    }
}

/// The environment in which a worker executes commands.
pub(crate) struct Context<'a, M: Mode, P> {
    pub(crate) store: &'a Arc<Engine<M>>,
    /// The store's clock.
    pub(crate) clock: &'a Clock,
    /// The clock's time, read once a burst.
    pub(crate) now: Seconds,
    /// The worker's counters.
    pub(crate) counters: &'a Counters,
    /// Decides where requests are served.
    pub(crate) placement: &'a mut P,
    pub(crate) admin: &'a dyn Admin,
    /// The counts by prefix, if they are kept.
    pub(crate) prefixes: Option<&'a Prefixes>,
    /// The keys that a fetch for these requests did not bring to memory.
    pub(crate) fetched: Option<&'a Fetched>,
    /// The rack, if this is one of its nodes.
    pub(crate) rack: Option<&'a RackView<M>>,
    /// Chooses the requests that are looked at.
    pub(crate) probe: &'a Probe,
    /// Commands of these requests that other nodes execute.
    pub(crate) holes: Holes,
}

impl<M: Mode, P: Placement> Context<'_, M, P> {
    /// The other worker that must execute a command for this key, because its partition is that worker's (MICA §4.1.2).
    #[inline(always)]
    pub(crate) fn owner(&self, hash: KeyHash, is_read: impl FnOnce() -> bool) -> Option<WorkerId> {
        if !M::Access::IS_BY_THREAD || M::Access::IS_SHARED && is_read() || is_left_out("owner") {
            return None;
        }
        self.other(self.store.owner_of(hash))
    }

    /// As [`owner`](Self::owner), for a command that reads a whole partition.
    pub(crate) fn owner_of_partition(&self, partition: usize) -> Option<WorkerId> {
        if !M::Access::IS_BY_THREAD || M::Access::IS_SHARED {
            return None;
        }
        self.other(self.store.owner_of_partition(partition))
    }

    #[inline]
    fn other(&self, owner: usize) -> Option<WorkerId> {
        Some(WorkerId(owner as u16)).filter(|&owner| owner != self.placement.worker())
    }
}

impl<M: Mode, P> Context<'_, M, P> {
    /// From the next command on, counts commands by prefix or no more; false if nobody can.
    pub(crate) fn turn_prefixes(&mut self, is_on: bool) -> bool {
        let prefixes = self.admin.prefixes();
        prefixes.inspect(|prefixes| prefixes.turn(is_on));
        self.prefixes = prefixes.and_then(Prefixes::enabled);
        prefixes.is_some()
    }

    /// Notes that a key is about to be changed, in case its micro-shard is on its way to another node.
    #[inline]
    pub(crate) fn note_change(&self, hash: KeyHash, key: &[u8]) {
        if let Some(rack) = self.rack {
            rack.note_change(hash, key);
        }
    }

    /// False if replies need not wait for a command that has just been executed: it has changed nothing that followers are
    /// told of, as one for another node. Above flash alone that is not known.
    #[inline]
    pub(crate) fn may_owe(&self) -> bool {
        self.rack.filter(|rack| rack.is_managed()).map_or(M::HAS_FLASH, RackView::has_handed)
    }

    /// True if this node may change a key in this turn.
    #[inline]
    pub(crate) fn may_change(&self, key: &[u8]) -> bool {
        self.rack.is_none_or(|rack| rack.elsewhere(key, || Intent::Change).is_none())
    }
}
