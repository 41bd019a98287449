//! The loop of a driver thread whose sockets send datagrams.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use minos_net::{Wait, udp::ReceiveBurst, wait_readable};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::{Link, Moment};
use crate::{
    Op, OpKind,
    driver::{
        clock::RunClock,
        recorder::Recorder,
        thread::{
            CHORES_INTERVAL_NS, EVENTS_MAX, Feed, Orders, SENDS_PER_TURN_MAX, SILENCE_NS_MAX, SLEEP_MAX,
            Timing,
        },
    },
};

/// Up to so many sockets are asked one by one whether something came, which costs less than asking which.
const ASKED_ONE_BY_ONE_MAX: usize = 2;

/// One driver thread's state.
pub(in crate::driver) struct DatagramThread<'a, L> {
    orders: Orders,
    clock: RunClock,
    epoll: OwnedFd,
    feeds: Vec<Feed<'a>>,
    links: Vec<L>,
    /// Which feed each link belongs to.
    feed_of: Vec<usize>,
    recorder: Recorder,
    burst: ReceiveBurst,
    operations: Vec<Op>,
    /// Links that have something to send.
    unsent: Vec<usize>,
    /// When to look next at what need not be looked at in every turn.
    chores_due_ns: u64,
    heard_ns: u64,
}

impl<'a, L: Link<'a>> DatagramThread<'a, L> {
    pub(in crate::driver) fn new(
        orders: Orders,
        clock: RunClock,
        feeds: Vec<Feed<'a>>,
        links: Vec<L>,
        recorder: Recorder,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (number, link) in links.iter().enumerate() {
            epoll::add(&epoll, link.socket(), EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        let mut feed_of = vec![0; links.len()];
        for (number, feed) in feeds.iter().enumerate() {
            feed.connections.iter().for_each(|&link| feed_of[link] = number);
        }
        let (burst, operations) = (ReceiveBurst::new(), Vec::new());
        let unsent = Vec::with_capacity(links.len());
        Ok(Self {
            orders,
            clock,
            epoll,
            feeds,
            links,
            feed_of,
            recorder,
            burst,
            operations,
            unsent,
            chores_due_ns: 0,
            heard_ns: 0,
        })
    }

    /// Drives until time is up and returns what was measured. `progress` is told of answers.
    pub(in crate::driver) fn drive(mut self, progress: &AtomicU64) -> io::Result<Recorder> {
        while self.clock.now_ns() == 0 {
            std::hint::spin_loop();
        }
        let mut counted = 0;
        loop {
            match self.orders.timing {
                Timing::Open => self.send_due(),
                Timing::Closed { batch } => self.send_batches(batch),
            }
            self.receive_ready()?;
            let now_ns = self.clock.now_ns();
            if now_ns < self.chores_due_ns {
                continue;
            }
            self.chores_due_ns = now_ns + CHORES_INTERVAL_NS;
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

    /// Sends requests whose time has come. What is due on one socket leaves together.
    fn send_due(&mut self) {
        for _ in 0..SENDS_PER_TURN_MAX {
            let now_ns = self.clock.now_ns();
            let Some((feed, intended_ns)) = self.next_due() else { break };
            if intended_ns > now_ns || intended_ns >= self.orders.end_ns || !self.draw(feed) {
                break;
            }
            let Feed { source, connections } = &mut self.feeds[feed];
            let number = connections[source.choose(connections.len())];
            if self.links[number].is_full() {
                self.recorder.lost(intended_ns);
                continue;
            }
            self.ask(number, Moment { intended_ns, now_ns });
            self.recorder.sent(intended_ns, now_ns);
        }
        self.flush();
    }

    /// The feed whose next request comes first, and when.
    fn next_due(&self) -> Option<(usize, u64)> {
        let nexts = self.feeds.iter().enumerate();
        nexts.filter_map(|(feed, state)| Some((feed, state.source.next_ns()?))).min_by_key(|next| next.1)
    }

    /// Draws the operations of the next request. Says false if there are no more.
    fn draw(&mut self, feed: usize) -> bool {
        let source = &mut self.feeds[feed].source;
        self.operations.clear();
        let Some(first) = source.take() else { return false };
        self.operations.push(first);
        let others = self.orders.keys_per_get - 1;
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

    /// Gives every socket that waits for nothing its next batch.
    fn send_batches(&mut self, batch: usize) {
        let now_ns = self.clock.now_ns();
        if now_ns >= self.orders.end_ns {
            return;
        }
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
        }
    }

    fn receive_ready(&mut self) -> io::Result<()> {
        if self.orders.is_spinning && self.links.len() <= ASKED_ONE_BY_ONE_MAX {
            (0..self.links.len()).for_each(|number| self.receive(number));
            return Ok(());
        }
        self.sleep()?;
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let events = match epoll::wait(&self.epoll, &mut events[..], Some(&zero)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in &*events {
            let data = event.data;
            self.receive(data.u64() as usize);
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) {
        let link = &mut self.links[number];
        if link.receive(&mut self.burst, &self.clock, &mut self.recorder) {
            self.heard_ns = self.clock.now_ns();
            self.tell_feed(number);
        }
    }

    /// Tells the source of a link which inserted items may be asked for.
    fn tell_feed(&mut self, number: usize) {
        let source = &mut self.feeds[self.feed_of[number]].source;
        self.links[number].inserts_answered().for_each(|item| source.insert_answered(item));
    }

    /// Sleeps until something arrives or is due, if that is wanted.
    fn sleep(&self) -> io::Result<()> {
        if self.orders.is_spinning {
            return Ok(());
        }
        let until_due = match self.orders.timing {
            Timing::Open => self.next_due().map(|(_, due_ns)| due_ns.saturating_sub(self.clock.now_ns())),
            Timing::Closed { .. } => None,
        };
        let sleep = until_due.map_or(SLEEP_MAX, Duration::from_nanos).min(SLEEP_MAX);
        if !sleep.is_zero() {
            wait_readable(&[self.epoll.as_fd()], Wait::For(sleep))?;
        }
        Ok(())
    }

    /// Time is up, or there is nothing left to send and to wait for.
    fn is_over(&self, now_ns: u64) -> bool {
        let is_silent = self.orders.timing != Timing::Open && now_ns > self.heard_ns + SILENCE_NS_MAX;
        if now_ns >= self.orders.drain_end_ns || is_silent {
            return true;
        }
        if self.links.iter().any(|link| link.ledger().len() > 0) {
            return false;
        }
        match self.orders.timing {
            Timing::Open => self.next_due().is_none_or(|(_, due_ns)| due_ns >= self.orders.end_ns),
            Timing::Closed { .. } => self.next_due().is_none() || now_ns >= self.orders.end_ns,
        }
    }

    /// What was not answered is lost, and so is what was not even sent.
    fn count_lost(&mut self) {
        for link in &self.links {
            link.ledger().intended_ns().for_each(|intended_ns| self.recorder.lost(intended_ns));
        }
        if self.orders.timing != Timing::Open {
            return;
        }
        for feed in &mut self.feeds {
            while let Some(due_ns) = feed.source.next_ns().filter(|&due_ns| due_ns < self.orders.end_ns) {
                self.recorder.lost(due_ns);
                feed.source.take();
            }
        }
    }
}
