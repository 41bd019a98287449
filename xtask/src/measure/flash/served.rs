//! Cold reads over the native protocol: beside fio on the same file, and by the widths of requests and of reads.

use std::path::Path;

use anyhow::{Context as _, ensure};
use minos_testkit::Client;

use super::{
    Extent,
    client::Loader,
    cold::LOAD_BYTES_PER_S,
    device::fio,
    machine::{Disk, Items, bench_at, number},
    sheet::{Figure, Sheet, columns},
};
use crate::measure::{
    contestants::{self, Contestant},
    report::Report,
};

const VALUE_BYTES: u64 = 1024;
/// Keys that wait for an answer: enough that the device has work while others are on their way.
const OUTSTANDING: u32 = 128;
/// The same beside fio, which reads as many at a time and has none on its way to a client.
const DEPTHS: [u32; 2] = [OUTSTANDING, 2 * OUTSTANDING];
const GATHERED: &str = "1:1024";
const FIGURES: &[Figure] = &[
    Figure { name: "cold keys/s", decimals: 0 },
    Figure { name: "CPU us a key", decimals: 2 },
    Figure { name: "KiB a key", decimals: 2 },
    Figure { name: "keys a submit", decimals: 1 },
];

/// A kind of requests, and the way in which the server reads for them.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// Keys that wait for an answer.
    outstanding: u32,
    /// Keys of a request.
    keys: u32,
    /// The server's `--flash-width`.
    reads: &'static str,
}

const WIDE: Way =
    Way { name: "32 keys a request, gathered", outstanding: OUTSTANDING, keys: 32, reads: GATHERED };
const DIRECT: Way = Way { name: "32 keys a request, direct", reads: "direct", ..WIDE };
const SINGLE: Way =
    Way { name: "1 key a request, gathered", outstanding: OUTSTANDING, keys: 1, reads: GATHERED };
const ONE_BY_ONE: Way = Way { name: "1 key a request, read one by one", reads: "1:1", ..SINGLE };
const ALONE: Way = Way { name: "the same, one request at a time", outstanding: 1, ..ONE_BY_ONE };

/// Counts of a server so far.
#[derive(Clone, Copy, Debug)]
struct Counts {
    gets: f64,
    cold: f64,
    vectors: f64,
    bytes: f64,
}

