//! Pinning of threads to processors.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors this process may run on, in ascending order.
pub fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// Whatever the kernel answers, for instance in a sandbox that forbids it.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
