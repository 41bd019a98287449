//! Small requests that hit memory, beside reads of cold items.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use minos_testkit::Client;

use super::{
    Extent, VALUE_BYTES,
    client::Loader,
    cold::LOAD_BYTES_PER_S,
    machine::{Disk, Items, bench_command, number},
    sheet::{Figure, Sheet, columns},
};
use crate::measure::{
    contestants::{self, Contestant},
    driver::{self, Measurement, Pace, WARMUP_MS},
    report::Report,
};

/// Small requests a second.
const HOT_RATE: &str = "10k";
/// Other keys a second.
const COLD_RATE: u32 = 20_000;
/// Hot items have shorter keys than cold ones.
const HOT: Items = Items { first: 0, keys: 10_000, key_bytes: 12, value_bytes: 500 };
/// Items of the cold ones' size that stay in memory.
const WARM_KEYS: u64 = 1000;
const FIGURES: &[Figure] = &[
    Figure { name: "p50 us", decimals: 0 },
    Figure { name: "p99 us", decimals: 0 },
    Figure { name: "cold keys/s", decimals: 0 },
    Figure { name: "read by small workers", decimals: 0 },
];
const CASES: [(&str, Option<(Other, u32)>); 5] = [
    ("quiet", None),
    ("beside cold keys", Some((Other::Cold, 1))),
    ("beside cold keys in eights", Some((Other::Cold, 8))),
    ("beside as many from memory", Some((Other::Warm, 1))),
    ("beside as many from memory in eights", Some((Other::Warm, 8))),
];

/// The items that other clients read.
#[derive(Clone, Copy)]
enum Other {
    Cold,
    Warm,
}

/// Clients beside those that are measured; they end when dropped.
struct Clients(Child);

impl Drop for Clients {
    fn drop(&mut self) {
        // Both calls fail only for a process that has ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Keys read from flash so far, and those that small workers read.
#[derive(Clone, Copy)]
struct Reads {
    at: Instant,
    keys: u64,
    by_small: u64,
}

pub(super) fn measure(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Report> {
    let flash = format!("{}:{}m", disk.file("beside"), extent.file_mib());
    let options = ["--workers", "2", "--poll", "sleep"];
    let server = contestants::minos_above_flash(program, ("0,1", extent.memory_mib()), &flash, &options)?;
    let cold = Items::new(extent.keys(VALUE_BYTES), VALUE_BYTES);
    for items in [cold, Items { keys: WARM_KEYS, key_bytes: 14, ..cold }, HOT] {
        Loader::new(&server, items)?.store(LOAD_BYTES_PER_S)?;
    }
    let workloads = Workloads {
        hot: disk.workload("hot", &HOT, 1.0)?,
        cold: disk.workload("cold", &cold, 1.0)?,
        warm: disk.workload("warm", &Items { keys: WARM_KEYS, key_bytes: 14, ..cold }, 1.0)?,
    };
    let mut sheet = Sheet::new("small GETs", FIGURES, &CASES.map(|case| case.0));
    for round in 0..extent.rounds {
        for (number, (_, other)) in CASES.iter().enumerate() {
            let values = workloads.once(program, (extent, round), &server, *other)?;
            sheet.push(number, &values);
        }
    }
    let mut report = Report::new(
        "Small requests beside cold reads",
        &format!(
            "{HOT_RATE} GETs of {} bytes a second from memory, alone and beside {COLD_RATE} keys a second with \
             {VALUE_BYTES} bytes, open loop; two workers on both processors, which they share with the drivers (`--pace \
             due`). Ratios are to quiet.",
            HOT.value_bytes
        ),
        &columns(FIGURES),
    );
    sheet.add_to(&mut report);
    drop(server);
    disk.remove("beside");
    Ok(report)
}

struct Workloads {
    hot: String,
    cold: String,
    warm: String,
}

impl Workloads {
    /// One measurement: the figures of [`FIGURES`].
    fn once(
        &self,
        program: &Path,
        (extent, draw): (&Extent, u32),
        server: &Contestant,
        other: Option<(Other, u32)>,
    ) -> anyhow::Result<[f64; 4]> {
        let _clients = other.map(|other| self.clients(program, extent, server, other)).transpose()?;
        // They connect, and the server plans for them.
        thread::sleep(Duration::from_millis(u64::from(extent.millis / 4)));
        let before = Reads::of(server)?;
        let measurement = Measurement {
            target: &server.target(),
            server_pid: server.pid(),
            threads: driver::ON_BOTH,
            pace: Pace::Due,
            drain: "3s",
            warmup_ms: WARMUP_MS,
            millis: extent.millis,
            draw,
            arguments: &["--workload", &self.hot, "--rate", HOT_RATE],
        };
        let result = measurement.run(program)?;
        ensure!(result["errors"] == 0 && result["lost"] == 0, "small GETs failed: {result}");
        let after = Reads::of(server)?;
        let small = |name| number(&result, &["latency_us", "small", name]);
        let seconds = (after.at - before.at).as_secs_f64();
        let cold_per_s = (after.keys - before.keys) as f64 / seconds;
        Ok([small("p50"), small("p99"), cold_per_s, (after.by_small - before.by_small) as f64])
    }

    /// Starts the other clients, which read for longer than a measurement takes.
    fn clients(
        &self,
        program: &Path,
        extent: &Extent,
        server: &Contestant,
        (other, width): (Other, u32),
    ) -> anyhow::Result<Clients> {
        let workload = match other {
            Other::Cold => &self.cold,
            Other::Warm => &self.warm,
        };
        let (rate, width) = ((COLD_RATE / width).to_string(), width.to_string());
        let arguments = ["--workload", workload, "--rate", &rate, "--multiget", &width, "--pace", "due"];
        let mut command: Command = bench_command(program, server, extent.millis * 4 + 10_000, &arguments);
        Ok(Clients(command.env("RUST_LOG", "warn").stdout(Stdio::null()).spawn()?))
    }
}

impl Reads {
    fn of(server: &Contestant) -> anyhow::Result<Self> {
        let stats = Client::connect(server.address())?.stats("minos")?;
        let sum = |counter: &str| {
            let of_worker = stats.iter().filter(|(name, _)| name.ends_with(counter));
            of_worker.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
        };
        Ok(Self { at: Instant::now(), keys: sum(":flash_keys"), by_small: sum(":flash_keys_small") })
    }
}
