//! The values that options of `minos serve` take.

use std::hash::{BuildHasher, Hasher};

use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use minos_engine::{Backing, Eviction};
use minos_node::config::Design;

/// An option that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// How native datagrams come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NativePort {
    Udp,
    Xdp,
    Memif,
    Dpdk,
}

/// The reaction to full memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    Cache,
    Store,
}

/// Which items a cache evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Evict {
    /// About the least recently used
    ApproxLru,
    /// The least recently used
    Lru,
    /// The oldest
    Fifo,
}

impl From<Evict> for Eviction {
    fn from(evict: Evict) -> Self {
        match evict {
            Evict::ApproxLru => Self::ApproxLru,
            Evict::Lru => Self::Lru,
            Evict::Fifo => Self::Fifo,
        }
    }
}

/// Who accesses a partition (MICA §4.1.2). A request that arrives elsewhere is handed to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessMode {
    /// Any worker reads and writes
    Crcw,
    /// Any worker reads, one writes
    Crew,
    /// One worker does both
    Erew,
}

/// An unpredictable seed, so that nobody can choose keys that all fall into one bucket.
pub(crate) fn random_seed() -> u64 {
    // The standard library's defence against the same attack.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The spelling of a value on the command line.
pub(super) fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Parses one of `names`, and lists them in the help.
pub(crate) fn names<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

/// Parses the name of a design. Designs of the simulator only are not listed; the server refuses them with a
/// reason.
pub(super) fn designs() -> impl TypedValueParser<Value = Design> {
    let value = |design: Design| PossibleValue::new(design.name()).hide(!design.is_served());
    let served = Design::SERVED.into_iter();
    let others = Design::ALL.into_iter().filter(|design| !design.is_served());
    PossibleValuesParser::new(served.chain(others).map(value)).try_map(|name| name.parse::<Design>())
}

/// Parses the kind of memory behind a store.
pub(crate) fn parse_backing(text: &str) -> Result<Backing, String> {
    match text.split_once(':') {
        None if text == "auto" => Ok(Backing::Auto),
        None if text == "hugetlb" => Ok(Backing::Hugetlb),
        None if text == "private" => Ok(Backing::Private),
        None if text == "small-pages" => Ok(Backing::SmallPages),
        None if text == "memfd" => Ok(Backing::Memfd),
        Some(("file", path)) if !path.is_empty() => Ok(Backing::File(path.into())),
        _ => Err("expected auto, hugetlb, private, small-pages, memfd or file:/PATH".to_owned()),
    }
}
