//! The schedule of a driver thread, for all protocols.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use minos_base::limits::LONG_TURN;
use minos_net::{Wait, wait_readable};
use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};

use super::{clock::RunClock, recorder::Recorder};
use crate::model::OpSource;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 64;

/// In closed loop, how long a server may answer nothing at all.
const SILENCE_NS_MAX: u64 = 30_000_000_000;

/// Time between two looks at whether the run is over, and two comparisons of the clocks.
const CHORES_INTERVAL_NS: u64 = 2_000_000;

/// How long a sleeping driver sleeps at most.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// Longest time that answers stay in the kernel's buffers, which hold that many.
const UNHEARD_MAX: Duration = Duration::from_millis(1);

/// The driver's behaviour while it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It spins, and sends in time to the microsecond.
    Spin,
    /// It sleeps, and is late by the time it takes to wake.
    Sleep,
    /// It sleeps until requests are due, [`DUE_SLEEP_MIN`] at least, and receives answers only then. This is
    /// for a driver that shares processors with the server: it does not preempt the server for each answer.
    /// The kernel stamps answers when they arrive (see
    /// [`DriverShare::kernel_stamped`](super::report::DriverShare)). If several are received in one piece on
    /// a connection, the last one's stamp counts for all. In closed loop as [`Pace::Sleep`].
    Due,
}

/// Shortest sleep with [`Pace::Due`]; a request may leave later by as much.
pub const DUE_SLEEP_MIN: Duration = Duration::from_micros(50);

/// How requests are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timing {
    /// When they are meant to be sent.
    Open,
    /// `batch` at once on each connection, as soon as the last ones are answered.
    Closed { batch: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    pub(super) timing: Timing,
    pub(super) pace: Pace,
    /// Keys of a GET; operations of a vector.
    pub(super) keys_per_get: u32,
    /// No request is meant to be sent after this, in nanoseconds since the start.
    pub(super) end_ns: u64,
    /// No answer is waited for after this.
    pub(super) drain_end_ns: u64,
    /// How often a datagram that is not answered is sent again.
    pub(super) repeats: u32,
}

/// A stream's requests and the connections or sockets they go to.
pub(super) struct Feed<'a> {
    pub(super) source: OpSource<'a>,
    pub(super) connections: Vec<usize>,
}

/// Buffer for events of the watched sockets.
pub(super) type Events = [MaybeUninit<Event>; EVENTS_MAX];

/// An uninitialized buffer for events.
pub(super) const NO_EVENTS: Events = [const { MaybeUninit::uninit() }; EVENTS_MAX];

