//! A workload that is ready to run.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use minos_base::{VALUE_BYTES_MAX, limits::KEY_BYTES_MAX};
use rand::distr::Bernoulli;
use serde::{Deserialize, Serialize};

use super::{
    dataset::{Dataset, Group, Items},
    files::read_folder,
    key::{KEY_BYTES_MIN, key_count_max},
    named::{Shape, named, named_workloads},
    picker::Picker,
    spec::{GroupSpec, Popularity, SizeRange, StreamSpec, WorkloadSpec, Writes},
    trace::{TracedOp, read_trace},
};

pub use super::dataset::LARGE_THRESHOLD_DEFAULT;

/// Items, and the streams of requests for them. The same for the same description, seed and draw.
#[derive(Debug)]
pub struct Workload {
    name: String,
    seed: u64,
    /// Chooses the requests, but not the items.
    pub(crate) draw: u32,
    pub(crate) dataset: Dataset,
    pub(crate) streams: Vec<Stream>,
}

/// The distribution of value sizes over items, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueSizes {
    /// The sum of all sizes.
    pub total: u64,
    /// Half of the items are at most so large.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

/// One stream of requests, checked.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Requests a second, if the workload says.
    pub(crate) rate: Option<f64>,
    /// Connections, if the workload says.
    pub(crate) connections: Option<u32>,
    pub(super) requests: Requests,
}

/// Where requests come from.
#[derive(Debug)]
pub(super) enum Requests {
    Drawn(Mix),
    Traced(Vec<TracedOp>),
}

/// How requests are drawn.
#[derive(Debug)]
pub(super) struct Mix {
    pub(super) gets: Bernoulli,
    pub(super) writes: Writes,
    /// For each group: the upper end of its part of the interval from 0 to 1, its first item and its picker.
    pub(super) choices: Vec<(f64, u64, Picker)>,
}

/// Why there is no such workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error(
        "no workload is called {0:?}; there are {known}, FILE.toml, trace:FILE.csv and files:DIR",
        known = named_workloads().collect::<Vec<_>>().join(", ")
    )]
    Unknown(String),
    /// A file or a folder cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file has invalid contents.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// The description contradicts itself.
    #[error("workload {workload}: {message}")]
    Impossible {
        /// Which workload.
        workload: String,
        /// The reason.
        message: String,
    },
}

impl Workload {
    /// The workload that `text` names: one of [`named_workloads`], `FILE.toml`, `trace:FILE.csv` (or
    /// just `FILE.csv`) or `files:DIR`.
    ///
    /// # Errors
    /// It does not exist or is invalid.
    pub fn open(text: &str, shape: &Shape, seed: u64) -> Result<Self, WorkloadError> {
        if let Some(folder) = text.strip_prefix("files:") {
            return Self::of_files(text, Path::new(folder), shape, seed);
        }
        if let Some(path) = text.strip_prefix("trace:").or_else(|| text.ends_with(".csv").then_some(text)) {
            return Self::of_trace(text, Path::new(path), shape, seed);
        }
        if text.ends_with(".toml") {
            return Self::of_spec(&read_spec(Path::new(text))?, shape, seed);
        }
        let spec = named(text, shape).ok_or_else(|| WorkloadError::Unknown(text.to_owned()))?;
        Self::of_spec(&spec, shape, seed)
    }

    /// A workload from its description.
    ///
    /// # Errors
    /// The description contradicts itself.
    pub fn of_spec(spec: &WorkloadSpec, shape: &Shape, seed: u64) -> Result<Self, WorkloadError> {
        let impossible = |message: String| WorkloadError::Impossible { workload: spec.name.clone(), message };
        let mut groups = Vec::new();
        let mut streams = Vec::new();
        check_spec(spec).map_err(impossible)?;
        for stream in &spec.streams {
            let firsts = append_groups(&mut groups, &stream.groups);
            let mix = mix_of(stream, &firsts).map_err(impossible)?;
            streams.push(Stream {
                rate: stream.rate,
                connections: stream.connections,
                requests: Requests::Drawn(mix),
            });
        }
        let dataset = Dataset::new(seed, Items::Drawn(groups), shape.large_threshold);
        Ok(Self { name: spec.name.clone(), seed, draw: 0, dataset, streams })
    }

