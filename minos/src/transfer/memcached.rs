//! Items from and to a server by memcached's text protocol.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::{Item, Sink, Source, key_list::KeyList, password_of_environment, unix_ms};
use crate::trust::{Secured, TrustArgs};

/// Longest key on the wire, in bytes.
const KEY_BYTES_MAX: usize = 250;
/// Bytes of a key that are shown.
const SHOWN_BYTES: usize = 40;
/// Bytes of values sent before the server is asked whether it has stored them.
const SENT_BYTES_MAX: usize = 256 << 10;
/// Longest value that is taken, in bytes.
const VALUE_BYTES_MAX: u64 = minos_base::VALUE_BYTES_MAX;
/// A server that says nothing for so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Relative expiries end here: memcached takes larger numbers for seconds since 1970.
const RELATIVE_MAX_S: u64 = 60 * 60 * 24 * 30;

/// The reply to everything before a login, memcached's too.
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated";

/// A connection.
pub(crate) struct Connection {
    reader: BufReader<Stream>,
    line: Vec<u8>,
    /// The server's URL without user and password.
    place: String,
    patience: Duration,
}

enum Stream {
    Plain(TcpStream),
    Secured(Box<Secured>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Secured(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Secured(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Secured(stream) => stream.flush(),
        }
    }
}

/// Where a server of memcached's protocol is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// HOST:PORT, perhaps behind USER:PASSWORD@.
    address: String,
    pub(crate) is_tls: bool,
}

impl Place {
    /// The place at an address without TLS.
    pub(crate) fn plain(address: &str) -> Self {
        Self { address: address.to_owned(), is_tls: false }
    }

    /// The place that a URL names; `None` if it is another protocol's.
    pub(crate) fn at(url: &str) -> Option<Self> {
        let (scheme, address) = url.split_once("://")?;
        let is_tls = match scheme {
            "memcached" => false,
            "memcacheds" => true,
            _ => return None,
        };
        Some(Self { address: address.to_owned(), is_tls })
    }

    /// True if it names a port.
    pub(super) fn has_port(&self) -> bool {
        self.address.contains(':')
    }

    /// How its URL begins.
    fn scheme(&self) -> &'static str {
        if self.is_tls { "memcacheds://" } else { "memcached://" }
    }

    /// HOST:PORT.
    pub(crate) fn host_and_port(&self) -> &str {
        place_of(&self.address).1
    }
}

/// Without user and password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.scheme(), self.host_and_port())
    }
}

/// The name and password in a server's address, as far as they are there, and the rest of it.
pub(super) fn place_of(address: &str) -> (Option<(&str, Option<&str>)>, &str) {
    let Some((login, place)) = address.rsplit_once('@') else { return (None, address) };
    let login = login.split_once(':').map_or((login, None), |(name, password)| (name, Some(password)));
    (Some(login), place)
}

/// A stream to one of the addresses of HOST:PORT.
fn connected(place: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut last = Err(io::ErrorKind::NotFound.into());
    for address in place.to_socket_addrs()? {
        last = TcpStream::connect_timeout(&address, patience);
        if last.is_ok() {
            break;
        }
    }
    last
}

impl Connection {
    /// Connects, and logs in if the server asks for that. A server that says nothing for `patience` has failed.
    pub(crate) fn open(place: &Place, trust: &TrustArgs, patience: Duration) -> anyhow::Result<Self> {
        let (login, address) = place_of(&place.address);
        let stream = connected(address, patience).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let stream = if place.is_tls {
            let (host, _) = address.rsplit_once(':').context("no port")?;
            Stream::Secured(Box::new(trust.secure(host, stream)?))
        } else {
            Stream::Plain(stream)
        };
        let reader = BufReader::with_capacity(64 << 10, stream);
        let mut connection = Self { reader, line: Vec::new(), place: place.to_string(), patience };
        connection.send(b"version\r\n")?;
        // Without users it would store the password.
        if connection.line()? == UNAUTHENTICATED {
            let said = || format!("the server has users: say {}USER@HOST:PORT", place.scheme());
            let (name, password) = login.with_context(said)?;
            let password = password.map_or_else(password_of_environment, |said| Ok(said.to_owned()))?;
            connection.log_in(name, &password)?;
        }
        Ok(connection)
    }