/// A thread's orders, clock and feeds, and the events of the sockets it watches.
pub(super) struct Schedule<'a> {
    pub(super) orders: Orders,
    pub(super) clock: RunClock,
    pub(super) feeds: Vec<Feed<'a>>,
    epoll: OwnedFd,
    /// Time of the next chores (see `CHORES_INTERVAL_NS`).
    chores_due_ns: u64,
    heard_ns: u64,
    /// When this turn began, and whether it has sent or received anything.
    turn_ns: u64,
    worked: bool,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(orders: Orders, feeds: Vec<Feed<'a>>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // Shows 0 until the run has a clock.
        let clock = RunClock::starting_at(u64::MAX);
        Ok(Self { orders, clock, feeds, epoll, chores_due_ns: 0, heard_ns: 0, turn_ns: 0, worked: false })
    }

    /// Watches `socket` for input; its events carry `number`.
    pub(super) fn watch(&self, socket: impl AsFd, number: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(number as u64), EventFlags::IN)?)
    }

    /// Starts or stops watching a socket for room to send.
    pub(super) fn watch_room(&self, socket: impl AsFd, number: usize, is_wanted: bool) {
        let flags = if is_wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        // It cannot fail for an open socket that is in the set.
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(number as u64), flags);
    }

    /// Spins until the run with this clock begins.
    pub(super) fn begin(&mut self, clock: RunClock) {
        self.clock = clock;
        while self.clock.now_ns() == 0 {
            std::hint::spin_loop();
        }
    }

    /// The feed whose next request comes first, and when.
    pub(super) fn next_due(&self) -> Option<(usize, u64)> {
        let nexts = self.feeds.iter().enumerate();
        nexts.filter_map(|(feed, state)| Some((feed, state.source.next_ns()?))).min_by_key(|next| next.1)
    }

    /// Returns the events of the watched sockets, after a sleep if the pace says so.
    pub(super) fn ready<'e>(&self, events: &'e mut Events) -> io::Result<&'e [Event]> {
        self.sleep()?;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, &mut events[..], Some(&zero)) {
            Ok((events, _)) => Ok(events),
            Err(rustix::io::Errno::INTR) => Ok(&[]),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until something arrives or is due, if the pace says so.
    fn sleep(&self) -> io::Result<()> {
        if self.orders.pace == Pace::Spin {
            return Ok(());
        }
        let until_due = match self.orders.timing {
            // Requests due after the end are never sent, so they do not wake a thread that waits for answers.
            Timing::Open => self
                .next_due()
                .filter(|&(_, due_ns)| due_ns < self.orders.end_ns)
                .map(|(_, due_ns)| due_ns.saturating_sub(self.clock.now_ns())),
            Timing::Closed { .. } => None,
        };
        let sleep = until_due.map_or(SLEEP_MAX, Duration::from_nanos).min(SLEEP_MAX);
        if self.orders.pace == Pace::Due && until_due.is_some() {
            // Answers that arrive meanwhile are stamped by the kernel and do not wake the thread.
            std::thread::sleep(sleep.clamp(DUE_SLEEP_MIN, UNHEARD_MAX));
        } else if !sleep.is_zero() {
            wait_readable(&[self.epoll.as_fd()], Wait::For(sleep))?;
        }
        Ok(())
    }

    /// Notes that requests were given to the kernel since `since_ns`.
    pub(super) fn sent(&mut self, since_ns: u64, recorder: &mut Recorder) {
        self.worked = true;
        recorder.time.sending_ns += self.clock.now_ns() - since_ns;
    }

    /// Ends a turn of the loop. Adds up its time if the thread spins.
    pub(super) fn end_turn(&mut self, now_ns: u64, recorder: &mut Recorder) {
        let (worked, turn_ns) =
            (std::mem::take(&mut self.worked), std::mem::replace(&mut self.turn_ns, now_ns));
        // Waiting for answers after the last request is not measured.
        if self.orders.pace == Pace::Spin && turn_ns > 0 && now_ns < self.orders.end_ns {
            recorder.time.all_ns += now_ns - turn_ns;
            recorder.time.busy_ns += if worked { now_ns - turn_ns } else { 0 };
            recorder.time.long_turns += u64::from(Duration::from_nanos(now_ns - turn_ns) > LONG_TURN);
        }
    }

    /// Notes that the server said something.
    pub(super) fn heard(&mut self) {
        self.worked = true;
        self.heard_ns = self.clock.now_ns();
    }

    /// True if chores are due, which are not done in every turn.
    pub(super) fn chores_are_due(&mut self, now_ns: u64) -> bool {
        let are_due = now_ns >= self.chores_due_ns;
        if are_due {
            self.chores_due_ns = now_ns + CHORES_INTERVAL_NS;
        }
        are_due
    }

    /// True if the thread stops waiting for answers.
    pub(super) fn is_time_up(&self, now_ns: u64) -> bool {
        let is_silent = self.orders.timing != Timing::Open && now_ns > self.heard_ns + SILENCE_NS_MAX;
        now_ns >= self.orders.drain_end_ns || is_silent
    }

    /// True if requests are left to send.
    pub(super) fn has_more(&self, now_ns: u64) -> bool {
        match self.orders.timing {
            Timing::Open => self.next_due().is_some_and(|(_, due_ns)| due_ns < self.orders.end_ns),
            Timing::Closed { .. } => self.next_due().is_some() && now_ns < self.orders.end_ns,
        }
    }

    /// Counts requests that were due and not sent as lost.
    pub(super) fn count_unsent(&mut self, recorder: &mut Recorder) {
        if self.orders.timing != Timing::Open {
            return;
        }
        for feed in &mut self.feeds {
            while let Some(due_ns) = feed.source.next_ns().filter(|&due_ns| due_ns < self.orders.end_ns) {
                recorder.lost(due_ns);
                feed.source.take();
            }
        }
    }
}
