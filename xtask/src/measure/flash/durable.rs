//! Stores that are acknowledged when a power loss cannot undo them, beside fio's write and fdatasync.

use std::path::Path;

use super::{
    Extent, VALUE_BYTES,
    device::{fio_writes, make},
    machine::{Disk, Items, bench, number},
    sheet::{Figure, Sheet, columns},
};
use crate::measure::{contestants, report::Report};

/// Writes a second: below what the disk can flush one by one.
const RATES: [u32; 2] = [200, 500];
/// Connections, and threads of fio.
const WRITERS: u32 = 10;
const FIGURES: &[Figure] = &[Figure { name: "p99 us", decimals: 0 }];
/// A store neither evicts nor fills its device here.
const KEYS: u64 = 10_000;

pub(super) fn measure(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Report> {
    let flash = format!("{}:{}m", disk.file("durable"), extent.mib);
    let options = ["--workers", "1", "--engine", "store", "--durability", "flush"];
    let server = contestants::minos_above_flash(program, ("0", extent.memory_mib()), &flash, &options)?;
    let workload = disk.workload("sets", &Items::new(KEYS, VALUE_BYTES), 0.0)?;
    let mut report = Report::new(
        "Durable stores of 4 KiB",
        &format!(
            "Open loop. SETs with `--durability flush` on {WRITERS} connections, Poisson arrivals; of fio's {WRITERS} threads, \
             which write evenly, the 99th percentiles of a write and its fdatasync are added."
        ),
        &columns(FIGURES),
    );
    let file = disk.file("writes");
    make(program, extent, &file)?;
    for rate in RATES {
        let mut sheet = Sheet::new(&format!("{rate} a second"), FIGURES, &["fio", "Minos"]);
        for _ in 0..extent.rounds {
            let [write, sync] = fio_writes(extent, &file, (rate, WRITERS))?;
            sheet.push(0, &[write + sync]);
            let (rate, writers) = (rate.to_string(), WRITERS.to_string());
            let arguments = ["--workload", &workload, "--rate", &rate, "--connections", &writers];
            let result = bench(program, &server, extent.millis, &arguments)?;
            anyhow::ensure!(result["errors"] == 0, "{} SETs failed", result["errors"]);
            sheet.push(1, &[number(&result, &["latency_us", "all", "p99"])]);
        }
        sheet.add_to(&mut report);
    }
    disk.remove("writes");
    Ok(report)
}