    fn of_files(name: &str, folder: &Path, shape: &Shape, seed: u64) -> Result<Self, WorkloadError> {
        let items = read_folder(folder)
            .map_err(|error| WorkloadError::Unreadable { path: folder.to_owned(), error })?;
        if items.is_empty() {
            let message = "there is no file in it that can be read".to_owned();
            return Err(WorkloadError::Malformed { path: folder.to_owned(), message });
        }
        let popularity = shape.zipf.map_or(Popularity::Uniform, Popularity::ScrambledZipf);
        let impossible = |message| WorkloadError::Impossible { workload: name.to_owned(), message };
        let picker = Picker::new(items.len() as u64, popularity).map_err(impossible)?;
        let gets = gets(shape.get_ratio.unwrap_or(1.0)).map_err(impossible)?;
        let mix = Mix { gets, writes: Writes::Update, choices: vec![(1.0, 0, picker)] };
        let stream = Stream { rate: None, connections: None, requests: Requests::Drawn(mix) };
        let dataset = Dataset::new(seed, Items::Files(items), shape.large_threshold);
        Ok(Self { name: name.to_owned(), seed, draw: 0, dataset, streams: vec![stream] })
    }

    fn of_trace(name: &str, path: &Path, shape: &Shape, seed: u64) -> Result<Self, WorkloadError> {
        let file =
            File::open(path).map_err(|error| WorkloadError::Unreadable { path: path.to_owned(), error })?;
        let trace = read_trace(BufReader::new(file)).map_err(|error| WorkloadError::Malformed {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        let stream = Stream { rate: None, connections: None, requests: Requests::Traced(trace.ops) };
        let dataset = Dataset::new(seed, Items::Traced(trace.items), shape.large_threshold);
        Ok(Self { name: name.to_owned(), seed, draw: 0, dataset, streams: vec![stream] })
    }

    /// The name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The seed of all random choices.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The same items with other requests for them, alike in distribution. Those of a trace stay the same.
    #[must_use]
    pub fn with_draw(self, draw: u32) -> Self {
        Self { draw, ..self }
    }

    /// Items that a load stores.
    pub fn item_count(&self) -> u64 {
        self.dataset.item_count()
    }

    /// Sizes of all values that a load stores. Looks at every item.
    pub fn sizes(&self) -> ValueSizes {
        let mut sizes: Vec<u64> = (0..self.item_count()).map(|item| self.dataset.value_bytes(item)).collect();
        sizes.sort_unstable();
        let at = |quantile: f64| {
            let rank = (quantile * sizes.len() as f64).ceil() as usize;
            sizes.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        ValueSizes { total: sizes.iter().sum(), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

fn read_spec(path: &Path) -> Result<WorkloadSpec, WorkloadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| WorkloadError::Unreadable { path: path.to_owned(), error })?;
    toml::from_str(&text)
        .map_err(|error| WorkloadError::Malformed { path: path.to_owned(), message: error.to_string() })
}

/// Appends the groups of a stream to `groups`. Returns the first item of each.
fn append_groups(groups: &mut Vec<Group>, specs: &[GroupSpec]) -> Vec<u64> {
    let mut firsts = Vec::new();
    for spec in specs {
        let first = groups.last().map_or(0, |group| group.first + group.keys);
        firsts.push(first);
        groups.push(Group {
            first,
            keys: spec.keys,
            key_bytes: spec.key_bytes,
            value_bytes: spec.value_bytes,
            class: spec.class,
        });
    }
    firsts
}

fn mix_of(stream: &StreamSpec, firsts: &[u64]) -> Result<Mix, String> {
    let total: f64 = stream.groups.iter().map(|group| group.weight).sum();
    let mut end = 0.0;
    let mut choices = Vec::new();
    for (group, &first) in stream.groups.iter().zip(firsts) {
        end += group.weight / total;
        let picker = Picker::new(group.keys, group.popularity)?;
        choices.push((end, first, picker));
    }
    Ok(Mix { gets: gets(stream.get_ratio)?, writes: stream.writes, choices })
}

fn gets(ratio: f64) -> Result<Bernoulli, String> {
    Bernoulli::new(ratio).map_err(|_| format!("get_ratio is {ratio}, not from 0 to 1"))
}

fn check_spec(spec: &WorkloadSpec) -> Result<(), String> {
    if spec.streams.is_empty() {
        return Err("it has no stream".to_owned());
    }
    let keys = spec.streams.iter().flat_map(|stream| &stream.groups);
    let keys = keys.fold(0u64, |sum, group| sum.saturating_add(group.keys));
    for (position, stream) in spec.streams.iter().enumerate() {
        check_stream(stream, keys).map_err(|message| format!("stream {}: {message}", stream.name))?;
        let is_last = position + 1 == spec.streams.len();
        let grows = |group: &GroupSpec| matches!(group.popularity, Popularity::Latest(_));
        let early = if is_last { &stream.groups[..stream.groups.len() - 1] } else { &stream.groups[..] };
        if early.iter().any(grows) || (stream.writes == Writes::Insert && !is_last) {
            return Err("only the last group of the last stream can grow".to_owned());
        }
    }
    Ok(())
}

fn check_stream(stream: &StreamSpec, keys: u64) -> Result<(), String> {
    let total: f64 = stream.groups.iter().map(|group| group.weight).sum();
    if !(total.is_finite() && total > 0.0) {
        return Err("the weights of its groups must be positive in sum".to_owned());
    }
    if stream.rate.is_some_and(|rate| !(rate > 0.0 && rate <= crate::RATE_MAX)) {
        return Err("rate must be above 0 and at most 100m".to_owned());
    }
    if stream.connections == Some(0) {
        return Err("connections must be above 0".to_owned());
    }
    stream.groups.iter().try_for_each(|group| check_group(group, keys))
}

fn check_group(group: &GroupSpec, keys: u64) -> Result<(), String> {
    let SizeRange { min, max } = group.value_bytes;
    if group.keys == 0 {
        return Err("a group has no keys".to_owned());
    }
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&group.key_bytes) {
        return Err(format!("key_bytes is {}, not from {KEY_BYTES_MIN} to {KEY_BYTES_MAX}", group.key_bytes));
    }
    if keys > key_count_max(group.key_bytes) {
        return Err(format!("there are no {keys} different keys of {} bytes", group.key_bytes));
    }
    if min > max || max > VALUE_BYTES_MAX {
        return Err(format!("value_bytes from {min} to {max}: not an interval below {VALUE_BYTES_MAX}"));
    }
    if !(group.weight.is_finite() && group.weight >= 0.0) {
        return Err(format!("weight is {}, not 0 or above", group.weight));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_toml(text: &str) -> Result<Workload, WorkloadError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        std::fs::write(&path, text).unwrap();
        Workload::open(path.to_str().unwrap(), &Shape::default(), 1)
    }

    #[test]
    fn every_named_workload_opens() {
        for name in named_workloads() {
            let workload = Workload::open(name, &Shape { keys: Some(100), ..Shape::default() }, 1).unwrap();
            assert!(workload.item_count() >= 100, "{name}");
            let sizes = workload.sizes();
            assert!(0 < sizes.p50 && sizes.p50 <= sizes.p99 && sizes.p99 <= sizes.max, "{name}: {sizes:?}");
            assert!(sizes.max <= sizes.total);
        }
    }

    #[test]
    fn a_file_describes_a_workload() {
        let workload = of_toml(
            r#"
            name = "mine"
            [[stream]]
            get_ratio = 0.5
            writes = "read-modify-write"
            [[stream.group]]
            keys = 10
            value_bytes = { min = 1, max = 10 }
            popularity = { zipf = 0.5 }
            [[stream]]
            rate = 5
            connections = 2
            [[stream.group]]
            keys = 3
            key_bytes = 100
            value_bytes = { min = 5000, max = 5000 }
            class = "large"
            "#,
        )
        .unwrap();
        assert_eq!((workload.name(), workload.item_count(), workload.sizes().max), ("mine", 13, 5000));
        assert_eq!((workload.streams[1].rate, workload.streams[1].connections), (Some(5.0), Some(2)));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let group = |text: &str| {
            format!("[[stream]]\n[[stream.group]]\nkeys = 10\nvalue_bytes = {{ min = 1, max = 2 }}\n{text}")
        };
        for (text, message) in [
            (String::new(), "missing field `stream`"),
            ("stream = []".to_owned(), "no stream"),
            (group("colour = 1"), "unknown field"),
            (group("key_bytes = 3"), "key_bytes is 3"),
            (group("weight = -1.0"), "positive in sum"),
            (group("popularity = { zipf = -1.0 }"), "exponent of a popularity"),
            (group("[[stream.group]]\nkeys = 0\nvalue_bytes = { min = 1, max = 1 }"), "no keys"),
            (group("[[stream.group]]\nkeys = 1\nvalue_bytes = { min = 2, max = 1 }"), "not an interval"),
            (format!("{}{}", group("popularity = { latest = 0.99 }\n"), group("")), "can grow"),
            (group("").replace("[[stream]]", "[[stream]]\nget_ratio = 2.0"), "get_ratio is 2"),
            (group("").replace("[[stream]]", "[[stream]]\nrate = 0.0"), "rate must be above 0"),
            (group("").replace("[[stream]]", "[[stream]]\nrate = 1e300"), "rate must be above 0"),
        ] {
            let error = of_toml(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        let error = Workload::open("etcetera", &Shape::default(), 1).unwrap_err().to_string();
        assert!(error.contains("table1-0.125-500k") && error.contains("files:DIR"), "{error}");
        for name in ["none.toml", "none.csv", "trace:none", "files:/none"] {
            let error = Workload::open(name, &Shape::default(), 1).unwrap_err();
            assert!(matches!(error, WorkloadError::Unreadable { .. }), "{name}: {error}");
        }
    }
}
