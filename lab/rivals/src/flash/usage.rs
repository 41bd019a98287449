//! What this process has used so far.

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use std::{fs, time::Instant};

/// Counts at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) at: Instant,
    /// Processor time of all threads, in seconds.
    pub(super) processor_s: f64,
    /// Bytes read from devices.
    pub(super) read_bytes: u64,
    /// Bytes written to devices, less those that were removed before.
    pub(super) written_bytes: u64,
}

impl Usage {
    pub(super) fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/io").context("/proc/self/io")?;
        let count = |name| field(&text, name).with_context(|| format!("/proc/self/io has no {name}"));
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Ok(Self {
            at: Instant::now(),
            processor_s: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            read_bytes: count("read_bytes")?,
            written_bytes: count("write_bytes")?.saturating_sub(count("cancelled_write_bytes")?),
        })
    }
}

/// Most memory of this process so far, its program included, the kernel's pages of files not.
pub(super) fn peak_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    Ok(field(&text, "VmHWM").context("/proc/self/status has no VmHWM")? * 1024)
}

/// The number after `name:` at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "cancelled_write_bytes: 3\nwrite_bytes: 42\nVmHWM:\t 7 kB\n";
        assert_eq!(field(text, "write_bytes"), Some(42));
        assert_eq!(field(text, "VmHWM"), Some(7));
        assert_eq!(field(text, "write"), None);
    }

    #[test]
    fn usage_rises() {
        let before = Usage::now().expect("Linux");
        let sum: u64 = (0..10_000_000).map(std::hint::black_box).sum();
        let after = Usage::now().expect("Linux");
        assert!(sum > 0 && after.processor_s > before.processor_s && after.at > before.at);
        assert!(peak_bytes().expect("Linux") > 1 << 16);
    }
}
