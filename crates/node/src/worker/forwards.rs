//! Commands that this worker forwards to other nodes of the rack.

use minos_engine::{Access, Mode};
use minos_net::Io;
use minos_proto::memcache::text;

use super::{Worker, rings::Holder};
use crate::{
    ops::Placement as _,
    rack::{Answered, Forward, Forwards, Guard, Links, RackView, Right},
    tcp::{connection::Connection, queue::Arrival},
};

impl<'s, M: Mode, I: Io> Worker<'s, M, I> {
    /// Forwards commands of a connection; its later commands wait for the replies, which come between `replies`.
    pub(crate) fn forward(&mut self, connection: Box<Connection>, forwards: Forwards<M>, replies: &[u8]) {
        if M::Access::IS_BY_THREAD {
            unreachable!("--rack is refused")
        }
        let (Some(links), Some(rack)) = (&mut self.links, &self.rack) else {
            unreachable!("without a rack no key is elsewhere")
        };
        links.begin(connection, forwards, replies, (rack, self.now));
    }

    /// Forwards a command whose value has arrived.
    pub(super) fn forward_collected(&mut self, mut connection: Box<Connection>, forward: Forward) {
        if !forward.tail.is_empty() || forward.bytes.ends_with(text::LINE_END) {
            return self.forward(connection, Forwards::one(forward), &[]);
        }
        connection.output.append(text::BAD_CHUNK);
        self.visit_apart(connection);
    }

    /// Moves bytes from and to other nodes, and goes on with the connections whose commands are answered; true if
    /// there was work.
    #[inline]
    pub(super) fn serve_forwards(&mut self) -> bool {
        if M::Access::IS_BY_THREAD {
            return false;
        }
        let Some(links) = &self.links else { return false };
        let is_idle = links.is_idle();
        self.hand_over();
        !is_idle && self.serve_links()
    }

    /// Out of the way of turns that have nothing for other nodes.
    #[inline(never)]
    fn serve_links(&mut self) -> bool {
        let mut found = false;
        loop {
            let (Some(links), Some(rack)) = (&mut self.links, &self.rack) else { return found };
            if links.is_idle() {
                return found;
            }
            found |= links.advance(self.shared, rack, self.now);
            self.count_reads();
            while let Some(answered) = self.links.as_mut().and_then(Links::take_answered) {
                self.go_on_answered(answered);
            }
            // Their next commands leave before the worker sleeps.
            if self.links.as_ref().is_none_or(|links| !links.has_unsent()) {
                return found;
            }
        }
    }

    /// Counts the keys that were read in memory that is not mapped here.
    fn count_reads(&mut self) {
        while let Some(class) = self.links.as_mut().and_then(Links::take_read) {
            let counters = &self.mine.counters;
            counters.cmd_get.count();
            match class {
                Some(class) => {
                    counters.get_hits.count();
                    self.placement.is_here(class);
                }
                None => counters.get_misses.count(),
            }
        }
    }

    /// Goes on with a connection whose commands are answered. The answers may have to wait for changes here before them.
    fn go_on_answered(&mut self, Answered { mut connection, then, bytes, failed }: Answered<M>) {
        let counters = &self.mine.counters;
        counters.bytes_written.add(bytes);
        failed.iter().for_each(|id| counters.fail_later(*id));
        let acknowledges = bytes > 0 && connection.session.has_changed();
        match if acknowledges { self.may_acknowledge(&mut connection) } else { Some(true) } {
            Some(true) => self.go_on_with(connection, then),
            Some(false) => self.send_home(connection.home, Arrival::Ended(connection)),
            None => self.hold(Holder::Connection(connection, then)),
        }
    }

    /// Hands the changes of this turn over to those who follow them.
    #[inline]
    fn hand_over(&self) {
        self.rack.iter().for_each(RackView::hand_over);
        self.datagrams.iter().for_each(|datagrams| datagrams.native.hand_over());
    }

    /// Ends the wait of commands whose time is over, and tells other nodes of the reads in their memory.
    #[inline]
    pub(super) fn keep_forwards(&mut self) {
        if M::Access::IS_BY_THREAD {
            return;
        }
        let (Some(links), Some(rack)) = (&self.links, &self.rack) else { return };
        if links.may_be_late() | links.has_notes() | rack.has_notes() | self.datagrams.is_some() {
            self.keep_links();
        }
    }

    /// Out of the way of slices of housekeeping that have nothing for other nodes.
    #[inline(never)]
    fn keep_links(&mut self) {
        let (Some(links), Some(rack)) = (&mut self.links, &self.rack) else { return };
        if links.may_be_late() {
            links.give_up_late(rack, self.now);
        }
        links.note_reads(rack, self.now);
        let mut send = |node, frame: &[u8]| links.note(node, frame, rack, self.now);
        rack.take_notes(&mut send);
        self.datagrams.iter().for_each(|datagrams| datagrams.take_notes(&mut send));
    }

    /// What answers of this turn have to pass, if the server is a node of a rack whose micro-shards move.
    #[inline]
    pub(crate) fn guard(&self) -> Option<Guard<'s>> {
        let view = self.rack.as_ref().filter(|view| view.is_managed())?;
        let rack = self.shared.rack.as_ref()?;
        Some(Guard { routes: &rack.routes, term: view.term() })
    }

    /// The right of this turn to answer, if it has one and needs one.
    #[inline]
    pub(crate) fn right(&self) -> Option<Right> {
        self.guard().and_then(|guard| guard.right())
    }

    /// True if what this turn has found may leave, or be kept for later. Else the connection is to be closed.
    #[inline]
    pub(crate) fn may_answer(&self) -> bool {
        let may_answer = self.rack.as_ref().is_none_or(RackView::may_answer);
        if !may_answer {
            self.mine.rack_counters.unanswered.count();
        }
        may_answer
    }

    /// Takes over what has changed in the rack, and says so to whoever waits for it.
    #[inline]
    pub(super) fn refresh_rack(&mut self) {
        if M::Access::IS_BY_THREAD {
            return;
        }
        let Some(rack) = &mut self.rack else { return };
        rack.refresh(self.now);
        self.links.iter_mut().for_each(|links| links.follow(rack));
        let datagrams = self.datagrams.as_mut().and_then(|datagrams| datagrams.refresh_rack(self.now));
        rack.notice(self.id.index(), datagrams);
    }
}
