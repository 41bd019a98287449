//! Memory of an item, all overheads included.

use std::fs;

use super::{
    Bench,
    contestants::{self, Contestant},
    report::Report,
};

/// Items of a server that grows.
const ITEMS: u64 = 1_000_000;
/// Memory of a cache that is full.
const CACHE_MIB: u32 = 256;
const SHAPES: [(u32, u32); 3] = [(8, 8), (16, 64), (128, 1024)];

/// Loads items of three shapes into each server, which is restarted for each shape.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Memory an item",
        &format!(
            "Measured. Bytes of resident memory an item. Full: caches with their defaults and {CACHE_MIB} MiB, to which at least half as \
             many items more than they hold were stored; the memory of the whole process, for each item that is left. Growing: \
             what the process grows by for each of a million items, of which none is evicted; Minos as a store (`--engine store`), \
             because a cache allocates its logs before the first item. Ratios are to Minos, of the same part. \
             `cargo xtask measure memory`"
        ),
        &["key + value", "servers", "server", "bytes an item", "overhead", "ratio to Minos"],
    );
    for shape in SHAPES {
        let full = contestants::caches(&bench.program, CACHE_MIB)?;
        report.rows.extend(rows(shape, "full", full, |server| bytes_when_full(bench, server, shape))?);
    }
    for shape in SHAPES {
        let store = ["--workers", "1", "--engine", "store"];
        let growing = [
            contestants::minos("Minos, store", &bench.program, "0", &store)?,
            contestants::memcached("0", 1)?,
            contestants::redis("0")?,
        ];
        report.rows.extend(rows(shape, "growing", growing, |server| bytes_of_growth(bench, server, shape))?);
    }
    Ok(report)
}

/// A row for each server; the first is Minos.
fn rows(
    (key_bytes, value_bytes): (u32, u32),
    part: &str,
    servers: [Contestant; 3],
    measure: impl Fn(&Contestant) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Vec<String>>> {
    let mut ours = None;
    let row = |server: Contestant| {
        let bytes = measure(&server)?;
        let ours = *ours.get_or_insert(bytes);
        Ok(vec![
            format!("{key_bytes} + {value_bytes}"),
            part.to_owned(),
            server.name.to_owned(),
            format!("{bytes:.1}"),
            format!("{:.1}", bytes - f64::from(key_bytes + value_bytes)),
            format!("{:.2}", bytes / ours),
        ])
    };
    servers.into_iter().map(row).collect()
}

fn bytes_when_full(bench: &Bench, cache: &Contestant, shape: (u32, u32)) -> anyhow::Result<f64> {
    // No item takes less than its key, its value and 24 bytes.
    let most = (u64::from(CACHE_MIB) << 20) / u64::from(shape.0 + shape.1 + 24);
    let stored = most + most / 2;
    // memcached refuses some stores while its threads that make room are behind.
    if let Err(error) = store(bench, cache, stored, shape) {
        eprintln!("memory: {error:#}");
    }
    let held = cache.items()?;
    anyhow::ensure!(held < stored, "{} is not full with {stored} items", cache.name);
    Ok(cache.resident_bytes()? as f64 / held as f64)
}

fn bytes_of_growth(bench: &Bench, server: &Contestant, shape: (u32, u32)) -> anyhow::Result<f64> {
    let before = server.resident_bytes()?;
    store(bench, server, ITEMS, shape)?;
    Ok((server.resident_bytes()? - before) as f64 / ITEMS as f64)
}

fn store(
    bench: &Bench,
    server: &Contestant,
    items: u64,
    (key_bytes, value_bytes): (u32, u32),
) -> anyhow::Result<()> {
    let file = std::env::temp_dir().join(format!("minos-measure-{}.toml", std::process::id()));
    let path = file.display().to_string();
    fs::write(
        &file,
        format!(
            "[[stream]]\n[[stream.group]]\nkeys = {items}\nkey_bytes = {key_bytes}\n\
             value_bytes = {{ min = {value_bytes}, max = {value_bytes} }}\npopularity = \"uniform\"\n"
        ),
    )?;
    let stored = bench.load(server, &["--workload", &path]);
    fs::remove_file(&file)?;
    stored
}
