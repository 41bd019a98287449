//! Strings of a Redis database.

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
}

impl RedisSource {
    pub(super) fn connect(url: &str) -> anyhow::Result<Self> {
        let connection = Client::open(url)?.get_connection().context("cannot connect")?;
        Ok(Self { connection, cursor: Some(0) })
    }

    /// The item of a key; `None` if it is gone or no string.
    fn item(key: Vec<u8>, value: Value, ttl_ms: &Value) -> anyhow::Result<Option<Item>> {
        let value = match value {
            Value::BulkString(value) => value,
            Value::Nil | Value::ServerError(_) => return Ok(None),
            other => bail!("no reply to GET: {other:?}"),
        };
        let expires_unix_ms = match ttl_ms {
            Value::Int(ttl_ms @ 0..) => unix_ms().saturating_add(ttl_ms.unsigned_abs()),
            Value::Int(-1) => 0,
            // It has expired since.
            Value::Int(_) => return Ok(None),
            other => bail!("no reply to PTTL: {other:?}"),
        };
        Ok(Some(Item { key, flags: 0, expires_unix_ms, value }))
    }
}

impl Source for RedisSource {
    fn next(&mut self) -> anyhow::Result<Option<Vec<Item>>> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("string");
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query(&mut self.connection)?;
        self.cursor = Some(next).filter(|&next| next != 0);
        let mut pipeline = pipe();
        pipeline.ignore_errors();
        for key in &keys {
            pipeline.cmd("GET").arg(key).cmd("PTTL").arg(key);
        }
        let replies: Vec<Value> = pipeline.query(&mut self.connection)?;
        let mut items = Vec::new();
        let mut replies = replies.into_iter();
        for key in keys {
            let (Some(value), Some(ttl_ms)) = (replies.next(), replies.next()) else {
                bail!("replies are missing")
            };
            items.extend(Self::item(key, value, &ttl_ms)?);
        }
        Ok(Some(items))
    }
}
