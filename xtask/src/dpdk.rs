//! Tests of the port over DPDK, which the gate does not need.

use std::process::{Command, Stdio};

use anyhow::ensure;

use crate::{
    command::{Totals, cargo, run, run_tests},
    setup,
    suites::cargo_under_asan,
};

const FEATURE: [&str; 2] = ["--features", "dpdk"];

/// Installs DPDK, checks what the feature adds, and runs its tests: of the port in one process, also under AddressSanitizer,
/// and of server and client in two.
pub(crate) fn test(totals: &mut Totals) -> anyhow::Result<()> {
    if !is_there() {
        setup::install_packages(&["dpdk-dev", "pkg-config"])?;
    }
    ensure!(is_there(), "DPDK WAS NOT TESTED: pkg-config finds no libdpdk of at least 22.11");
    for package in ["minos-net", "minos"] {
        let check = [&["clippy", "-p", package, "--all-targets"], &FEATURE[..], &["--", "-D", "warnings"]];
        run(&mut cargo(&check.concat()))?;
    }
    let port = [&["test", "-p", "minos-net", "--lib"], &FEATURE[..], &["dpdk"]].concat();
    run_tests(&mut cargo(&port), totals)?;
    run_tests(&mut cargo_under_asan(&port), totals)?;
    let server = [&["test", "-p", "minos", "--test", "memif"], &FEATURE[..]].concat();
    run_tests(&mut cargo(&server), totals)?;
    println!("{}", totals.summary());
    Ok(())
}

fn is_there() -> bool {
    let found =
        Command::new("pkg-config").args(["--exists", "libdpdk >= 22.11"]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}
