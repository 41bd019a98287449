//! Strings of a Redis database.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use redis::{Client, Connection, Value, cmd, pipe};

use super::{Item, Source, unix_ms};

/// Keys that one step of a scan looks at.
const SCAN_COUNT: usize = 1000;

/// All strings of a database.
pub(super) struct RedisSource {
    connection: Connection,
    /// Where the scan goes on; `None` at its end.
    cursor: Option<u64>,
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

impl RedisSource {
    pub(super) fn connect(url: &str) -> anyhow::Result<Self> {
        let connection = Client::open(url)?.get_connection().context("cannot connect")?;
        Ok(Self { connection, cursor: Some(0), others: BTreeMap::new() })
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
        let Some(cursor) = self.cursor else { return Ok(None) };
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query(&mut self.connection)?;
        self.cursor = Some(next).filter(|&next| next != 0);
        let mut pipeline = pipe();
        pipeline.ignore_errors();
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

    fn left_out(&self) -> Option<String> {
        let count: u64 = self.others.values().sum();
        let kinds: Vec<_> = self.others.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        (count > 0).then(|| format!("{count} keys left out that are no strings: {}", kinds.join(", ")))
    }
}
