//! The settings of a running server: which there are, and how one changes.
//!
//! `minos ctl`, CONFIG and the documentation follow one table. All of a change is checked before any of it takes effect.
//! Workers get the new values along with the plan.

mod table;
mod text;

use std::{sync::mpsc, time::Duration};

use minos_engine::Mode;
use minos_net::Io;
use minos_sched::{ControlConfig, Options, Policy, Standby};

pub use table::{FIXED, Shown, names};
pub(crate) use table::{fixed, shown};
pub use text::{parse_time, parse_time_or_never};

use super::{
    config::{DispatchChoice, InvalidOption, LogLevel, ServerConfig},
    mailbox::{Switch, SwitchError},
    owned,
    pause::Pause,
    shared::Shared,
};
use crate::tcp::patience::Terms;

/// The settings that workers and the server's other threads look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// Rises with each change.
    pub(crate) version: u32,
    pub(crate) control: ControlConfig,
    pub(crate) steal: bool,
    pub(crate) epoch: Duration,
    pub(crate) slice_bytes: u64,
    pub(crate) connections_max: u64,
    /// Zero: never.
    pub(crate) idle_timeout: Duration,
    pub(crate) stall_timeout: Duration,
    pub(crate) rate_min: u64,
    pub(crate) value_bytes_max: u64,
    pub(crate) buffer_bytes_max: u64,
    pub(crate) receive_memory_bytes: u64,
    pub(crate) detail_prefixes_max: u64,
    pub(crate) stop_timeout: Duration,
    pub(crate) handshakes_max: u64,
    pub(crate) handshake_timeout: Duration,
    pub(crate) logins_waiting_max: u64,
    pub(crate) sample_one_in: u64,
    /// The pause of Redis' clients under way.
    pub(crate) pause: Option<Pause>,
}

/// Bytes reserved for the longest reply composed at once: a copied value and the line before it.
const REPLY_BYTES_MAX: u64 = 20 << 10;

impl Tuning {
    /// The settings at the start of a server that takes `receive_memory_bytes` for values that are still arriving.
    pub(crate) fn of(config: &ServerConfig, receive_memory_bytes: u64) -> Self {
        let tls = config.tls.as_ref();
        Self {
            version: 0,
            control: config.control,
            steal: config.steal,
            epoch: config.epoch,
            slice_bytes: config.slice_bytes as u64,
            connections_max: config.connections_max as u64,
            idle_timeout: config.idle_timeout.unwrap_or_default(),
            stall_timeout: config.stall_timeout,
            rate_min: config.rate_min,
            value_bytes_max: config.value_bytes_max,
            buffer_bytes_max: config.buffer_bytes_max as u64,
            receive_memory_bytes,
            detail_prefixes_max: config.detail_prefixes_max as u64,
            stop_timeout: config.stop_timeout,
            handshakes_max: tls.map_or(HANDSHAKES_MAX, |tls| tls.handshakes_max as u64),
            handshake_timeout: tls.map_or(HANDSHAKE_TIMEOUT, |tls| tls.handshake_timeout),
            logins_waiting_max: config.access.as_ref().map_or(LOGINS_MAX, |access| access.waiting_max as u64),
            sample_one_in: config.watch.sample_one_in.into(),
            pause: None,
        }
    }

    /// The options of the design of `choice`. A worker on standby polls its RX queue between slices: with few
    /// workers, too much of the server would otherwise serve only requests just above the threshold.
    pub(crate) fn options(&self, choice: DispatchChoice) -> Options {
        Options { handoff_workers: choice.handoff_workers, steal: self.steal, standby: Standby::Slices }
    }

    /// How long a large transfer waits for its client.
    pub(crate) fn terms(&self) -> Terms {
        Terms { wait_max: self.stall_timeout, rate_min: self.rate_min }
    }

    /// Bytes of composed replies after which they are sent before another request is executed. The next
    /// reply, however long, still fits the buffer.
    pub(crate) fn replies_bytes_max(&self) -> usize {
        self.slice_bytes.min(self.buffer_bytes_max.saturating_sub(REPLY_BYTES_MAX)) as usize
    }
}

/// Without TLS or users, these stand for nothing.
const HANDSHAKES_MAX: u64 = 256;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const LOGINS_MAX: u64 = 256;

/// All settings that can change, and the room that they have in this server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Values {
    pub(crate) tuning: Tuning,
    pub(crate) choice: DispatchChoice,
    pub(crate) memory_bytes: u64,
    pub(crate) slow_us: u64,
    pub(crate) log: LogLevel,
    pub(crate) room: Room,
}

/// What was laid out at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Room {
    /// Connections for which the queues have room.
    pub(crate) connections: u64,
    /// The largest value that buffers, or a segment on flash, have room for.
    pub(crate) value_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) has_tls: bool,
    pub(crate) has_users: bool,
}

