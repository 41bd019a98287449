//! What whoever operates a server may ask of it while it runs.

use std::{
    fmt::{self, Display},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use minos_base::StatsGroup;
use minos_engine::{Engine, Mode};
use minos_net::{Poller, Waker};
use minos_sched::Policy;

use crate::{
    config::{DispatchChoice, InvalidOption, ServerConfig},
    ops::report,
    plan_cell::PlanCell,
    shared::Shared,
};

/// Longest wait for the workers to take up another design.
const SWITCH_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at whether they have.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Asks things of a running server. It may outlive the server, and keeps nothing of it open.
#[derive(Clone)]
pub struct Operator {
    server: Weak<dyn Operated>,
    plan: Arc<PlanCell>,
}

/// Why a server did not take up another design.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SwitchError {
    /// It cannot run under the options that the server was started with.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// Another switch is under way.
    #[error("another switch is under way")]
    Busy,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// It is in force, but a worker was busy for so long that it has not taken it up yet.
    #[error("not every worker has taken up the design within {SWITCH_MAX:?}; it will")]
    Slow,
}

impl Operator {
    pub(crate) fn new<M: Mode, P: Poller + 'static>(shared: &Arc<Shared<M, P>>) -> Self
    where
        Engine<M>: Sync,
    {
        let plan = Arc::clone(&shared.plan);
        let server: Weak<Shared<M, P>> = Arc::downgrade(shared);
        Self { server, plan }
    }

    /// The design in force, or the last one of a server that has ended.
    pub fn dispatch(&self) -> DispatchChoice {
        self.plan.in_force().choice
    }

    /// Puts another design in force, without a connection noticing, and returns once every worker goes by it.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn switch(&self, to: DispatchChoice) -> Result<(), SwitchError> {
        self.server.upgrade().ok_or(SwitchError::Stopping)?.switch(to)
    }

    /// Tells what `stats` tells of `group`; nothing of a server that has ended. [`StatsGroup::Reset`] sets the
    /// counters to zero.
    pub fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display)) {
        if let Some(server) = self.server.upgrade() {
            server.stats(group, emit);
        }
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Operator").field(&self.dispatch()).finish()
    }
}

/// A server of any mode, polling in any way.
trait Operated: Send + Sync {
    fn switch(&self, to: DispatchChoice) -> Result<(), SwitchError>;
    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display));
}

impl<M: Mode, P: Poller> Operated for Shared<M, P>
where
    Engine<M>: Sync,
{
    fn switch(&self, to: DispatchChoice) -> Result<(), SwitchError> {
        let policy = policy(to, &self.config)?;
        let (published, answer) = mpsc::channel();
        self.mailbox.put(Switch { choice: to, policy, published })?;
        // An answer that can come no more: the control thread has ended.
        let version = answer.recv().map_err(|_| SwitchError::Stopping)?;
        self.wait_for_plan(version)
    }

    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display)) {
        report(&self.store, self, group, emit);
    }
}

impl<M: Mode, P: Poller> Shared<M, P> {
    /// Waits until every worker goes by plan `version` or a later one.
    fn wait_for_plan(&self, version: u64) -> Result<(), SwitchError> {
        let deadline = Instant::now() + SWITCH_MAX;
        let is_behind = |at: u64| at < version;
        // Acquire: what a worker did under the earlier plan is seen by who asked for this one.
        while self.workers.iter().any(|worker| is_behind(worker.plan_version.load(Ordering::Acquire))) {
            if self.stop.is_requested() {
                return Err(SwitchError::Stopping);
            }
            if Instant::now() >= deadline {
                return Err(SwitchError::Slow);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// The policy of `choice`.
///
/// # Errors
/// Only the simulator has the design, or there are too few workers for it.
pub(crate) fn policy(choice: DispatchChoice, config: &ServerConfig) -> Result<Policy, InvalidOption> {
    let design = choice.dispatch;
    if !design.is_served() {
        return Err(InvalidOption::OnlySimulated(design));
    }
    Policy::new(design, config.control, config.options(choice)).map_err(InvalidOption::Control)
}

/// The wish for another design.
pub(crate) struct Switch {
    pub(crate) choice: DispatchChoice,
    pub(crate) policy: Policy,
    /// Gets the version of the first plan.
    pub(crate) published: mpsc::Sender<u64>,
}

/// Where the control thread finds what it is asked to do.
pub(crate) struct Mailbox {
    content: Mutex<Content>,
    waker: Waker,
}

enum Content {
    Empty,
    Switch(Box<Switch>),
    /// Nobody will look any more.
    Closed,
}

impl Mailbox {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let waker = Waker::new()?;
        // The control thread sleeps nearly always: it is always to be woken.
        waker.prepare();
        Ok(Self { content: Mutex::new(Content::Empty), waker })
    }

    /// Readable when something was put in.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    fn put(&self, switch: Switch) -> Result<(), SwitchError> {
        let mut content = self.lock();
        match *content {
            Content::Empty => *content = Content::Switch(Box::new(switch)),
            Content::Switch(_) => return Err(SwitchError::Busy),
            Content::Closed => return Err(SwitchError::Stopping),
        }
        self.waker.wake();
        Ok(())
    }

    /// Takes out what was put in.
    pub(crate) fn take(&self) -> Option<Switch> {
        let mut content = self.lock();
        if !matches!(*content, Content::Switch(_)) {
            return None;
        }
        self.waker.drain();
        self.waker.prepare();
        match std::mem::replace(&mut *content, Content::Empty) {
            Content::Switch(switch) => Some(*switch),
            Content::Empty | Content::Closed => None,
        }
    }

    /// Lets nothing more in, and forgets what is there.
    pub(crate) fn close(&self) {
        *self.lock() = Content::Closed;
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // Its content is replaced as a whole.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
