//! The operations of one thread, drawn before the measurement.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use minos_base::KeyHash;
use minos_engine::{Access, Get, Mode};
use minos_workload::{Op, OpKind, Ops, Workload};

use super::seat::Seat;

/// Most operations of a script; then it begins again.
const OPERATIONS_MAX: u64 = 1 << 22;

/// Operations that a thread does not execute in a second: twice what was ever seen. A script need not be longer than that.
const OPERATIONS_PER_SECOND: f64 = 5e7;

/// Fewest operations, so that a short script does not stay in the nearest cache.
const OPERATIONS_MIN: u64 = 1 << 15;

/// Operations for each item, so that even uniform draws hit nearly all items.
const OPERATIONS_PER_ITEM: u64 = 4;

const KEY_BYTES_MAX: usize = 256 << 20;

/// Draws in a row that may hit only other threads' keys.
const REDRAWS_MAX: u32 = 10_000;

/// The operations of a thread, burst by burst: first the GETs of a burst, then its PUTs.
pub(super) struct Script {
    gets: Keys,
    puts: Keys,
    value_bytes: Vec<u32>,
    /// GETs of each burst; the rest are PUTs.
    gets_in_burst: Vec<u16>,
    width: usize,
}

/// Keys one after another, each with its hash.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    hashes: Vec<KeyHash>,
}

/// A PUT, without the bytes of its value.
#[derive(Clone, Copy)]
pub(super) struct PutOf<'a> {
    pub(super) hash: KeyHash,
    pub(super) key: &'a [u8],
    pub(super) value_bytes: usize,
}

/// A script in executable form, without further look-ups.
pub(super) struct Lines<'a> {
    pub(super) gets: Vec<Get<'a>>,
    pub(super) puts: Vec<PutOf<'a>>,
    pub(super) gets_in_burst: &'a [u16],
    /// Operations of a burst.
    pub(super) width: usize,
}

impl Script {
    /// Draws a thread's script for so long a time, in bursts of `width`.
    ///
    /// # Errors
    /// There are requests other than GETs and SETs, values are too large, or no key belongs to this thread.
    pub(super) fn draw<M: Mode, A: Access>(
        seat: &Seat<'_, M, A>,
        workload: &Workload,
        time: Duration,
        width: usize,
    ) -> Result<Self> {
        let thread = seat.number;
        let ops = workload.ops(thread, seat.seats).with_context(|| {
            format!("--workload {}: inproc:// executes GETs and SETs of one stream only", workload.name())
        })?;
        let in_time = (OPERATIONS_PER_SECOND * time.as_secs_f64()) as u64;
        let most = (OPERATIONS_PER_ITEM * workload.item_count()).min(OPERATIONS_MAX).min(in_time);
        let bursts = most.max(OPERATIONS_MIN).div_ceil(width as u64);
        let mut drawer = Drawer { seat, workload, ops, key: Vec::new() };
        let mut script = Self {
            gets: Keys::default(),
            puts: Keys::default(),
            value_bytes: Vec::new(),
            gets_in_burst: Vec::new(),
            width,
        };
        for _ in 0..bursts {
            script.draw_burst(&mut drawer).with_context(|| format!("thread {thread}"))?;
            if script.gets.bytes.len() + script.puts.bytes.len() >= KEY_BYTES_MAX {
                break;
            }
        }
        Ok(script)
    }

    fn draw_burst<M: Mode, A: Access>(&mut self, drawer: &mut Drawer<'_, M, A>) -> Result<()> {
        let gets_before = self.gets.hashes.len();
        for _ in 0..self.width {
            let (op, hash) = drawer.draw()?;
            if op.kind == OpKind::Get {
                self.gets.push(hash, &drawer.key);
            } else {
                self.puts.push(hash, &drawer.key);
                self.value_bytes.push(u32::try_from(drawer.workload.value_bytes(op.item))?);
            }
        }
        self.gets_in_burst.push((self.gets.hashes.len() - gets_before) as u16);
        Ok(())
    }

    pub(super) fn lines(&self) -> Lines<'_> {
        let puts = self.puts.iter().zip(&self.value_bytes);
        Lines {
            gets: self.gets.iter().map(|(hash, key)| Get { hash, key }).collect(),
            puts: puts
                .map(|((hash, key), &value_bytes)| PutOf { hash, key, value_bytes: value_bytes as usize })
                .collect(),
            gets_in_burst: &self.gets_in_burst,
            width: self.width,
        }
    }
}