    /// Says who the client is, as with memcached: the first value is a name and a password.
    fn log_in(&mut self, name: &str, password: &str) -> anyhow::Result<()> {
        let value = format!("{name} {password}");
        self.send(format!("set login 0 0 {}\r\n{value}\r\n", value.len()).as_bytes())?;
        let line = self.line()?;
        ensure!(line == b"STORED", "the server refuses {name}: {}", String::from_utf8_lossy(line));
        Ok(())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let stream = self.reader.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush()).map_err(|error| self.named(error))
    }

    /// A time-out says who was silent.
    fn named(&self, error: io::Error) -> anyhow::Error {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                anyhow!("{} has been silent for {} s", self.place, self.patience.as_secs_f64())
            }
            _ => error.into(),
        }
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> anyhow::Result<&[u8]> {
        self.line.clear();
        // Longer lines are no replies to what is asked here.
        let read = (&mut self.reader).take(4096).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| self.named(error))?;
        ensure!(read > 0 && self.line.ends_with(b"\n"), "{} has closed the connection", self.place);
        Ok(self.last_line())
    }

    /// A number in a group of the server's statistics, if it is there.
    fn stat(&mut self, group: &str, name: &str) -> anyhow::Result<Option<u64>> {
        self.send(format!("stats {group}\r\n").as_bytes())?;
        let mut number = None;
        // The end, or an error: there is no such group.
        while let Some(stat) = self.line()?.strip_prefix(b"STAT ") {
            let text = std::str::from_utf8(stat).unwrap_or_default();
            if let Some((found, value)) = text.split_once(' ')
                && found == name
            {
                number = value.parse().ok();
            }
        }
        Ok(number)
    }

    /// The line that was read last, without its end.
    pub(crate) fn last_line(&self) -> &[u8] {
        self.line.trim_ascii_end()
    }

    /// The value of `bytes` bytes that a line has announced, without its line end. Memory is taken as bytes arrive.
    pub(crate) fn value(&mut self, bytes: u64) -> anyhow::Result<Vec<u8>> {
        ensure!(bytes <= VALUE_BYTES_MAX, "a value of {bytes} bytes");
        let mut value = Vec::new();
        let read = (&mut self.reader).take(bytes + 2).read_to_end(&mut value);
        read.map_err(|error| self.named(error))?;
        ensure!(value.len() as u64 == bytes + 2 && value.ends_with(b"\r\n"), "a value was cut off");
        value.truncate(bytes as usize);
        Ok(value)
    }
}

/// All items of a server that lists its keys.
pub(super) struct MemcachedSource {
    keys: KeyList,
    /// Is asked for values.
    values: Connection,
    /// What the server does not list.
    unlisted: Vec<String>,
    /// Items that the server holds for outdated, or that a client has yet to fill.
    stale: u64,
}

/// What a server of Minos has and does not list.
fn unlisted(server: &mut Connection) -> anyhow::Result<Vec<String>> {
    let cold = server.stat("flash", "flash_items")?.filter(|items| *items > 0);
    let cold = cold.map(|items| {
        format!("{items} items on flash left out, which are not listed: copy them by minos ctl snapshot")
    });
    let nodes = server.stat("rack", "nodes")?.filter(|nodes| *nodes > 1);
    let others = nodes.map(|nodes| {
        format!(
            "items of other nodes left out: the server is one of {nodes} of a rack, and lists its own, and its copies of others"
        )
    });
    Ok(cold.into_iter().chain(others).collect())
}

/// The reply to one key.
enum Told {
    Item(Item),
    /// It is gone.
    Gone,
    /// It is no value to be used. The server may have told this client to bring another one: the item's CAS unique then.
    Stale(Option<u64>),
}

