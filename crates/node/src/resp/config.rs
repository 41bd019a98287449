//! CONFIG: the options that Redis' clients and tools ask for.

use minos_engine::Mode;
use minos_proto::resp::{Id, compose, integer, unsigned};

use super::{
    call::{Call, Done, Failure, SYNTAX, fail},
    glob,
    session::RespSession,
};
use crate::{
    ops::{Context, Placement},
    server::settings::{self, SettingError, Shown, parse_time},
};
use minos_base::StatsGroup;

/// Redis' names of settings, and how it writes their values.
const NAMES: [(&str, &str, Form); 6] = [
    ("maxmemory", "memory", Form::Memory),
    ("maxclients", "max-connections", Form::Same),
    ("timeout", "idle-timeout", Form::Seconds),
    ("proto-max-bulk-len", "max-item-size", Form::Bytes),
    ("slowlog-log-slower-than", "slow-threshold", Form::Microseconds),
    ("loglevel", "log-level", Form::Level),
];

/// Redis' form of a value.
#[derive(Clone, Copy)]
enum Form {
    Same,
    /// Bytes with Redis' units.
    Bytes,
    /// The same; 0 is all that there is.
    Memory,
    Seconds,
    /// -1 is never.
    Microseconds,
    Level,
}

/// Redis' names of log levels, the usual one first.
const LEVELS: [(&str, &str); 9] = [
    ("notice", "info"),
    ("notice", "start"),
    ("warning", "warn"),
    ("warning", "error"),
    ("verbose", "debug"),
    ("debug", "trace"),
    ("nothing", "off"),
    ("info", "info"),
    ("error", "error"),
];

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

/// Options and their values: Redis', and the settings under their own names.
fn options<M: Mode, P>(cx: &Context<'_, M, P>) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    cx.admin.stats(StatsGroup::Settings, &mut |name, value| {
        let name = match name {
            "resp_port" => "port",
            "resp_bind" => "bind",
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
    let is_timed = watch.is_some_and(|watch| watch.config().sample_one_in > 0);
    found.push(("latency-tracking", if is_timed { "yes" } else { "no" }.to_owned()));
    found.push(("slowlog-max-len", watch.map_or(0, |watch| watch.config().slow_requests).to_string()));
    if let Some(tracking) = cx.admin.tracking() {
        found.push(("tracking-table-max-keys", tracking.pairs_max().to_string()));
    }
    found.extend([
        ("databases", "1".to_owned()),
        ("save", String::new()),
        ("appendonly", "no".to_owned()),
        ("cluster-enabled", "no".to_owned()),
        ("notify-keyspace-events", String::new()),
    ]);
    let settings = cx.admin.settings();
    for (redis, own, form) in NAMES {
        let shown = settings.iter().find(|shown| shown.name == own);
        found.extend(shown.map(|shown| (redis, form.of_own(shown))));
    }
    found.extend(settings.into_iter().map(|shown| (shown.name, shown.value)));
    found
}

impl Form {
    /// The value of a setting in this form.
    fn of_own(self, shown: &Shown) -> String {
        let number = shown.metric.map(|number| number as u64);
        match self {
            Self::Same => shown.value.clone(),
            Self::Bytes | Self::Memory | Self::Seconds => number.unwrap_or_default().to_string(),
            Self::Microseconds => match parse_time(&shown.value) {
                Ok(time) => time.as_micros().to_string(),
                Err(_) => "-1".to_owned(),
            },
            Self::Level => {
                let level = LEVELS.iter().find(|(_, own)| *own == shown.value);
                level.map_or("notice", |(redis, _)| redis).to_owned()
            }
        }
    }

    /// What a value in this form is for the setting; otherwise Redis' words for what is wrong with it.
    fn to_own(self, value: &str, all_memory: u64) -> Result<String, &'static str> {
        Ok(match self {
            Self::Same => value.to_owned(),
            Self::Bytes | Self::Memory => {
                let bytes = bytes(value.as_bytes()).ok_or("argument must be a memory value")?;
                if matches!(self, Self::Memory) && bytes == 0 { all_memory } else { bytes }.to_string()
            }
            Self::Seconds => {
                let seconds =
                    unsigned(value.as_bytes()).ok_or("argument couldn't be parsed into an integer")?;
                format!("{seconds}s")
            }
            Self::Microseconds => match integer(value.as_bytes()) {
                Some(-1) => "never".to_owned(),
                Some(us) if us >= 0 => format!("{us}us"),
                _ => return Err("argument must be a number of microseconds, or -1"),
            },
            Self::Level => {
                let level = LEVELS.iter().find(|(redis, _)| redis.eq_ignore_ascii_case(value));
                let (_, own) =
                    level.ok_or("argument must be one of debug, verbose, notice, warning, nothing")?;
                (*own).to_owned()
            }
        })
    }
}

