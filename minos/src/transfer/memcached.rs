//! Items from and to a server by memcached's text protocol.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::{BATCH_BYTES, Item, Sink, Source, password_of_environment, unix_ms};
use crate::trust::{Secured, TrustArgs};

/// Longest key on the wire, in bytes.
const KEY_BYTES_MAX: usize = 250;
/// Keys asked for at once.
const KEYS_AT_ONCE: usize = 200;
/// Bytes of values sent before the server is asked whether it has stored them.
const SENT_BYTES_MAX: usize = 256 << 10;
/// Longest value that is taken, in bytes.
const VALUE_BYTES_MAX: u64 = minos_base::VALUE_BYTES_MAX;
/// A server that says nothing for so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Times that a server is asked for its keys, which lists them to one client at a time.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);
/// The list along the hash table names each item that is there all the time.
const LIST_BY_HASH: &str = "hash";
/// The list along memcached's queues of items by age leaves out some that move meanwhile. Memcached before 1.6.9 has
/// no other.
const LIST_BY_AGE: &str = "all";
/// Relative expiries end here: memcached takes larger numbers for seconds since 1970.
const RELATIVE_MAX_S: u64 = 60 * 60 * 24 * 30;

/// The reply to everything before a login, memcached's too.
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated";

/// A connection.
pub(crate) struct Connection {
    reader: BufReader<Stream>,
    line: Vec<u8>,
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
        let mut connection = Self { reader: BufReader::with_capacity(64 << 10, stream), line: Vec::new() };
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

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.reader.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush())
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> anyhow::Result<&[u8]> {
        self.line.clear();
        // Longer lines are no replies to what is asked here.
        let read = (&mut self.reader).take(4096).read_until(b'\n', &mut self.line)?;
        ensure!(read > 0 && self.line.ends_with(b"\n"), "the server closed the connection");
        Ok(self.line.trim_ascii_end())
    }

    /// The value of `bytes` bytes that a line has announced, without its line end. Memory is taken as bytes arrive.
    pub(crate) fn value(&mut self, bytes: u64) -> anyhow::Result<Vec<u8>> {
        ensure!(bytes <= VALUE_BYTES_MAX, "a value of {bytes} bytes");
        let mut value = Vec::new();
        (&mut self.reader).take(bytes + 2).read_to_end(&mut value)?;
        ensure!(value.len() as u64 == bytes + 2 && value.ends_with(b"\r\n"), "a value was cut off");
        value.truncate(bytes as usize);
        Ok(value)
    }
}

/// All items of a server that lists its keys.
pub(super) struct MemcachedSource {
    /// Lists keys.
    keys: Connection,
    /// Is asked for values.
    values: Connection,
    has_ended: bool,
    /// Keys of the list that no command can name: the protocol's keys are shorter, once they are encoded.
    nameless: u64,
}

impl MemcachedSource {
    pub(super) fn connect(place: &Place, trust: &TrustArgs) -> anyhow::Result<Self> {
        let values = Connection::open(place, trust, PATIENCE)?;
        let mut list = LIST_BY_HASH;
        for _ in 0..ATTEMPTS {
            let mut keys = Connection::open(place, trust, PATIENCE)?;
            keys.send(format!("lru_crawler metadump {list}\r\n").as_bytes())?;
            // The first line alone tells whether there is a list.
            let first = keys.reader.fill_buf()?;
            if first.starts_with(b"key=") || first.starts_with(b"END") {
                return Ok(Self { keys, values, has_ended: false, nameless: 0 });
            }
            let line = String::from_utf8_lossy(keys.line()?).into_owned();
            if line.starts_with("BUSY") {
                thread::sleep(PAUSE);
            } else if list == LIST_BY_HASH {
                list = LIST_BY_AGE;
            } else {
                bail!("the server lists no keys (lru_crawler metadump): {line}");
            }
        }
        bail!("another client is listing the server's keys")
    }

    /// The next keys of the list whose values are asked for together.
    fn next_keys(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while keys.len() < KEYS_AT_ONCE && bytes < BATCH_BYTES {
            let line = self.keys.line()?;
            if line == b"END" {
                self.has_ended = true;
                break;
            }
            let mut words = line.split(|&byte| byte == b' ');
            let encoded = words.next().and_then(|word| word.strip_prefix(b"key="));
            let encoded = encoded.context("a line of the list names no key")?;
            let key = decoded(encoded).context("a key of the list is badly encoded")?;
            let size = words.find_map(|word| word.strip_prefix(b"size="));
            bytes += size.and_then(|size| std::str::from_utf8(size).ok()?.parse::<u64>().ok()).unwrap_or(0);
            if is_nameable(&key) {
                keys.push(key);
            } else {
                self.nameless += 1;
            }
        }
        Ok(keys)
    }

