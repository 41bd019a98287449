//! `minos dump`, `restore` and `import`: items between servers and files.

mod file;
mod key_list;
mod memcached;
mod redis;

use std::{
    env,
    ffi::OsStr,
    fmt,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use clap::{
    Arg, Args, Command,
    builder::{TypedValueParser, ValueParserFactory},
    error::ErrorKind,
};

use file::{DumpReader, DumpWriter};
pub(crate) use memcached::{Connection, PATIENCE, Place, exptime_of_ttl, word_of};
use memcached::{MemcachedSink, MemcachedSource, place_of};
use redis::RedisSource;
pub(crate) use redis::connect_redis;

use crate::trust::TrustArgs;

/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// Items that are refused with a line each.
const REFUSALS_TOLD: u64 = 10;
/// A batch ends with the item that makes it so large, in bytes of values.
const BATCH_BYTES: u64 = 4 << 20;
pub(crate) const DEFAULT_SERVER: &str = "memcached://127.0.0.1:11211";
/// Names the password of users whose URL has none: anybody may list the arguments of processes.
const PASSWORD_VARIABLE: &str = "MINOS_PASSWORD";

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

    /// The numbers and kinds of what was left out.
    fn left_out(&self) -> Vec<String> {
        Vec::new()
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
    Memcached(Place),
    /// The whole URL.
    Redis(String),
}

impl Server {
    /// The server at a URL.
    fn at(url: &str) -> Option<Self> {
        match url.split_once("://")? {
            ("redis" | "rediss", address) if !address.is_empty() => Some(Self::Redis(url.to_owned())),
            _ => Place::at(url).filter(Place::has_port).map(Self::Memcached),
        }
    }

    fn is_tls(&self) -> bool {
        match self {
            Self::Memcached(place) => place.is_tls,
            Self::Redis(url) => redis::is_tls(url),
        }
    }

    /// Looks whether options for TLS are of use: `servers` are all that are asked.
    pub(crate) fn check(trust: &TrustArgs, servers: &[&Self]) -> anyhow::Result<()> {
        trust.check(servers.iter().any(|server| server.is_tls()), "memcacheds:// or rediss://")
    }
}

impl ValueParserFactory for Server {
    type Parser = ServerParser;

    fn value_parser() -> ServerParser {
        ServerParser
    }
}

/// Parses a URL, and does not repeat a wrong one: it may contain a password.
#[derive(Clone, Debug)]
pub(crate) struct ServerParser;

impl TypedValueParser for ServerParser {
    type Value = Server;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, url: &OsStr) -> Result<Server, clap::Error> {
        url.to_str().and_then(Server::at).ok_or_else(|| {
            let arg = arg.map(ToString::to_string).unwrap_or_default();
            let expected = "memcached://[USER[:PASSWORD]@]HOST:PORT or redis://[USER[:PASSWORD]@]HOST:PORT[/DB]; \
                            over TLS memcacheds:// or rediss://";
            let text = format!("'{arg}' is no URL of a server: expected {expected}\n");
            clap::Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

/// The password of a user whose URL has none.
fn password_of_environment() -> anyhow::Result<String> {
    env::var(PASSWORD_VARIABLE).with_context(|| format!("no password in the URL, nor in {PASSWORD_VARIABLE}"))
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memcached(place) => place.fmt(f),
            // Without user and password, as above.
            Self::Redis(url) => {
                let (scheme, address) = url.split_once("://").unwrap_or(("redis", url));
                write!(f, "{scheme}://{}", place_of(address).1)
            }
        }
    }
}

impl Server {
    fn source(&self, trust: &TrustArgs) -> anyhow::Result<Box<dyn Source>> {
        Ok(match self {
            Self::Memcached(place) => Box::new(MemcachedSource::connect(place, trust)?),
            Self::Redis(url) => Box::new(RedisSource::connect(url, trust)?),
        })
    }

    fn sink(&self, trust: &TrustArgs) -> anyhow::Result<Box<dyn Sink>> {
        let Self::Memcached(place) = self else {
            anyhow::bail!(
                "items are stored by memcached's protocol: --to memcached://HOST:PORT, or memcacheds:// over TLS"
            );
        };
        Ok(Box::new(MemcachedSink::connect(place, trust)?))
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
    /// The server: memcached://USER@HOST:PORT (Minos or memcached) or redis://USER@HOST:PORT/DB; over TLS memcacheds:// or
    /// rediss://
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    from: Server,
    #[command(flatten)]
    trust: TrustArgs,
}

/// Store all items of a file that `minos dump` wrote.
///
/// Items of the same keys are replaced. Items that have expired since are left out.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The file
    file: PathBuf,
    /// The server: memcached://USER@HOST:PORT, or memcacheds:// over TLS
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    to: Server,
    #[command(flatten)]
    trust: TrustArgs,
}

/// Copy all items of another server: memcached's, or the strings of a Redis database.
///
/// Items of the same keys are replaced. What is changed meanwhile may be copied or not.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The other server: memcached://USER@HOST:PORT or redis://USER@HOST:PORT/DB; over TLS memcacheds:// or rediss://
    from: Server,
    /// The server that gets the items: memcached://USER@HOST:PORT, or memcacheds:// over TLS
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    to: Server,
    #[command(flatten)]
    trust: TrustArgs,
}

impl DumpArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Server::check(&self.trust, &[&self.from])?;
        let mut source = self.from.source(&self.trust).with_context(|| self.from.to_string())?;
        let mut sink = DumpWriter::create(&self.file).with_context(|| self.file.display().to_string())?;
        let ended = pump(&mut *source, &mut sink);
        if ended.is_err() {
            // A part of a dump would stand in the way of the next attempt. If it stays, that attempt says so.
            let _ = std::fs::remove_file(&self.file);
        }
        ended
    }
}

impl RestoreArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Server::check(&self.trust, &[&self.to])?;
        let mut sink = self.to.sink(&self.trust).with_context(|| self.to.to_string())?;
        let mut source = DumpReader::open(&self.file).with_context(|| self.file.display().to_string())?;
        pump(&mut source, &mut *sink).with_context(|| self.file.display().to_string())
    }
}

impl ImportArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Server::check(&self.trust, &[&self.from, &self.to])?;
        let mut sink = self.to.sink(&self.trust).with_context(|| self.to.to_string())?;
        let mut source = self.from.source(&self.trust).with_context(|| self.from.to_string())?;
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
        assert_eq!(Server::at("memcached://h:1"), Some(Server::Memcached(Place::plain("h:1"))));
        for (url, shown) in
            [("memcacheds://u:p@h:1", "memcacheds://h:1"), ("rediss://u:p@h:1/2", "rediss://h:1/2")]
        {
            let server = Server::at(url).unwrap();
            assert!(server.is_tls() && server.to_string() == shown, "{server}");
        }
        let with_login = Server::at("memcached://user:pass@word:x@h:1").unwrap();
        assert_eq!(with_login.to_string(), "memcached://h:1");
        assert_eq!(place_of("user:pass@word:x@h:1"), (Some(("user", Some("pass@word:x"))), "h:1"));
        assert_eq!(place_of("user@h:1"), (Some(("user", None)), "h:1"));
        let redis = Server::at("redis://me:secret@h:6379/2").unwrap();
        assert_eq!(redis.to_string(), "redis://h:6379/2");
        for text in [
            "",
            "h:1",
            "memcached://",
            "memcached://h",
            "memcacheds://h",
            "redis://",
            "rediss://",
            "http://h:1",
        ] {
            assert_eq!(Server::at(text), None, "{text}");
        }
    }
}
