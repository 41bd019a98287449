//! `cargo xtask`: installs the needs of the tests, runs the tests, and checks the sources.

#![forbid(unsafe_code)]

mod clients;
mod command;
mod deny;
mod dpdk;
mod etcd;
mod install;
mod instructions;
mod measure;
mod other_clients;
mod page;
mod reproduce;
mod setup;
mod smoke;
mod suites;
mod tidy;
mod tiers;
mod times;
mod ucx;
mod watched;
mod ways;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};

use command::Totals;

/// Installs the needs of the tests, runs the tests, and checks the sources.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the quick tests: every crate, every protocol, every command
    Test,
    /// Run what must hold before each change beside them: long tests, other languages, models, controls, the crates with
    /// unsafe code under sanitizers
    Gate {
        /// Remove what sanitizers and models have built once they have run: gigabytes
        #[arg(long)]
        lean: bool,
    },
    /// Run everything else, for over an hour: the dependencies, the release build, simulators and figures, more kills and
    /// seeds, the server under sanitizers, fuzzing
    Nightly {
        /// Remove what sanitizers and fuzzers have built once they have run: gigabytes
        #[arg(long)]
        lean: bool,
    },
    /// Install the programs that the tests need: memcached, Redis, libmemcached-tools, pymemcache, nftables,
    /// cargo-deny
    Setup,
    /// Check the licences, sources and advisories of the dependencies
    Deny,
    /// Check rules beyond the compiler's: paths in docs, the direction of dependencies, lengths of functions
    Tidy {
        /// Record the lengths of functions that have become shorter
        #[arg(long)]
        bless: bool,
        /// With --bless: record longer ones too
        #[arg(long, requires = "bless")]
        raise: bool,
    },
    /// Write the tables of docs/reproduction.md and docs/effect.md: the papers' claims beside the numbers of
    /// the figures' CSV files
    Reproduce,
    /// Explore the models of locks, rings and versions
    Loom,
    /// Show that tests fail where the part of the program is left out that they are there for
    Control,
    /// Run the tests of the unsafe crates and of the server under ThreadSanitizer
    Tsan,
    /// Run the tests of the unsafe crates and of the server under AddressSanitizer
    Asan,
    /// Fuzz each parser
    Fuzz {
        /// Seconds for each target
        #[arg(long, default_value_t = 10)]
        seconds: u32,
    },
    /// Run server and client in network namespaces: other packet sizes, packet loss, no trains
    Namespaces,
    /// Test the clients for C and for Python, built as by their users
    Clients,
    /// Run clients and exporters that others have written for Redis and memcached; needs Go, Node, Java and more, skips
    /// what is not there, and is no part of the gate
    OtherClients,
    /// Install the client for C: header, shared and static library, and a file for pkg-config
    InstallC(install::InstallOptions),
    /// Serve and drive for five seconds, and check that nothing failed
    Smoke,
    /// Count the instructions of the engine's operations, and compare with the record
    Instructions(instructions::InstructionsOptions),
    /// Test coordinators that etcd elects; installs Debian's etcd-server and protobuf-compiler
    Etcd,
    /// Test the port over DPDK, server and client; installs Debian's dpdk-dev, and is no part of the gate
    Dpdk,
    /// Test the reader over UCX, or measure it; needs Debian's libucx-dev, and is no part of the gate
    Ucx(ucx::UcxOptions),
    /// Count functions and instructions on the way of a request through the server
    Ways(ways::WaysOptions),
    /// Measure the figures of the README: minos beside memcached and Redis, in turn
    Measure(measure::MeasureOptions),
    /// Measure on a machine of many processors: throughput by workers, engine, small requests beside large ones, the
    /// designs of dispatch, a rack
    Evaluate(measure::EvaluateOptions),
    /// Test the page of the admin endpoint in a headless Chromium, which is installed if it is missing, and take the
    /// pictures of it and of `minos top` in docs/figures; no part of the gate
    Page,
    /// Print how long a processor stands still, and the time of a loop's step in each millisecond, in
    /// nanoseconds:
    /// `taskset --cpu-list 0 chrt --fifo 1 ...`
    Pauses {
        /// Duration in milliseconds; Linux throttles real-time threads that use a whole processor for longer
        /// than 950 ms
        #[arg(long, default_value_t = 900)]
        millis: u64,
    },
    /// Kill a process that writes to a region, again and again, and check the items of its successor
    Kill {
        /// Number of kills
        #[arg(long, default_value_t = 1000)]
        rounds: u64,
        /// Seed of the places and times of kills
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run servers and clients of the native protocol on a simulated network with all kinds of faults, the log on flash on such
    /// a disk, and racks whose nodes die, in virtual time: `rack --seeds 174000` is a million runs in an hour of two processors
    Simulate {
        /// What to run [default: all]
        #[arg(value_enum)]
        parts: Vec<suites::Simulated>,
        /// Number of runs
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// Seed of the first run: a failed run prints its own, and is repeated with --seeds 1
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Compare with memcached on new random sequences, change roles under load, and crash the log on flash and the nodes of a
    /// rack, for a given time
    Soak {
        /// Duration in minutes
        #[arg(long, default_value_t = 10)]
        minutes: u64,
    },
}

fn main() -> ExitCode {
    let mut totals = Totals::default();
    let result = run(Arguments::parse().task, &mut totals);
    if let Err(error) = &result {
        eprintln!("xtask: {error:#}");
    }
    ExitCode::from(u8::from(result.is_err()))
}

fn run(task: Task, totals: &mut Totals) -> anyhow::Result<()> {
    match task {
        Task::Test => tiers::test(totals),
        Task::Gate { lean } => tiers::gate(lean, totals),
        Task::Nightly { lean } => tiers::nightly(lean, totals),
        Task::Setup => {
            setup::install()?;
            setup::cargo_deny().map(drop)
        }
        Task::Deny => deny::check(),
        Task::Tidy { bless, raise } => tidy::run(bless, raise),
        Task::Reproduce => reproduce::run(),
        Task::Loom => suites::loom(totals),
        Task::Control => suites::control(),
        Task::Tsan => suites::tsan_and_server(totals),
        Task::Asan => suites::asan_and_server(totals),
        Task::Fuzz { seconds } => suites::fuzz(seconds),
        Task::Namespaces => suites::namespaces(totals),
        Task::Clients => clients::test(totals),
        Task::OtherClients => other_clients::test(totals),
        Task::InstallC(options) => install::install(&options),
        Task::Smoke => smoke::run(),
        Task::Instructions(options) => instructions::check(&options),
        Task::Etcd => etcd::test(totals),
        Task::Dpdk => dpdk::test(totals),
        Task::Ucx(options) => ucx::test(&options, totals),
        Task::Ways(options) => ways::print(&options),
        Task::Measure(options) => measure::run(&options),
        Task::Evaluate(options) => measure::evaluate(&options),
        Task::Page => page::test(),
        Task::Pauses { millis } => {
            measure::print_pauses(Duration::from_millis(millis));
            Ok(())
        }
        Task::Kill { rounds, seed } => suites::kill(rounds, seed, totals),
        Task::Simulate { parts, seeds, seed } => suites::simulate(&parts, (seeds, seed), totals),
        Task::Soak { minutes } => suites::soak(minutes, totals),
    }
}
