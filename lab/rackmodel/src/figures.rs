//! The rows of the papers' figures.

mod load;
mod popularity;
mod width;

use minos_rack::BadParameter;
use serde::Serialize;

use crate::{CacheError, Dataset, Popularity, PopularitySpec};

/// Rows of numbers under names. All are simulated or computed, none measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its number in the paper.
    pub figure: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The names of the columns.
    pub columns: Vec<&'static str>,
    /// The numbers.
    pub rows: Vec<Vec<f64>>,
}

/// The figures of RackOut that can be made, by number.
pub const NUMBERS: [&str; 21] = [
    "1", "2a", "2b", "4a", "4b", "5", "7a", "7b", "8", "9", "10", "11a", "11b", "11c", "15", "16", "17",
    "18", "19", "20", "21",
];

/// The parameters of figures.
pub struct Study<'a> {
    /// Keys of the dataset.
    pub keys: u64,
    /// The exponent of the popularity.
    pub alpha: f64,
    /// Servers.
    pub servers: u32,
    /// Micro-shards of each server.
    pub micro_shards_per_server: u32,
    /// Requests of a simulation.
    pub arrivals: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Gets a popularity, from a cache or by computing it.
    pub popularity: &'a dyn Fn(PopularitySpec) -> Result<Popularity, CacheError>,
}

impl Study<'_> {
    /// The dataset of most figures.
    ///
    /// # Errors
    /// A parameter is out of bounds, or the popularity cannot be had.
    pub fn dataset(&self) -> Result<Dataset, CacheError> {
        self.dataset_of(self.keys, self.alpha, self.servers)
    }

    /// One with other keys or servers.
    ///
    /// # Errors
    /// A parameter is out of bounds, or the popularity cannot be had.
    pub fn dataset_of(&self, keys: u64, alpha: f64, servers: u32) -> Result<Dataset, CacheError> {
        let popularity = (self.popularity)(self.spec(keys, alpha)?)?;
        Ok(Dataset::new(popularity, servers)?)
    }

    fn spec(&self, keys: u64, alpha: f64) -> Result<PopularitySpec, BadParameter> {
        let micro_shards = self.servers.checked_mul(self.micro_shards_per_server);
        let fault =
            || BadParameter::new("micro-shards", self.micro_shards_per_server, "1 or more, fewer in all");
        Ok(PopularitySpec { keys, alpha, micro_shards: micro_shards.ok_or_else(fault)?, seed: self.seed })
    }

    /// The sizes of units that the servers divide into.
    fn groupings(&self, all: &[u32]) -> Vec<u32> {
        all.iter().copied().filter(|gf| self.servers.is_multiple_of(*gf)).collect()
    }
}

/// Makes a figure of RackOut, or `reads`: all ways of choosing the server that reads, side by side.
///
/// # Errors
/// There is no such figure, a parameter is out of bounds, or a popularity cannot be had.
pub fn figure(number: &str, study: &Study<'_>) -> Result<Figure, CacheError> {
    match number {
        "1" => popularity::figure_1(study),
        "2a" => popularity::figure_2a(study),
        "2b" => popularity::figure_2b(study),
        "4a" => popularity::figure_4("4a", study, 0.0),
        "4b" => popularity::figure_4("4b", study, 0.05),
        "5" => popularity::figure_5(study),
        "7a" => load::figure_7("7a", study, 0.0),
        "7b" => load::figure_7("7b", study, 0.05),
        "8" => load::figure_8(study, 500),
        "9" => popularity::figure_9(study),
        "10" => load::figure_10(study),
        "11a" => load::figure_11("11a", study, 0.0, study.alpha),
        "11b" => load::figure_11("11b", study, 0.05, 0.9),
        "11c" => load::figure_11("11c", study, 0.05, study.alpha),
        "15" | "17" => load::figure_15_17(study),
        "16" => load::figure_16(study),
        "19" => load::figure_19(study),
        "18" | "20" | "21" => load::figure_18_21(study),
        "reads" => load::figure_reads(study),
        _ => Err(BadParameter::new("figure", number, format!("{}, reads", NUMBERS.join(", "))).into()),
    }
}

pub(crate) use load::{RACK, SLO, adaptive_utilization, for_datasets, rack, slo_speedup};
pub use load::{hottest_keys, saturations_of_datasets};
pub use width::figure_13;
