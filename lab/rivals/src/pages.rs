//! Pages: reserving huge ones for the time of a run, and reporting those that the process got.

use anyhow::{Context, ensure};
use std::fs;

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
const PAGE_BYTES: u64 = 2 << 20;

/// Huge pages, reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    before: u64,
}

impl Reserved {
    /// Reserves pages of 2 MiB for `bytes`, in addition to those already reserved.
    ///
    /// # Errors
    /// Permission is missing, or there is not enough contiguous memory.
    pub(crate) fn reserve(bytes: u64) -> anyhow::Result<Self> {
        let before = read()?;
        let reserved = Self { before };
        let wanted = before + bytes.div_ceil(PAGE_BYTES);
        write(wanted)?;
        let got = read()?;
        ensure!(got >= wanted, "only {got} of {wanted} huge pages could be reserved");
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Err(error) = write(self.before) {
            eprintln!("{error:#}");
        }
    }
}

fn read() -> anyhow::Result<u64> {
    fs::read_to_string(RESERVED)?.trim().parse().context(RESERVED)
}

fn write(pages: u64) -> anyhow::Result<()> {
    fs::write(RESERVED, pages.to_string()).context(RESERVED)
}

/// The memory of this process, and its share in transparent and reserved huge pages, in MiB, as text.
pub(crate) fn in_use() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("smaps_rollup")?;
    let mib = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).map_or(0, |kib: u64| kib / 1024)
    };
    let (all, transparent, reserved) = (mib("Rss:"), mib("AnonHugePages:"), mib("Private_Hugetlb:"));
    Ok(format!(
        "{} MiB, of which {transparent} MiB in transparent and {reserved} MiB in reserved huge pages",
        all + reserved
    ))
}
