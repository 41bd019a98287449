//! `minos dump`, `restore` and `import`: items between servers and files.

mod file;
mod memcached;
mod redis;

use std::{
    fmt,
    path::PathBuf,
    str::FromStr,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use clap::Args;

use file::{DumpReader, DumpWriter};
pub(crate) use memcached::{Connection, PATIENCE, exptime_of_ttl, word_of};
use memcached::{MemcachedSink, MemcachedSource};
use redis::RedisSource;

/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// Items that are refused with a line each.
const REFUSALS_TOLD: u64 = 10;
pub(crate) const DEFAULT_SERVER: &str = "memcached://127.0.0.1:11211";

/// An item on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    key: Vec<u8>,
    /// The client's flags; 0 from Redis.
    flags: u32,
    /// When it expires, in milliseconds since 1970; 0 is never.
    expires_unix_ms: u64,
    value: Vec<u8>,
}

/// Gives items.
trait Source {
    /// The next items, possibly none; `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<Vec<Item>>>;

    /// The number and kind of what was left out, if anything was.
    fn left_out(&self) -> Option<String> {
        None
    }
}

/// Takes items.
trait Sink {
    /// Stores items. Returns the reasons for those that were refused.
    fn put(&mut self, items: &[Item]) -> anyhow::Result<Vec<String>>;

    /// Completes what was stored.
    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A server as URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// HOST:PORT.
    Memcached(String),
    /// The whole URL.
    Redis(String),
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("memcached", address)) if address.contains(':') => Ok(Self::Memcached(address.to_owned())),
            Some(("redis", address)) if !address.is_empty() => Ok(Self::Redis(text.to_owned())),
            _ => Err("expected memcached://HOST:PORT or redis://[USER:PASSWORD@]HOST:PORT[/DB]".to_owned()),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memcached(address) => write!(f, "memcached://{address}"),
            // Without user and password.
            Self::Redis(url) => write!(f, "redis://{}", url.rsplit(['@', '/']).next().unwrap_or_default()),
        }
    }
}

impl Server {
    fn source(&self) -> anyhow::Result<Box<dyn Source>> {
        Ok(match self {
            Self::Memcached(address) => Box::new(MemcachedSource::connect(address)?),
            Self::Redis(url) => Box::new(RedisSource::connect(url)?),
        })
    }

    fn sink(&self) -> anyhow::Result<Box<dyn Sink>> {
        let Self::Memcached(address) = self else {
            anyhow::bail!("items are stored by memcached's protocol: --to memcached://HOST:PORT");
        };
        Ok(Box::new(MemcachedSink::connect(address)?))
    }
}

/// Write all items of a server to a file.
///
/// Items that are stored, changed or removed meanwhile may be in it or not. Of a server above flash only items in memory
/// are listed; copy the others by `minos ctl snapshot`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The file, which must not exist yet
    file: PathBuf,
    /// The server: memcached://HOST:PORT (Minos or memcached) or redis://USER:PASSWORD@HOST:PORT/DB
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    from: Server,
}

/// Store all items of a file that `minos dump` wrote.
///
/// Items of the same keys are replaced. Items that have expired since are left out.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The file
    file: PathBuf,
    /// The server: memcached://HOST:PORT
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    to: Server,
}

/// Copy all items of another server: memcached's, or the strings of a Redis database.
///
/// Items of the same keys are replaced. What is changed meanwhile may be copied or not.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The other server: memcached://HOST:PORT or redis://USER:PASSWORD@HOST:PORT/DB
    from: Server,
    /// The server that gets the items: memcached://HOST:PORT
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    to: Server,
}

impl DumpArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut source = self.from.source().with_context(|| self.from.to_string())?;
        let mut sink = DumpWriter::create(&self.file).with_context(|| self.file.display().to_string())?;
        pump(&mut *source, &mut sink)
    }
}

impl RestoreArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut sink = self.to.sink().with_context(|| self.to.to_string())?;
        let mut source = DumpReader::open(&self.file).with_context(|| self.file.display().to_string())?;
        pump(&mut source, &mut *sink).with_context(|| self.file.display().to_string())
    }
}

impl ImportArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut sink = self.to.sink().with_context(|| self.to.to_string())?;
        let mut source = self.from.source().with_context(|| self.from.to_string())?;
        pump(&mut *source, &mut *sink)
    }
}

/// Copies all items, and tells how many on standard error.
fn pump(source: &mut dyn Source, sink: &mut dyn Sink) -> anyhow::Result<()> {
    let (mut items, mut bytes, mut refused, mut told) = (0u64, 0u64, 0u64, Instant::now());
    while let Some(batch) = source.next()? {
        let reasons = sink.put(&batch)?;
        for reason in &reasons {
            refused += 1;
            if refused <= REFUSALS_TOLD {
                eprintln!("refused: {reason}");
            }
        }
        items += (batch.len() - reasons.len()) as u64;
        bytes += batch.iter().map(|item| item.value.len() as u64).sum::<u64>();
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            eprintln!("{items} items, {} MB", bytes / 1_000_000);
        }
    }
    sink.finish()?;
    eprintln!("{items} items copied, {} MB; {refused} refused", bytes / 1_000_000);
    source.left_out().iter().for_each(|text| eprintln!("{text}"));
    ensure!(refused == 0, "{refused} items were refused");
    Ok(())
}

/// Milliseconds since 1970.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_urls() {
        assert_eq!("memcached://h:1".parse(), Ok(Server::Memcached("h:1".to_owned())));
        let redis: Server = "redis://me:secret@h:6379/2".parse().unwrap();
        assert!(!redis.to_string().contains("secret"), "{redis}");
        for text in ["", "h:1", "memcached://", "memcached://h", "redis://", "http://h:1"] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }
}
