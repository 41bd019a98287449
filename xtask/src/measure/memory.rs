//! Memory of an item, all overheads included.

use std::fs;

use super::{
    Bench,
    contestants::{self, Contestant},
    report::Report,
};

const ITEMS: u64 = 1_000_000;
const SHAPES: [(u32, u32); 3] = [(8, 8), (16, 64), (128, 1024)];

/// Loads items of three shapes into each server, which is restarted for each shape.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Memory an item",
        "Measured. Growth of the server's resident memory for each of a million items, in bytes. `cargo xtask measure memory`",
        &["key + value", "server", "bytes an item", "overhead", "ratio to Minos"],
    );
    for (key_bytes, value_bytes) in SHAPES {
        let mut ours = None;
        let start: [fn(&Bench) -> anyhow::Result<Contestant>; 3] = [
            // As a store: a cache allocates segments for its logs before the first item.
            |bench| {
                contestants::minos("Minos", &bench.program, "0", &["--workers", "1", "--engine", "store"])
            },
            |_| contestants::memcached("0", 1),
            |_| contestants::redis("0"),
        ];
        for start in start {
            let contestant = start(bench)?;
            let bytes = bytes_an_item(bench, &contestant, key_bytes, value_bytes)?;
            let ours = *ours.get_or_insert(bytes);
            report.rows.push(vec![
                format!("{key_bytes} + {value_bytes}"),
                contestant.name.to_owned(),
                format!("{bytes:.1}"),
                format!("{:.1}", bytes - f64::from(key_bytes + value_bytes)),
                format!("{:.2}", bytes / ours),
            ]);
        }
    }
    Ok(report)
}

fn bytes_an_item(
    bench: &Bench,
    contestant: &Contestant,
    key_bytes: u32,
    value_bytes: u32,
) -> anyhow::Result<f64> {
    let file = std::env::temp_dir().join(format!("minos-measure-{}.toml", std::process::id()));
    let path = file.display().to_string();
    fs::write(
        &file,
        format!(
            "[[stream]]\n[[stream.group]]\nkeys = {ITEMS}\nkey_bytes = {key_bytes}\n\
             value_bytes = {{ min = {value_bytes}, max = {value_bytes} }}\npopularity = \"uniform\"\n"
        ),
    )?;
    let before = contestant.resident_bytes()?;
    let loaded = bench.load(contestant, &["--workload", &path]);
    fs::remove_file(&file)?;
    loaded?;
    Ok((contestant.resident_bytes()? - before) as f64 / ITEMS as f64)
}
