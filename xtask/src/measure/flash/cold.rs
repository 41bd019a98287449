//! Items found again after a load, `get` of 64 cold keys on one connection, and idle servers: Minos beside
//! extstore.

use std::{path::Path, thread, time::Duration};

use super::{
    Extent, MEMORY_PERCENT, VALUE_BYTES,
    client::Loader,
    machine::{Disk, Items, Uncached, bench, number, processor_time},
    sheet::{Figure, Sheet, columns},
};
use crate::measure::{
    contestants::{self, Contestant},
    report::Report,
};

/// Bytes of values stored in a second.
pub(super) const LOAD_BYTES_PER_S: f64 = 50e6;
/// The same of items that were lost and are stored again.
const MEND_BYTES_PER_S: f64 = 10e6;
const MEND_PASSES: u32 = 4;
const IDLE_MILLIS_MIN: u32 = 1000;

const NAMES: [&str; 2] = ["extstore", "Minos"];
const LINES: &[Figure] =
    &[Figure { name: "keys/s", decimals: 0 }, Figure { name: "CPU us a key", decimals: 1 }];
const IDLE: &[Figure] = &[Figure { name: "CPU ms a second", decimals: 2 }];

pub(super) fn measure(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Vec<Report>> {
    let items = Items::new(extent.keys(VALUE_BYTES), VALUE_BYTES);
    let servers = pair(program, ("0", extent.memory_mib()), extent.file_mib(), disk)?;
    let found = found(extent, &servers, items)?;
    for server in &servers {
        Loader::new(server, items)?.mend(MEND_BYTES_PER_S, MEND_PASSES)?;
    }
    let _uncached = Uncached::keep(disk.file(NAMES[0]));
    let lines = lines(program, extent, disk, &servers, &items)?;
    Ok(vec![found, lines, idle(extent, &servers)?])
}

/// extstore and Minos with the same memory and files of the same size.
pub(super) fn pair(
    program: &Path,
    (cpus, memory_mib): (&str, u64),
    file_mib: u64,
    disk: &Disk,
) -> anyhow::Result<[Contestant; 2]> {
    let file = |name: &str| format!("{}:{file_mib}m", disk.file(name));
    let threads = cpus.split(',').count() as u32;
    let workers = threads.to_string();
    let options = ["--workers", &workers, "--poll", "sleep"];
    Ok([
        contestants::extstore((cpus, memory_mib), threads, &file("extstore"))?,
        contestants::minos_above_flash(program, (cpus, memory_mib), &file("minos"), &options)?,
    ])
}

/// Stores all items, and counts those that are found.
fn found(extent: &Extent, servers: &[Contestant; 2], items: Items) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Items found again",
        &format!(
            "{} items of {VALUE_BYTES} bytes stored at {} MB a second with {} MiB of memory ({MEMORY_PERCENT} %).",
            items.keys,
            LOAD_BYTES_PER_S / 1e6,
            extent.memory_mib()
        ),
        &["who", "MB/s", "refused", "found %"],
    );
    for server in servers {
        let mut loader = Loader::new(server, items)?;
        let stored = loader.store(LOAD_BYTES_PER_S)?;
        let found = 100.0 * (1.0 - loader.missing()?.len() as f64 / items.keys as f64);
        let rate = format!("{:.1}", stored.bytes_per_s / 1e6);
        report.rows.push(vec![
            server.name.to_owned(),
            rate,
            stored.refused.to_string(),
            format!("{found:.2}"),
        ]);
    }
    Ok(report)
}

fn lines(
    program: &Path,
    extent: &Extent,
    disk: &Disk,
    servers: &[Contestant; 2],
    items: &Items,
) -> anyhow::Result<Report> {
    let workload = disk.workload("lines", items, 1.0)?;
    let arguments = ["--workload", &workload, "--connections", "1", "--multiget", "64", "--pipeline", "1"];
    let mut sheet = Sheet::new("get of 64", LINES, &NAMES);
    for _ in 0..extent.rounds {
        for (contestant, server) in servers.iter().enumerate() {
            let result = bench(program, server, extent.millis, &arguments)?;
            let keys_per_s = number(&result, &["operations_per_s"]);
            let found_per_s = keys_per_s - number(&result, &["misses"]) / number(&result, &["duration_s"]);
            let cpu_us = 1e6 / number(&result, &["operations_per_server_cpu_s"]) * keys_per_s / found_per_s;
            sheet.push(contestant, &[found_per_s, cpu_us]);
        }
    }
    let mut report = Report::new(
        "A get of 64 keys",
        &format!(
            "Uniform among items of {VALUE_BYTES} bytes; one connection, one `get` at a time. Keys and CPU count those \
             that were found; what a load lost was stored again at {} MB a second. The system's cache of extstore's file \
             is emptied ten times a second; Minos bypasses it.",
            MEND_BYTES_PER_S / 1e6
        ),
        &columns(LINES),
    );
    sheet.add_to(&mut report);
    Ok(report)
}

fn idle(extent: &Extent, servers: &[Contestant; 2]) -> anyhow::Result<Report> {
    let mut sheet = Sheet::new("idle", IDLE, &NAMES);
    for _ in 0..extent.rounds {
        for (contestant, server) in servers.iter().enumerate() {
            let millis = extent.millis.max(IDLE_MILLIS_MIN);
            let before = processor_time(server.pid())?;
            thread::sleep(Duration::from_millis(millis.into()));
            let spent = processor_time(server.pid())?.saturating_sub(before);
            sheet.push(contestant, &[spent.as_secs_f64() * 1e6 / f64::from(millis)]);
        }
    }
    let mut report = Report::new("Idle servers", "The same servers without clients.", &columns(IDLE));
    sheet.add_to(&mut report);
    Ok(report)
}
