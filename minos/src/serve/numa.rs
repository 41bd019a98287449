//! `--numa`: workers and memory by NUMA node.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use minos_net::{NODES, allowed_cpus, numa_nodes};
use minos_node::config::Placement;

use super::values::name_of;

/// Whether workers and memory are placed by NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Numa {
    /// If this server's processors are on several nodes
    Auto,
    /// Never
    Off,
}

/// The options of NUMA nodes.
#[derive(Args, Clone, Debug)]
pub(crate) struct NumaOptions {
    /// Place workers and memory by NUMA node: each node has small and large workers of its own
    #[arg(long, value_enum, default_value_t = Numa::Auto, help_heading = "Workers")]
    numa: Numa,
    /// Folder that shows the nodes, for tests
    #[arg(long, value_name = "PATH", default_value = NODES, hide = true)]
    numa_root: PathBuf,
}

impl NumaOptions {
    /// Where so many workers run. Says in the log what was found.
    pub(super) fn placement(&self, workers: usize) -> Placement {
        if self.numa == Numa::Off {
            return Placement::default();
        }
        let nodes = numa_nodes(&self.numa_root).unwrap_or_else(|error| {
            tracing::info!(%error, root = %self.numa_root.display(), "NUMA nodes are not known");
            Vec::new()
        });
        let placement = Placement::on(&nodes, &allowed_cpus(), workers);
        tracing::info!("NUMA: {placement}");
        placement
    }

    /// The entries of `stats settings`.
    pub(super) fn settings(&self, placement: &Placement) -> [(&'static str, String); 2] {
        [("numa", name_of(self.numa)), ("numa_nodes", placement.nodes().to_string())]
    }
}
