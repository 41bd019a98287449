//! Connections and answers of datagrams that wait until the changes before them are durable.

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed};

use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::Io;
use minos_tier::{SyncId, Tier};

use super::{
    Worker,
    fetches::{Awaiting, Waiter},
};
use crate::{
    datagram::native,
    ops::Next,
    tcp::{
        connection::Connection,
        patience::Patience,
        queue::Arrival,
        transfer::Transfer,
        visit::{VISIT_REQUESTS_MAX, flush},
    },
};

/// The reply instead of all that wait for a device that has failed. The connection ends with it: a client that had sent
/// several requests cannot tell which of them it answers.
const NOT_DURABLE: &[u8] = b"SERVER_ERROR flash failed: the change is not durable\r\n";

/// What waits.
pub(crate) enum Holder<M: Mode> {
    /// A connection, which holds the replies, and how its visit goes on.
    Connection(Box<Connection>, Next<M>),
    /// Answers to the datagrams of one burst.
    Answers(Vec<native::Held<M>>),
}

/// All that waits at one worker, in the order of the requests to the device.
pub(crate) type HeldReplies<M> = VecDeque<(Holder<M>, SyncId)>;

/// True if replies wait for the changes before them; not in the build that serves as the control of their tests.
pub(crate) fn holds_replies(tier: &Tier) -> bool {
    tier.acknowledges_durable() && !cfg!(minos_no_hold)
}

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// True if replies wait for the changes before them.
    #[inline]
    pub(crate) fn holds_replies(&self) -> bool {
        M::HAS_FLASH && self.shared.tier.as_deref().is_some_and(holds_replies)
    }

    /// Keeps replies until everything stored so far is durable.
    pub(crate) fn hold(&mut self, holder: Holder<M>) {
        let Some(tier) = &self.shared.tier else { unreachable!("only replies above flash wait for it") };
        self.mine().metrics.replies_held.add(match &holder {
            Holder::Connection(..) => 1,
            Holder::Answers(answers) => answers.len() as u64,
        });
        self.held.push_back((holder, tier.sync()));
        self.mine().holds.store(true, Relaxed);
    }

    /// True if what waits for longest need not wait any longer.
    pub(super) fn may_release(&self) -> bool {
        let (Some((_, first)), Some(tier)) = (self.held.front(), &self.shared.tier) else { return false };
        tier.is_synced(*first) != Ok(false)
    }

    /// Sends some replies that need not wait any longer; true if there were any.
    pub(super) fn release(&mut self) -> bool {
        let mut released = 0;
        while released < BURST_MAX && self.may_release() {
            let Some((holder, sync)) = self.held.pop_front() else { break };
            let synced = self.shared.tier.as_ref().map(|tier| tier.is_synced(sync));
            let is_durable = matches!(synced, Some(Ok(true)));
            match holder {
                Holder::Connection(connection, next) if is_durable => self.go_on_with(connection, next),
                Holder::Connection(connection, _) => self.refuse_held(connection),
                Holder::Answers(answers) => self.release_answers(answers, is_durable),
            }
            released += 1;
        }
        if released > 0 {
            self.answer_jobs();
            self.mine().holds.store(!self.held.is_empty(), Relaxed);
        }
        released > 0
    }

    /// Goes on with a connection where it was held.
    fn go_on_with(&mut self, mut connection: Box<Connection>, next: Next<M>) {
        match next {
            // The replies are sent together with the value.
            Next::Away(work) => {
                let patience = Patience::new(self.now);
                self.pass_or_serve(Box::new(Transfer { connection, work, moved_bytes: 0, patience }));
            }
            Next::Fetch(fetch) => {
                // What the socket does not take goes before the next replies.
                let _: Next<M> = flush(&mut connection);
                let waiter = Waiter::Connection(connection);
                self.pass_or_fetch(Box::new(Awaiting { waiter, fetch }));
            }
            _ => {
                let home = connection.home;
                self.visit_and_return(connection, VISIT_REQUESTS_MAX);
                if home != self.id.index() {
                    self.pass_on(home);
                }
            }
        }
    }

    /// Nothing more becomes durable: answers so, and ends the connection.
    fn refuse_held(&mut self, mut connection: Box<Connection>) {
        connection.output = NOT_DURABLE.into();
        let _: Next<M> = flush(&mut connection);
        self.send_home(connection.home, Arrival::Ended(connection));
    }
}
