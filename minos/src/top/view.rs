//! What `minos top` shows, from the server's answers.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value};

/// Answers over which latencies are taken.
const WINDOW: usize = 10;
/// Points of the lines over time.
const POINTS: usize = 240;

/// Steps of durations: the upper end in nanoseconds, and the requests so far.
type Steps = Vec<(u64, u64)>;

/// The server's answer at one moment.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Now {
    unix_ms: u64,
    pub(super) dispatch: String,
    general: Map<String, Value>,
    minos: Map<String, Value>,
    latency: BTreeMap<String, BTreeMap<String, Steps>>,
    pub(super) hot: Vec<Hot>,
    pub(super) large: Vec<Large>,
    pub(super) slow: Vec<Slow>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Hot {
    pub(super) key: String,
    pub(super) requests_s: f64,
    pub(super) share: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Large {
    pub(super) key: String,
    pub(super) bytes: u64,
    pub(super) requests: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Slow {
    pub(super) key: String,
    pub(super) us: u64,
    pub(super) command: String,
    pub(super) bytes: u64,
    pub(super) client: String,
}

/// A worker in the last interval.
pub(super) struct Worker {
    pub(super) role: String,
    /// Parts of the time in which it worked, and moved bytes of large requests.
    pub(super) busy: f64,
    pub(super) large: f64,
    pub(super) ring: u64,
}

/// The latest answers, oldest first.
pub(super) struct Answers {
    all: VecDeque<Now>,
    /// The 99th percentiles over time, in microseconds, of small and of large requests.
    pub(super) p99_us: [VecDeque<u64>; 2],
}

pub(super) const SIZES: [&str; 2] = ["small", "large"];

impl Answers {
    pub(super) fn new(first: Now) -> Self {
        Self { all: VecDeque::from([first]), p99_us: Default::default() }
    }

    pub(super) fn take(&mut self, now: Now) {
        if self.all.len() > WINDOW {
            self.all.pop_front();
        }
        self.all.push_back(now);
        for (place, size) in SIZES.iter().enumerate() {
            let p99_us = self.quantile_ns(size, "total", 0.99).map_or(0, |ns| ns / 1000);
            let points = &mut self.p99_us[place];
            if points.len() == POINTS {
                points.pop_front();
            }
            points.push_back(p99_us);
        }
    }

    /// The latest answer.
    pub(super) fn now(&self) -> &Now {
        &self.all[self.all.len() - 1]
    }

    fn before(&self) -> &Now {
        &self.all[self.all.len().saturating_sub(2)]
    }

    fn interval_s(&self) -> f64 {
        (self.now().unix_ms.saturating_sub(self.before().unix_ms) as f64 / 1000.0).max(0.001)
    }

    /// Growth of a counter a second, in the last interval.
    pub(super) fn rate(&self, name: &str) -> f64 {
        (self.now().number(name) - self.before().number(name)).max(0.0) / self.interval_s()
    }

    /// The duration, in nanoseconds, that this part of the requests did not exceed lately.
    pub(super) fn quantile_ns(&self, size: &str, stage: &str, share: f64) -> Option<u64> {
        let steps = |now: &Now| now.latency.get(size).and_then(|stages| stages.get(stage)).cloned();
        let (now, then) = (steps(self.now())?, steps(&self.all[0]).unwrap_or_default());
        let then: BTreeMap<u64, u64> = then.into_iter().collect();
        let grown =
            |&(end, count): &(u64, u64)| (end, count.saturating_sub(then.get(&end).copied().unwrap_or(0)));
        let steps: Steps = now.iter().map(grown).collect();
        let total: u64 = steps.iter().map(|(_, count)| count).sum();
        let mut left = (total as f64 * share).ceil() as u64;
        steps.iter().filter(|(_, count)| *count > 0).find_map(|&(end, count)| {
            left = left.saturating_sub(count);
            (left == 0).then_some(end)
        })
    }

    pub(super) fn workers(&self) -> Vec<Worker> {
        let (now, before) = (self.now(), self.before());
        let load = |worker: usize, name: &str| {
            let name = format!("worker:{worker}:{name}");
            ((now.number(&name) - before.number(&name)) / 1e9 / self.interval_s()).clamp(0.0, 1.0)
        };
        let roles = (0..).map_while(|worker| now.minos.get(&format!("worker:{worker}:role")));
        roles
            .enumerate()
            .map(|(worker, role)| Worker {
                role: role.as_str().unwrap_or_default().to_owned(),
                busy: load(worker, "busy_ns"),
                large: load(worker, "large_ns"),
                ring: now.number(&format!("worker:{worker}:ring")) as u64,
            })
            .collect()
    }
}

impl Now {
    /// A number among the statistics; 0 if it is not there.
    pub(super) fn number(&self, name: &str) -> f64 {
        let value = self.general.get(name).or_else(|| self.minos.get(name));
        value.and_then(Value::as_f64).unwrap_or(0.0)
    }

    pub(super) fn version(&self) -> &str {
        self.general.get("version").and_then(Value::as_str).unwrap_or_default()
    }
}

/// A duration in nanoseconds for people.
pub(super) fn time_text(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns @ ..1_000_000) => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns @ ..1_000_000_000) => format!("{:.2} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// A number of bytes for people.
pub(super) fn bytes_text(bytes: f64) -> String {
    let (mut bytes, mut unit) = (bytes, 0);
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    while bytes >= 1024.0 && unit + 1 < UNITS.len() {
        (bytes, unit) = (bytes / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes:.0} B") } else { format!("{bytes:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn now(second: u64, requests: u64) -> Now {
        let answer = json!({
            "unix_ms": 1000 * second, "dispatch": "size-aware",
            "general": {
                "version": "0.1.0", "uptime": second, "cmd_get": requests, "get_hits": requests / 2,
                "get_misses": requests / 2, "bytes_written": 2048 * requests, "limit_maxbytes": 1 << 30,
                "curr_connections": 7, "curr_items": 12,
            },
            "minos": {
                "threshold_bytes": 1447, "store_used_bytes": 1u64 << 28,
                "worker:0:role": "small", "worker:0:busy_ns": second * 500_000_000, "worker:0:ring": 0,
                "worker:1:role": "large", "worker:1:busy_ns": second * 250_000_000, "worker:1:ring": 3,
                "worker:1:large_ns": second * 125_000_000,
            },
            "latency": {
                "small": { "total": [[10_000, requests * 98 / 100], [80_000, requests * 2 / 100]] },
                "large": { "total": [[5_000_000, requests / 100]] },
            },
            "hot": [{ "key": "user:17", "requests_s": 1234.5, "share": 0.25 }],
            "large": [{ "key": "big\\x1b", "bytes": 10_000_000, "requests": 3, "idle_s": 1 }],
            "slow": [{
                "key": "big\\x1b", "us": 25_000, "command": "get", "bytes": 10_000_000, "client": "10.0.0.1:5", "time": 1,
            }],
            "slow_us": 10_000,
        });
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn numbers_are_those_of_the_last_interval() {
        let mut answers = Answers::new(now(10, 1_000_000));
        assert_eq!(answers.quantile_ns("small", "total", 0.5), None);
        answers.take(now(12, 1_010_000));
        assert_eq!(answers.rate("cmd_get"), 5000.0);
        assert_eq!(answers.quantile_ns("small", "total", 0.5), Some(10_000));
        assert_eq!(answers.quantile_ns("small", "total", 0.99), Some(80_000));
        assert_eq!(answers.quantile_ns("large", "total", 0.999), Some(5_000_000));
        assert_eq!(answers.quantile_ns("large", "ring", 0.999), None);
        let workers = answers.workers();
        assert_eq!((workers.len(), &*workers[1].role, workers[1].ring), (2, "large", 3));
        assert_eq!((workers[0].busy, workers[1].large), (0.5, 0.125));
        // A server that was started anew.
        answers.take(now(13, 10));
        assert_eq!((answers.rate("cmd_get"), answers.quantile_ns("small", "total", 0.5)), (0.0, None));
        (14..100).for_each(|second| answers.take(now(second, 10)));
        assert_eq!(answers.all.len(), WINDOW + 1);
    }

    #[test]
    fn people_can_read_the_units() {
        for (ns, text) in [
            (None, "-"),
            (Some(1500), "1.5 us"),
            (Some(2_000_000), "2.00 ms"),
            (Some(u64::MAX), "18446744073.71 s"),
        ] {
            assert_eq!(time_text(ns), text);
        }
        for (bytes, text) in [(1023.0, "1023 B"), (1536.0, "1.5 KiB"), (1e20, "90949470.2 TiB")] {
            assert_eq!(bytes_text(bytes), text);
        }
    }
}
