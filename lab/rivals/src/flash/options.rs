//! The options of `flash`.

use super::{
    job::{Peer, Work},
    peers::Key,
};
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use minos_base::SizeText;
use std::path::PathBuf;

/// Smallest value: it begins and ends with its key.
const VALUE_BYTES_MIN: u64 = 2 * size_of::<Key>() as u64;
/// Largest value.
const VALUE_BYTES_MAX: u64 = 1 << 20;
/// Least memory: all have buffers of some MiB.
const MEMORY_BYTES_MIN: u64 = 32 << 20;
/// Longest vector.
const WIDTH_MAX: u64 = 4096;

/// Compares Minos' store above flash with other stores and caches on flash
#[derive(Debug, Args)]
pub(crate) struct FlashOptions {
    /// Folder in the file system to use; a folder in it is made, and removed in the end
    #[arg(long)]
    pub(super) folder: PathBuf,
    /// Bytes of all keys and values; all contestants' files together may need ten to thirty times as much
    #[arg(long, default_value = "2g")]
    data: SizeText,
    /// Memory of each contestant for index, caches and buffers together
    #[arg(long, default_value = "128m", value_parser = memory)]
    memory: SizeText,
    /// Bytes of each value
    #[arg(long, value_delimiter = ',', default_value = "1k,4k", value_parser = value_bytes)]
    value_bytes: Vec<SizeText>,
    /// Keys of a vector
    #[arg(long, value_delimiter = ',', default_value = "1,32", value_parser = RangedU64ValueParser::<usize>::new().range(1..=WIDTH_MAX))]
    widths: Vec<usize>,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(super) rounds: usize,
    /// Seconds of each contestant in each round; a quarter of it goes before
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(super) seconds: f64,
    /// Contestants that take part
    #[arg(long, value_delimiter = ',', default_values_t = Peer::value_variants().to_vec(), value_enum)]
    only: Vec<Peer>,
    /// Contestants that do not take part
    #[arg(long, value_delimiter = ',')]
    without: Vec<Peer>,
    /// Print JSON and nothing else
    #[arg(long)]
    pub(super) json: bool,
    /// Write the tables to this file too
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
}

impl FlashOptions {
    /// Items to store, with values of this size.
    pub(super) fn items(&self, value_bytes: usize) -> u64 {
        (self.data.0 / (size_of::<Key>() + value_bytes) as u64).max(1)
    }

    /// Memory of each contestant.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.0
    }

    /// Sizes of values, in order.
    pub(super) fn value_bytes(&self) -> impl Iterator<Item = usize> {
        self.value_bytes.iter().map(|bytes| bytes.0 as usize)
    }

    /// The contestants that take part.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.only.iter().copied().filter(|peer| !self.without.contains(peer))
    }

    /// The work after everything is loaded, in order. What is read first is what was never read before.
    pub(super) fn works(&self) -> Vec<Work> {
        let gets = self.widths.iter().map(|&width| Work::Get { width });
        gets.chain(self.widths.iter().map(|&width| Work::Mixed { width })).collect()
    }
}

fn value_bytes(text: &str) -> Result<SizeText, String> {
    size_within(text, VALUE_BYTES_MIN, VALUE_BYTES_MAX)
}

fn memory(text: &str) -> Result<SizeText, String> {
    size_within(text, MEMORY_BYTES_MIN, 1 << 40)
}

fn size_within(text: &str, least: u64, most: u64) -> Result<SizeText, String> {
    let size: SizeText = text.parse().map_err(|error: minos_base::ParseSizeError| error.to_string())?;
    if (least..=most).contains(&size.0) { Ok(size) } else { Err(format!("from {least} to {most} bytes")) }
}

fn seconds(text: &str) -> Result<f64, String> {
    let is_usable = |seconds: &f64| (0.01..=3600.0).contains(seconds);
    text.parse().ok().filter(is_usable).ok_or_else(|| "from 0.01 to 3600".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Command, Options};
    use clap::Parser;

    fn parsed(args: &str) -> Result<FlashOptions, clap::Error> {
        let args = ["x", "flash", "--folder", "/somewhere"].into_iter().chain(args.split_whitespace());
        match Options::try_parse_from(args)?.command {
            Some(Command::Flash(options)) => Ok(options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_understood() {
        let options = parsed("--data 1m --value-bytes 1k,16 --widths 8 --without foyer").expect("right");
        assert_eq!(options.value_bytes().collect::<Vec<_>>(), [1024, 16]);
        assert_eq!((options.items(1024), options.items(16)), (1016, 43690));
        assert_eq!(options.works(), [Work::Get { width: 8 }, Work::Mixed { width: 8 }]);
        assert!(options.peers().all(|peer| peer != Peer::Foyer) && options.peers().count() > 3);
    }

    #[test]
    fn options_out_of_bounds_are_refused() {
        for args in ["--value-bytes 15", "--value-bytes 2m", "--widths 0", "--widths 5000", "--rounds 0"] {
            assert!(parsed(args).is_err(), "{args}");
        }
        for args in
            ["--seconds 0", "--seconds nan", "--seconds 1e9", "--only nobody", "--data 1x", "--memory 31m"]
        {
            assert!(parsed(args).is_err(), "{args}");
        }
        assert!(parsed("--value-bytes 16 --widths 4096 --rounds 1 --seconds 0.01").is_ok());
    }
}
