//! Workloads that have a name.

use super::spec::{Class, GroupSpec, Popularity, SizeRange, StreamSpec, WorkloadSpec, Writes};

/// Options of the command line for a named workload. `None` keeps the workload's own value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    /// Items that are not large.
    pub keys: Option<u64>,
    /// Large items.
    pub large_keys: Option<u64>,
    /// Percentage of requests that go to large items.
    pub large_percent: Option<f64>,
    /// Bytes of the largest large item.
    pub large_max: Option<u64>,
    /// Share of GETs, 0 to 1.
    pub get_ratio: Option<f64>,
    /// Exponent of the popularity.
    pub zipf: Option<f64>,
    /// Values above this count as large, regardless of the workload.
    pub large_threshold: Option<u64>,
}

/// Table 1 of Minos: name, percentage of large requests, bytes of the largest item.
const TABLE_1: [(&str, f64, u64); 7] = [
    ("table1-0.125-250k", 0.125, 250_000),
    ("table1-0.125-500k", 0.125, 500_000),
    ("table1-0.125-1000k", 0.125, 1_000_000),
    ("table1-0.0625-500k", 0.0625, 500_000),
    ("table1-0.25-500k", 0.25, 500_000),
    ("table1-0.5-500k", 0.5, 500_000),
    ("table1-0.75-500k", 0.75, 500_000),
];

/// Names that [`crate::Workload::open`] knows besides files and folders.
pub fn named_workloads() -> impl Iterator<Item = &'static str> {
    let others =
        ["mica-tiny", "mica-small", "mica-large", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-f", "noise"];
    std::iter::once("etc").chain(TABLE_1.map(|row| row.0)).chain(others)
}

/// The workload called `name`, if there is one.
pub(super) fn named(name: &str, shape: &Shape) -> Option<WorkloadSpec> {
    let streams = match name {
        "etc" => vec![etc(shape, 0.125, 500_000)],
        // Counts are the paper's (MICA §5.1) divided by 128, to fit machines of today's laptops' size.
        "mica-tiny" => vec![mica(shape, 8, 8, 1536 << 10)],
        "mica-small" => vec![mica(shape, 16, 64, 1 << 20)],
        "mica-large" => vec![mica(shape, 128, 1024, 64 << 10)],
        "ycsb-a" => vec![ycsb(shape, 0.5, Writes::Update, Popularity::ScrambledZipf)],
        "ycsb-b" => vec![ycsb(shape, 0.95, Writes::Update, Popularity::ScrambledZipf)],
        "ycsb-c" => vec![ycsb(shape, 1.0, Writes::Update, Popularity::ScrambledZipf)],
        "ycsb-d" => vec![ycsb(shape, 0.95, Writes::Insert, Popularity::Latest)],
        "ycsb-f" => vec![ycsb(shape, 0.5, Writes::ReadModifyWrite, Popularity::ScrambledZipf)],
        "noise" => noise(shape).into(),
        _ => {
            let (_, large_percent, large_max) = TABLE_1.into_iter().find(|row| row.0 == name)?;
            vec![etc(shape, large_percent, large_max)]
        }
    };
    Some(WorkloadSpec { name: name.to_owned(), streams })
}

const KEYS_DEFAULT: u64 = 100_000;
const ZIPF_DEFAULT: f64 = 0.99;

/// Facebook's ETC as the paper models it (Minos §5.3): zipf on tiny and on small items, uniform on large.
fn etc(shape: &Shape, large_percent: f64, large_max: u64) -> StreamSpec {
    let large_percent = shape.large_percent.unwrap_or(large_percent);
    let mut groups = tiny_and_small(shape, 100.0 - large_percent).to_vec();
    groups.push(GroupSpec {
        keys: shape.large_keys.unwrap_or(100),
        key_bytes: 8,
        value_bytes: SizeRange { min: 1500, max: shape.large_max.unwrap_or(large_max) },
        popularity: Popularity::Uniform,
        weight: large_percent,
        class: Some(Class::Large),
    });
    stream("etc", shape.get_ratio.unwrap_or(0.95), groups)
}

