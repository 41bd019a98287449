//! Strings of a Redis database.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, bail};
use redis::{Client, Connection, IntoConnectionInfo, Value, cmd, pipe};

use super::{BATCH_BYTES, Item, PATIENCE, Source, password_of_environment, unix_ms};
use crate::trust::TrustArgs;

/// Keys that one step of a scan looks at.
const SCAN_COUNT: usize = 1000;
/// Keys of one transaction, which holds up other clients.
const KEYS_AT_ONCE: usize = 100;

/// All strings of a database.
pub(super) struct RedisSource {
    connection: Connection,
    /// Where the scan goes on; `None` at its end.
    cursor: Option<u64>,
    /// Keys that the scan has found, each with the bytes of its value.
    found: VecDeque<(Vec<u8>, u64)>,
    /// Keys that are no strings, by their type.
    others: BTreeMap<String, u64>,
}

/// The reply to one key.
enum Told {
    Item(Item),
    /// It has no value any more.
    Gone,
    /// It is no string.
    Other,
}

/// A connection to the server at a URL.
pub(crate) fn connect_redis(url: &str, trust: &TrustArgs) -> anyhow::Result<Connection> {
    let mut info = url.into_connection_info()?;
    let settings = info.redis_settings().clone();
    if settings.username().is_some() && settings.password().is_none() {
        info = info.set_redis_settings(settings.set_password(password_of_environment()?));
    }
    let client =
        if is_tls(url) { Client::build_with_tls(info, trust.of_redis()?) } else { Client::open(info) };
    // With the handshake and the login. A command may take longer.
    client?.get_connection_with_timeout(PATIENCE).context("cannot connect")
}

/// True for a URL of a server over TLS.
pub(super) fn is_tls(url: &str) -> bool {
    url.starts_with("rediss://")
}

impl RedisSource {
    pub(super) fn connect(url: &str, trust: &TrustArgs) -> anyhow::Result<Self> {
        let connection = connect_redis(url, trust)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { connection, cursor: Some(0), found: VecDeque::new(), others: BTreeMap::new() })
    }

    fn told(key: &[u8], value: Value, ttl_ms: &Value) -> anyhow::Result<Told> {
        let value = match value {
            Value::BulkString(value) => value,
            Value::Nil => return Ok(Told::Gone),
            Value::ServerError(error) if error.code() == "WRONGTYPE" => return Ok(Told::Other),
            other => bail!("no reply to GET: {other:?}"),
        };
        let expires_unix_ms = match ttl_ms {
            Value::Int(ttl_ms @ 0..) => unix_ms().saturating_add(ttl_ms.unsigned_abs()),
            Value::Int(-1) => 0,
            // It has expired since.
            Value::Int(_) => return Ok(Told::Gone),
            other => bail!("no reply to PTTL: {other:?}"),
        };
        Ok(Told::Item(Item { key: key.to_vec(), flags: 0, expires_unix_ms, value }))
    }

    /// Looks for more keys.
    fn scan(&mut self, cursor: u64) -> anyhow::Result<()> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query(&mut self.connection)?;
        self.cursor = Some(next).filter(|&next| next != 0);
        // An empty step is none of an empty pipeline.
        if keys.is_empty() {
            return Ok(());
        }
        let mut pipeline = pipe();
        pipeline.ignore_errors();
        for key in &keys {
            pipeline.cmd("STRLEN").arg(key);
        }
        let lengths: Vec<Value> = pipeline.query(&mut self.connection)?;
        let bytes = |length| if let Value::Int(bytes @ 0..) = length { bytes.unsigned_abs() } else { 0 };
        self.found.extend(keys.into_iter().zip(lengths.into_iter().map(bytes)));
        Ok(())
    }

    /// The next keys whose values are asked for together.
    fn next_keys(&mut self) -> Vec<Vec<u8>> {
        let (mut keys, mut sum) = (Vec::new(), 0);
        while sum < BATCH_BYTES
            && keys.len() < KEYS_AT_ONCE
            && let Some((key, bytes)) = self.found.pop_front()
        {
            sum += bytes;
            keys.push(key);
        }
        keys
    }

    /// Counts keys that are no strings by their types.
    fn count(&mut self, keys: &[&[u8]]) -> anyhow::Result<()> {
        let mut pipeline = pipe();
        for key in keys {
            pipeline.cmd("TYPE").arg(key);
        }
        let kinds: Vec<String> = pipeline.query(&mut self.connection)?;
        // One that is gone has none.
        for kind in kinds.into_iter().filter(|kind| kind != "none") {
            *self.others.entry(kind).or_default() += 1;
        }
        Ok(())
    }
}

impl Source for RedisSource {
    fn next(&mut self) -> anyhow::Result<Option<Vec<Item>>> {
        while self.found.is_empty() {
            let Some(cursor) = self.cursor else { return Ok(None) };
            self.scan(cursor)?;
        }
        let keys = self.next_keys();
        let mut pipeline = pipe();
        // Nobody comes between a value and its expiry.
        pipeline.atomic().ignore_errors();
        for key in &keys {
            pipeline.cmd("GET").arg(key).cmd("PTTL").arg(key);
        }
        let replies: Vec<Value> = pipeline.query(&mut self.connection)?;
        let (mut items, mut others) = (Vec::new(), Vec::new());
        let mut replies = replies.into_iter();
        for key in &keys {
            let (Some(value), Some(ttl_ms)) = (replies.next(), replies.next()) else {
                bail!("replies are missing")
            };
            match Self::told(key, value, &ttl_ms)? {
                Told::Item(item) => items.push(item),
                Told::Other => others.push(key.as_slice()),
                Told::Gone => {}
            }
        }
        if !others.is_empty() {
            self.count(&others)?;
        }
        Ok(Some(items))
    }

    fn left_out(&self) -> Vec<String> {
        let count: u64 = self.others.values().sum();
        let kinds: Vec<_> = self.others.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let text =
            (count > 0).then(|| format!("{count} keys left out that are no strings: {}", kinds.join(", ")));
        text.into_iter().collect()
    }
}
