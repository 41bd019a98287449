//! Tests and measures reads over UCX, which the gate does not need.

use std::{
    env,
    process::{Command, Stdio},
};

use anyhow::ensure;

use crate::{
    command::{Totals, cargo, run, run_tests},
    instructions,
};

/// UCX's variable that chooses transports.
const TRANSPORTS: &str = "UCX_TLS";
/// Those that read one-sided on one machine.
const SHARED_MEMORY: [&str; 2] = ["posix,cma,self", "sysv,self"];
/// Those by which the owner's worker answers.
const TWO_SIDED: &str = "tcp,self";

/// What to do.
#[derive(clap::Args, Debug)]
pub(crate) struct UcxOptions {
    /// Measure instead: instructions by callgrind, then processor time, of a read over each fabric
    #[arg(long)]
    measure: bool,
}

/// Tests, or measures, over the transports in `UCX_TLS`, or else over all that this machine has.
pub(crate) fn test(options: &UcxOptions, totals: &mut Totals) -> anyhow::Result<()> {
    let found = Command::new("pkg-config").args(["--exists", "ucx >= 1.13"]).stdout(Stdio::null()).status();
    ensure!(
        found.is_ok_and(|status| status.success()),
        "UCX WAS NOT TESTED: pkg-config finds no ucx of at least 1.13; on Debian: apt-get install pkg-config libucx-dev"
    );
    let chosen = env::var(TRANSPORTS).ok();
    if options.measure {
        return measure(chosen.as_deref().unwrap_or(SHARED_MEMORY[0]));
    }
    let tests = ["test", "-p", "minos-fabric", "--features", "ucx"];
    for package in ["minos-fabric", "minos-node", "minos"] {
        let check = ["clippy", "-p", package, "--features", "ucx", "--all-targets"];
        run(cargo(&check).args(["--", "-D", "warnings"]))?;
    }
    let all = chosen.as_deref().map_or(SHARED_MEMORY.to_vec(), |chosen| vec![chosen]);
    for transports in all {
        for targets in [&["--lib", "--test", "ucx"][..], &["--doc"]] {
            run_tests(cargo(&tests).args(targets).env(TRANSPORTS, transports), totals)?;
        }
    }
    // Only there, reads are under way for a while.
    for name in ["reader::answers_beside_another_process_are_true", "ends::"] {
        let test = [&tests[..], &["--test", "ucx", name]].concat();
        run_tests(cargo(&test).env(TRANSPORTS, TWO_SIDED), totals)?;
    }
    // Servers, which choose the transports themselves.
    for tests in [&["-p", "minos-node", "--lib", "rack"][..], &["-p", "minos", "--test", "ucx"]] {
        run_tests(&mut cargo(&[&["test", "--features", "ucx"], tests].concat()), totals)?;
    }
    let moves = ["test", "--features", "ucx", "-p", "minos", "--test", "ucx", "what_is_read_is_never_older"];
    run_tests(cargo(&moves).env("MINOS_LEFT_OUT", "window"), totals)?;
    println!("{}", totals.summary());
    Ok(())
}

fn measure(transports: &str) -> anyhow::Result<()> {
    let program = instructions::build("minos-fabric", &["--features", "ucx"])?;
    let with_transports = |command: &mut Command| {
        command.env(TRANSPORTS, transports);
    };
    println!("instructions:");
    for (name, count) in instructions::count_program(&program, with_transports)? {
        println!("{name:20} {count:8.1}");
    }
    println!("processor time, rough on a busy machine:");
    run(Command::new(program).arg("--times").env(TRANSPORTS, transports))
}