pub(super) fn beside_fio(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Report> {
    let rig = Rig::loaded(program, extent, disk)?;
    let sheets = DEPTHS.into_iter().map(|depth| beside_fio_at(&rig, depth));
    let sheets = sheets.collect::<anyhow::Result<Vec<_>>>()?;
    let more = "fio reads the same file by 4 KiB, Minos less of a record that lies on two pages.";
    Ok(rig.report("Cold reads over the native protocol", more, &sheets))
}

/// The same with so many keys or reads at a time.
fn beside_fio_at(rig: &Rig<'_>, outstanding: u32) -> anyhow::Result<Sheet> {
    let ways = [WIDE, SINGLE].map(|way| Way { outstanding, ..way });
    let title = format!("{outstanding} at a time");
    let mut sheet = Sheet::new(&title, FIGURES, &["fio", WIDE.name, SINGLE.name]);
    for _ in 0..rig.extent.rounds {
        let [reads, cpu_us] = fio(rig.extent, &rig.file(), (outstanding, 1))?;
        sheet.push(0, &[reads, cpu_us, 4.0, 1.0]);
        for (way, contestant) in ways.iter().zip(1..) {
            sheet.push(contestant, &rig.once(way)?);
        }
    }
    Ok(sheet)
}

pub(super) fn widths(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Report> {
    let rig = Rig::loaded(program, extent, disk)?;
    let ways = [ONE_BY_ONE, ALONE, SINGLE, DIRECT, WIDE];
    let title = format!("{OUTSTANDING} at a time");
    let mut sheet = Sheet::new(&title, FIGURES, &ways.map(|way| way.name));
    for _ in 0..extent.rounds {
        for (contestant, way) in ways.iter().enumerate() {
            sheet.push(contestant, &rig.once(way)?);
        }
    }
    let more = "`--flash-width` 1:1 (one by one), direct, and the default (gathered).";
    Ok(rig.report("Widths of requests and of reads", more, &[sheet]))
}

/// A device with all items, and a server above it for each measurement, whose memory is empty at first.
struct Rig<'a> {
    program: &'a Path,
    extent: &'a Extent,
    disk: &'a Disk,
    workload: String,
}

impl<'a> Rig<'a> {
    fn loaded(program: &'a Path, extent: &'a Extent, disk: &'a Disk) -> anyhow::Result<Self> {
        let items = Items::new(extent.keys(VALUE_BYTES), VALUE_BYTES);
        let rig = Self { program, extent, disk, workload: disk.workload("served", &items, 1.0)? };
        let server = rig.server(GATHERED)?;
        let stored = Loader::new(&server, items)?.store(LOAD_BYTES_PER_S)?;
        ensure!(stored.refused == 0, "{} items were refused", stored.refused);
        server.stop()?;
        Ok(rig)
    }

    fn file(&self) -> String {
        self.disk.file("served.flash")
    }

    fn server(&self, reads: &str) -> anyhow::Result<Contestant> {
        let flash = format!("{}:{}m", self.file(), self.extent.file_mib());
        let mut options = vec!["--workers", "1", "--poll", "sleep", "--engine", "store"];
        options.extend(["--native", "127.0.0.1:0", "--flash-width", reads]);
        contestants::minos_above_flash(self.program, ("0", self.extent.memory_mib()), &flash, &options)
    }

    /// One measurement: the figures of [`FIGURES`]. All keys must be found.
    fn once(&self, way: &Way) -> anyhow::Result<[f64; FIGURES.len()]> {
        let mut server = self.server(way.reads)?;
        let target = server.native_target()?;
        let (requests, keys) = ((way.outstanding / way.keys).to_string(), way.keys.to_string());
        let mut arguments = vec!["--workload", &self.workload, "--rate", "max"];
        arguments.extend(["--connections", &requests, "--multiget", &keys]);
        let before = Counts::of(&server)?;
        let result = bench_at(self.program, (&target, server.pid()), self.extent.millis, &arguments)?;
        let after = Counts::of(&server)?;
        for kind in ["errors", "lost", "misses"] {
            ensure!(result[kind] == 0, "{}: {} {kind}", way.name, result[kind]);
        }
        let cold = after.cold - before.cold;
        let share = cold / (after.gets - before.gets);
        let least = 1.0 - self.extent.memory_mib() as f64 / self.extent.mib as f64;
        ensure!(share >= least, "{}: only {share:.2} of the keys were cold", way.name);
        let cpu_us = 1e6 / number(&result, &["operations_per_server_cpu_s"]) / share;
        let keys_a_submit = cold / (after.vectors - before.vectors);
        let kib = (after.bytes - before.bytes) / cold / 1024.0;
        Ok([number(&result, &["operations_per_s"]) * share, cpu_us, kib, keys_a_submit])
    }

    fn report(&self, title: &str, more: &str, sheets: &[Sheet]) -> Report {
        let note = format!(
            "Closed loop of so many keys, uniform among {} items of {VALUE_BYTES} bytes with {} MiB of memory, in \
             one datagram a request; all were found. Keys in memory do not count. {more}",
            self.extent.keys(VALUE_BYTES),
            self.extent.memory_mib()
        );
        let mut report = Report::new(title, &note, &columns(FIGURES));
        sheets.iter().for_each(|sheet| sheet.add_to(&mut report));
        self.disk.remove("served.flash");
        report
    }
}

impl Counts {
    fn of(server: &Contestant) -> anyhow::Result<Self> {
        let mut client = Client::connect(server.address())?;
        let (general, flash) = (client.stats("")?, client.stats("flash")?);
        let number = |name: &str| {
            let found = general.iter().chain(&flash).find(|(known, _)| known == name);
            Ok::<f64, anyhow::Error>(found.with_context(|| name.to_owned())?.1.parse()?)
        };
        Ok(Self {
            gets: number("cmd_get")?,
            cold: number("read_keys")?,
            vectors: number("read_vectors")?,
            bytes: number("read_bytes")?,
        })
    }
}
