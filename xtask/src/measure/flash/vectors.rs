//! Vectors of gets of a store above one file, within a process, and reads of that file by fio in the same round.

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
             log's upkeep. fio reads the same file by 4 KiB, as many at a time; some records lie on two pages."
        ),
        &columns(FIGURES),
    );
    let file = disk.file("vectors");
    for width in WIDTHS {
        let mut sheet = Sheet::new(&format!("width {width}"), FIGURES, &["fio", "Minos"]);
        for _ in 0..extent.rounds {
            // It makes the file that fio reads.
            sheet.push(1, &ours(program, extent, &file, (keys, width))?);
            let of_file = Extent { mib: fs::metadata(&file)?.len() >> 20, ..extent.clone() };
            let [reads, cpu_us] = fio(&of_file, &file, (width, width))?;
            sheet.push(0, &[reads, cpu_us, 4.0]);
        }
        sheet.add_to(&mut report);
    }
    disk.remove("vectors");
    Ok(report)
}

fn ours(program: &Path, extent: &Extent, file: &str, (keys, width): (u64, u32)) -> anyhow::Result<[f64; 3]> {
    let mut command = Command::new(program);
    command.args(["bench", "--json", "--device-write", "--target", &format!("tier:{file}")]);
    command.args(["--keys", &keys.to_string(), "--block", &VALUE_BYTES.to_string()]);
    command.args(["--width", &width.to_string(), "--get-ratio", "1"]);
    command.args(["--warmup", "300ms", "--duration", &format!("{}ms", extent.millis)]);
    let result = driver::json(command)?;
    let of = |name| number(&result, &[name]);
    Ok([of("keys_per_s"), of("cpu_us_per_key"), of("read_bytes_per_key") / 1024.0])
}