impl MemcachedSource {
    pub(super) fn connect(place: &Place, trust: &TrustArgs) -> anyhow::Result<Self> {
        let keys = KeyList::of(place, trust)?;
        let mut values = Connection::open(place, trust, PATIENCE)?;
        let unlisted = unlisted(&mut values)?;
        Ok(Self { keys, values, unlisted, stale: 0 })
    }

    /// What the server says of a key that was asked for.
    fn told(&mut self, key: &[u8]) -> anyhow::Result<Told> {
        let line = self.values.line()?;
        if line == b"EN" {
            return Ok(Told::Gone);
        }
        let text = std::str::from_utf8(line).unwrap_or_default();
        let mut words = text.split(' ');
        let (name, bytes) = (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()));
        let (Some("VA"), Some(bytes)) = (name, bytes) else { bail!("the server said: {text}") };
        let (mut flags, mut expires_unix_ms, mut cas) = (0, 0, 0);
        let (mut is_stale, mut is_won, mut is_sent) = (false, false, false);
        for word in words {
            match word.split_at_checked(1) {
                Some(("f", number)) => flags = number.parse()?,
                Some(("t", "-1")) => {}
                Some(("t", seconds)) => {
                    expires_unix_ms = unix_ms().saturating_add(seconds.parse::<u64>()?.saturating_mul(1000))
                }
                Some(("c", number)) => cas = number.parse()?,
                Some(("X", _)) => is_stale = true,
                Some(("W", _)) => is_won = true,
                Some(("Z", _)) => is_sent = true,
                _ => {}
            }
        }
        let value = self.values.value(bytes)?;
        // An empty value that a client is to fill stands for a miss.
        if is_stale || (value.is_empty() && (is_won || is_sent)) {
            return Ok(Told::Stale(is_won.then_some(cas)));
        }
        Ok(Told::Item(Item { key: key.to_vec(), flags, expires_unix_ms, value }))
    }

    /// Lets the next client that asks for an item bring its value, as this one was told to. One that has changed since has
    /// another CAS unique.
    fn give_back(&mut self, won: &[(Vec<u8>, u64)]) -> anyhow::Result<()> {
        let mut request = Vec::new();
        for (key, cas) in won {
            let (word, flag) = word_of(key);
            request.extend([b"md ", &word[..], flag, format!(" I C{cas}\r\n").as_bytes()].concat());
        }
        self.values.send(&request)?;
        won.iter().try_for_each(|_| self.values.line().map(drop))
    }
}

impl Source for MemcachedSource {
    fn next(&mut self) -> anyhow::Result<Option<Vec<Item>>> {
        let keys = self.keys.next()?;
        if keys.is_empty() {
            return Ok(None);
        }
        let mut request = Vec::new();
        for key in &keys {
            let (word, flag) = word_of(key);
            request.extend([b"mg ", &word[..], flag, b" f t c v\r\n"].concat());
        }
        self.values.send(&request)?;
        let (mut items, mut won) = (Vec::new(), Vec::new());
        for key in keys {
            match self.told(&key)? {
                Told::Item(item) => items.push(item),
                Told::Gone => {}
                Told::Stale(cas) => {
                    self.stale += 1;
                    won.extend(cas.map(|cas| (key, cas)));
                }
            }
        }
        self.give_back(&won)?;
        Ok(Some(items))
    }

    fn left_out(&self) -> Vec<String> {
        let (nameless, stale) = (self.keys.nameless, self.stale);
        let nameless = (nameless > 0).then(|| {
            format!(
                "{nameless} keys left out that memcached's protocol cannot name: copy them by Redis' protocol"
            )
        });
        let stale = (stale > 0)
            .then(|| format!("{stale} items left out that are stale, or wait for their first value"));
        nameless.into_iter().chain(stale).chain(self.unlisted.iter().cloned()).collect()
    }
}

/// Stores items.
pub(super) struct MemcachedSink(Connection);

impl MemcachedSink {
    pub(super) fn connect(place: &Place, trust: &TrustArgs) -> anyhow::Result<Self> {
        Connection::open(place, trust, PATIENCE).map(Self)
    }