/// Why a setting did not change; nothing has then.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingError {
    /// There is none of this name.
    #[error("there is no setting {0:?}; `minos ctl show` lists all")]
    Unknown(String),
    /// It does not change while the server runs, or not here.
    #[error("{name} cannot be set while the server runs: {why}")]
    Fixed {
        /// The setting.
        name: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The value is of no use.
    #[error("{name}: {why}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The reason.
        why: String,
    },
    /// The design cannot change now.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

impl Values {
    /// These values with `changes`, pairs of a name and a text.
    ///
    /// # Errors
    /// See [`SettingError`].
    pub(crate) fn with(mut self, changes: &[(&str, &str)]) -> Result<Self, SettingError> {
        for (name, text) in changes {
            table::set(&mut self, name, text)?;
        }
        Ok(self)
    }
}

/// A change that has been made.
pub(crate) struct Changed {
    /// Receives the version of the first plan of another design.
    pub(crate) published: Option<mpsc::Receiver<u64>>,
    /// The version of the plan with the new values.
    pub(crate) version: u64,
}

impl<M: Mode, I: Io> Shared<M, I> {
    /// The settings in force.
    pub(crate) fn values(&self) -> Values {
        let in_force = self.plan.in_force();
        Values {
            tuning: in_force.tuning,
            choice: in_force.choice,
            memory_bytes: self.store.memory_limit(),
            slow_us: self.watch.slow_us(),
            log: self.config.verbosity.log_level(),
            room: Room {
                connections: self
                    .queues
                    .first()
                    .map_or(0, |queue| (queue.arrivals.capacity() - 1 - self.config.links_max()) as u64),
                value_bytes: self.store.value_bytes_room(),
                memory_bytes: self.store.memory_bytes(),
                has_tls: self.config.tls.is_some(),
                has_users: self.config.access.is_some(),
            },
        }
    }

    /// Changes settings: all of `changes`, or nothing. Waits for nobody, so that a worker may call it.
    ///
    /// # Errors
    /// See [`SettingError`].
    pub(crate) fn change(&self, changes: &[(&str, &str)]) -> Result<Changed, SettingError> {
        // One change at a time; no request takes this lock.
        let mut changes_so_far = self.settings_changes.lock();
        let old = self.values();
        let mut new = old.with(changes)?;
        let published = if new.choice == old.choice { None } else { Some(self.begin_switch(&new)?) };
        // There is room for both, as was checked.
        if new.memory_bytes != old.memory_bytes {
            let _ = self.store.set_memory_limit(new.memory_bytes);
        }
        if new.tuning.value_bytes_max != old.tuning.value_bytes_max {
            let _ = self.store.set_value_bytes_max(new.tuning.value_bytes_max);
            self.native.iter().for_each(|native| native.core.set_value_bytes_max(new.tuning.value_bytes_max));
        }
        self.watch.set_slow_us(new.slow_us);
        if new.log != old.log {
            self.config.verbosity.set_log_level(new.log);
        }
        self.receiving.set_bytes_max(new.tuning.receive_memory_bytes);
        self.prefixes.set_max(new.tuning.detail_prefixes_max as usize);
        self.checks.set_waiting_max(new.tuning.logins_waiting_max as usize);
        new.tuning.version = old.tuning.version.wrapping_add(1);
        let version = self.plan.tune(new.tuning);
        self.mailbox.wake();
        self.wake_all();
        table::each_difference(&old, &new, |name, before, after| {
            *changes_so_far += 1;
            tracing::info!(setting = name, before, after, "a setting has changed");
        });
        Ok(Changed { published, version })
    }

    /// Asks the control thread for another design; returns what receives the version of its first plan.
    pub(crate) fn begin_switch(&self, values: &Values) -> Result<mpsc::Receiver<u64>, SwitchError> {
        owned::check_design::<M>(values.choice.dispatch)?;
        let policy = policy(values.choice, &values.tuning)?;
        let (published, answer) = mpsc::channel();
        self.mailbox.put(Switch { choice: values.choice, policy, published })?;
        Ok(answer)
    }
}

/// The policy of `choice`.
///
/// # Errors
/// Only the simulator has the design, or the design needs more workers.
pub(crate) fn policy(choice: DispatchChoice, tuning: &Tuning) -> Result<Policy, InvalidOption> {
    let design = choice.dispatch;
    if !design.is_served() {
        return Err(InvalidOption::OnlySimulated(design));
    }
    Policy::new(design, tuning.control, tuning.options(choice)).map_err(InvalidOption::Control)
}

/// Checks the start values of all settings that are numbers.
///
/// # Errors
/// The first one that is out of its bounds.
pub(crate) fn check(config: &ServerConfig) -> Result<(), InvalidOption> {
    let receive_memory_bytes = config.receive_memory_bytes.unwrap_or(0);
    let room = Room {
        connections: u64::MAX,
        value_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        has_tls: true,
        has_users: true,
    };
    let values = Values {
        tuning: Tuning::of(config, receive_memory_bytes),
        choice: config.choice(),
        memory_bytes: u64::MAX,
        slow_us: config.watch.slow_us,
        log: LogLevel::Start,
        room,
    };
    table::check(&values)?;
    policy(values.choice, &values.tuning).map(drop)
}
