//! INFO: facts and statistics in Redis' sections and under its names.

use std::{collections::BTreeMap, fmt::Write as _};

use minos_base::StatsGroup;
use minos_engine::Mode;
use minos_proto::resp::compose;

use super::{
    call::{Call, Done},
    client::REDIS_VERSION,
    server::now_us,
    session::RespSession,
};
use crate::{
    ops::{self, Context, Placement, counters::Totals},
    watch::{CommandTimes, Watch},
};

/// The sections, in Redis' order.
const SECTIONS: [&str; 12] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "modules",
    COMMANDS,
    "errorstats",
    "cluster",
    "keyspace",
];
/// The section that only those get who ask for it.
const COMMANDS: &str = "commandstats";

/// INFO.
pub(super) fn info<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let asks =
        |section: &str| call.command.arguments(1).any(|name| name.eq_ignore_ascii_case(section.as_bytes()));
    let is_all = asks("all") || asks("everything");
    let is_default = call.command.len() == 1 || asks("default");
    let facts = Facts::of(cx);
    let mut text = String::new();
    let is_shown = |section: &&&str| is_all || is_default && **section != COMMANDS || asks(section);
    for section in SECTIONS.iter().filter(is_shown) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let title = match *section {
            "cpu" => "CPU".to_owned(),
            section => section[..1].to_uppercase() + &section[1..],
        };
        // Appending to a string does not fail.
        let _ = write!(text, "# {title}\r\n");
        facts.tell(section, &mut |name, value| {
            let _ = write!(text, "{name}:{value}\r\n");
        });
    }
    compose::text(tx, &text, session.version);
    Ok(())
}

/// The server's statistics by memcached's names, under which they are kept.
struct Facts {
    all: BTreeMap<String, String>,
    is_cache: bool,
    totals: Totals,
    /// The times of commands, estimated, by their names.
    times: BTreeMap<&'static str, CommandTimes>,
}

type Emit<'a> = &'a mut dyn FnMut(&str, &str);

impl Facts {
    fn of<M: Mode, P>(cx: &Context<'_, M, P>) -> Self {
        let mut all = BTreeMap::new();
        for group in [StatsGroup::General, StatsGroup::Settings, StatsGroup::Minos] {
            ops::report(cx.store, cx.admin, group, &mut |name, value| {
                all.insert(name.to_owned(), value.to_string());
            });
        }
        let is_cache = all.get("evictions").is_some_and(|text| text == "on");
        // The counter and the setting share a name.
        let stats = cx.store.stats();
        all.insert("evictions".to_owned(), stats.evictions().to_string());
        let keys = (stats.items + stats.cold_items).saturating_sub(stats.dead_items);
        all.insert("curr_items".to_owned(), keys.to_string());
        let times = cx.admin.watch().map(Watch::commands).unwrap_or_default();
        Self { all, is_cache, totals: cx.admin.totals(), times }
    }

