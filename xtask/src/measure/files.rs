//! A folder of real files, stored by a stock client and served under load with every reply verified.

use std::{path::Path, process::Command, thread, time::Duration};

use anyhow::{Context, bail};
use minos_testkit::Client;

use super::{Bench, contestants, report::Report};
use crate::setup;

const FOLDER: &str = "/usr/share";

/// Sizes, threshold, core split and latencies of `files:/usr/share`.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let server = contestants::minos("Minos", &bench.program, "0,1", &["--workers", "2", "--poll", "sleep"])?;
    let loaded = load_by_pymemcache(&server.address().to_string())?;
    let workload = format!("files:{FOLDER}");
    let result = bench.measure(&server, &["--workload", &workload, "--rate", "10k", "--verify"])?;
    let mut report = Report::new(
        &format!("{FOLDER}, stored by a stock client and served"),
        &format!(
            "Measured: {}; 10 k GETs a second, every reply compared with its file, {} errors, {} lost. Two \
             workers on two processors, the second of which they share with the driver. `cargo xtask measure files`",
            loaded.trim(),
            result["errors"],
            result["lost"]
        ),
        &["what", "value"],
    );
    for class in ["small", "large"] {
        for percentile in ["p50", "p99", "p999"] {
            let value = result["latency_us"][class][percentile].to_string();
            report.rows.push(vec![format!("{class} {percentile}, us"), value]);
        }
    }
    // Waits for the plan of the epoch that has just ended.
    thread::sleep(Duration::from_millis(100));
    let plan = ["threshold_bytes", "small_workers", "large_workers", "standby"];
    let wanted = [&plan[..], &["store_items", "store_bytes_per_item"]].concat();
    for (name, value) in Client::connect(server.address())?.stats("minos")? {
        if wanted.contains(&name.as_str()) || name.starts_with("range:") || name.ends_with(":role") {
            report.rows.push(vec![name, value]);
        }
    }
    Ok(report)
}

fn load_by_pymemcache(address: &str) -> anyhow::Result<String> {
    setup::install()?;
    let (host, port) = address.rsplit_once(':').context("an address without a port")?;
    let output = Command::new(setup::python())
        .arg(Path::new("xtask/load_files.py"))
        .args([FOLDER, host, port])
        .output()?;
    if !output.status.success() {
        bail!("load_files.py: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
