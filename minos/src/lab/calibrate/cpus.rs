//! Two processors for two threads.

use std::thread;

use anyhow::{Context, Result};
use minos_net::{allowed_cpus, pin_to};

/// Polls before a polling thread yields, if it has a processor of its own.
const LOOKS_BEFORE_YIELD: u32 = 10_000;

/// The processors of two threads that pass something to each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpus {
    first: Option<usize>,
    second: Option<usize>,
}

impl Cpus {
    /// The last two processors that this process may run on: interrupts and other programs prefer the first
    /// ones.
    pub(super) fn find() -> Self {
        let allowed = allowed_cpus();
        let mut last = allowed.iter().rev().copied();
        let second = last.next();
        Self { first: last.next().or(second), second }
    }

    pub(super) fn are_two(&self) -> bool {
        self.first != self.second
    }

    pub(super) fn pin_first(&self) -> Result<()> {
        pin(self.first)
    }

    pub(super) fn pin_second(&self) -> Result<()> {
        pin(self.second)
    }

    /// Polls until there is an answer.
    pub(super) fn poll<T>(&self, mut ask: impl FnMut() -> Option<T>) -> T {
        let patience = if self.are_two() { LOOKS_BEFORE_YIELD } else { 1 };
        let mut looks = 0;
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            looks += 1;
            if looks % patience == 0 {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

fn pin(cpu: Option<usize>) -> Result<()> {
    cpu.map_or(Ok(()), |cpu| pin_to(cpu).with_context(|| format!("processor {cpu}")))
}
