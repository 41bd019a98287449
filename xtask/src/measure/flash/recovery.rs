//! The index of items on flash, and its recovery after `kill -9`.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use minos_testkit::Client;

use super::{
    Extent, KEY_BYTES,
    client::Loader,
    cold::LOAD_BYTES_PER_S,
    machine::{Disk, Items, wait_until},
};
use crate::measure::{
    Samples,
    contestants::{self, Contestant},
    report::{Report, cell},
};

/// Bytes of values.
const SIZES: [u64; 2] = [1024, 4096];
/// Longest time until nothing more moves to flash.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn measure(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Index and recovery",
        "On one processor. A cache is killed (SIGKILL) after a load and started again, once a round; the time is that of \
         its recovery, a GB that of keys and values found. The index counts when memory holds nothing else.",
        &["value bytes", "items found", "index bytes an item", "recovery s a GB"],
    );
    for value_bytes in SIZES {
        let items = Items::new(extent.keys(value_bytes), value_bytes);
        let start = || {
            let flash = format!("{}:{}m", disk.file("recovery"), extent.file_mib());
            let options = ["--workers", "1"];
            contestants::minos_above_flash(program, ("0", memory_mib(extent, &items)), &flash, &options)
        };
        let server = start()?;
        Loader::new(&server, items)?.store(LOAD_BYTES_PER_S)?;
        wait_until("items leave memory", PATIENCE, || {
            Ok(stat(&server, "flash", "flash_items_in_flight")? == 0)
        })?;
        let (mut index, mut recovery, mut found) =
            (Samples::default(), Samples::default(), Samples::default());
        let mut running = Some(server);
        for _ in 0..extent.rounds {
            // A dropped server is killed.
            drop(running.take());
            let server = start()?;
            let (records, seconds) = recovered(&server.log())?;
            let gb = records * (value_bytes + KEY_BYTES as u64) as f64 / 1e9;
            found.push(records);
            recovery.push(seconds / gb);
            index.push(stat(&server, "minos", "store_index_bytes")? as f64 / records);
            running = Some(server);
        }
        drop(running);
        disk.remove("recovery");
        let cells = [cell(&found, 0), cell(&index, 1), cell(&recovery, 3)];
        report.rows.push([value_bytes.to_string()].into_iter().chain(cells).collect());
    }
    Ok(report)
}

/// Memory with room for the index beside the share of the items.
fn memory_mib(extent: &Extent, items: &Items) -> u64 {
    extent.memory_mib() + ((items.keys * 32) >> 20)
}

fn stat(server: &Contestant, group: &str, name: &str) -> anyhow::Result<u64> {
    let stats = Client::connect(server.address())?.stats(group)?;
    let found = stats.into_iter().find(|(known, _)| known == name).with_context(|| name.to_owned())?;
    Ok(found.1.parse()?)
}

/// Records and seconds of a recovery, as the server logged them.
fn recovered(log: &str) -> anyhow::Result<(f64, f64)> {
    let field = |name: &str| {
        let value = plain(log).rsplit_once(&format!("{name}="))?.1.to_owned();
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse::<f64>().ok()
    };
    let both = field("records").zip(field("took_ms"));
    both.map(|(records, ms)| (records, ms / 1e3)).with_context(|| format!("no recovery in the log:\n{log}"))
}

/// Text without the colors of a terminal.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_is_read_from_the_log() {
        let log =
            "INFO \x1b[1m--flash /x\x1b[0m \x1b[3mrecords\x1b[0m\x1b[2m=\x1b[0m128 expired=1 took_ms=250\n";
        assert_eq!(recovered(log).unwrap(), (128.0, 0.25));
        assert!(recovered("listening").is_err());
    }
}
