//! Random reads of one file by the device layer, and by fio in the same round.

use std::{path::Path, process::Command};

use anyhow::Context as _;
use serde_json::Value;

use super::{
    Extent,
    machine::{Disk, number},
    sheet::{Figure, Sheet, columns},
};
use crate::measure::{driver, report::Report};

/// Requests in flight, and the width of vectors.
const CASES: [(u32, u32); 4] = [(32, 1), (32, 16), (64, 1), (64, 32)];
const FIGURES: &[Figure] =
    &[Figure { name: "reads/s", decimals: 0 }, Figure { name: "CPU us a read", decimals: 2 }];
/// The name of fio's figure.
const P99: &str = "99.000000";

pub(super) fn measure(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Report> {
    let file = disk.file("device");
    let mut report = Report::new(
        "Reads of 4 KiB",
        "O_DIRECT by io_uring, buffers and file registered, one thread; ratios are to fio in the same round.",
        &columns(FIGURES),
    );
    make(program, extent, &file)?;
    for (depth, width) in CASES {
        let mut sheet = Sheet::new(&format!("depth {depth}, width {width}"), FIGURES, &["fio", "Minos"]);
        for round in 0..extent.rounds {
            for turn in 0..2 {
                // Each begins every second round.
                let contestant = (round as usize + turn) % 2;
                let values = match contestant {
                    0 => fio(extent, &file, (depth, width))?,
                    _ => ours(program, extent, &file, (depth, width))?,
                };
                sheet.push(contestant, &values);
            }
        }
        sheet.add_to(&mut report);
    }
    disk.remove("device");
    Ok(report)
}

/// Makes a file and writes all of it, so that later writes allocate nothing.
pub(super) fn make(program: &Path, extent: &Extent, file: &str) -> anyhow::Result<()> {
    ours(program, extent, file, CASES[0]).map(drop)
}

fn ours(program: &Path, extent: &Extent, file: &str, (depth, width): (u32, u32)) -> anyhow::Result<[f64; 2]> {
    let mut command = Command::new(program);
    command.args(["bench", "--json", "--must-register", "--target", &format!("device:{file}")]);
    command.args(["--device-size", &format!("{}m", extent.mib)]);
    command.args(["--depth", &depth.to_string(), "--width", &width.to_string()]);
    command.args(["--warmup", "300ms", "--duration", &format!("{}ms", extent.millis)]);
    let result = driver::json(command)?;
    let of_device = |name| number(&result, &["device", name]);
    Ok([of_device("iops"), of_device("cpu_us_per_request")])
}

/// Random reads of 4 KiB of the first bytes of `file` by fio, and their processor time in microseconds.
pub(super) fn fio(extent: &Extent, file: &str, (depth, width): (u32, u32)) -> anyhow::Result<[f64; 2]> {
    let mut command = fio_command(extent, file);
    command.arg("--bs=4k");
    command.args(["--rw=randread", "--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1"]);
    command.args([&format!("--iodepth={depth}"), "--ramp_time=300ms"]);
    if width > 1 {
        command.arg(format!("--iodepth_batch_submit={width}"));
        command.arg(format!("--iodepth_batch_complete_min={width}"));
        command.arg(format!("--iodepth_batch_complete_max={depth}"));
    }
    let job = fio_job(command)?;
    let share = (number(&job, &["usr_cpu"]) + number(&job, &["sys_cpu"])) / 100.0;
    let cpu_us = share * number(&job, &["job_runtime"]) * 1e3 / number(&job, &["read", "total_ios"]);
    Ok([number(&job, &["read", "iops"]), cpu_us])
}

/// fio on `file` for the time of a measurement.
fn fio_command(extent: &Extent, file: &str) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=job", "--direct=1", "--time_based", "--norandommap", "--randrepeat=0"]);
    command.args(["--output-format=json", &format!("--filename={file}")]);
    command.args([&format!("--size={}m", extent.mib), &format!("--runtime={}ms", extent.millis)]);
    command
}

fn fio_job(command: Command) -> anyhow::Result<Value> {
    let mut result = driver::json(command).context("fio, which Debian's package fio installs")?;
    Ok(result["jobs"][0].take())
}

/// 99th percentiles of a write of 4 KiB and of the fdatasync that follows it, in microseconds: so many a second, by so
/// many threads, each evenly, which begin at random moments. fio 3.33 crashes with Poisson arrivals on threads.
pub(super) fn fio_writes(
    extent: &Extent,
    file: &str,
    (rate, threads): (u32, u32),
) -> anyhow::Result<[f64; 2]> {
    let mut command = fio_command(extent, file);
    command.args(["--bs=4k", "--rw=randwrite", "--ioengine=psync", "--fdatasync=1", "--thread"]);
    command.args(["--group_reporting", "--startdelay=0ms-50ms", &format!("--numjobs={threads}")]);
    command.arg(format!("--rate_iops={}", rate / threads));
    let job = fio_job(command)?;
    let us = |ns: f64| ns / 1e3;
    let write = number(&job, &["write", "clat_ns", "percentile", P99]);
    Ok([us(write), us(number(&job, &["sync", "lat_ns", "percentile", P99]))])
}
