//! The rights that memcached's commands need.

use minos_access::{Access, Categories, Entry, User};
use minos_base::{StatsGroup, StoreKind};
use minos_proto::memcache::{KeyBuffer, Request, StatsDetail};

use crate::access::MEMCACHE;

/// Declares the commands once: their numbers, and the table that rules are read by.
macro_rules! commands {
    ($($number:ident = $at:literal $name:literal [$($category:ident)*];)*) => {
        $(const $number: usize = $at;)*

        /// memcached's commands, in text, meta and binary, as rules name them.
        pub(crate) const COMMANDS: &[Entry] =
            &[$(Entry { name: $name, categories: Categories(0)$(.with(Categories::$category))* },)*];
    };
}

commands! {
    GET = 0 "get" [READ STRING FAST];
    GAT = 1 "gat" [WRITE STRING FAST];
    SET = 2 "set" [WRITE STRING SLOW];
    ADD = 3 "add" [WRITE STRING SLOW];
    REPLACE = 4 "replace" [WRITE STRING SLOW];
    APPEND = 5 "append" [WRITE STRING FAST];
    PREPEND = 6 "prepend" [WRITE STRING FAST];
    INCR = 7 "incr" [WRITE STRING FAST];
    DECR = 8 "decr" [WRITE STRING FAST];
    DELETE = 9 "delete" [KEYSPACE WRITE FAST];
    TOUCH = 10 "touch" [KEYSPACE WRITE FAST];
    DEBUG = 11 "me" [KEYSPACE READ SLOW];
    FLUSH_ALL = 12 "flush_all" [KEYSPACE WRITE SLOW DANGEROUS];
    STATS = 13 "stats" [SLOW DANGEROUS];
    STATS_RESET = 14 "stats|reset" [ADMIN SLOW DANGEROUS];
    STATS_DETAIL = 15 "stats|detail" [ADMIN SLOW DANGEROUS];
    VERBOSITY = 16 "verbosity" [ADMIN SLOW DANGEROUS];
    MEMORY_LIMIT = 17 "cache_memlimit" [ADMIN SLOW DANGEROUS];
    SHUTDOWN = 18 "shutdown" [ADMIN SLOW DANGEROUS];
    CAS = 19 "cas" [WRITE STRING SLOW];
    METADUMP = 20 "metadump" [KEYSPACE ADMIN SLOW DANGEROUS];
}

/// The command that a request is, and what it does with its keys; `None` if anybody may who is somebody.
fn needed(request: &Request<'_>) -> Option<(usize, Access)> {
    let (command, access) = match request {
        // To win the right to store an item anew is to change it.
        Request::Get(get) if request.may_change() || get.recache.is_some() => (GAT, Access::Both),
        Request::GetMany(_) if request.may_change() => (GAT, Access::Both),
        Request::Get(_) | Request::GetMany(_) => (GET, Access::Read),
        Request::Store(store) => (store_command(store.kind), Access::Write),
        Request::Arithmetic(count) => (if count.decrement { DECR } else { INCR }, Access::Both),
        Request::Delete(_) => (DELETE, Access::Write),
        Request::Touch(_) => (TOUCH, Access::Write),
        Request::Debug { .. } => (DEBUG, Access::Read),
        Request::FlushAll { .. } => (FLUSH_ALL, Access::Write),
        Request::Stats(StatsGroup::Reset) => (STATS_RESET, Access::Write),
        Request::Stats(_) | Request::StatsDetail(StatsDetail::Dump) => (STATS, Access::Read),
        // It lists all keys, whichever the user may access.
        Request::Metadump => (METADUMP, Access::Read),
        Request::StatsDetail(_) => (STATS_DETAIL, Access::Write),
        Request::Verbosity { .. } => (VERBOSITY, Access::Write),
        Request::MemoryLimit { .. } => (MEMORY_LIMIT, Access::Write),
        Request::Shutdown(_) => (SHUTDOWN, Access::Write),
        Request::Version | Request::NoOp | Request::Quit => return None,
    };
    Some((command, access))
}

fn store_command(kind: StoreKind) -> usize {
    match kind {
        StoreKind::Set => SET,
        StoreKind::Add => ADD,
        StoreKind::Replace => REPLACE,
        StoreKind::Append => APPEND,
        StoreKind::Prepend => PREPEND,
        StoreKind::Compare => CAS,
    }
}

/// Why `user` may not make a request; `None` if it may. The keys of a line that goes on have been looked at.
pub(super) fn forbidden(user: &User, request: &Request<'_>, goes_on: bool) -> Option<String> {
    let (command, access) = needed(request)?;
    if !user.may_run(MEMCACHE, command) {
        return Some(format!("the user {} may not use {}", user.name(), COMMANDS[command].name));
    }
    let is_allowed = match request {
        Request::GetMany(_) if goes_on => true,
        Request::GetMany(many) => many.keys.clone().all(|key| user.may_access(key, access)),
        _ => request.key().is_none_or(|key| user.may_access(key.bytes(&mut KeyBuffer::default()), access)),
    };
    let kind = match access {
        Access::Any => "use",
        Access::Read => "read",
        Access::Write => "write",
        Access::Both => "read and write",
    };
    (!is_allowed).then(|| format!("the user {} may not {kind} this key", user.name()))
}
