//! What waits: requests for items on flash, replies until the changes before them are durable or have reached their
//! followers.

use std::sync::atomic::Ordering::Relaxed;

use minos_base::{is_left_out, limits::BURST_MAX};
use minos_engine::Mode;
use minos_net::Io;
use minos_sched::Role;
use minos_tier::Tier;

use super::{
    Worker,
    fetches::ANSWERS_MAX,
    rings::{Awaiting, Holder, Until, Waiter},
};
use crate::{
    ops::{Fetched, Next, Work},
    rack::Owed,
    tcp::{connection::Connection, patience::Patience, queue::Arrival, transfer::Transfer},
};

/// The reply instead of all that wait for a device that has failed. The connection ends with it: a client that had sent
/// several requests cannot tell which of them it answers.
const NOT_DURABLE: &[u8] = b"SERVER_ERROR flash failed: the change is not durable\r\n";

/// True if replies wait for the changes before them; not in the control `hold` of their tests.
pub(crate) fn holds_replies(tier: &Tier) -> bool {
    tier.acknowledges_durable() && !is_left_out("hold")
}

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// True if replies wait for the changes before them.
    #[inline]
    pub(crate) fn holds_replies(&self) -> bool {
        M::HAS_FLASH && self.shared.tier.as_deref().is_some_and(holds_replies)
    }

    /// Keeps replies until everything stored so far is durable, or with its followers.
    pub(crate) fn hold(&mut self, mut holder: Holder<M>) {
        let (replies, owed) = match &mut holder {
            Holder::Connection(connection, _) => (1, std::mem::take(&mut connection.owed)),
            Holder::Answers(answers) => {
                let handed = self.datagrams.as_ref().map_or(0, |datagrams| datagrams.native.handed());
                (answers.len() as u64, Owed { handed, right: self.right() })
            }
        };
        self.mine.metrics.replies_held.add(replies);
        let until = match &self.shared.tier {
            Some(tier) if holds_replies(tier) => Until::Synced(tier.sync()),
            // Its followers may have it by now: then it goes on in this turn.
            _ => Until::Followed(owed),
        };
        self.held.push_back((holder, until));
        self.mine.holds.store(true, Relaxed);
    }

    /// Notes what the next reply to a connection waits for, after a change of this turn. Until then the connection may come
    /// to another worker, and the node may lose its right to answer.
    pub(crate) fn note_owed(&self, connection: &mut Connection) {
        let Some(rack) = &self.rack else { return };
        let Owed { handed, right } = connection.owed;
        connection.owed = Owed { handed: handed.max(rack.handed()), right: right.or(self.right()) };
    }

    /// Whether a reply to a connection may say that its changes were made; `None` if it is to be held. If it must not, the
    /// connection is to be closed.
    pub(crate) fn may_acknowledge(&self, connection: &mut Connection) -> Option<bool> {
        connection.session.forget_change();
        if self.holds_replies() {
            return None;
        }
        let has_come = self.has_come(Until::Followed(connection.owed))?;
        connection.owed = Owed::default();
        if !has_come {
            self.mine.rack_counters.unanswered.count();
        }
        Some(has_come)
    }

    /// True if what waits for longest need not wait any longer.
    #[inline]
    pub(super) fn may_release(&self) -> bool {
        self.held.front().is_some_and(|(_, until)| self.has_come(*until).is_some())
    }

    /// Whether what replies wait for has come, true, or will not, false; `None` before that is known.
    fn has_come(&self, until: Until) -> Option<bool> {
        match until {
            Until::Synced(sync) => match self.shared.tier.as_ref()?.is_synced(sync) {
                Ok(false) => None,
                Ok(true) => Some(true),
                Err(_) => Some(false),
            },
            Until::Followed(Owed { handed, right }) => {
                // A loss of the owner may cost what is not acknowledged by copies.
                let Some(rack) = self.rack.as_ref().filter(|rack| rack.acknowledges_copies()) else {
                    return Some(true);
                };
                let may_answer = || self.guard().is_none_or(|guard| guard.is_still(right));
                rack.is_confirmed(handed).then(may_answer)
            }
        }
    }

    /// Sends some replies that need not wait any longer; true if there were any.
    pub(super) fn release(&mut self) -> bool {
        let mut released = 0;
        while released < BURST_MAX
            && let Some((_, until)) = self.held.front()
            && let Some(has_come) = self.has_come(*until)
            && let Some((holder, until)) = self.held.pop_front()
        {
            match (holder, until) {
                (Holder::Connection(connection, next), _) if has_come => self.go_on_with(connection, next),
                (Holder::Connection(connection, _), Until::Synced(_)) => self.refuse_held(connection),
                (Holder::Connection(connection, _), Until::Followed(..)) => {
                    self.mine.rack_counters.unanswered.count();
                    self.send_home(connection.home, Arrival::Ended(connection));
                }
                (Holder::Answers(answers), _) => self.release_answers(answers, has_come),
            }
            released += 1;
        }
        if released > 0 {
            self.answer_jobs();
            self.mine.holds.store(!self.held.is_empty(), Relaxed);
        }
        released > 0
    }

    /// Goes on with a connection where it was held.
    pub(super) fn go_on_with(&mut self, mut connection: Box<Connection>, next: Next<M>) {
        match next {
            // The replies are sent together with the value.
            Next::Away(work) => {
                self.pass_or_serve(Box::new(Transfer::new(connection, work, Patience::new(self.now))));
            }
            Next::Fetch(fetch) => {
                // What the socket does not take goes before the next replies.
                let _: Next<M> = connection.flush();
                let waiter = Waiter::Connection(connection);
                self.pass_or_fetch(Box::new(Awaiting { waiter, fetch }));
            }
            Next::Owner(worker) => {
                let home = connection.home;
                if let Some(back) = self.give_connection(worker, connection) {
                    self.send_home(home, back);
                }
            }
            _ => self.visit_apart(connection),
        }
    }

    /// Nothing more becomes durable: answers so, and ends the connection.
    fn refuse_held(&mut self, mut connection: Box<Connection>) {
        connection.output = connection.session.farewell(NOT_DURABLE).as_slice().into();
        let _: Next<M> = connection.flush();
        self.send_home(connection.home, Arrival::Ended(connection));
    }

    /// Takes in a request that needs items from flash.
    pub(crate) fn begin_fetch(&mut self, mut awaiting: Box<Awaiting<M>>) {
        let Awaiting { waiter, fetch } = &mut *awaiting;
        if let (Waiter::Datagrams(waiting), Some(datagrams)) = (waiter, &mut self.datagrams) {
            datagrams.begin_waiting(waiting, fetch);
            if waiting.is_empty() {
                return;
            }
        }
        let (now, keys) = ((self.now, self.now_s), awaiting.fetch.keys.len() as u64);
        let metrics = &self.mine.metrics;
        metrics.flash_keys.add(keys);
        metrics.flash_keys_small.add(if self.role() == Role::Small { keys } else { 0 });
        match &mut self.fetches {
            Some(fetches) => fetches.begin(awaiting, now),
            None => unreachable!("no index of a store in memory names a record on flash"),
        }
    }

    /// Reads items from flash for the requests that wait for them, and goes on with those that have all; true if
    /// there was work.
    pub(super) fn serve_fetches(&mut self) -> bool {
        let now = (self.now, self.now_s);
        let Some(fetches) = &mut self.fetches else { return false };
        if fetches.is_empty() {
            return false;
        }
        let mut found = fetches.advance(now).unwrap_or_else(|error| {
            tracing::error!(%error, "a lane to the flash device is unusable");
            fetches.fail();
            true
        });
        for _ in 0..ANSWERS_MAX {
            let Some((awaiting, fetched)) =
                self.fetches.as_mut().and_then(|fetches| fetches.take_ready(now.1))
            else {
                break;
            };
            self.go_on(*awaiting, fetched);
            found = true;
        }
        if found {
            self.answer_jobs();
        }
        found
    }

    /// Takes back the memory of answers that have been used.
    pub(crate) fn take_back(&mut self, fetched: Fetched) {
        if let Some(fetches) = &mut self.fetches {
            fetches.take_back(fetched);
        }
    }

    /// Goes on with a request whose items have come.
    fn go_on(&mut self, awaiting: Awaiting<M>, mut fetched: Box<Fetched>) {
        let Awaiting { waiter, fetch } = awaiting;
        self.mine.metrics.flash_keys_copied.add(fetched.copies() as u64);
        fetched.end(fetch.keys);
        let mut connection = match waiter {
            Waiter::Connection(connection) => connection,
            Waiter::Datagrams(waiting) => {
                self.go_on_waiting(waiting, &fetched);
                return self.take_back(*fetched);
            }
        };
        connection.fetched = Some(fetched);
        if let Some(store) = fetch.then {
            let transfer = Transfer::new(connection, Work::Finish { store }, Patience::new(self.now));
            return self.large.insert(Box::new(transfer), self.now);
        }
        self.visit_apart(connection);
    }
}
