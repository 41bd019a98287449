//! The servers under measurement: one for each design.

use std::path::Path;

use super::Extent;
use crate::measure::contestants::{self, Contestant};

/// A design, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Design {
    pub(super) name: &'static str,
    /// True for the designs that Minos is compared with.
    pub(super) is_rival: bool,
}

pub(super) const KEYHASH: Design = Design { name: "keyhash", is_rival: true };
pub(super) const SIZE_AWARE: Design = Design { name: "size-aware", is_rival: false };
const DESIGNS: [Design; 5] = [
    KEYHASH,
    Design { name: "handoff", is_rival: true },
    Design { name: "stealing", is_rival: true },
    SIZE_AWARE,
    Design { name: "work-conserving", is_rival: false },
];

pub(super) struct Contest {
    pub(super) name: &'static str,
    pub(super) design: Design,
    pub(super) workers: u32,
    pub(super) server: Contestant,
    scheme: &'static str,
}

const KEYHASH_ALONE: &str = "keyhash, one worker";

fn alone(design: Design) -> &'static str {
    if design == KEYHASH { KEYHASH_ALONE } else { "size-aware, one worker" }
}

impl Contest {
    /// Starts all designs with two workers, HKH first; then those that are informative with one worker.
    pub(super) fn start_all(program: &Path, extent: &Extent) -> anyhow::Result<Vec<Self>> {
        let native = extent.native;
        let steal = if extent.steals { "on" } else { "off" };
        let mut contests = Vec::with_capacity(DESIGNS.len() + 2);
        for design in DESIGNS {
            let options = ["--workers", "2", "--poll", "sleep", "--dispatch", design.name, "--steal", steal];
            contests.push(Self::start(program, design, design.name, "0,1", &options, native)?);
        }
        for design in [KEYHASH, SIZE_AWARE] {
            let options = ["--workers", "1", "--poll", "sleep", "--dispatch", design.name];
            contests.push(Self::start(program, design, alone(design), "0", &options, native)?);
        }
        Ok(contests)
    }

    fn start(
        program: &Path,
        design: Design,
        name: &'static str,
        cpus: &str,
        options: &[&str],
        native: bool,
    ) -> anyhow::Result<Self> {
        let start = if native { contestants::minos_native } else { contestants::minos };
        let server = start(name, program, cpus, options)?;
        let scheme = if native { "minos" } else { "memcached" };
        Ok(Self { name, design, workers: if cpus == "0" { 1 } else { 2 }, server, scheme })
    }

    /// The name of HKH with the same number of workers.
    pub(super) fn keyhash(&self) -> &'static str {
        if self.workers == 1 { KEYHASH_ALONE } else { KEYHASH.name }
    }

    pub(super) fn target(&self) -> String {
        self.server.target_in(self.scheme)
    }
}