    fn get(&self, name: &str) -> &str {
        self.all.get(name).map_or("0", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    fn tell(&self, section: &str, emit: Emit<'_>) {
        match section {
            "server" => self.server(emit),
            "clients" => {
                emit("connected_clients", self.get("curr_connections"));
                emit("maxclients", self.get("max_connections"));
                emit("blocked_clients", "0");
                emit("tracking_clients", self.get("tracking_clients"));
            }
            "memory" => self.memory(emit),
            "persistence" => {
                for name in
                    ["loading", "rdb_changes_since_last_save", "rdb_bgsave_in_progress", "aof_enabled"]
                {
                    emit(name, "0");
                }
            }
            "stats" => self.stats(emit),
            "replication" => {
                emit("role", "master");
                emit("connected_slaves", "0");
            }
            "cpu" => {
                emit("used_cpu_sys", self.get("rusage_system"));
                emit("used_cpu_user", self.get("rusage_user"));
            }
            COMMANDS => self.commands(emit),
            "errorstats" => emit("errorstat_ERR", &format!("count={}", self.get("resp_errors"))),
            "cluster" => emit("cluster_enabled", "0"),
            "keyspace" if self.number("curr_items") > 0 => {
                emit("db0", &format!("keys={},expires=0,avg_ttl=0", self.get("curr_items")));
            }
            _ => {}
        }
    }

    fn server(&self, emit: Emit<'_>) {
        emit("redis_version", REDIS_VERSION);
        emit("minos_version", env!("CARGO_PKG_VERSION"));
        emit("redis_mode", "standalone");
        emit("os", std::env::consts::OS);
        emit("arch_bits", self.get("pointer_size"));
        emit("process_id", self.get("pid"));
        emit("tcp_port", self.get("resp_port"));
        emit("server_time_usec", &now_us().to_string());
        emit("uptime_in_seconds", self.get("uptime"));
        emit("uptime_in_days", &(self.number("uptime") / 86400).to_string());
        emit("io_threads_active", &u8::from(self.number("threads") > 1).to_string());
    }

    /// The calls of each command, their time if some were looked at, and those that were refused or have failed.
    fn commands(&self, emit: Emit<'_>) {
        for (spec, [calls, rejected, failed]) in self.totals.commands() {
            let mut text = format!("calls={calls}");
            if let Some(times) = self.times.get(spec.name) {
                let usec = times.total_us();
                // Appending to a string does not fail.
                let _ = write!(text, ",usec={usec:.0},usec_per_call={:.2}", usec / times.calls() as f64);
            }
            let _ = write!(text, ",rejected_calls={rejected},failed_calls={failed}");
            emit(&format!("cmdstat_{}", spec.name), &text);
        }
    }

    fn memory(&self, emit: Emit<'_>) {
        let used = self.number("store_used_bytes");
        let dataset = self.number("store_key_bytes") + self.number("store_value_bytes");
        emit("used_memory", &used.to_string());
        emit("used_memory_human", &human(used));
        emit("used_memory_rss", self.get("store_memory_bytes"));
        emit("used_memory_rss_human", &human(self.number("store_memory_bytes")));
        emit("used_memory_dataset", &dataset.to_string());
        emit("used_memory_overhead", &used.saturating_sub(dataset).to_string());
        emit("maxmemory", self.get("limit_maxbytes"));
        emit("maxmemory_human", &human(self.number("limit_maxbytes")));
        emit("maxmemory_policy", if self.is_cache { "allkeys-lru" } else { "noeviction" });
        emit("mem_fragmentation_ratio", self.get("store_fragmentation"));
        emit("mem_allocator", "minos");
    }

    fn stats(&self, emit: Emit<'_>) {
        for (name, kept) in [
            ("total_connections_received", "total_connections"),
            ("total_commands_processed", "resp_commands"),
            ("total_net_input_bytes", "bytes_read"),
            ("total_net_output_bytes", "bytes_written"),
            ("rejected_connections", "rejected_connections"),
            ("expired_keys", "store_expired_reclaimed"),
            ("evicted_keys", "evictions"),
            ("keyspace_hits", "get_hits"),
            ("keyspace_misses", "get_misses"),
            ("total_error_replies", "resp_errors"),
            ("tracking_total_keys", "tracking_keys"),
            ("tracking_total_items", "tracking_items"),
            ("tracking_total_prefixes", "tracking_prefixes"),
        ] {
            emit(name, self.get(kept));
        }
        emit("pubsub_channels", "0");
        emit("pubsub_patterns", "0");
        emit("latest_fork_usec", "0");
    }
}

/// A number of bytes in the largest unit that it fills, as Redis writes it.
fn human(bytes: u64) -> String {
    let unit = (0..=4).rev().find(|unit| bytes >> (10 * unit) > 0).unwrap_or(0);
    match unit {
        0 => format!("{bytes}B"),
        _ => format!("{:.2}{}", bytes as f64 / (1u64 << (10 * unit)) as f64, ["", "K", "M", "G", "T"][unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_redis_units() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (256 << 20, "256.00M"), (3 << 39, "1.50T")]
        {
            assert_eq!(human(bytes), text);
        }
    }
}
