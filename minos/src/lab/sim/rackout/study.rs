//! The source of popularities, and the bounds of units.

use std::cell::RefCell;

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minos_rackmodel::{
    BadParameter, Cache, CacheError, NodeRates, Popularity, PopularitySpec, unit_size_max,
};

use super::{parse_count, parse_number};

#[derive(Args, Debug)]
pub(super) struct Source {
    /// Micro-shards of each server
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(super) micro_shards: u32,

    /// Threads that sum up keys
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,

    /// Do not read or write popularities in the user's cache folder
    #[arg(long)]
    no_cache: bool,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

impl Source {
    /// Calls `use_it` with a function that gets popularities: from this run, from the cache, or from the
    /// keys.
    pub(super) fn with_popularity(
        &self,
        use_it: impl FnOnce(&dyn Fn(PopularitySpec) -> Result<Popularity, CacheError>) -> Result<()>,
    ) -> Result<()> {
        let recent: RefCell<Vec<Popularity>> = RefCell::new(Vec::new());
        use_it(&|spec: PopularitySpec| {
            if let Some(known) = recent.borrow().iter().find(|known| *known.spec() == spec) {
                return Ok(known.clone());
            }
            let popularity = self.load(spec)?;
            recent.borrow_mut().push(popularity.clone());
            Ok(popularity)
        })
    }

    fn load(&self, spec: PopularitySpec) -> Result<Popularity, CacheError> {
        let bar = ProgressBar::with_draw_target(Some(spec.keys), ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} keys, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let progress = |keys| bar.inc(keys);
        let popularity = match Cache::of_user().filter(|_| !self.no_cache) {
            Some(cache) => cache.popularity(spec, self.threads, progress),
            None => Popularity::exact(spec, self.threads, progress).map_err(CacheError::from),
        };
        bar.finish_and_clear();
        popularity
    }
}

#[derive(Args, Debug)]
pub(super) struct Units {
    /// Operations a second of a node's inner interface; the paper's number is RDMA's
    #[arg(long, value_name = "N", default_value = "40m", value_parser = parse_count)]
    pub(super) nic_ops: u64,

    /// Share of them that stays unused
    #[arg(long, value_name = "SHARE", default_value_t = NodeRates::RDMA.nic_reserve, value_parser = parse_number)]
    nic_reserve: f64,

    /// Cores of a node that serve requests
    #[arg(long, value_name = "N", default_value_t = NodeRates::RDMA.cores)]
    cores: u32,
}

impl Units {
    /// The largest number of servers in a unit (RackOut §4.6).
    pub(super) fn max(&self, remote_read_us: f64) -> Result<u32, BadParameter> {
        let Self { nic_ops, nic_reserve, cores } = *self;
        unit_size_max(&NodeRates { nic_ops: nic_ops as f64, nic_reserve, cores, remote_read_us })
    }
}
