//! The keys of the hottest servers, under names that lie at the same nodes of a real rack, and requests drawn from them.

use std::{fmt::Write as _, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use crate::measure::driver;

/// Servers of the rack: the hottest of 512 (RackOut §6.3).
pub(super) const NODES: usize = 16;
/// Keys of each server that have a name of their own.
const KEYS: usize = 2000;
/// Requests of a trace, which the driver repeats.
const REQUESTS: u32 = 20_000;
/// Bytes of each value.
const VALUE_BYTES: u32 = 32;
/// Fractions of multiples of it are spread evenly, and neighbours lie far from each other.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// What a server owns.
#[derive(Default)]
struct Owned {
    names: Vec<String>,
    /// The share of the rack's requests of all keys up to each one.
    sums: Vec<f64>,
}

/// The keys of all servers.
pub(super) struct Keys(Vec<Owned>);

/// A part of a node's requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Whose keys they are about.
    pub(super) owner: usize,
    pub(super) writes: bool,
    /// Their weight among the parts.
    pub(super) weight: f64,
}

impl Keys {
    /// The keys that `minos sim rackout` makes. `owner` tells the node that owns a name.
    pub(super) fn of_the_hottest(
        program: &Path,
        owner: impl Fn(&str) -> anyhow::Result<usize>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(["sim", "rackout", "--json", "--hottest-keys", &KEYS.to_string()]);
        let said = driver::json(command)?;
        let rows: Vec<[f64; 3]> = serde_json::from_value(said["rows"].clone())?;
        Self::named(&rows, owner)
    }

    /// Names for rows of server, rank and share. The colder half of a server's keys has its rest, whose rank is 0.
    fn named(rows: &[[f64; 3]], owner: impl Fn(&str) -> anyhow::Result<usize>) -> anyhow::Result<Self> {
        let first = rows.iter().map(|row| row[0] as usize).min().context("there are no keys")?;
        let total: f64 = rows.iter().map(|row| row[2]).sum();
        let of = |server: usize| {
            let rows = rows.iter().filter(move |row| row[0] as usize == first + server);
            let (rest, keys): (Vec<&[f64; 3]>, Vec<_>) = rows.partition(|row| row[1] == 0.0);
            ensure!(keys.len() > 1, "server {server} has no keys");
            let rest: f64 = rest.iter().map(|row| row[2]).sum();
            let mut owned = Owned::default();
            let (mut sum, hot) = (0.0, keys.len() / 2);
            for (at, [_, rank, share]) in keys.iter().enumerate() {
                let more = if at < hot { 0.0 } else { rest / (keys.len() - hot) as f64 };
                sum += (share + more) / total;
                owned.sums.push(sum);
                owned.names.push(name_at(*rank, server, &owner)?);
            }
            Ok(owned)
        };
        Ok(Self((0..NODES).map(of).collect::<anyhow::Result<_>>()?))
    }

    /// The share of the rack's requests that are for keys of each server.
    pub(super) fn shares(&self) -> Vec<f64> {
        self.0.iter().map(|owned| owned.sums.last().copied().unwrap_or(0.0)).collect()
    }

    /// A trace that stores all keys of a server.
    pub(super) fn load(&self, server: usize) -> String {
        self.0[server].names.iter().map(|name| line("set", name)).collect()
    }

    /// A trace of requests of these parts, with each key in proportion to its share.
    pub(super) fn trace(&self, parts: &[Part]) -> String {
        let total: f64 = parts.iter().map(|part| part.weight).sum();
        let mut text = String::new();
        for number in 1..=REQUESTS {
            let mut at = (f64::from(number) * GOLDEN).fract() * total;
            let mut drawn = parts.iter();
            while let Some(part) = drawn.next() {
                if at < part.weight || drawn.len() == 0 {
                    let name = self.0[part.owner].at(at / part.weight);
                    text += &line(if part.writes { "set" } else { "get" }, name);
                    break;
                }
                at -= part.weight;
            }
        }
        text
    }
}

impl Owned {
    /// The key up to which this part of the server's requests goes.
    fn at(&self, part: f64) -> &str {
        let wanted = part * self.sums.last().copied().unwrap_or(0.0);
        let at = self.sums.partition_point(|sum| *sum <= wanted);
        &self.names[at.min(self.names.len() - 1)]
    }
}

/// A name for the key of this rank that the node owns.
fn name_at(rank: f64, node: usize, owner: impl Fn(&str) -> anyhow::Result<usize>) -> anyhow::Result<String> {
    // One of sixteen does on average; that none of a thousand does has a chance of 10^-28.
    for salt in 0..1000 {
        let name = format!("{rank}-{salt}");
        if owner(&name)? == node {
            return Ok(name);
        }
    }
    anyhow::bail!("node {node} owns nothing")
}

fn line(verb: &str, name: &str) -> String {
    let mut line = String::new();
    // It cannot fail.
    let _ = writeln!(line, "0,{verb},{name},{VALUE_BYTES}");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Server s owns names whose salt is s, and has two keys and a rest.
    fn keys() -> Keys {
        let server = |s: f64| [[s, 1.0 + s, 0.3], [s, 101.0 + s, 0.1], [s, 0.0, 0.1 * (s - 31.0)]];
        let rows: Vec<_> = (32..48).flat_map(|s| server(f64::from(s))).collect();
        Keys::named(&rows, |name| Ok(name.split_once('-').unwrap().1.parse().unwrap())).unwrap()
    }

    #[test]
    fn keys_keep_their_servers_and_shares() {
        let shares = keys().shares();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((shares[15] / shares[0] - 2.0 / 0.5).abs() < 1e-9);
        assert_eq!(keys().load(3), "0,set,36-3,32\n0,set,136-3,32\n");
    }

    #[test]
    fn a_trace_has_its_parts_and_keys_in_proportion() {
        let part = |owner, writes, weight| Part { owner, writes, weight };
        let trace = keys().trace(&[part(0, false, 3.0), part(2, true, 1.0)]);
        let share = |words: &str| trace.lines().filter(|line| line.contains(words)).count() as f64 / 20_000.0;
        for (words, expected) in [("get,33-0,", 0.75 * 0.6), ("get,133-0,", 0.75 * 0.4), ("set,", 0.25)] {
            assert!((share(words) - expected).abs() < 0.002, "{words} {}", share(words));
        }
        assert!((share("get") - 0.75).abs() < 0.002 && share("-1,") == 0.0);
    }

    #[test]
    fn names_that_no_node_owns_are_refused() {
        assert!(name_at(1.0, 3, |_| Ok(4)).is_err());
    }
}
