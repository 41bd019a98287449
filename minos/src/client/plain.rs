//! The commands by memcached's protocol.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::{Found, When};
use crate::{
    transfer::{Connection, Place, exptime_of_ttl, word_of},
    trust::TrustArgs,
};

/// A server of memcached's protocol.
pub(crate) struct Plain(Connection);

impl Plain {
    pub(crate) fn connect(place: &Place, trust: &TrustArgs, timeout: Duration) -> anyhow::Result<Self> {
        let connection = Connection::open(place, trust, timeout);
        connection.map(Self).with_context(|| format!("cannot use the server {place}"))
    }

    /// Sends a meta command: its name, its key, the length of its value if it has one, its flags, and what follows them.
    /// Returns the line of the reply.
    fn ask(
        &mut self,
        (name, key): (&str, &str),
        length: &str,
        flags: &str,
        rest: &[u8],
    ) -> anyhow::Result<String> {
        let (word, flag) = word_of(key.as_bytes());
        let start = [name.as_bytes(), b" ", &word, length.as_bytes(), flag, flags.as_bytes(), b"\r\n"];
        self.0.send(&[&start.concat(), rest].concat())?;
        Ok(String::from_utf8_lossy(self.0.line()?).into_owned())
    }

    pub(super) fn get(&mut self, key: &str) -> anyhow::Result<Option<Found>> {
        let line = self.ask(("mg", key), "", " v f c", b"")?;
        let words: Vec<_> = line.split(' ').collect();
        let ["VA", bytes, flags, cas] = words[..] else {
            ensure!(line == "EN", "{line}");
            return Ok(None);
        };
        let number =
            |word: &str, mark: char| word.strip_prefix(mark).and_then(|digits| digits.parse::<u64>().ok());
        let (Ok(bytes), Some(flags), Some(cas)) =
            (bytes.parse::<u64>(), number(flags, 'f'), number(cas, 'c'))
        else {
            bail!("the server said: {line}");
        };
        Ok(Some(Found { flags: u32::try_from(flags)?, cas, bytes: self.0.value(bytes)? }))
    }

    pub(super) fn store(
        &mut self,
        when: When,
        key: &str,
        value: &[u8],
        (flags, ttl): (u32, Option<Duration>),
    ) -> anyhow::Result<bool> {
        let mode = match when {
            When::Always => "",
            When::IfNone => " ME",
            When::IfSome => " MR",
        };
        let exptime = ttl.map_or(0, exptime_of_ttl);
        let (length, flags) = (format!(" {}", value.len()), format!(" F{flags} T{exptime}{mode}"));
        let line = self.ask(("ms", key), &length, &flags, &[value, b"\r\n"].concat())?;
        ensure!(line == "HD" || line == "NS", "{line}");
        Ok(line == "HD")
    }

    pub(super) fn delete(&mut self, key: &str) -> anyhow::Result<bool> {
        let line = self.ask(("md", key), "", "", b"")?;
        ensure!(line == "HD" || line == "NF", "{line}");
        Ok(line == "HD")
    }

    pub(crate) fn stats(&mut self, group: &str) -> anyhow::Result<Vec<(String, String)>> {
        self.0.send(format!("stats {group}").trim_end().as_bytes())?;
        self.0.send(b"\r\n")?;
        let mut lines = Vec::new();
        loop {
            let line = String::from_utf8_lossy(self.0.line()?).into_owned();
            match line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' ')) {
                Some((name, value)) => lines.push((name.to_owned(), value.to_owned())),
                None if line.contains("_ERROR ") => bail!("the server said: {line}"),
                None => return Ok(lines),
            }
        }
    }
}