/// 40 % of the items and of the requests are tiny, 60 % small.
fn tiny_and_small(shape: &Shape, weight: f64) -> [GroupSpec; 2] {
    let keys = shape.keys.unwrap_or(KEYS_DEFAULT);
    let tiny_keys = (keys * 2 / 5).max(1);
    let group = |keys, share: f64, min, max| GroupSpec {
        keys,
        key_bytes: 8,
        value_bytes: SizeRange { min, max },
        popularity: Popularity::Zipf(shape.zipf.unwrap_or(ZIPF_DEFAULT)),
        weight: share * weight,
        class: Some(Class::Small),
    };
    [group(tiny_keys, 0.4, 1, 13), group(keys.saturating_sub(tiny_keys).max(1), 0.6, 14, 1400)]
}

/// One of MICA's data sets; skewed unless `--zipf 0` (MICA §5.1).
fn mica(shape: &Shape, key_bytes: usize, value_bytes: u64, keys: u64) -> StreamSpec {
    let group = GroupSpec {
        keys: shape.keys.unwrap_or(keys),
        key_bytes,
        value_bytes: SizeRange::fixed(value_bytes),
        popularity: Popularity::Zipf(shape.zipf.unwrap_or(ZIPF_DEFAULT)),
        weight: 1.0,
        class: Some(Class::Small),
    };
    stream("mica", shape.get_ratio.unwrap_or(0.95), vec![group])
}

/// One of YCSB's core workloads: records of ten fields of 100 bytes under keys of 23.
fn ycsb(shape: &Shape, get_ratio: f64, writes: Writes, popularity: fn(f64) -> Popularity) -> StreamSpec {
    let group = GroupSpec {
        keys: shape.keys.unwrap_or(KEYS_DEFAULT),
        key_bytes: 23,
        value_bytes: SizeRange::fixed(1000),
        popularity: popularity(shape.zipf.unwrap_or(ZIPF_DEFAULT)),
        weight: 1.0,
        class: Some(Class::Small),
    };
    StreamSpec { writes, ..stream("ycsb", shape.get_ratio.unwrap_or(get_ratio), vec![group]) }
}

/// Many small GETs, and on connections of their own a trickle of very large ones.
fn noise(shape: &Shape) -> [StreamSpec; 2] {
    let get_ratio = shape.get_ratio.unwrap_or(1.0);
    let large = GroupSpec {
        keys: shape.large_keys.unwrap_or(4),
        key_bytes: 8,
        value_bytes: SizeRange::fixed(shape.large_max.unwrap_or(10_000_000)),
        popularity: Popularity::Uniform,
        weight: 1.0,
        class: Some(Class::Large),
    };
    let small = stream("small", get_ratio, tiny_and_small(shape, 1.0).to_vec());
    let trickle = stream("large", get_ratio, vec![large]);
    [
        StreamSpec { connections: None, ..small },
        StreamSpec { rate: Some(20.0), connections: Some(4), ..trickle },
    ]
}

fn stream(name: &str, get_ratio: f64, groups: Vec<GroupSpec>) -> StreamSpec {
    StreamSpec {
        name: name.to_owned(),
        rate: None,
        connections: None,
        get_ratio,
        writes: Writes::Update,
        groups,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known() {
        assert!(named_workloads().all(|name| named(name, &Shape::default()).is_some()));
        assert_eq!(named_workloads().count(), 17);
        assert!(named("etcetera", &Shape::default()).is_none());
    }

    #[test]
    fn the_command_line_overrides() {
        let shape =
            Shape { keys: Some(10), large_percent: Some(0.0), get_ratio: Some(0.5), ..Shape::default() };
        let spec = named("etc", &shape).unwrap();
        let keys: Vec<u64> = spec.streams[0].groups.iter().map(|group| group.keys).collect();
        assert_eq!(keys, [4, 6, 100]);
        assert_eq!((spec.streams[0].get_ratio, spec.streams[0].groups[2].weight), (0.5, 0.0));
    }
}
