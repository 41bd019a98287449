//! Figures 7 and 8 of the vector paper: vectors of gets and puts of a store above a device, within this process
//! (SoCC'12 §4.2).

use anyhow::Result;
use minos_device::Device;

use super::{
    devices::Study,
    plots::{Corner, Evidence, Paper, Plot, Scale},
    table::{Cell, Table},
};
use crate::lab::bench::{
    device::modelled_in_blocks,
    tier::{StoreMeasured, StorePoint, StoreStudy, measure_store},
};

/// Threads of the paper's figures that two processors can still drive.
const THREADS: [usize; 4] = [1, 2, 4, 8];
const WIDTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const KEYS: u64 = 1 << 16;
/// Bytes of a value, as in the paper.
const VALUE_BYTES: usize = 512;
/// The unit of the log's reads, for which the modelled device takes the paper's time.
const PAGE_BYTES: u32 = 4096;
/// Room for all items and for compaction.
const DEVICE_BYTES: u64 = 128 << 20;

/// The figures on the device in memory.
pub(super) const MODELLED: [Plot; 3] = plots(["7", "7-puts", "8"], Evidence::Modelled);
/// The same on a file.
pub(super) const MEASURED: [Plot; 3] = plots(["7-file", "7-puts-file", "8-file"], Evidence::Measured);

const fn plots([gets, puts, latency]: [&'static str; 3], evidence: Evidence) -> [Plot; 3] {
    const fn by_threads(number: &'static str, y: &'static [&'static str]) -> Plot {
        Plot::new(Paper::Vector, number, ("threads", Scale::Log2), y).lines("width")
    }
    [
        by_threads(gets, &["gets a second"]).evidence(evidence),
        by_threads(puts, &["puts a second"]).evidence(evidence),
        Plot::new(Paper::Vector, latency, ("gets a second", Scale::Linear), &["median us of a vector"])
            .lines("threads")
            .legend_at(Corner::UpperLeft)
            .evidence(evidence),
    ]
}

pub(super) fn modelled(study: &Study<'_>) -> Result<Table> {
    let title = "512 bytes; a page takes 10 us, 1.8 M a second, 4 engines";
    table(study, &modelled_in_blocks(DEVICE_BYTES, PAGE_BYTES), title.to_owned())
}

pub(super) fn measured(study: &Study<'_>) -> Result<Table> {
    let device = study.file(DEVICE_BYTES)?;
    let title = format!("512 bytes in pages of a file by {}", device.facts().driver);
    table(study, &device, title)
}

fn table(study: &Study<'_>, device: &Device, title: String) -> Result<Table> {
    let cases: Vec<_> = THREADS.iter().flat_map(|&threads| WIDTHS.map(|width| (threads, width))).collect();
    let points =
        |writes: bool| cases.iter().map(move |&(threads, width)| StorePoint { threads, width, writes });
    let points: Vec<_> = points(false).chain(points(true)).collect();
    let items = StoreStudy { keys: KEYS, value_bytes: VALUE_BYTES, duration: study.window, seed: study.seed };
    let measured = measure_store(device, &items, &points)?;
    study.bar.tick();
    let (gets, puts) = measured.split_at(cases.len());
    let row = |((&(threads, width), gets), puts): ((&(usize, usize), &StoreMeasured), &StoreMeasured)| {
        let numbers = [threads as f64, width as f64, gets.keys_per_s, puts.keys_per_s, gets.p50_us];
        numbers.map(Cell::Number).to_vec()
    };
    let columns = vec!["threads", "width", "gets a second", "puts a second", "median us of a vector"];
    Ok(Table { title, columns, rows: cases.iter().zip(gets).zip(puts).map(row).collect() })
}
