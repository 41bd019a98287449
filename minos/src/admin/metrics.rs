//! `/metrics`: the values of `/stats`, `/stats/minos` and `/stats/admin`, for Prometheus.
//!
//! Text exposition format 0.0.4: each numeric value is a sample, and `worker:0:visits` becomes
//! `minos_worker_visits{worker="0"}`.

use std::{collections::HashMap, fmt::Write};

use hyper::StatusCode;
use minos_node::{
    StatsGroup,
    watch::{Durations, SIZE_BOUNDS, Series, Watch},
};

use super::{
    Endpoint,
    reply::{self, Reply},
};

const PREFIX: &str = "minos_";

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Families whose values go up and down (gauges).
#[rustfmt::skip]
const GAUGES: &[&str] = &[
    "accepting_conns", "bytes", "curr_connections", "curr_items", "epoch_requests", "fetchers",
    "flash_available_segments", "flash_bad_segments", "flash_capacity_bytes", "flash_closing_segments", "flash_compacting",
    "flash_compaction_rate", "flash_ending_segments", "flash_free_segments", "flash_full", "flash_items", "flash_items_in_flight",
    "flash_live_bytes", "flash_open_segments", "flash_read_only", "flash_reserved_segments", "flash_scrub_left",
    "flash_scrub_rate", "flash_scrub_segment", "flash_sealed_segments", "flash_segment_bytes", "flash_snapshot_held_segments", "flash_tombstones_waiting",
    "hash_bytes", "hot_key_share", "large_key_bytes", "large_workers", "limit_maxbytes",
    "max_connections", "native_sessions", "native_transfer_bytes", "native_waits_bytes", "pid", "pointer_size", "range_bytes_max",
    "range_bytes_min", "range_cost", "receiving_bytes", "resp_port", "setting", "small_cost_share", "small_request_share", "small_workers",
    "standby", "store_buckets", "store_buffer_bytes", "store_bytes_per_item", "store_chain_buckets_max", "store_extent_bytes",
    "store_extents", "store_fragmentation", "store_free_bytes", "store_index_bytes", "store_items", "store_key_bytes",
    "store_largest_free_bytes", "store_log_bytes", "store_log_capacity_bytes", "store_memory_bytes",
    "store_overhead_bytes_per_item", "store_pinned", "store_spare_buckets", "store_used_bytes", "store_value_bytes",
    "threads", "threshold_bytes", "time", "tracking_clients", "tracking_items", "tracking_keys", "tracking_nodes", "tracking_prefixes", "uptime", "worker_kept_bytes_max", "worker_ring", "worker_role", "worker_waiting",
];

/// Prefixes of the families that only grow (counters), except [`GAUGES`].
#[rustfmt::skip]
const COUNTERS: &[&str] = &[
    "accept_failures", "admin_", "auth_", "bytes_read", "bytes_written", "cas_", "cmd_", "decr_", "delete_", "detail_",
    "epoch", "evictions", "flash_", "get_", "incr_", "listen_disabled_num", "native_", "read_", "receiving_refused", "reclaimed", "rejected_connections", "resp_", "rusage_", "settings_changes", "slow_requests",
    "store_buffer_refusals", "store_chain_refusals", "store_evictions_", "store_expired_reclaimed", "store_flushed_reclaimed",
    "store_no_memory", "store_out_of_memory", "store_read_", "store_reinserted", "store_splits", "store_too_large", "tls_",
    "total_connections", "total_items", "touch_", "tracking_", "watch_", "worker_",
];

pub(super) fn show(endpoint: &Endpoint) -> Reply {
    let mut families = Families::default();
    for group in [StatsGroup::General, StatsGroup::Minos, StatsGroup::Flash] {
        endpoint.operator.stats(group, &mut |name, value| families.add(name, &value.to_string()));
    }
    for shown in endpoint.operator.settings() {
        if let Some(value) = shown.metric {
            families.push("setting", &format!("{{name=\"{}\"}}", shown.name), &value.to_string());
        }
    }
    endpoint.counters.all().for_each(|(name, value)| families.add(name, &value.to_string()));
    let watch = endpoint.operator.watch();
    // Which keys these are is no metric: each would be a series of its own.
    let share = watch.hot_keys().first().map_or(0.0, |hot| hot.share);
    families.add("hot_key_share", &share.to_string());
    let bytes = watch.large_keys().first().map_or(0, |large| large.bytes);
    families.add("large_key_bytes", &bytes.to_string());
    let text = families.text() + &durations(watch);
    reply::with(StatusCode::OK, CONTENT_TYPE, text)
}

/// The latencies as histograms. Bounds are 1, 1.5, 2, 3, 4, 6 and so on times 1.024 us, because a finer one adds a series to
/// each family.
fn durations(watch: &Watch) -> String {
    let by_stage = Histogram { family: "request_duration_seconds", lines: String::new() };
    let by_bytes = Histogram { family: "request_duration_by_bytes_seconds", lines: String::new() };
    let mut histograms = [by_stage, by_bytes];
    for (series, durations) in watch.latencies() {
        match series {
            Series::Stage(size, stage) => {
                let labels = format!("size=\"{}\",stage=\"{}\"", size.name(), stage.name());
                histograms[0].add(&labels, &durations);
            }
            Series::Bytes(bound) => {
                let bound = SIZE_BOUNDS[bound];
                let bound = if bound == u64::MAX { "inf".to_owned() } else { bound.to_string() };
                histograms[1].add(&format!("bytes_max=\"{bound}\""), &durations);
            }
        }
    }
    histograms.map(Histogram::text).concat()
}

