//! Figures 4 to 6 of the vector paper: reads and writes of a device, one at a time and in vectors (SoCC'12 §4.1).

use std::{fs, path::Path, process, time::Duration};

use anyhow::Result;
use indicatif::ProgressBar;
use minos_device::{Device, FileOptions};

use super::{
    plots::{Corner, Evidence, Paper, Plot, Scale},
    table::{Cell, Table},
};
use crate::lab::bench::device::{Measured, Point, measure, modelled};

/// Threads of the paper's figures that two processors can still drive.
const THREADS: [usize; 4] = [1, 2, 4, 8];
const DEPTHS: [usize; 4] = [2, 8, 16, 32];
/// Bytes of a request: the paper's, and a page of the log on flash.
const MEMORY_REQUEST_BYTES: usize = 512;
const FILE_REQUEST_BYTES: usize = 4096;
const FILE_BYTES: u64 = 256 << 20;

/// The figures on the device in memory: 4 has reads, 5 writes, 6 both by processor time.
pub(super) const MODELLED: [Plot; 3] = plots(["4", "5", "6"], Evidence::Modelled);
/// The same on a file.
pub(super) const MEASURED: [Plot; 3] = plots(["4-file", "5-file", "6-file"], Evidence::Measured);

const fn plots([reads, writes, cores]: [&'static str; 3], evidence: Evidence) -> [Plot; 3] {
    const fn by_threads(number: &'static str, y: &'static [&'static str]) -> Plot {
        Plot::new(Paper::Vector, number, ("threads", Scale::Log2), y)
            .panels("depth")
            .y_called("requests a second")
            .legend_at(Corner::LowerRight)
    }
    [
        by_threads(reads, &["reads", "reads in vectors"]).evidence(evidence),
        by_threads(writes, &["writes", "writes in vectors"]).evidence(evidence),
        Plot::new(Paper::Vector, cores, ("depth", Scale::Log2), &COLUMNS_A_CORE)
            .panels("threads")
            .y_called("requests a second of processor time")
            .evidence(evidence),
    ]
}

const COLUMNS_A_CORE: [&str; 4] =
    ["reads a core", "reads in vectors a core", "writes a core", "writes in vectors a core"];

/// The parameters that the numbers depend on.
#[derive(Clone, Copy)]
pub(super) struct Study<'a> {
    /// Of each point.
    pub(super) window: Duration,
    pub(super) seed: u64,
    /// The folder of the figures, on whose disk a file is measured.
    pub(super) folder: &'a Path,
    pub(super) bar: &'a ProgressBar,
}

impl Study<'_> {
    pub(super) fn parameters(&self) -> String {
        format!("window {}ms; seed {}", self.window.as_millis(), self.seed)
    }

    pub(super) fn modelled(&self) -> Result<Table> {
        let title = "512 bytes; 10 us, 1.8 M a second, 4 engines; vectors of half the depth";
        Ok(Table { title: title.to_owned(), ..self.table(&modelled(None), MEMORY_REQUEST_BYTES)? })
    }

    pub(super) fn measured(&self) -> Result<Table> {
        let device = self.file(FILE_BYTES)?;
        let (facts, threads) = (device.facts(), std::thread::available_parallelism()?);
        let cache = facts.why_buffered.map_or(String::new(), |why| format!(", buffered: {why}"));
        let title = format!(
            "4096 bytes of a file by {}{cache}, {threads} processors; vectors of half the depth",
            facts.driver
        );
        Ok(Table { title, ..self.table(&device, FILE_REQUEST_BYTES)? })
    }

    /// A file that nobody else finds, in the folder of the figures.
    pub(super) fn file(&self, size_bytes: u64) -> Result<Device> {
        fs::create_dir_all(self.folder)?;
        let path = self.folder.join(format!("vector-{}.device", process::id()));
        let (size_bytes, prefill) = (Some(size_bytes), true);
        let options = FileOptions { size_bytes, create: true, prefill, ..FileOptions::default() };
        let device = Device::open(&path, &options)?;
        // Nobody needs its name, and nothing is left of an interrupted run.
        fs::remove_file(&path)?;
        Ok(device)
    }

    fn table(&self, device: &Device, request_bytes: usize) -> Result<Table> {
        let mut rows = Vec::new();
        for threads in THREADS {
            for depth in DEPTHS {
                let numbers = self.row(device, threads, depth, request_bytes)?;
                let row = [threads as f64, depth as f64].into_iter().chain(numbers);
                rows.push(row.map(Cell::Number).collect());
                self.bar.tick();
            }
        }
        let mut columns =
            vec!["threads", "depth", "reads", "reads in vectors", "writes", "writes in vectors"];
        columns.extend(COLUMNS_A_CORE);
        Ok(Table { title: String::new(), columns, rows })
    }

    /// Requests a second of reads and writes, one at a time and in vectors; and the same of processor time.
    fn row(&self, device: &Device, threads: usize, depth: usize, request_bytes: usize) -> Result<[f64; 8]> {
        let (duration, seed) = (self.window, self.seed);
        let mut row = [0.0; 8];
        for (at, (writes, width)) in
            [(false, 1), (false, depth / 2), (true, 1), (true, depth / 2)].into_iter().enumerate()
        {
            let point = Point { threads, depth, width, request_bytes, writes, duration, seed };
            let Measured { iops, iops_per_core } = measure(device, &point)?;
            (row[at], row[at + 4]) = (iops, iops_per_core);
        }
        Ok(row)
    }
}