fn get<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let asked = call.command.arguments(2);
    if asked.clone().any(|asked| asked.len() > glob::PATTERN_BYTES_MAX) {
        return fail("ERR pattern is longer than 1024 bytes");
    }
    let (mut left, mut found) = (options(cx), Vec::new());
    for asked in asked {
        let (pattern, is_pattern) =
            (asked.to_ascii_lowercase(), asked.iter().any(|byte| b"[*?".contains(byte)));
        left.retain(|(name, value)| {
            let own = name.as_bytes();
            let is_meant = if is_pattern { glob::matches(&pattern, own) } else { pattern == own };
            if is_meant {
                // A name is answered in the letters in which it was asked for.
                found.push((if is_pattern { own } else { asked }, value.clone()));
            }
            !is_meant
        });
    }
    compose::map(tx, found.len(), session.version);
    for (name, value) in found {
        compose::bulk(tx, name);
        compose::bulk(tx, value.as_bytes());
    }
    Ok(())
}

const UNKNOWN: &str = "ERR Unknown option or number of arguments for CONFIG SET";

/// Sets options. Nothing is set if one is refused.
fn set<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>) -> Result<(), Failure> {
    if !call.command.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let known = options(cx);
    let mut arguments = call.command.arguments(2);
    let mut changes: Vec<(&'static str, Result<String, Failure>)> = Vec::new();
    let mut names = Vec::new();
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        let asked = String::from_utf8_lossy(name);
        let name = asked.to_ascii_lowercase();
        let text = String::from_utf8_lossy(value).into_owned();
        let redis = NAMES.iter().find(|(redis, ..)| *redis == name);
        let own_name = redis.map_or(name.clone(), |(_, own, _)| (*own).to_owned());
        if names.contains(&own_name) {
            return Err(refusal(&asked, "duplicate parameter"));
        }
        names.push(own_name);
        if let Some((_, own, form)) = redis {
            // As Redis, which looks at all names before the first value.
            let own_text = form.to_own(&text, cx.store.memory_bytes()).map_err(|why| refusal(&name, why));
            changes.push((own, own_text));
            continue;
        }
        let own = cx.admin.settings().into_iter().find(|shown| shown.name == name);
        match (own, known.iter().find(|(known, _)| *known == name)) {
            (Some(shown), _) => changes.push((shown.name, Ok(text))),
            // An option that gets the value that it has is set.
            (None, Some((_, present))) if present.eq_ignore_ascii_case(&text) => {}
            (None, Some(_)) => return Err(refusal(&asked, "can't set immutable config")),
            (None, None) => match settings::fixed(&name) {
                Some(error) => return Err(refusal(&asked, &error.to_string())),
                None => return Err(format!("{UNKNOWN} - '{asked}'").into()),
            },
        }
    }
    apply(cx, call, changes)
}

/// Makes the changes that CONFIG SET asks for, by our names.
fn apply<M: Mode, P>(
    cx: &Context<'_, M, P>,
    call: &Call<'_>,
    changes: Vec<(&'static str, Result<String, Failure>)>,
) -> Result<(), Failure> {
    let changes = changes.into_iter().map(|(name, text)| Ok((name, text?)));
    let changes: Vec<(&str, String)> = changes.collect::<Result<_, Failure>>()?;
    let changes: Vec<(&str, &str)> = changes.iter().map(|(name, text)| (*name, text.as_str())).collect();
    cx.admin.change(&changes).map_err(|error| {
        let own = if let SettingError::Value { name, .. } = &error { name } else { "dispatch" };
        let asked = call.command.arguments(2).step_by(2).map(|name| name.to_ascii_lowercase());
        let mut redis = NAMES.iter().filter(|(_, name, _)| *name == own).map(|(redis, ..)| *redis);
        let asked = redis.find(|redis| asked.clone().any(|name| name == redis.as_bytes()));
        refusal(asked.unwrap_or(own), &error.to_string())
    })
}

fn refusal(name: &str, why: &str) -> Failure {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}").into()
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