/// A family of histograms.
struct Histogram {
    family: &'static str,
    lines: String,
}

/// Doublings of the bounds of a histogram, from 1.024 us to 17 s.
const DOUBLINGS: u32 = 24;

impl Histogram {
    fn add(&mut self, labels: &str, durations: &Durations) {
        let (family, lines) = (self.family, &mut self.lines);
        let bounds_ns = || (0..DOUBLINGS).flat_map(|power| [1024 << power, 1536 << power]);
        for (bound_ns, count) in bounds_ns().zip(durations.below(bounds_ns())) {
            let bound_s = bound_ns as f64 / 1e9;
            let _ = writeln!(lines, "{PREFIX}{family}_bucket{{{labels},le=\"{bound_s}\"}} {count}");
        }
        let (count, sum_s) = (durations.total(), durations.sum_ns() as f64 / 1e9);
        let _ = writeln!(lines, "{PREFIX}{family}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(lines, "{PREFIX}{family}_sum{{{labels}}} {sum_s}");
        let _ = writeln!(lines, "{PREFIX}{family}_count{{{labels}}} {count}");
    }

    fn text(self) -> String {
        format!("# TYPE {PREFIX}{} histogram\n{}", self.family, self.lines)
    }
}

/// Samples, grouped by family, in the order in which the families were added.
#[derive(Default)]
struct Families {
    /// Name, and samples as lines.
    families: Vec<(String, String)>,
    index_of: HashMap<String, usize>,
    /// Names added so far: some groups share a few.
    seen: std::collections::HashSet<String>,
}

impl Families {
    /// Adds `value` under `name`, if it is a number and `name` is new.
    fn add(&mut self, name: &str, value: &str) {
        if let Some((worker, "role")) = name.strip_prefix("worker:").and_then(|rest| rest.split_once(':')) {
            return self.push("worker_role", &format!("{{worker=\"{worker}\",role=\"{value}\"}}"), "1");
        }
        // A value that Rust parses as a number but Prometheus does not would make the whole answer
        // unreadable.
        let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
        if !is_number || !self.seen.insert(name.to_owned()) {
            return;
        }
        let (family, labels) = family_and_labels(name);
        self.push(&family, &labels, value);
    }

    fn push(&mut self, family: &str, labels: &str, value: &str) {
        let next = self.families.len();
        let index = *self.index_of.entry(family.to_owned()).or_insert(next);
        if index == next {
            self.families.push((family.to_owned(), String::new()));
        }
        let (family, lines) = &mut self.families[index];
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{PREFIX}{family}{labels} {value}");
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (family, lines) in &self.families {
            let _ = writeln!(text, "# TYPE {PREFIX}{family} {}", kind(family));
            text.push_str(lines);
        }
        text
    }
}

/// `worker:0:visits` as `worker_visits` and `{worker="0"}`; other characters than names may have become `_`.
fn family_and_labels(name: &str) -> (String, String) {
    let (mut words, mut labels) = (Vec::<&str>::new(), Vec::new());
    for part in name.split(':') {
        match words.last() {
            Some(word) if part.bytes().all(|byte| byte.is_ascii_digit()) => {
                labels.push(format!("{}=\"{part}\"", allowed(word)));
            }
            _ => words.push(part),
        }
    }
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    (allowed(&words.join("_")), labels)
}

fn allowed(name: &str) -> String {
    name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect()
}

/// The type of a family, as far as it is known.
fn kind(family: &str) -> &'static str {
    if GAUGES.contains(&family) {
        "gauge"
    } else if COUNTERS.iter().any(|start| family.starts_with(start)) {
        "counter"
    } else {
        "untyped"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_name_become_labels() {
        let cases = [
            ("cmd_get", ("cmd_get", "")),
            ("worker:0:visits", ("worker_visits", "{worker=\"0\"}")),
            ("a:1:b:22:c", ("a_b_c", "{a=\"1\",b=\"22\"}")),
            ("1:size", ("1_size", "")),
            ("odd-name.x", ("odd_name_x", "")),
        ];
        for (name, (family, labels)) in cases {
            assert_eq!(family_and_labels(name), (family.to_owned(), labels.to_owned()), "{name}");
        }
    }

    #[test]
    fn samples_of_a_family_stand_together_and_once() {
        let mut families = Families::default();
        for (name, value) in [
            ("worker:0:visits", "3"),
            ("worker:0:role", "small"),
            ("worker:0:ring", "1"),
            ("worker:1:visits", "4"),
            ("worker:1:visits", "5"),
            ("share", "0.25"),
            ("odd", "nan"),
        ] {
            families.add(name, value);
        }
        let expected = "# TYPE minos_worker_visits counter\n\
            minos_worker_visits{worker=\"0\"} 3\n\
            minos_worker_visits{worker=\"1\"} 4\n\
            # TYPE minos_worker_role gauge\n\
            minos_worker_role{worker=\"0\",role=\"small\"} 1\n\
            # TYPE minos_worker_ring gauge\n\
            minos_worker_ring{worker=\"0\"} 1\n\
            # TYPE minos_share untyped\n\
            minos_share 0.25\n";
        assert_eq!(families.text(), expected);
    }
}
