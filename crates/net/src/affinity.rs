//! Threads and processors: where threads may run, and how much time they took.

use std::{io, time::Duration};

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
/// The kernel's error, for instance in a sandbox that forbids it.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    bind_to(&[cpu])
}

/// Lets the calling thread run on `cpus` alone.
///
/// # Errors
/// A processor's number is not below [`CpuSet::MAX_CPU`]; or the kernel's error, for instance if none of them is online.
pub fn bind_to(cpus: &[usize]) -> io::Result<()> {
    if cpus.iter().any(|&cpu| cpu >= CpuSet::MAX_CPU) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Processor time this process has taken, in user mode and in the kernel.
pub fn processor_time() -> (Duration, Duration) {
    // SAFETY: all zeroes is a value of this plain structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to the structure and to nothing else.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return (Duration::ZERO, Duration::ZERO);
    }
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_no_machine_has_is_refused() {
        assert_eq!(pin_to(CpuSet::MAX_CPU).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(bind_to(&[0, usize::MAX]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
