//! Vectors of gets of a store within a process: above a file, beside reads of that file by fio in the same round, and
//! above a modelled device.

use std::{fs, path::Path, process::Command};

use super::{
    Extent,
    device::fio,
    machine::{Disk, number},
    sheet::{Figure, Sheet, columns},
};
use crate::measure::{driver, report::Report};

/// Keys of a vector, all of which are in flight.
const WIDTHS: [u32; 2] = [32, 64];
const VALUE_BYTES: u64 = 1024;
/// Bytes of the items to those of other parts: they are stored before each measurement.
const SHARE: u64 = 4;
/// The same in memory.
const MODELLED_KEYS: u64 = 100_000;
const MODELLED_WIDTHS: [u32; 4] = [1, 8, 32, 64];
const FIGURES: &[Figure] = &[
    Figure { name: "reads/s", decimals: 0 },
    Figure { name: "CPU us a read", decimals: 2 },
    Figure { name: "KiB a read", decimals: 2 },
];

pub(super) fn measure(program: &Path, extent: &Extent, disk: &Disk) -> anyhow::Result<Report> {
    let keys = extent.keys(VALUE_BYTES) / SHARE;
    let mut report = Report::new(
        "Vectors of gets within a process",
        &format!(
            "{keys} items of {VALUE_BYTES} bytes, all on flash; one thread gets vector after vector, CPU with the \
             log's upkeep. fio reads the same file by 4 KiB, as many at a time, Minos less of a record that lies on two \
             pages."
        ),
        &columns(FIGURES),
    );
    let file = disk.file("vectors");
    let target = format!("tier:{file}");
    for width in WIDTHS {
        let mut sheet = Sheet::new(&format!("width {width}"), FIGURES, &["fio", "Minos"]);
        for _ in 0..extent.rounds {
            // It makes the file that fio reads.
            sheet.push(1, &ours(program, extent, &target, (keys, width))?);
            let of_file = Extent { mib: fs::metadata(&file)?.len() >> 20, ..extent.clone() };
            let [reads, cpu_us] = fio(&of_file, &file, (width, width))?;
            sheet.push(0, &[reads, cpu_us, 4.0]);
        }
        sheet.add_to(&mut report);
    }
    disk.remove("vectors");
    Ok(report)
}

/// The same store above memory with the service times of SoCC'12's device.
pub(super) fn modelled(program: &Path, extent: &Extent) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Vectors of gets above a modelled device",
        &format!(
            "{MODELLED_KEYS} items of {VALUE_BYTES} bytes within a process, one thread; a block of 512 bytes \
             takes 10 us, 1.8 M a second, 4 engines."
        ),
        &columns(FIGURES),
    );
    let names = MODELLED_WIDTHS.map(|width| format!("width {width}"));
    let mut sheet = Sheet::new("one vector at a time", FIGURES, &names.each_ref().map(String::as_str));
    for _ in 0..extent.rounds {
        for (contestant, width) in MODELLED_WIDTHS.into_iter().enumerate() {
            sheet.push(contestant, &ours(program, extent, "tier:memory", (MODELLED_KEYS, width))?);
        }
    }
    sheet.add_to(&mut report);
    Ok(report)
}

fn ours(
    program: &Path,
    extent: &Extent,
    target: &str,
    (keys, width): (u64, u32),
) -> anyhow::Result<[f64; 3]> {
    let mut command = Command::new(program);
    command.args(["bench", "--json", "--device-write", "--target", target]);
    command.args(["--keys", &keys.to_string(), "--block", &VALUE_BYTES.to_string()]);
    command.args(["--width", &width.to_string(), "--get-ratio", "1"]);
    command.args(["--warmup", "300ms", "--duration", &format!("{}ms", extent.millis)]);
    let result = driver::json(command)?;
    let of = |name| number(&result, &[name]);
    Ok([of("keys_per_s"), of("cpu_us_per_key"), of("read_bytes_per_key") / 1024.0])
}
