//! Requests of an operator to a running server.

use std::{
    fmt::{self, Display},
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use minos_base::StatsGroup;
use minos_engine::Mode;
use minos_net::Io;
use minos_tier::Tier;
use minos_unit::{Load, Weights};

use super::{
    config::DispatchChoice,
    mailbox::{SWITCH_MAX, SwitchError},
    settings::{self, Changed, SettingError, Shown, Values},
    shared::{PlanCell, Shared},
};
use crate::{
    ops::{Admin, report},
    watch::Watch,
};

/// Time between two checks whether every worker has taken up a plan.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// A handle to a running server. It may outlive the server and keeps none of it alive.
#[derive(Clone)]
pub struct Operator {
    server: Weak<dyn Operated>,
    plan: Arc<PlanCell>,
    watch: Arc<Watch>,
}

impl Operator {
    pub(crate) fn new<M: Mode, I: Io>(shared: &Arc<Shared<M, I>>) -> Self {
        let (plan, watch) = (Arc::clone(&shared.plan), Arc::clone(&shared.watch));
        let server: Weak<Shared<M, I>> = Arc::downgrade(shared);
        Self { server, plan, watch }
    }

    /// The design in force, or the last one of a stopped server.
    pub fn dispatch(&self) -> DispatchChoice {
        self.plan.in_force().choice
    }

    /// Puts another design in force without disturbing connections, and returns once every worker has taken
    /// it up.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn switch(&self, to: DispatchChoice) -> Result<(), SwitchError> {
        self.server.upgrade().ok_or(SwitchError::Stopping)?.switch(to)
    }

    /// The settings that can change; none once the server has stopped.
    pub fn settings(&self) -> Vec<Shown> {
        self.server.upgrade().map(|server| server.settings()).unwrap_or_default()
    }

    /// Changes settings, pairs of a name and a text: all of them, or nothing. Returns once every worker has taken them up.
    ///
    /// # Errors
    /// See [`SettingError`].
    pub fn change(&self, changes: &[(&str, &str)]) -> Result<(), SettingError> {
        self.server.upgrade().ok_or(SwitchError::Stopping)?.change_and_wait(changes)
    }

    /// Emits the statistics of `group`; none once the server has stopped. [`StatsGroup::Reset`] sets the
    /// counters to zero.
    pub fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display)) {
        if let Some(server) = self.server.upgrade() {
            server.stats(group, emit);
        }
    }

    /// What the workers have observed of requests, also once the server has stopped.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The state of the server's threads.
    pub fn health(&self) -> Health {
        self.server.upgrade().map_or(Health::Stopped, |server| server.health())
    }

    /// What the server has executed since it started; nothing once it has stopped.
    pub fn load(&self) -> Load {
        self.server.upgrade().map(|server| server.load()).unwrap_or_default()
    }

    /// Shows weights to native clients of the rack, unless newer ones are shown. A server in no rack ignores them.
    pub fn weigh(&self, weights: Arc<Weights>) {
        if let Some(server) = self.server.upgrade() {
            server.weigh(weights);
        }
    }

    /// Closes the connections of Redis' clients whose users are there no more: to be called when others are in force.
    pub fn kill_deleted(&self) {
        if let Some(server) = self.server.upgrade() {
            server.kill_deleted();
        }
    }

    /// Flash below the memory; `None` if there is none, or the server has stopped. The caller should drop it soon.
    pub fn tier(&self) -> Option<Arc<Tier>> {
        self.server.upgrade()?.tier()
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Operator").field(&self.dispatch()).finish()
    }
}

/// The state of a server's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// All serve.
    Serving,
    /// The server has been asked to stop, or one of its threads has ended by an error.
    Stopping,
    /// A worker has ended.
    Broken,
    /// The server has stopped.
    Stopped,
}

/// A server of any mode and any poller.
trait Operated: Send + Sync {
    fn switch(&self, to: DispatchChoice) -> Result<(), SwitchError>;
    fn settings(&self) -> Vec<Shown>;
    fn change_and_wait(&self, changes: &[(&str, &str)]) -> Result<(), SettingError>;
    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display));
    fn tier(&self) -> Option<Arc<Tier>>;
    fn load(&self) -> Load;
    fn health(&self) -> Health;
    fn weigh(&self, weights: Arc<Weights>);
    fn kill_deleted(&self);
}

impl<M: Mode, I: Io> Operated for Shared<M, I> {
    fn switch(&self, to: DispatchChoice) -> Result<(), SwitchError> {
        let answer = self.begin_switch(&Values { choice: to, ..self.values() })?;
        // No answer can come: the control thread has ended.
        let version = answer.recv().map_err(|_| SwitchError::Stopping)?;
        self.wait_for_plan(version)
    }

    fn settings(&self) -> Vec<Shown> {
        settings::shown(&self.values())
    }

    fn change_and_wait(&self, changes: &[(&str, &str)]) -> Result<(), SettingError> {
        let Changed { published, version } = self.change(changes)?;
        if let Some(answer) = published {
            // No answer can come: the control thread has ended.
            answer.recv().map_err(|_| SwitchError::Stopping)?;
        }
        Ok(self.wait_for_plan(version)?)
    }

    fn stats(&self, group: StatsGroup, emit: &mut dyn FnMut(&str, &dyn Display)) {
        report(&self.store, self, group, emit);
    }

    fn tier(&self) -> Option<Arc<Tier>> {
        self.tier.clone()
    }

    fn load(&self) -> Load {
        self.load()
    }

    fn health(&self) -> Health {
        let left = self.workers_left.load(Ordering::Acquire);
        match self.stop.is_requested() {
            true => Health::Stopping,
            false if left < self.workers.len() => Health::Broken,
            false => Health::Serving,
        }
    }

    fn weigh(&self, weights: Arc<Weights>) {
        if let Some(rack) = &self.rack {
            rack.weigh(weights);
        }
    }

    fn kill_deleted(&self) {
        Admin::kill_deleted(self);
    }
}

impl<M: Mode, I: Io> Shared<M, I> {
    /// Waits until every worker has taken up plan `version` or a later one.
    fn wait_for_plan(&self, version: u64) -> Result<(), SwitchError> {
        let deadline = Instant::now() + SWITCH_MAX;
        while !self.is_taken_up(version) {
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
