//! Items on flash, beside memcached's extstore and fio on the same disk.
//!
//! Each part is a table: the device layer, vectors of gets within a process, cold reads over the native protocol, a
//! `get` of 64 cold keys, small requests beside cold reads, items found again, the index and recovery, idle servers,
//! durable stores, and a long run over time.

mod beside;
mod client;
mod cold;
mod device;
mod durable;
mod machine;
mod recovery;
mod run;
mod served;
mod sheet;
mod vectors;

use std::path::{Path, PathBuf};

use super::report::Report;
use machine::Disk;

/// The parts, in the order in which they are measured.
pub(super) const PARTS: [&str; 8] =
    ["device", "vectors", "served", "widths", "cold", "beside", "recovery", "durable"];

/// Percent of the items' bytes that fit into memory.
const MEMORY_PERCENT: u64 = 5;
/// Bytes of a value, unless stated.
const VALUE_BYTES: u64 = 4096;
/// Bytes of a key.
const KEY_BYTES: usize = 16;

/// The extent of the measurement.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub(super) rounds: u32,
    /// Milliseconds of each measurement.
    pub(super) millis: u32,
    /// MiB of the items.
    pub(super) mib: u64,
    /// The folder of the files, on the disk that is measured.
    pub(super) folder: PathBuf,
    /// Some of [`PARTS`]; none are all.
    pub(super) parts: Vec<String>,
}

impl Extent {
    /// Items with values of so many bytes.
    fn keys(&self, value_bytes: u64) -> u64 {
        (self.mib << 20) / value_bytes
    }

    /// Bytes of a server's file, in MiB: half is free.
    fn file_mib(&self) -> u64 {
        (self.mib * 2).max(FILE_MIB_MIN)
    }

    /// Memory of a server, in MiB: the given share of the items, but enough to start with.
    fn memory_mib(&self) -> u64 {
        (self.mib * MEMORY_PERCENT / 100).max(MEMORY_MIB_MIN)
    }
}

/// The least memory of a server.
const MEMORY_MIB_MIN: u64 = 32;
/// The least size of a server's file: extstore's pages have 64 MiB.
const FILE_MIB_MIN: u64 = 512;

/// Takes the measurements; returns the text of the page.
pub(super) fn measure(program: &Path, extent: &Extent) -> anyhow::Result<String> {
    let disk = Disk::at(&extent.folder)?;
    let mut text = head(extent);
    for part in
        PARTS.iter().filter(|part| extent.parts.is_empty() || extent.parts.iter().any(|it| it == *part))
    {
        let sections: Vec<Report> = match *part {
            "device" => vec![device::measure(program, extent, &disk)?],
            "vectors" => vec![vectors::measure(program, extent, &disk)?],
            "served" => vec![served::beside_fio(program, extent, &disk)?],
            "widths" => {
                vec![served::widths(program, extent, &disk)?, vectors::modelled(program, extent)?]
            }
            "cold" => cold::measure(program, extent, &disk)?,
            "beside" => vec![beside::measure(program, extent, &disk)?],
            "recovery" => vec![recovery::measure(program, extent, &disk)?],
            _ => vec![durable::measure(program, extent, &disk)?],
        };
        for section in sections {
            // A section's title is one level below the page's.
            let section = format!("\n#{section}");
            eprint!("{section}");
            text.push_str(&section);
        }
    }
    Ok(text)
}

/// A run over time beside extstore; returns the text of its page.
pub(super) fn run(program: &Path, extent: &Extent, seconds: u32, out: &Path) -> anyhow::Result<String> {
    run::measure(program, extent, seconds, out)
}

fn head(extent: &Extent) -> String {
    let Extent { rounds, millis, mib, parts, .. } = extent;
    let parts: String = parts.iter().map(|part| format!(" --parts {part}")).collect();
    format!(
        "# Flash\n\nMeasured on one disk, {mib} MiB of items, {rounds} interleaved rounds of {millis} ms, medians \
         (smallest..largest). Servers run alone on the first processor and the driver on the second, unless stated; \
         extstore is memcached's. `cargo xtask measure flash --rounds {rounds} --millis {millis} --mib {mib}{parts}`\n"
    )
}
