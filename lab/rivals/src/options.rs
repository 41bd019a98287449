//! The options of the command line.

use crate::{
    contestants::Family,
    flash::FlashOptions,
    workload::{Mix, Popularity},
};
use clap::{Parser, Subcommand, ValueEnum, builder::RangedU64ValueParser};
use minos_base::{SizeText, limits::BURST_MAX};
use minos_engine::Backing;
use std::path::PathBuf;

/// Memory beside key and value, in bytes: more than any table of Minos needs.
const HUGETLB_ITEM_OVERHEAD_BYTES: u64 = 112;

/// Memory beside the items, in bytes: more than any table of Minos needs.
const HUGETLB_TABLE_BYTES: u64 = 128 << 20;

/// Compares the Minos engine with other tables, side by side, and with the machine's limit
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// Another comparison
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Sizes of keys and values, as in MICA §5.1: 8 + 8, 16 + 64, 128 + 1024 bytes
    #[arg(long, default_value = "tiny")]
    pub(crate) preset: Preset,
    /// Items; by default 16m tiny ones, 8m small ones, 512k large ones
    #[arg(long)]
    items: Option<SizeText>,
    /// Numbers of threads, powers of two
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = power_of_two)]
    pub(crate) threads: Vec<usize>,
    /// Shares of GETs in percent; the others replace items
    #[arg(long, value_delimiter = ',', default_value = "95,50", value_parser = clap::value_parser!(u32).range(..=100))]
    get: Vec<u32>,
    /// Popularities of items
    #[arg(long, value_delimiter = ',', default_value = "zipf,uniform")]
    popularity: Vec<Popularity>,
    /// Operations of each thread in each round; by default 4m, 1m of large items
    #[arg(long)]
    operations: Option<SizeText>,
    /// Rounds that count; one before them does not
    #[arg(long, default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    /// Operations of a batch, at most 32
    #[arg(long, default_value_t = BURST_MAX, value_parser = RangedU64ValueParser::<usize>::new().range(1..=BURST_MAX as u64))]
    pub(crate) batch: usize,
    /// Families that take part
    #[arg(long, value_delimiter = ',', default_values_t = Family::value_variants().to_vec(), value_enum)]
    only: Vec<Family>,
    /// Families that do not take part
    #[arg(long, value_delimiter = ',')]
    without: Vec<Family>,
    /// Time at which keys are hashed for Minos: before the measured time, as in MICA2's own benchmark, or
    /// within it
    #[arg(long, default_value = "before")]
    hash: Hashing,
    /// Pages of Minos and of the first probe: transparent huge pages, pages of 4 KiB, or reserved huge pages,
    /// which are reserved for the time of the run (needs root)
    #[arg(long, default_value = "transparent")]
    pages: Pages,
    /// Print JSON and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the tables to this file too
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// Another comparison.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compares stores and caches on flash
    Flash(FlashOptions),
    /// One contestant of `flash`, which takes jobs by standard input
    #[command(hide = true)]
    FlashPeer,
}

/// Sizes of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// 8 + 8 bytes.
    Tiny,
    /// 16 + 64 bytes.
    Small,
    /// 128 + 1024 bytes.
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hashing {
    Before,
    Inline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pages {
    Transparent,
    #[value(name = "4k")]
    Small,
    Reserved,
}

impl Options {
    pub(crate) fn items(&self) -> u64 {
        let default = match self.preset {
            Preset::Tiny => 16 << 20,
            Preset::Small => 8 << 20,
            Preset::Large => 512 << 10,
        };
        self.items.map_or(default, |items| items.0).max(1)
    }

    /// Operations of each thread in each round.
    pub(crate) fn operations(&self) -> usize {
        let default = if self.preset == Preset::Large { 1 << 20 } else { 4 << 20 };
        self.operations.map_or(default, |operations| operations.0) as usize
    }

    /// True if Minos hashes keys within the measured time.
    pub(crate) fn hashes_inline(&self) -> bool {
        self.hash == Hashing::Inline
    }

    /// The source of Minos' memory.
    pub(crate) fn backing(&self) -> Backing {
        match self.pages {
            Pages::Transparent => Backing::Private,
            Pages::Small => Backing::Memfd,
            Pages::Reserved => Backing::Hugetlb,
        }
    }

    /// Bytes of huge pages to reserve.
    pub(crate) fn hugetlb_bytes(&self) -> Option<u64> {
        let (key_bytes, value_bytes) = self.sizes();
        let items_bytes = self.items() * (key_bytes + value_bytes + HUGETLB_ITEM_OVERHEAD_BYTES);
        let tables = self.families().map(|family| match family {
            Family::Minos | Family::MinosCache => 3,
            Family::Limit => 1,
            _ => 0,
        });
        let bytes = tables.sum::<u64>() * (items_bytes + HUGETLB_TABLE_BYTES);
        (self.pages == Pages::Reserved).then_some(bytes)
    }

    /// Bytes of a key and of a value.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        match self.preset {
            Preset::Tiny => (8, 8),
            Preset::Small => (16, 64),
            Preset::Large => (128, 1024),
        }
    }

    /// The families that take part.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
        self.only.iter().copied().filter(|family| !self.without.contains(family))
    }

    /// The mixes to run, in order.
    pub(crate) fn mixes(&self) -> Vec<Mix> {
        let of = |&popularity| self.get.iter().map(move |&get_percent| Mix { popularity, get_percent });
        self.popularity.iter().flat_map(of).collect()
    }
}

fn power_of_two(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| format!("{text} is no number"))?;
    if number.is_power_of_two() {
        Ok(number)
    } else {
        Err("the hash deals keys to 1, 2, 4... threads".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn options_are_consistent() {
        Options::command().debug_assert();
        let options = Options::parse_from(["x", "--without", "moka", "--get", "95"]);
        assert!(options.families().all(|family| family != Family::Moka));
        assert_eq!(options.mixes().len(), 2);
        assert!(Options::try_parse_from(["x", "--threads", "3"]).is_err());
    }
}
