//! The server's statistics and settings, and the requests that clients may make of the server as a whole.

use std::{
    fmt::Display,
    sync::{Arc, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use minos_base::{Seconds, StatsGroup, seconds_up};
use minos_engine::{Access, CacheMode, Mode};
use minos_net::{Address, Io, Way};
use minos_proto::memcache::compose;
use minos_sched::Role;
use minos_tier::SyncId;
use minos_unit::Load;

use super::{
    config::ServerConfig,
    pause::Pause,
    settings::{self, SettingError, Shown, Values},
    shared::Shared,
};
use crate::ops::{Admin, Client, DELIMITER, Prefixes, counters::Totals, receiving::ReceivePermit, waits_max};
use crate::{
    rack::RackCounters,
    tcp::registry::Entry,
    tracking::{Inbox, Tracking},
    watch::Watch,
};

/// The counters of the native protocol in plain `stats`; `stats minos` has all.
const NATIVE_GENERAL: [&str; 4] =
    ["native_datagrams_in", "native_datagrams_out", "native_operations", "native_sessions"];

/// Connections listed in one step.
const CONNECTIONS_AT_ONCE: usize = 16;

type Emit<'a> = &'a mut dyn FnMut(&str, &dyn Display);

impl<M: Mode, I: Io> Admin for Shared<M, I> {
    fn totals(&self) -> Totals {
        let baseline = *self.counters_baseline.lock();
        self.all_totals().since(&baseline)
    }

    fn prefixes(&self) -> Option<&Prefixes> {
        Some(&self.prefixes)
    }

    fn watch(&self) -> Option<&Watch> {
        Some(&self.watch)
    }

    fn reset(&self) {
        self.prefixes.clear();
        self.watch.clear_commands();
        *self.counters_baseline.lock() = self.all_totals();
    }

    fn stats(&self, group: StatsGroup, emit: Emit<'_>) {
        match group {
            StatsGroup::General => self.general(emit),
            StatsGroup::Settings => {
                self.settings(emit);
                self.resp_settings(emit);
                self.watch.settings(self.plan.in_force().tuning.sample_one_in, emit);
            }
            StatsGroup::Connections => self.connections(emit),
            StatsGroup::Minos => self.policy(emit),
            StatsGroup::Flash => {
                if let Some(tier) = &self.tier {
                    tier.stats().each(|name, value| emit(name, &value));
                }
            }
            StatsGroup::Rack => self.rack_stats(emit),
            _ => {}
        }
    }

    fn flash_waits_max(&self) -> u32 {
        self.tier.as_ref().map_or(0, |tier| waits_max(tier, self.config.flash_wait))
    }

    fn empty_flash(&self) -> Option<SyncId> {
        Some(self.tier.as_ref()?.empty())
    }

    fn is_emptied(&self, emptying: SyncId) -> bool {
        // A log that is read only takes nothing more, and the engine forgets its items all the same.
        self.tier.as_ref().is_none_or(|tier| tier.is_emptied(emptying).unwrap_or(true))
    }

    fn set_verbosity(&self, level: u32) {
        self.config.verbosity.set_number(level);
    }

    fn settings(&self) -> Vec<Shown> {
        settings::shown(&self.values())
    }

    fn change(&self, changes: &[(&str, &str)]) -> Result<(), SettingError> {
        Shared::change(self, changes).map(drop)
    }

    fn flush_at(&self, due: Seconds) {
        self.flush_due_s.store(due, Ordering::Relaxed);
        self.mailbox.wake();
    }

    fn allows_shutdown(&self) -> bool {
        self.config.allow_shutdown
    }

    fn shut_down(&self, graceful: bool) {
        tracing::info!(graceful, "a client asked the server to stop");
        if graceful { self.stop.request() } else { self.stop.request_at_once() }
    }

    fn list_connections(&self, mut from: u64, tx: &mut Vec<u8>, bytes_max: usize) -> Option<u64> {
        loop {
            from = self.some_connections(from, &mut |name, value| compose::stat(tx, name, value))?;
            if tx.len() >= bytes_max {
                return Some(from);
            }
        }
    }

    fn list_clients(&self, from: u64, max: usize, tell: &mut dyn FnMut(&Client<'_>)) -> Option<u64> {
        let now_s = self.clock.seconds();
        let entries = self.connections.entries_from(from, max);
        for (number, entry) in &entries {
            let access = self.config.access.as_ref();
            let user = access.and_then(|access| entry.badge()?.user(&access.authority));
            tell(&Client {
                number: *number,
                descriptor: entry.descriptor,
                peer: &entry.peer_address,
                local: &entry.listen_address,
                name: &entry.name.lock(),
                user: user.as_ref().map(|user| user.name()),
                age_s: now_s.saturating_sub(entry.opened),
                idle_s: now_s.saturating_sub(entry.last_active()),
            });
        }
        entries.last().map(|(number, _)| number + 1)
    }

    fn name_client(&self, number: u64, name: &str) {
        if let Some(entry) = self.connections.entry(number) {
            name.clone_into(&mut entry.name.lock());
        }
    }

    fn tracking(&self) -> Option<&Arc<Tracking>> {
        Some(&self.tracking)
    }

    fn inbox(&self, number: u64) -> Option<Arc<Inbox>> {
        self.connections.inbox(number)
    }

    fn kill_client(&self, number: u64) -> bool {
        let inbox = self.connections.inbox(number);
        inbox.iter().for_each(|inbox| self.tracking.kill(inbox));
        inbox.is_some()
    }

    fn kill_deleted(&self) {
        let Some(access) = &self.config.access else { return };
        let is_deleted = |entry: &Entry| entry.badge().is_some_and(|it| it.is_deleted(&access.authority));
        let entries = self.connections.entries_from(0, usize::MAX);
        for (number, _) in entries.iter().filter(|(_, entry)| is_deleted(entry)) {
            self.kill_client(*number);
        }
    }

    fn pause_clients(&self, pause: Pause) -> u64 {
        self.pause(pause)
    }

    fn is_taken_up(&self, version: u64) -> bool {
        Shared::is_taken_up(self, version)
    }

    fn resume_clients(&self) {
        self.resume();
    }

    fn admit(&self, bytes: u64) -> Option<ReceivePermit> {
        self.receiving.admit(bytes)
    }
}

impl<M: Mode, I: Io> Shared<M, I> {
    fn all_totals(&self) -> Totals {
        let mut totals = Totals::default();
        for worker in &self.workers {
            totals.add(&worker.counters);
        }
        totals
    }

    fn general(&self, emit: Emit<'_>) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (user, system) = minos_net::processor_time();
        emit("pid", &std::process::id());
        emit("uptime", &self.started.elapsed().as_secs());
        emit("time", &unix.as_secs());
        emit("version", &env!("CARGO_PKG_VERSION"));
        emit("pointer_size", &usize::BITS);
        emit("rusage_user", &format_args!("{:.6}", user.as_secs_f64()));
        emit("rusage_system", &format_args!("{:.6}", system.as_secs_f64()));
        emit("max_connections", &self.plan.in_force().tuning.connections_max);
        emit("curr_connections", &self.connections.current());
        emit("total_connections", &self.connections.accepted.value());
        emit("rejected_connections", &self.connections.rejected.value());
        emit("accept_failures", &self.connections.failed.value());
        // Connections beyond the limit are accepted and refused, as with memcached's maxconns_fast.
        emit("accepting_conns", &1);
        emit("listen_disabled_num", &self.connections.failed.value());
        emit("threads", &self.workers.len());
        if let Some(native) = &self.native {
            let totals = native.core.totals();
            totals
                .iter()
                .filter(|(name, _)| NATIVE_GENERAL.contains(name))
                .for_each(|(name, value)| emit(name, value));
        }
    }

    fn settings(&self, emit: Emit<'_>) {
        let (config, Values { tuning, choice, .. }) = (&self.config, self.values());
        let addresses: Vec<_> = config.memcached.iter().map(ToString::to_string).collect();
        let port = config.memcached.iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        });
        let path = config.memcached.iter().find_map(|address| match address {
            Address::Unix(path) => Some(path.to_string_lossy()),
            Address::Tcp(_) => None,
        });
        emit("maxbytes", &self.store.memory_limit());
        emit("maxconns", &tuning.connections_max);
        emit("tcpport", &port.unwrap_or(0));
        emit("udpport", &0);
        emit("inter", &addresses.join(","));
        emit("domain_socket", &path.unwrap_or("NULL".into()));
        emit("verbosity", &config.verbosity.number());
        let evicts_from_flash = self.tier.as_ref().is_some_and(|tier| !tier.is_lossless());
        let evicts = M::NAME == <CacheMode>::NAME || evicts_from_flash;
        emit("evictions", &if evicts { "on" } else { "off" });
        emit("engine", &M::NAME);
        emit("access", &M::Access::NAME);
        emit("num_threads", &self.workers.len());
        emit("item_size_max", &tuning.value_bytes_max);
        client_settings(config, emit);
        emit("maxconns_fast", &"yes");
        emit("binding_protocol", &"ascii");
        emit("detail_enabled", &yes_or_no(self.prefixes.enabled().is_some()));
        emit("stat_key_prefix", &char::from(DELIMITER));
        emit("detail_prefixes_max", &tuning.detail_prefixes_max);
        emit("cas_enabled", &"yes");
        emit("flush_enabled", &"yes");
        emit("shutdown_enabled", &yes_or_no(config.allow_shutdown));
        emit("idle_timeout", &seconds_up(tuning.idle_timeout));
        emit("stall_timeout", &tuning.stall_timeout.as_secs());
        emit("min_rate", &tuning.rate_min);
        emit("receive_memory", &self.receiving.bytes_max());
        emit("buffer_size_max", &tuning.buffer_bytes_max);
        emit("dispatch", &choice.dispatch);
        emit("handoff_workers", &choice.handoff_workers);
        emit("percentile", &tuning.control.percentile);
        emit("alpha", &tuning.control.alpha);
        emit("cost", &tuning.control.cost);
        emit("threshold", &tuning.control.threshold);
        emit("epoch_ms", &tuning.epoch.as_millis());
        emit("steal", &yes_or_no(tuning.steal));
        emit("slice_bytes", &tuning.slice_bytes);
        emit("ring_capacity", &config.ring_capacity);
        emit("poll", &config.poll);
        emit("backing", &self.store.backing_text());
        self.native_settings(emit);
        self.config.store_settings.iter().for_each(|(name, value)| emit(name, value));
    }

    fn resp_settings(&self, emit: Emit<'_>) {
        if let Some(address) = self.config.resp.first() {
            emit("resp_bind", address);
        }
        if let Some(Address::Tcp(address)) = self.config.resp.first() {
            emit("resp_port", &address.port());
        }
    }

    fn native_settings(&self, emit: Emit<'_>) {
        let (Some(native), Some(side)) = (&self.config.native, &self.native) else { return };
        emit("native", &side.ports.address());
        emit("native_single_port", &yes_or_no(native.single_port));
        let way = match side.ports.way() {
            Way::Sockets => "udp",
            Way::Card(_) => "xdp",
            Way::Memif(_) => "memif",
            Way::Dpdk(_) => "dpdk",
            Way::Refused(_) => "udp instead of xdp",
        };
        emit("native_way", &way);
        emit("native_access", &M::Access::NAME);
        emit("native_datagram", &native.datagram_bytes);
        emit("native_window", &native.window);
        emit("native_transfers", &native.transfers_per_source);
        emit("native_transfer_memory", &side.core.transfer_bounds.bytes_max());
        emit("native_transfer_timeout_ms", &native.transfer_timeout.as_millis());
        emit("native_sessions", &native.sessions);
        emit("native_sessions_per_address", &native.sessions_per_source);
        emit("native_sealed", &yes_or_no(!native.secrets.is_empty()));
        emit("native_receive_buffer", &native.receive_buffer_bytes);
    }

    /// Lists every connection.
    fn connections(&self, emit: Emit<'_>) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.some_connections(from, emit);
        }
    }

    /// Lists a few connections from number `from` on. Returns the number to continue from, or `None` at the
    /// end.
    fn some_connections(&self, from: u64, emit: Emit<'_>) -> Option<u64> {
        let now_s = self.clock.seconds();
        let entries = self.connections.entries_from(from, CONNECTIONS_AT_ONCE);
        for (_, entry) in &entries {
            let name = entry.descriptor;
            emit(&format!("{name}:addr"), &entry.peer_address);
            emit(&format!("{name}:listen_addr"), &entry.listen_address);
            emit(&format!("{name}:queue"), &entry.queue);
            emit(&format!("{name}:secs_since_last_cmd"), &now_s.saturating_sub(entry.last_active()));
        }
        entries.last().map(|(number, _)| number + 1)
    }

    fn rack_stats(&self, emit: Emit<'_>) {
        let Some(rack) = &self.rack else { return };
        rack.emit(emit);
        emit("links", &if rack.config.secrets.is_empty() { "not sealed" } else { "sealed" });
        self.handshakes.peers.all().for_each(|(name, value)| emit(&format!("peers_{name}"), &value));
        let Load { reads, writes, busy_us } = self.load();
        emit("load_reads", &reads);
        emit("load_writes", &writes);
        emit("load_busy_us", &busy_us);
        for at in 0..RackCounters::default().all().count() {
            let mut all = self.workers.iter().filter_map(|worker| worker.rack_counters.all().nth(at));
            let Some((name, first)) = all.next() else { continue };
            emit(name, &all.fold(first, |sum, (_, value)| sum + value));
        }
    }

    fn policy(&self, emit: Emit<'_>) {
        let in_force = self.plan.in_force();
        in_force.decision.emit(emit);
        self.receiving.emit(emit);
        self.watch.counters(emit);
        emit("settings_changes", &*self.settings_changes.lock());
        emit("detail_prefixes_dropped", &self.prefixes.dropped());
        if !self.config.resp.is_empty() {
            self.tracking.emit(emit);
        }
        if let Some(tls) = &self.config.tls {
            self.handshakes.tls.all().for_each(|(name, value)| emit(&format!("tls_{name}"), &value));
            emit("tls_broken", &tls.acceptor.broken());
        }
        if self.config.access.is_some() {
            emit("auth_crowded", &self.checks.refused());
        }
        if let Some(native) = &self.native {
            native.core.totals().iter().for_each(|(name, value)| emit(name, value));
            emit("native_overruns", &native.ports.overruns());
            if !matches!(native.ports.way(), Way::Sockets) {
                let counts = native.ports.card_counts();
                counts.all().for_each(|(name, value)| emit(&format!("native_card_{name}"), &value));
            }
        }
        for (index, (worker, role)) in self.workers.iter().zip(&in_force.plan.roles).enumerate() {
            let role = match role {
                Role::Small => "small",
                Role::Large => "large",
                Role::Standby => "standby",
            };
            emit(&format!("worker:{index}:role"), &role);
            emit(&format!("worker:{index}:ring"), &worker.ring.len());
            emit(&format!("worker:{index}:waiting"), &worker.waiting.len());
            for (name, value) in worker.metrics.all() {
                emit(&format!("worker:{index}:{name}"), &value);
            }
        }
    }
}

/// Settings of who may connect and of the log, and memcached's for features that Minos lacks, reported as switched off.
fn client_settings(config: &ServerConfig, emit: Emit<'_>) {
    emit("ssl_enabled", &yes_or_no(config.tls.is_some()));
    for name in ["lru_crawler", "lru_maintainer_thread", "lru_segmented", "slab_reassign"] {
        emit(name, &"no");
    }
    emit("slab_automove", &0);
    emit("dump_enabled", &"yes");
    emit("auth_enabled_sasl", &yes_or_no(config.access.is_some()));
    emit("auth_enabled_ascii", &yes_or_no(config.access.is_some()));
    emit("track_sizes", &"no");
    emit("log_level", &config.verbosity.log_level());
}

fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}
