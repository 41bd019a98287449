//! The loop of a driver thread whose sockets send datagrams.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Link, Moment};
use crate::{
    Op, OpKind,
    driver::{
        clock::RunClock,
        recorder::Recorder,
        schedule::{Feed, NO_EVENTS, Pace, Schedule, Timing},
        thread::SENDS_PER_TURN_MAX,
    },
};

/// Up to this many sockets are polled one by one, which costs less than epoll.
const ASKED_ONE_BY_ONE_MAX: usize = 2;

/// One driver thread's state.
pub(in crate::driver) struct DatagramThread<'a, L: Link<'a>> {
    schedule: Schedule<'a>,
    links: Vec<L>,
    feed_of: Vec<usize>,
    recorder: Recorder,
    /// None without links.
    burst: Option<L::Burst>,
    operations: Vec<Op>,
    /// Links that have something to send.
    unsent: Vec<usize>,
}

impl<'a, L: Link<'a>> DatagramThread<'a, L> {
    pub(in crate::driver) fn new(
        schedule: Schedule<'a>,
        links: Vec<L>,
        recorder: Recorder,
    ) -> io::Result<Self> {
        for (number, link) in links.iter().enumerate() {
            schedule.watch(link.socket(), number)?;
        }
        let mut feed_of = vec![0; links.len()];
        for (number, feed) in schedule.feeds.iter().enumerate() {
            feed.connections.iter().for_each(|&link| feed_of[link] = number);
        }
        let (burst, operations) = (links.first().map(L::burst), Vec::new());
        let unsent = Vec::with_capacity(links.len());
        Ok(Self { schedule, links, feed_of, recorder, burst, operations, unsent })
    }

    /// Drives until time is up and returns the measurements. Adds answered operations to `progress`.
    pub(in crate::driver) fn drive(mut self, clock: RunClock, progress: &AtomicU64) -> io::Result<Recorder> {
        self.links.iter_mut().for_each(|link| link.begin(&clock));
        self.schedule.begin(clock);
        let mut counted = 0;
        loop {
            match self.schedule.orders.timing {
                Timing::Open => self.send_due(),
                Timing::Closed { batch } => self.send_batches(batch),
            }
            self.receive_ready()?;
            let now_ns = self.schedule.clock.now_ns();
            self.schedule.end_turn(now_ns, &mut self.recorder);
            if !self.schedule.chores_are_due(now_ns) {
                continue;
            }
            for number in 0..self.links.len() {
                self.links[number].tend(now_ns, &mut self.recorder);
                self.tell_feed(number);
            }
            let answered = self.recorder.operations_in_window;
            progress.fetch_add(answered - counted, Ordering::Relaxed);
            counted = answered;
            if self.is_over(now_ns) {
                self.count_lost();
                return Ok(self.recorder);
            }
        }
    }

    /// Sends due requests; those of one socket leave together.
    fn send_due(&mut self) {
        let mut since_ns = None;
        for _ in 0..SENDS_PER_TURN_MAX {
            let now_ns = self.schedule.clock.now_ns();
            let Some((feed, intended_ns)) = self.schedule.next_due() else { break };
            if intended_ns > now_ns || intended_ns >= self.schedule.orders.end_ns || !self.draw(feed) {
                break;
            }
            since_ns.get_or_insert(now_ns);
            let Feed { source, connections } = &mut self.schedule.feeds[feed];
            let number = connections[source.choose(connections.len())];
            if self.links[number].is_full() {
                self.recorder.lost(intended_ns);
                continue;
            }
            self.ask(number, Moment { intended_ns, now_ns });
            self.recorder.sent(intended_ns, now_ns);
        }
        self.flush();
        if let Some(since_ns) = since_ns {
            self.schedule.sent(since_ns, &mut self.recorder);
        }
    }

    /// Draws the operations of the next request. Returns false if there are no more.
    fn draw(&mut self, feed: usize) -> bool {
        let source = &mut self.schedule.feeds[feed].source;
        self.operations.clear();
        let Some(first) = source.take() else { return false };
        self.operations.push(first);
        let others = self.schedule.orders.keys_per_get - 1;
        if others > 0 && L::IS_MIXED {
            self.operations.extend((0..others).map_while(|_| source.another()));
        } else if first.kind == OpKind::Get {
            let companion = |_| Op { item: source.companion(first.item), ..first };
            self.operations.extend((0..others).map(companion));
        }
        true
    }

    fn ask(&mut self, number: usize, at: Moment) {
        self.links[number].ask(&self.operations, at, &mut self.recorder);
        if !self.unsent.contains(&number) {
            self.unsent.push(number);
        }
    }

    fn flush(&mut self) {
        for number in self.unsent.drain(..) {
            self.links[number].flush();
        }
    }

    /// Sends the next batch on every socket without outstanding requests.
    fn send_batches(&mut self, batch: usize) {
        let now_ns = self.schedule.clock.now_ns();
        if now_ns >= self.schedule.orders.end_ns {
            return;
        }
        let mut has_sent = false;
        for number in 0..self.links.len() {
            if self.links[number].ledger().len() > 0 {
                continue;
            }
            for _ in 0..batch {
                if !self.draw(self.feed_of[number]) {
                    break;
                }
                self.ask(number, Moment { intended_ns: now_ns, now_ns });
            }
            self.flush();
            has_sent = true;
        }
        if has_sent {
            self.schedule.sent(now_ns, &mut self.recorder);
        }
    }

    fn receive_ready(&mut self) -> io::Result<()> {
        if self.schedule.orders.pace == Pace::Spin && self.links.len() <= ASKED_ONE_BY_ONE_MAX {
            (0..self.links.len()).for_each(|number| self.receive(number));
            return Ok(());
        }
        let mut events = NO_EVENTS;
        for event in self.schedule.ready(&mut events)? {
            let data = event.data;
            self.receive(data.u64() as usize);
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) {
        let (link, Some(burst)) = (&mut self.links[number], &mut self.burst) else { return };
        if link.receive(burst, &self.schedule.clock, &mut self.recorder) {
            self.schedule.heard();
            self.tell_feed(number);
        }
    }

    /// Tells the source of a link which inserted items can be read.
    fn tell_feed(&mut self, number: usize) {
        let source = &mut self.schedule.feeds[self.feed_of[number]].source;
        self.links[number].inserts_answered().for_each(|item| source.insert_answered(item));
    }

    /// True if time is up, or nothing is left to send or to wait for.
    fn is_over(&self, now_ns: u64) -> bool {
        let is_waiting = self.links.iter().any(|link| link.ledger().len() > 0);
        self.schedule.is_time_up(now_ns) || !(is_waiting || self.schedule.has_more(now_ns))
    }

    /// Counts requests not answered, and requests not sent, as lost.
    fn count_lost(&mut self) {
        for link in &self.links {
            link.ledger().intended_ns().for_each(|intended_ns| self.recorder.lost(intended_ns));
        }
        self.schedule.count_unsent(&mut self.recorder);
    }
}
