//! `minos get`, `set`, `del` and `stats`: a server from the command line, by the native protocol or memcached's.

mod plain;

use std::{
    env, fs,
    io::{self, BufWriter, ErrorKind, Read, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::Args;
use minos_client::{Config, DEFAULT_PORT, Error, ReadBy, Secret, StoreOptions, blocking::Client};
use minos_node::settings::parse_time;

pub(crate) use plain::Plain;

use crate::{transfer::Place, trust::TrustArgs};

/// How a command ended, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All keys were there, or everything was done.
    Found,
    /// A key was not there.
    Missing,
}

/// The exit code of a command; prints its error.
pub(crate) fn exit_code(ended: anyhow::Result<Ended>) -> ExitCode {
    match ended {
        Ok(Ended::Found) => ExitCode::SUCCESS,
        Ok(Ended::Missing) => ExitCode::from(1),
        Err(error) => {
            eprintln!("minos: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Writes to standard output. A closed pipe, as behind `head`, is no error.
pub(crate) fn show(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Longest value that a command handles, in bytes: the upper bound of any server.
const VALUE_BYTES_MAX: u64 = minos_base::VALUE_BYTES_MAX;

/// Time in which a server on this machine answers, unless it has no native port.
const HERE_WITHIN: Duration = Duration::from_millis(200);
/// The memcached server that is tried where nothing else is named and nothing answers.
const PLAIN_DEFAULT: &str = "127.0.0.1:11211";

/// Names the server where the command line does not.
const SERVER_VARIABLE: &str = "MINOS_SERVER";

/// The server, and how to speak to it.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Server, as minos://HOST:PORT or HOST:PORT: the address of its --native; or
    /// memcached://USER@HOST:PORT, or memcacheds:// over TLS [default: $MINOS_SERVER, or 127.0.0.1:11311, or memcached://127.0.0.1:11211
    /// if nothing answers there]
    #[arg(long, short, value_name = "ADDR")]
    server: Option<String>,

    /// File with the secret shared with the server, in its first line
    #[arg(long, value_name = "PATH")]
    secret_file: Option<PathBuf>,

    /// Node of a rack's unit that gets a read: weighted, as the rack balances it, uniform, or two-choices, the less busy
    /// of two; or copies, also nodes of other units, whose copies may be old by their --read-copies
    #[arg(long, value_name = "HOW", default_value = "weighted")]
    reads: ReadBy,

    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    timeout: Duration,

    #[command(flatten)]
    trust: TrustArgs,
}

impl ServerArgs {
    /// A client of the server, which has answered.
    fn connect(&self) -> anyhow::Result<Remote> {
        let named =
            self.server.clone().or_else(|| env::var(SERVER_VARIABLE).ok().filter(|it| !it.is_empty()));
        let is_tls = named.as_deref().and_then(Place::at).is_some_and(|place| place.is_tls);
        self.trust.check(is_tls, "--server memcacheds://")?;
        let Some(server) = named else {
            let native =
                self.connect_native(&format!("127.0.0.1:{DEFAULT_PORT}"), self.timeout.min(HERE_WITHIN));
            return native.map(Remote::Native).or_else(|error| {
                let place = Place::plain(PLAIN_DEFAULT);
                let plain = Plain::connect(&place, &self.trust, self.timeout).map(Remote::Plain);
                let tried = format!("{error:#}; nor memcached://{PLAIN_DEFAULT}");
                plain.context(tried).context("start one by `minos serve`, or name one by --server")
            });
        };
        match Place::at(&server) {
            Some(place) => Plain::connect(&place, &self.trust, self.timeout).map(Remote::Plain),
            None => {
                self.connect_native(&server, self.timeout).map(Remote::Native).map_err(|error| {
                    match error.downcast_ref() {
                        Some(Error::TimedOut { .. }) if !server.contains("://") => {
                            anyhow!("{error:#}; without --native it is memcached://{server}")
                        }
                        Some(Error::Address { .. }) if server.contains("://") => {
                            anyhow!("{error:#}; or memcached://HOST:PORT, memcacheds://HOST:PORT")
                        }
                        _ => error,
                    }
                })
            }
        }
    }

    fn connect_native(&self, server: &str, timeout: Duration) -> anyhow::Result<Box<Client>> {
        let mut config = Config::new().timeout(timeout).value_bytes_max(VALUE_BYTES_MAX).read_by(self.reads);
        if let Some(path) = &self.secret_file {
            config = config.secret(&secret(path)?);
        }
        Client::connect(server, config)
            .map(Box::new)
            .with_context(|| format!("cannot use the server {server}"))
    }
}

/// A server, by the protocol that it serves.
enum Remote {
    Native(Box<Client>),
    Plain(Plain),
}

/// A stored value, with what is known of it.
struct Found {
    flags: u32,
    cas: u64,
    bytes: Vec<u8>,
}

/// When a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    IfNone,
    IfSome,
}

impl Remote {
    fn get(&mut self, keys: &[String]) -> Vec<anyhow::Result<Option<Found>>> {
        let Self::Native(client) = self else { return self.plain(keys, Plain::get) };
        let found =
            |value: minos_client::Value| Found { flags: value.flags, cas: value.cas, bytes: value.bytes };
        client.get_many(keys).into_iter().map(|result| Ok(result?.map(found))).collect()
    }

    fn delete(&mut self, keys: &[String]) -> Vec<anyhow::Result<bool>> {
        let Self::Native(client) = self else { return self.plain(keys, Plain::delete) };
        client.delete_many(keys).into_iter().map(|result| Ok(result?)).collect()
    }

    fn plain<T>(
        &mut self,
        keys: &[String],
        call: fn(&mut Plain, &str) -> anyhow::Result<T>,
    ) -> Vec<anyhow::Result<T>> {
        let Self::Plain(plain) = self else { return Vec::new() };
        keys.iter().map(|key| call(plain, key)).collect()
    }

    /// True if it was stored.
    fn store(
        &mut self,
        when: When,
        key: &str,
        value: Vec<u8>,
        (flags, ttl): (u32, Option<Duration>),
    ) -> anyhow::Result<bool> {
        let client = match self {
            Self::Native(client) => client,
            Self::Plain(plain) => return plain.store(when, key, &value, (flags, ttl)),
        };
        let mut options = StoreOptions::new().flags(flags);
        if let Some(ttl) = ttl {
            options = options.ttl(ttl);
        }
        Ok(match when {
            When::Always => Some(client.put_with(key, value, options)?),
            When::IfNone => client.add(key, value, options)?,
            When::IfSome => client.replace(key, value, options)?,
        }
        .is_some())
    }

    /// The lines of a group; none if there is no such group.
    fn stats(&mut self, group: &str) -> anyhow::Result<Vec<(String, String)>> {
        match self {
            Self::Plain(plain) => plain.stats(group),
            Self::Native(client) => match client.stats(group) {
                // The server does not know the group: the request has no other argument.
                Err(Error::BadRequest) => Ok(Vec::new()),
                result => Ok(result?),
            },
        }
    }
}

/// The first secret in a file, which the server reads as well.
fn secret(path: &PathBuf) -> anyhow::Result<Secret> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let secrets = Secret::all_in(&text).with_context(|| path.display().to_string())?;
    secrets.into_iter().next().context("there is no secret")
}

/// Show values.
///
/// Each value is followed by a line end, unless --raw. Exits with 0 if all keys exist, with 1 if one does
/// not, with 2 if something failed.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    /// Show the values' bytes and nothing else
    #[arg(long)]
    raw: bool,

    /// Show key, flags and CAS unique before each value
    #[arg(long, short, conflicts_with = "raw")]
    verbose: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl GetArgs {
    pub(crate) fn run(&self) -> anyhow::Result<Ended> {
        let mut client = self.server.connect()?;
        let mut ended = Ended::Found;
        for (key, result) in self.keys.iter().zip(client.get(&self.keys)) {
            let Some(value) = result.map_err(|error| anyhow!("{key}: {error}"))? else {
                eprintln!("minos: {key}: not found");
                ended = Ended::Missing;
                continue;
            };
            show(|out| {
                if self.verbose {
                    writeln!(out, "{key} {} {} {}", value.flags, value.bytes.len(), value.cas)?;
                }
                out.write_all(&value.bytes)?;
                if self.raw { Ok(()) } else { writeln!(out) }
            })?;
        }
        Ok(ended)
    }
}

/// Store a value.
///
/// Exits with 0 if it was stored, with 1 if the condition of --add or --replace does not hold, with 2 if
/// something failed.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Key
    key: String,

    /// Value; `-`, or nothing, takes it from standard input
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,

    /// Let the item expire so long from now, as in 90s, 5m, 2h or 1day [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ttl: Option<Duration>,

    /// Number to keep with the item
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    flags: u32,

    /// Store it only if there is none
    #[arg(long, conflicts_with = "replace")]
    add: bool,

    /// Store it only if there is one
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl SetArgs {
    pub(crate) fn run(&self) -> anyhow::Result<Ended> {
        let value = self.value()?;
        let when = match (self.add, self.replace) {
            (true, _) => When::IfNone,
            (_, true) => When::IfSome,
            _ => When::Always,
        };
        let is_stored = self.server.connect()?.store(when, &self.key, value, (self.flags, self.ttl))?;
        if !is_stored {
            eprintln!("minos: {}: not stored", self.key);
        }
        Ok(if is_stored { Ended::Found } else { Ended::Missing })
    }

    fn value(&self) -> anyhow::Result<Vec<u8>> {
        match self.value.as_deref() {
            Some(value) if value != "-" => Ok(value.as_bytes().to_vec()),
            _ => {
                let mut value = Vec::new();
                io::stdin().read_to_end(&mut value).context("cannot read the value from standard input")?;
                Ok(value)
            }
        }
    }
}

/// Delete items.
///
/// Exits with 0 if all were there, with 1 if one was not, with 2 if something failed.
#[derive(Debug, Args)]
pub(crate) struct DelArgs {
    /// Keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    #[command(flatten)]
    server: ServerArgs,
}

impl DelArgs {
    pub(crate) fn run(&self) -> anyhow::Result<Ended> {
        let mut client = self.server.connect()?;
        let mut ended = Ended::Found;
        for (key, result) in self.keys.iter().zip(client.delete(&self.keys)) {
            if !result.map_err(|error| anyhow!("{key}: {error}"))? {
                eprintln!("minos: {key}: not found");
                ended = Ended::Missing;
            }
        }
        Ok(ended)
    }
}

/// Show a server's statistics.
///
/// Exits with 0 if there are any, with 1 if there is no such group, with 2 if something failed.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Group, such as minos, settings, items or slabs [default: the general ones]
    #[arg(default_value = "", hide_default_value = true)]
    group: String,

    #[command(flatten)]
    server: ServerArgs,
}

impl StatsArgs {
    pub(crate) fn run(&self) -> anyhow::Result<Ended> {
        let lines = self.server.connect()?.stats(&self.group)?;
        if lines.is_empty() {
            eprintln!("minos: {}: no such group of statistics", self.group);
            return Ok(Ended::Missing);
        }
        let name_chars = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        show(|out| lines.iter().try_for_each(|(name, value)| writeln!(out, "{name:name_chars$} {value}")))?;
        Ok(Ended::Found)
    }
}
