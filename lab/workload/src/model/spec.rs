//! The description of a workload, as it stands in a TOML file.

use serde::{Deserialize, Serialize};

/// A workload: one or more streams of requests.
///
/// ```toml
/// [[stream]]
/// name = "small"
/// get_ratio = 0.95
///
/// [[stream.group]]
/// keys = 100000
/// value_bytes = { min = 14, max = 1400 }
/// popularity = { zipf = 0.99 }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// The name in reports.
    #[serde(default = "unnamed")]
    pub name: String,
    /// Streams that run side by side.
    #[serde(rename = "stream")]
    pub streams: Vec<StreamSpec>,
}

/// A stream of requests on connections of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// The name in reports.
    #[serde(default = "unnamed")]
    pub name: String,
    /// Requests per second; by default the rate of the command line.
    #[serde(default)]
    pub rate: Option<f64>,
    /// Connections; by default the number of the command line.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Share of requests that are GETs, 0 to 1.
    #[serde(default = "one")]
    pub get_ratio: f64,
    /// The other requests.
    #[serde(default)]
    pub writes: Writes,
    /// The items it asks for.
    #[serde(rename = "group")]
    pub groups: Vec<GroupSpec>,
}

/// A set of items of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// How many items.
    pub keys: u64,
    /// Bytes of each key, 4 to 250.
    #[serde(default = "eight")]
    pub key_bytes: usize,
    /// Bytes of the values, uniform within the bounds; the size of an item never changes.
    pub value_bytes: SizeRange,
    /// Which items are asked for more often.
    #[serde(default)]
    pub popularity: Popularity,
    /// Share of the stream's requests that go to this group, relative to its other groups.
    #[serde(default = "one")]
    pub weight: f64,
    /// Where its latencies are counted; without it, by size.
    #[serde(default)]
    pub class: Option<Class>,
}

/// Bounds on a size in bytes, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl SizeRange {
    /// Always the same size.
    pub const fn fixed(bytes: u64) -> Self {
        Self { min: bytes, max: bytes }
    }
}

/// Which items of a group are asked for more often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// All alike.
    #[default]
    Uniform,
    /// The item of rank r in proportion to r to the power of minus this exponent.
    Zipf(f64),
    /// The same, with the popular items spread over the group instead of at its beginning.
    ScrambledZipf(f64),
    /// The same, the newest item being the most popular one (YCSB D). Only in a workload's last group.
    Latest(f64),
}

/// The kind of requests that are not GETs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// SET an item of the group.
    #[default]
    Update,
    /// SET an item that is new.
    Insert,
    /// GET an item and SET it when the reply has come; one operation.
    ReadModifyWrite,
}

/// Where the latency of a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// With the small ones.
    Small,
    /// With the large ones.
    Large,
}

fn unnamed() -> String {
    "unnamed".to_owned()
}

fn one() -> f64 {
    1.0
}

fn eight() -> usize {
    8
}
