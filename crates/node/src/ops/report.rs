//! Statistics of commands and store; the server adds its own.

use std::fmt::Display;

use minos_base::{SizeClass, StatsGroup};
use minos_engine::{ClassStats, Engine, Mode, StoreStats};

use super::context::Admin;

/// Emits all statistics of `group`, or resets the counters.
pub(crate) fn report<M: Mode>(engine: &Engine<M>, admin: &dyn Admin, group: StatsGroup, emit: Emit<'_>) {
    match group {
        StatsGroup::Reset => admin.reset(),
        StatsGroup::General => {
            admin.stats(group, emit);
            admin.totals().all().for_each(|(name, value)| emit(name, &value));
            emit("limit_maxbytes", &engine.memory_limit());
            general(&engine.stats(), emit);
        }
        StatsGroup::Items => items(engine, emit),
        StatsGroup::Slabs => slabs(engine, emit),
        StatsGroup::Sizes => emit("sizes_status", &"disabled"),
        StatsGroup::Settings | StatsGroup::Connections | StatsGroup::Flash | StatsGroup::Rack => {
            admin.stats(group, emit)
        }
        StatsGroup::HotKeys | StatsGroup::LargeKeys | StatsGroup::Slow => {
            admin.watch().into_iter().for_each(|watch| watch.emit(group, emit));
        }
        StatsGroup::Minos => {
            admin.stats(group, emit);
            emit("store_lasting", &u8::from(engine.is_lasting()));
            store(&engine.stats(), emit);
        }
    }
}

type Emit<'a> = &'a mut dyn FnMut(&str, &dyn Display);

/// memcached's memory statistics that apply to Minos.
fn general(stats: &StoreStats, emit: Emit<'_>) {
    emit("get_expired", &stats.expired_reclaimed);
    emit("get_flushed", &stats.flushed_reclaimed);
    emit("hash_bytes", &stats.index_bytes);
    emit("bytes", &stats.used_bytes.saturating_sub(stats.index_bytes));
    emit("curr_items", &(stats.items + stats.cold_items));
    emit("evictions", &stats.evictions());
    emit("reclaimed", &(stats.expired_reclaimed + stats.flushed_reclaimed));
}

fn store(stats: &StoreStats, emit: Emit<'_>) {
    let counts = [
        ("store_items", stats.items),
        ("store_key_bytes", stats.key_bytes),
        ("store_value_bytes", stats.value_bytes),
        ("store_memory_bytes", stats.memory_bytes),
        ("store_used_bytes", stats.used_bytes),
        ("store_free_bytes", stats.free_bytes),
        ("store_largest_free_bytes", stats.largest_free_bytes),
        ("store_index_bytes", stats.index_bytes),
        ("store_buckets", stats.buckets),
        ("store_spare_buckets", stats.spare_buckets),
        ("store_chain_buckets_max", stats.chain_buckets_max),
        ("store_splits", stats.splits),
        ("store_read_retries", stats.read_retries),
        ("store_read_fallbacks", stats.read_fallbacks),
        ("store_read_abandoned", stats.read_abandoned),
        ("store_out_of_memory", stats.out_of_memory),
        ("store_chain_refusals", stats.chain_refusals),
        ("store_buffer_bytes", stats.buffer_bytes),
        ("store_buffer_refusals", stats.buffer_refusals),
        ("store_expired_reclaimed", stats.expired_reclaimed),
        ("store_flushed_reclaimed", stats.flushed_reclaimed),
        ("store_evictions_log", stats.evictions_log),
        ("store_evictions_index", stats.evictions_index),
        ("store_evictions_large", stats.evictions_large),
        ("store_reinserted", stats.reinserted),
        ("store_log_bytes", stats.log_bytes),
        ("store_log_capacity_bytes", stats.log_capacity_bytes),
        ("store_extents", stats.extents),
        ("store_extent_bytes", stats.extent_bytes),
        ("store_pinned", stats.pinned),
    ];
    counts.iter().for_each(|(name, value)| emit(name, value));
    emit("store_bytes_per_item", &format_args!("{:.1}", stats.bytes_per_item()));
    emit("store_overhead_bytes_per_item", &format_args!("{:.1}", stats.overhead_bytes_per_item()));
    emit("store_fragmentation", &format_args!("{:.3}", stats.fragmentation()));
}

/// The classes that hold or held items.
fn classes<M: Mode>(store: &Engine<M>) -> impl Iterator<Item = (SizeClass, ClassStats)> {
    let classes = store.class_stats().into_iter().enumerate();
    classes
        .filter_map(|(index, stats)| Some((SizeClass::from_index(index).filter(|_| stats.is_used())?, stats)))
}

/// Items by size class, where memcached has slab classes.
fn items<M: Mode>(store: &Engine<M>, emit: Emit<'_>) {
    for (class, stats) in classes(store) {
        let mut item = |name: &str, value: u64| emit(&format!("items:{}:{name}", class.index()), &value);
        item("number", stats.items);
        item("age", stats.age_s);
        item("mem_requested", stats.item_bytes);
        item("evicted", stats.evicted);
        item("outofmemory", stats.refused);
        item("reclaimed", stats.expired_reclaimed);
    }
}

/// Sizes by size class, where memcached has slab classes. A chunk exists while an item occupies it.
fn slabs<M: Mode>(store: &Engine<M>, emit: Emit<'_>) {
    let mut active = 0;
    for (class, stats) in classes(store) {
        let mut slab = |name: &str, value: u64| emit(&format!("{}:{name}", class.index()), &value);
        slab("chunk_size", class.bytes_max());
        slab("total_chunks", stats.items);
        slab("used_chunks", stats.items);
        slab("free_chunks", 0);
        slab("cmd_set", stats.stored);
        // Not counted by class, but memcached_exporter takes no class without them.
        slab("cas_hits", 0);
        slab("cas_badval", 0);
        active += u64::from(stats.items > 0);
    }
    emit("active_slabs", &active);
    emit("total_malloced", &store.stats().used_bytes);
}