    /// The item of a key that was asked for; `None` if it is gone.
    fn item(&mut self, key: Vec<u8>) -> anyhow::Result<Option<Item>> {
        let line = self.values.line()?;
        if line == b"EN" {
            return Ok(None);
        }
        let text = std::str::from_utf8(line).unwrap_or_default();
        let mut words = text.split(' ');
        let (name, bytes) = (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()));
        let (Some("VA"), Some(bytes)) = (name, bytes) else { bail!("the server said: {text}") };
        let (mut flags, mut expires_unix_ms) = (0, 0);
        for word in words {
            if let Some(number) = word.strip_prefix('f') {
                flags = number.parse()?;
            } else if let Some(seconds) = word.strip_prefix('t').and_then(|number| number.parse::<u64>().ok())
            {
                expires_unix_ms = unix_ms() + 1000 * seconds;
            }
        }
        let value = self.values.value(bytes)?;
        Ok(Some(Item { key, flags, expires_unix_ms, value }))
    }
}

impl Source for MemcachedSource {
    fn next(&mut self) -> anyhow::Result<Option<Vec<Item>>> {
        if self.has_ended {
            return Ok(None);
        }
        let keys = self.next_keys()?;
        let mut request = Vec::new();
        for key in &keys {
            let (word, flag) = word_of(key);
            request.extend([b"mg ", &word[..], flag, b" f t v\r\n"].concat());
        }
        self.values.send(&request)?;
        let mut items = Vec::new();
        for key in keys {
            items.extend(self.item(key)?);
        }
        Ok(Some(items))
    }

    fn left_out(&self) -> Option<String> {
        let Self { nameless, .. } = self;
        let text = format!(
            "{nameless} keys left out that memcached's protocol cannot name: copy them by Redis' protocol"
        );
        (*nameless > 0).then_some(text)
    }
}

/// Stores items.
pub(super) struct MemcachedSink(Connection);

impl MemcachedSink {
    pub(super) fn connect(place: &Place, trust: &TrustArgs) -> anyhow::Result<Self> {
        Connection::open(place, trust, PATIENCE).map(Self)
    }

    /// Sends stores that answer only if they fail. Returns the reasons of failures.
    fn store(&mut self, items: &[&Item]) -> anyhow::Result<Vec<String>> {
        let mut request = Vec::new();
        for item in items {
            let (word, flag) = word_of(&item.key);
            request.extend([b"ms ", &word[..]].concat());
            let exptime = exptime(item.expires_unix_ms, unix_ms());
            write!(request, " {} F{} T{exptime} q", item.value.len(), item.flags)?;
            request.extend([flag, b"\r\n", &item.value, b"\r\n"].concat());
        }
        request.extend(b"mn\r\n");
        self.0.send(&request)?;
        let mut reasons = Vec::new();
        loop {
            let line = self.0.line()?;
            if line == b"MN" {
                return Ok(reasons);
            }
            reasons.push(String::from_utf8_lossy(line).into_owned());
        }
    }
}

impl Sink for MemcachedSink {
    fn put(&mut self, items: &[Item]) -> anyhow::Result<Vec<String>> {
        let (good, bad): (Vec<_>, Vec<_>) = items.iter().partition(|item| is_nameable(&item.key));
        let reason = |item: &Item| {
            let start = String::from_utf8_lossy(&item.key[..item.key.len().min(40)]).into_owned();
            format!("a key of {} bytes that memcached's protocol cannot name: {start:?}", item.key.len())
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

/// A key as a meta command names it, and the flag that says how.
pub(crate) fn word_of(key: &[u8]) -> (Vec<u8>, &'static [u8]) {
    if key.iter().all(|&byte| byte > b' ' && byte != 0x7f) {
        return (key.to_vec(), b"");
    }
    (BASE64_STANDARD.encode(key).into_bytes(), b" b")
}

/// True if a command can name the key.
fn is_nameable(key: &[u8]) -> bool {
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

/// Resolves percent-encoding.
fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((&byte, behind)) = rest.split_first() {
        if byte != b'%' {
            key.push(byte);
            rest = behind;
            continue;
        }
        let (digits, behind) = behind.split_at_checked(2)?;
        key.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_where_they_must() {
        assert_eq!(word_of(b"a\xff"), (b"a\xff".to_vec(), &b""[..]));
        assert_eq!(word_of(b"a b"), (b"YSBi".to_vec(), &b" b"[..]));
        assert_eq!(decoded(b"a%20b%FF"), Some(b"a b\xff".to_vec()));
        for bad in [&b"%"[..], b"%2", b"%zz"] {
            assert_eq!(decoded(bad), None);
        }
    }

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