    /// Stores items. Returns the reasons of failures.
    fn store(&mut self, items: &[&Item]) -> anyhow::Result<Vec<String>> {
        let mut request = Vec::new();
        for item in items {
            let (word, flag) = word_of(&item.key);
            request.extend([b"ms ", &word[..]].concat());
            let exptime = exptime(item.expires_unix_ms, unix_ms());
            write!(request, " {} F{} T{exptime}", item.value.len(), item.flags)?;
            request.extend([flag, b"\r\n", &item.value, b"\r\n"].concat());
        }
        request.extend(b"mn\r\n");
        self.0.send(&request)?;
        let mut reasons = Vec::new();
        for item in items {
            let line = self.0.line()?;
            ensure!(line != b"MN", "a store has no reply");
            if line != b"HD" {
                reasons.push(format!("{}: {}", shown(&item.key), String::from_utf8_lossy(line)));
            }
        }
        let line = self.0.line()?;
        ensure!(line == b"MN", "a store has two replies: {}", String::from_utf8_lossy(line));
        Ok(reasons)
    }
}

impl Sink for MemcachedSink {
    fn put(&mut self, items: &[Item]) -> anyhow::Result<Vec<String>> {
        let (good, bad): (Vec<_>, Vec<_>) = items.iter().partition(|item| is_nameable(&item.key));
        let reason = |item: &Item| {
            let (bytes, shown) = (item.key.len(), shown(&item.key));
            format!("a key of {bytes} bytes that memcached's protocol cannot name: {shown}")
        };
        let mut reasons: Vec<_> = bad.into_iter().map(reason).collect();
        let mut rest = &good[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |item: &&&Item| {
                let fits = bytes < SENT_BYTES_MAX;
                bytes += item.value.len();
                fits
            };
            let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
            reasons.extend(self.store(now)?);
            rest = later;
        }
        Ok(reasons)
    }
}

/// The beginning of a key, as it may be printed.
fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&key[..key.len().min(SHOWN_BYTES)]))
}

/// A key as a meta command names it, and the flag that says how.
pub(crate) fn word_of(key: &[u8]) -> (Vec<u8>, &'static [u8]) {
    if key.iter().all(|&byte| byte > b' ' && byte != 0x7f) {
        return (key.to_vec(), b"");
    }
    (BASE64_STANDARD.encode(key).into_bytes(), b" b")
}

/// True if a command can name the key.
pub(super) fn is_nameable(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&word_of(key).0.len())
}

/// An expiry so long from now, as a client writes it.
pub(crate) fn exptime_of_ttl(ttl: Duration) -> i64 {
    let now_ms = unix_ms();
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    exptime(now_ms.saturating_add(ttl_ms), now_ms)
}

/// An expiry as a client writes it; -1 if it has passed.
fn exptime(expires_unix_ms: u64, now_unix_ms: u64) -> i64 {
    if expires_unix_ms == 0 {
        return 0;
    }
    let Some(left_ms) = expires_unix_ms.checked_sub(now_unix_ms).filter(|&left_ms| left_ms > 0) else {
        return -1;
    };
    let left_s = left_ms.div_ceil(1000);
    let exptime = if left_s <= RELATIVE_MAX_S { left_s } else { expires_unix_ms.div_ceil(1000) };
    // The latest moment that the protocol can name.
    i64::from(i32::try_from(exptime).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_relative_while_they_can() {
        let now_ms = 1_800_000_000_000;
        let month_ms = RELATIVE_MAX_S * 1000;
        for (expires_ms, expected) in [
            (0, 0),
            (1, -1),
            (now_ms, -1),
            (now_ms + 1, 1),
            (now_ms + 1001, 2),
            (now_ms + month_ms, RELATIVE_MAX_S as i64),
            (now_ms + month_ms + 1, ((now_ms + month_ms) / 1000 + 1) as i64),
            (u64::MAX, i64::from(i32::MAX)),
        ] {
            assert_eq!(exptime(expires_ms, now_ms), expected, "{expires_ms}");
        }
    }
}