impl Keys {
    fn push(&mut self, hash: KeyHash, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        // KEY_BYTES_MAX keeps this within 32 bits.
        self.ends.push(self.bytes.len() as u32);
        self.hashes.push(hash);
    }

    fn iter(&self) -> impl Iterator<Item = (KeyHash, &[u8])> {
        let mut start = 0;
        self.hashes.iter().zip(&self.ends).map(move |(&hash, &end)| {
            let key = &self.bytes[start..end as usize];
            start = end as usize;
            (hash, key)
        })
    }
}

/// Draws operations that a seat may execute.
struct Drawer<'a, M: Mode, A: Access> {
    seat: &'a Seat<'a, M, A>,
    workload: &'a Workload,
    ops: Ops<'a>,
    /// The key of the operation drawn last.
    key: Vec<u8>,
}

impl<M: Mode, A: Access> Drawer<'_, M, A> {
    /// Draws again while the item belongs to another thread; the operation stays, and so does the mix.
    fn draw(&mut self) -> Result<(Op, KeyHash)> {
        let Some(mut op) = self.ops.next() else { bail!("the workload has ended") };
        for _ in 0..REDRAWS_MAX {
            self.key.clear();
            self.workload.write_key(op.item, &mut self.key);
            let hash = self.seat.engine.hash(&self.key);
            let is_own = if op.kind == OpKind::Get { self.seat.reads(hash) } else { self.seat.writes(hash) };
            if is_own {
                return Ok((op, hash));
            }
            op.item = self.ops.other_item();
        }
        bail!("it has hardly any of the keys that are asked for: fewer --threads or more --keys are needed")
    }
}

#[cfg(test)]
mod tests {
    use minos_engine::{Crcw, Crew, Erew, Store, StoreConfig, StoreMode};
    use minos_workload::Shape;

    use super::*;

    /// Draws the scripts of two threads, and passes them to `f` with their seats.
    fn draw_two<A: Access>(keys: u64, f: impl Fn(&Seat<'_, StoreMode, A>, &Script)) -> Result<()> {
        let workload =
            Workload::open("mica-tiny", &Shape { keys: Some(keys), ..Shape::default() }, 1).unwrap();
        let config = StoreConfig { partitions: Some(2), owners: 2, ..StoreConfig::new(4 << 20) };
        let engine = Store::create(&config).unwrap();
        (0..2).try_for_each(|number| {
            let seat = Seat { engine: &engine, number, seats: 2 };
            f(&seat, &Script::draw(&seat, &workload, Duration::ZERO, 10)?);
            Ok(())
        })
    }

    /// Asserts that the mix is as drawn, and that PUTs are the thread's own.
    fn assert_fits<A: Access>(seat: &Seat<'_, StoreMode, A>, script: &Script) {
        let lines = script.lines();
        assert!(lines.puts.iter().all(|put| seat.writes(put.hash) && put.value_bytes == 8));
        assert!(lines.gets.iter().all(|get| seat.reads(get.hash) && seat.engine.hash(get.key) == get.hash));
        let in_bursts: usize = lines.gets_in_burst.iter().map(|gets| usize::from(*gets)).sum();
        assert_eq!(in_bursts, lines.gets.len());
        assert_eq!(lines.gets_in_burst.len() * 10, lines.gets.len() + lines.puts.len());
        let share = lines.gets.len() as f64 / (lines.gets.len() + lines.puts.len()) as f64;
        assert!((share - 0.95).abs() < 0.01, "{share}");
    }

    #[test]
    fn a_thread_writes_its_own_keys_and_keeps_the_mix() {
        draw_two::<Erew>(1000, assert_fits).unwrap();
        draw_two::<Crew>(1000, |seat, script| {
            assert_fits(seat, script);
            assert!(script.lines().gets.iter().any(|get| !seat.writes(get.hash)), "it reads those of others");
        })
        .unwrap();
        draw_two::<Crcw>(1000, assert_fits).unwrap();
    }

    #[test]
    fn a_thread_without_keys_is_told_so() {
        let error = draw_two::<Erew>(1, |_, _| ()).unwrap_err();
        assert!(format!("{error:#}").contains("--threads"), "{error:#}");
    }
}
