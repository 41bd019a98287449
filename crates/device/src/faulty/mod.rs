//! A faulty twin of a device: it wraps another and fails as devices do, on purpose and from a seed.
//!
//! A [`Twin`] executes requests by itself, in any order, when lanes take their completions. With one thread a seed tells
//! everything that happens.

mod lane;
mod state;

use std::sync::Arc;

pub(crate) use lane::FaultyLane;
use parking_lot::Mutex;
pub(crate) use state::State;

// Circle: a faulty twin wraps a device and is the medium of another.
use crate::{Device, device::Medium};

/// The faults of a device. Shares of requests, from 0 to 1.
///
/// The first group is within a device's contract. The second breaks it: only checksums find those out, and a control in
/// a test.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Reads and writes that fail; some blocks of such a write may be stored.
    pub eio: f64,
    /// Reads and writes of which only a part, from the front, is transferred.
    pub short: f64,
    /// Requests that take long: up to `slow_polls_max` calls of `complete`.
    pub slow: f64,
    /// Longest time of a slow request, in calls of `complete`.
    pub slow_polls_max: u32,
    /// Flushes that fail: the writes in front of them stay volatile.
    pub flush_eio: f64,

    /// Writes of which only some blocks are stored, or half of one; reported as done.
    pub torn: f64,
    /// Writes that are not stored; reported as done.
    pub lost: f64,
    /// Writes that are stored elsewhere; reported as done.
    pub misdirected: f64,
    /// Reads of another place.
    pub misread: f64,
    /// Reads before which a bit of the blocks changes for good.
    pub rot: f64,
    /// Flushes that do nothing; reported as done.
    pub flush_ignored: f64,
}

impl Faults {
    /// No faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Every fault within the contract, often.
    pub fn permitted() -> Self {
        Self { eio: 0.05, short: 0.05, slow: 0.2, slow_polls_max: 8, flush_eio: 0.1, ..Self::none() }
    }
}

/// How often each fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the faults")]
pub struct FaultCounts {
    pub eio: u64,
    pub short: u64,
    pub slow: u64,
    pub flush_eio: u64,
    pub torn: u64,
    pub lost: u64,
    pub misdirected: u64,
    pub misread: u64,
    pub rot: u64,
    pub flush_ignored: u64,
    /// Power losses.
    pub power_losses: u64,
    /// Blocks that a power loss took back to an earlier state.
    pub blocks_taken_back: u64,
}

/// A faulty twin. It outlives the devices that it hands out, as a disk outlives the processes that open it.
#[derive(Clone, Debug)]
pub struct Twin {
    state: Arc<Mutex<State>>,
}

impl Twin {
    /// Wraps a device, which no one else must use from now on.
    pub fn over(device: Device, faults: Faults, seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(device, faults, seed))) }
    }

    /// The device with its faults. After a power loss the power is back, and what was lost is lost; devices and lanes
    /// handed out before that stay gone.
    pub fn device(&self) -> Device {
        let mut state = self.state.lock();
        state.turn_on();
        let geometry = *state.geometry();
        let medium = FaultyMedium { epoch: state.epoch(), state: Arc::clone(&self.state) };
        drop(state);
        Device::new(geometry, Medium::Faulty(medium), false)
    }

    /// Other faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// How often each fault has happened.
    pub fn counts(&self) -> FaultCounts {
        self.state.lock().counts
    }

    /// Blocks stored so far.
    pub fn blocks_stored(&self) -> u64 {
        self.state.lock().blocks_stored
    }

    /// The power fails now. Each block written since the last flush keeps any one of its states since then.
    pub fn cut_power(&self) {
        self.state.lock().cut_power();
    }

    /// The power fails when so many more blocks are stored, within a write perhaps.
    pub fn cut_power_after(&self, blocks: u64) {
        self.state.lock().cut_after(blocks);
    }

    /// The bytes as a read without faults would find them.
    pub fn peek(&self, offset: u64, bytes: usize) -> Vec<u8> {
        self.state.lock().peek(offset, bytes)
    }

    /// Changes bytes behind everyone's back, durably.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        self.state.lock().poke(offset, bytes);
    }
}

/// The state of a twin as the medium of a device.
#[derive(Clone, Debug)]
pub(crate) struct FaultyMedium {
    state: Arc<Mutex<State>>,
    /// The device is gone when the state's differs.
    epoch: u64,
}
