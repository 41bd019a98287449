//! CONFIG: the options that Redis' clients and tools ask for.

use minos_engine::Mode;
use minos_proto::resp::{Id, compose, integer, unsigned};

use super::{
    call::{Call, Done, Failure, fail},
    glob,
    session::RespSession,
};
use crate::{
    ops::{Context, Placement},
    watch::{NEVER_SLOW_US, Watch},
};
use minos_base::StatsGroup;

/// Requests that take so many microseconds are slow; -1 for none.
const SLOW: &str = "slowlog-log-slower-than";

/// Executes a subcommand of CONFIG.
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.spec.id {
        Id::ConfigGet => get(cx, session, call, tx),
        Id::ConfigSet => {
            set(cx, call)?;
            tx.extend_from_slice(compose::OK);
            Ok(())
        }
        _ => {
            cx.admin.reset();
            tx.extend_from_slice(compose::OK);
            Ok(())
        }
    }
}

/// Options and their values.
fn options<M: Mode, P>(cx: &Context<'_, M, P>) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    cx.admin.stats(StatsGroup::Settings, &mut |name, value| {
        let name = match name {
            "maxconns" => "maxclients",
            "resp_port" => "port",
            "resp_bind" => "bind",
            "idle_timeout" => "timeout",
            "num_threads" => "io-threads",
            "evictions" => {
                let is_cache = value.to_string() == "on";
                found.push((
                    "maxmemory-policy",
                    if is_cache { "allkeys-lru" } else { "noeviction" }.to_owned(),
                ));
                return;
            }
            _ => return,
        };
        found.push((name, value.to_string()));
    });
    let watch = cx.admin.watch();
    let slow_us = watch.map(Watch::slow_us).and_then(|slow_us| i64::try_from(slow_us).ok());
    let is_timed = watch.is_some_and(|watch| watch.config().sample_one_in > 0);
    found.push(("latency-tracking", if is_timed { "yes" } else { "no" }.to_owned()));
    found.push((SLOW, slow_us.unwrap_or(-1).to_string()));
    found.push(("slowlog-max-len", watch.map_or(0, |watch| watch.config().slow_requests).to_string()));
    if let Some(tracking) = cx.admin.tracking() {
        found.push(("tracking-table-max-keys", tracking.pairs_max().to_string()));
    }
    found.extend([
        ("maxmemory", cx.store.memory_limit().to_string()),
        ("proto-max-bulk-len", cx.store.value_bytes_max().to_string()),
        ("databases", "1".to_owned()),
        ("save", String::new()),
        ("appendonly", "no".to_owned()),
        ("cluster-enabled", "no".to_owned()),
        ("notify-keyspace-events", String::new()),
    ]);
    found
}

fn get<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let patterns: Vec<Vec<u8>> = call.command.arguments(2).map(<[u8]>::to_ascii_lowercase).collect();
    if patterns.iter().any(|pattern| pattern.len() > glob::PATTERN_BYTES_MAX) {
        return fail("ERR pattern is longer than 1024 bytes");
    }
    let mut options = options(cx);
    options.retain(|(name, _)| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes())));
    compose::map(tx, options.len(), session.version);
    for (name, value) in options {
        compose::bulk(tx, name.as_bytes());
        compose::bulk(tx, value.as_bytes());
    }
    Ok(())
}

/// Sets options; the memory limit and the threshold of the slow log can change. Nothing is set if one is refused.
fn set<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>) -> Result<(), Failure> {
    if !call.command.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'config|set' command".into());
    }
    let known = options(cx);
    let mut arguments = call.command.arguments(2);
    let (mut limit_bytes, mut slow_us) = (None, None);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        let lower = name.to_ascii_lowercase();
        let text = String::from_utf8_lossy(&lower);
        let refuse = |why: &str| {
            let text = format!("ERR CONFIG SET failed (possibly related to argument '{text}') - {why}");
            Failure::from(text)
        };
        match known.iter().find(|(known, _)| *known == text) {
            None => {
                return Err(
                    format!("ERR Unknown option or number of arguments for CONFIG SET - '{text}'").into()
                );
            }
            Some(("maxmemory", _)) => {
                limit_bytes = Some(bytes(value).ok_or_else(|| refuse("argument must be a memory value"))?);
            }
            Some((name, _)) if *name == SLOW => {
                let us = integer(value).filter(|&us| us >= -1);
                let us = us.ok_or_else(|| refuse("argument must be a number of microseconds, or -1"))?;
                slow_us = Some(u64::try_from(us).unwrap_or(NEVER_SLOW_US));
            }
            // An option that gets the value that it has is set.
            Some((_, present)) if present.as_bytes().eq_ignore_ascii_case(value) => {}
            Some(_) => return Err(refuse("can't set immutable config")),
        }
    }
    match limit_bytes {
        Some(bytes) if !cx.store.set_memory_limit(bytes) => Err(
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - the server has less memory"
                .into(),
        ),
        _ => {
            let watch = cx.admin.watch().zip(slow_us);
            watch.into_iter().for_each(|(watch, slow_us)| watch.set_slow_us(slow_us));
            Ok(())
        }
    }
}

/// A number of bytes with Redis' units.
fn bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    unsigned(&text[..digits])?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_redis_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("100mb", Some(100 << 20)),
            ("1GB", Some(1 << 30)),
            ("5k", Some(5000)),
            ("x", None),
        ] {
            assert_eq!(bytes(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(bytes(b"18446744073709551615gb"), None);
    }
}
