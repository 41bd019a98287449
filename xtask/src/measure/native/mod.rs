//! The native datagram protocol: vectors of operations compared with TCP and with memcached's datagrams
//! (vector interfaces §5, figures 9 and 11), requests sent to the right queue compared with requests sent to
//! a wrong one (MICA table 1), and values of 500 KB.

mod curves;
mod direction;
mod large;
pub(in crate::measure) mod plot;
mod runner;
mod widths;

use std::path::Path;

use super::{
    contestants::{self, Contestant},
    report::Report,
    save,
};
use runner::Runner;

pub(super) struct Extent {
    pub(super) rounds: u32,
    /// Milliseconds of each measurement.
    pub(super) millis: u32,
}

/// Tiny items, enough to exceed the caches.
const ITEMS: [&str; 7] = ["--workload", "mica-tiny", "--keys", "1000000", "--zipf", "0", "--get-ratio"];

/// The servers, each alone on the first processor. Only one of them is under load at a time.
struct Servers {
    minos: Contestant,
    /// The same, with a worker that spins for a moment before it sleeps, which is the default.
    spinning: Contestant,
    memcached: Contestant,
}

impl Servers {
    fn start(program: &Path) -> anyhow::Result<Self> {
        let minos =
            |name, poll| contestants::minos_native(name, program, "0", &["--workers", "1", "--poll", poll]);
        Ok(Self {
            minos: minos("Minos", "sleep")?,
            spinning: minos("Minos, spinning", "adaptive")?,
            memcached: contestants::memcached_with_datagrams("0", 1)?,
        })
    }
}

/// Takes the measurements; writes all samples to `native.csv` and a picture to `native.svg`. Returns the text
/// of `native.md`.
pub(super) fn measure(program: &Path, extent: &Extent, out: &Path) -> anyhow::Result<String> {
    let mut runner = Runner::new(program, extent.millis);
    let (widths, curves, large) = {
        let servers = Servers::start(program)?;
        for server in [&servers.minos, &servers.spinning, &servers.memcached] {
            runner.load(&server.target(), &[&ITEMS[..], &["1"]].concat())?;
        }
        let widths = widths::measure(&mut runner, &servers, extent.rounds)?;
        let curves = curves::measure(&mut runner, &servers, extent.rounds.div_ceil(2), &widths)?;
        (widths, curves, large::measure(&mut runner, &servers, extent.rounds)?)
    };
    let direction = direction::measure(&mut runner, program, extent.rounds)?;
    let latency = curves.report();
    latency.write_csv(&out.join("native-latency.csv"))?;
    let sections = [widths.report(), direction, large];
    plot::draw(&curves.lines(), &out.join("native.svg"))?;
    save(&runner.csv, &out.join("native.csv"))?;
    Ok(text(extent, &sections, &latency.note, &widths.targets()))
}

fn text(extent: &Extent, sections: &[Report], latency: &str, targets: &str) -> String {
    let Extent { rounds, millis } = extent;
    let head = format!(
        "# The native datagram protocol\n\nMeasured on loopback, servers with one worker or thread alone on the first \
         processor and `minos bench` on the second, unless stated; {rounds} interleaved rounds of {millis} ms, medians \
         (smallest..largest). A request is a vector of operations, or a line of keys; it is lost without an answer \
         within 500 ms. `cargo xtask measure native --rounds {rounds} --millis {millis}`; `native.csv` has all samples, \
         `native-latency.csv` the latency against throughput: {latency}\n\n![Latency against throughput](native.svg)\n\n\
         {targets}"
    );
    // A section's title is one level below the page's.
    head + &sections.iter().map(|section| format!("\n#{section}")).collect::<String>()
}
