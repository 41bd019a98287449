//! The table of settings.

use std::time::Duration;

use minos_base::VALUE_BYTES_MAX;
use minos_sched::{ConfigError, HANDOFF_WORKERS_MAX};

use super::{SettingError, Values, parse_time_or_never, policy, text::Unit};
use crate::{
    server::config::{Design, InvalidOption, LogLevel},
    watch::NEVER_SLOW_US,
};

/// A setting that can change.
struct Setting {
    /// On the command line.
    option: &'static str,
    kind: Kind,
}

enum Kind {
    Number(Number),
    Word(Word),
}

/// The most that a server has room for, and the remedy.
type Limited = (fn(&Values) -> u64, &'static str);

/// A number within bounds.
struct Number {
    unit: Unit,
    min: u64,
    max: u64,
    read: fn(&Values) -> u64,
    write: fn(&mut Values, u64),
    room: Option<Limited>,
}

/// Anything else.
struct Word {
    /// What is allowed, in words.
    allowed: fn() -> String,
    read: fn(&Values) -> String,
    write: fn(&mut Values, &str) -> Result<(), String>,
}

const fn number(option: &'static str, number: Number) -> Setting {
    Setting { option, kind: Kind::Number(number) }
}

const fn word(option: &'static str, word: Word) -> Setting {
    Setting { option, kind: Kind::Word(word) }
}

/// Declares a number that is a field of [`Tuning`].
macro_rules! tuned {
    ($option:literal, $unit:ident, $min:expr, $max:expr, $field:ident $(, $room:expr)?) => {
        number($option, Number {
            unit: Unit::$unit,
            min: $min,
            max: $max,
            read: |values| tuned!(@read $unit values.tuning.$field),
            write: |values, number| values.tuning.$field = tuned!(@write $unit number),
            room: tuned!(@room $($room)?),
        })
    };
    (@read Time $field:expr) => { u64::try_from($field.as_millis()).unwrap_or(u64::MAX) };
    (@read $unit:ident $field:expr) => { $field };
    (@write Time $number:ident) => { Duration::from_millis($number) };
    (@write $unit:ident $number:ident) => { $number };
    (@room) => { None };
    (@room $room:expr) => { Some($room) };
}

/// Most milliseconds of a time that others are added to.
const TIME_MS_MAX: u64 = 1 << 40;

/// The settings that can change, in the order of `minos serve --help`.
#[rustfmt::skip]
const SETTINGS: &[Setting] = &[
    number("--memory", Number {
        unit: Unit::Bytes, min: 8 << 20, max: u64::MAX,
        read: |values| values.memory_bytes,
        write: |values, bytes| values.memory_bytes = bytes,
        room: Some((|values| values.room.memory_bytes, "memory is laid out at the start; restart it with a larger --memory")),
    }),
    word("--dispatch", Word {
        allowed: || Design::SERVED.map(Design::name).join(", "),
        read: |values| values.choice.dispatch.to_string(),
        write: |values, text| {
            values.choice.dispatch = text.parse::<Design>()?;
            Ok(())
        },
    }),
    word("--handoff-workers", Word {
        allowed: || format!("1 to {HANDOFF_WORKERS_MAX}"),
        read: |values| values.choice.handoff_workers.to_string(),
        write: |values, text| {
            let workers = Unit::Count.parse(text)?;
            if !(1..=HANDOFF_WORKERS_MAX as u64).contains(&workers) {
                return Err(format!("{workers} is not allowed; it must be between 1 and {HANDOFF_WORKERS_MAX}"));
            }
            values.choice.handoff_workers = workers as usize;
            Ok(())
        },
    }),
    word("--percentile", Word {
        allowed: || "above 0, at most 100".to_owned(),
        read: |values| values.tuning.control.percentile.to_string(),
        write: |values, text| control(values, text, |control, number| control.percentile = number),
    }),
    word("--threshold", Word {
        allowed: || "auto, or a size".to_owned(),
        read: |values| values.tuning.control.threshold.to_string(),
        write: |values, text| {
            values.tuning.control.threshold = text.parse().map_err(|error| format!("{error}, not {text:?}"))?;
            Ok(())
        },
    }),
    word("--cost", Word {
        allowed: || "packets, bytes or fixed+bytes".to_owned(),
        read: |values| values.tuning.control.cost.to_string(),
        write: |values, text| {
            values.tuning.control.cost = text.parse().map_err(|error| format!("{error}, not {text:?}"))?;
            Ok(())
        },
    }),
    word("--alpha", Word {
        allowed: || "above 0, at most 1".to_owned(),
        read: |values| values.tuning.control.alpha.to_string(),
        write: |values, text| control(values, text, |control, number| control.alpha = number),
    }),
    tuned!("--epoch", Time, 1, 3_600_000, epoch),
    word("--steal", Word {
        allowed: || "on or off".to_owned(),
        read: |values| if values.tuning.steal { "on" } else { "off" }.to_owned(),
        write: |values, text| {
            values.tuning.steal = match text {
                "on" => true,
                "off" => false,
                _ => return Err(format!("expected on or off, not {text:?}")),
            };
            Ok(())
        },
    }),
    tuned!("--slice", Bytes, 4 << 10, 1 << 30, slice_bytes),
    tuned!("--max-connections", Count, 1, 1 << 20, connections_max,
        (|values| values.room.connections, "queues are laid out at the start; restart it with a larger --max-connections")),
    tuned!("--idle-timeout", Time, 0, u64::MAX, idle_timeout),
    tuned!("--stall-timeout", Time, 1, TIME_MS_MAX, stall_timeout),
    tuned!("--min-rate", Bytes, 0, u64::MAX, rate_min),
    tuned!("--receive-memory", Bytes, 0, u64::MAX, receive_memory_bytes),
    tuned!("--max-item-size", Bytes, 1, VALUE_BYTES_MAX, value_bytes_max,
        (|values| values.room.value_bytes, "buffers and segments of flash are laid out at the start; restart it with a larger --max-item-size")),
    // At least a copied value and the line before it.
    tuned!("--max-buffer", Bytes, 32 << 10, 1 << 30, buffer_bytes_max),
    tuned!("--detail-prefixes", Count, 0, 1 << 20, detail_prefixes_max),
    tuned!("--stop-timeout", Time, 0, u64::MAX, stop_timeout),
    tuned!("--tls-handshakes", Count, 1, 1 << 16, handshakes_max,
        (|values| if values.room.has_tls { u64::MAX } else { 0 }, "the server speaks no TLS; restart it with --tls-cert")),
    tuned!("--tls-timeout", Time, 1, TIME_MS_MAX, handshake_timeout,
        (|values| if values.room.has_tls { u64::MAX } else { 0 }, "the server speaks no TLS; restart it with --tls-cert")),
    tuned!("--acl-waiting", Count, 1, 1 << 20, logins_waiting_max,
        (|values| if values.room.has_users { u64::MAX } else { 0 }, "the server has no users; restart it with --acl")),
    tuned!("--watch", Count, 0, 1 << 24, sample_one_in),
    word("--slow-threshold", Word {
        allowed: || "a time, or never".to_owned(),
        read: |values| match values.slow_us {
            NEVER_SLOW_US => "never".to_owned(),
            slow_us => humantime::format_duration(Duration::from_micros(slow_us)).to_string(),
        },
        write: |values, text| {
            let time = parse_time_or_never(text);
            let time = time.map_err(|_| format!("expected a time, such as 10ms, or never, not {text:?}"))?;
            values.slow_us = u64::try_from(time.as_micros()).unwrap_or(NEVER_SLOW_US);
            Ok(())
        },
    }),
    word("--log-level", Word {
        allowed: || LogLevel::NAMES.join(", "),
        read: |values| values.log.to_string(),
        write: |values, text| {
            values.log = text.parse::<LogLevel>()?;
            Ok(())
        },
    }),
];

/// The options that cannot be set while the server runs, by the reason.
#[rustfmt::skip]
pub const FIXED: &[(&str, &[&str])] = &[
    ("the table and its memory are laid out at the start; restart the server", &[
        "engine", "evict", "access", "partitions", "backing", "region", "large-reserve", "buffer-memory", "chain-max",
        "hash-seed", "prefetch-depth",
    ]),
    ("addresses and ports are opened at the start; restart the server", &[
        "memcached", "resp", "native", "port", "memif", "memif-large-queues", "dpdk-device", "dpdk-args", "dpdk-large-queues", "native-single-port",
        "native-receive-buffer", "admin",
    ]),
    ("it is read at the start; restart the server", &["config", "ends-with-parent"]),
    ("threads, their rings and lists are made at the start; restart the server", &[
        "workers", "pin", "numa", "numa-root", "poll", "ring-size", "large-order", "large-wait-max", "hot-keys",
        "large-keys", "slow-log", "tracking-table-max-keys",
    ]),
    ("native clients learn it when they connect; restart the server", &[
        "native-datagram", "native-window", "native-transfers", "native-transfer-memory", "native-source-memory",
        "native-waiting-memory", "native-send-burst", "native-send-client", "native-transfer-timeout", "native-sessions",
        "native-sessions-per-address",
    ]),
    ("nobody who is connected may widen who may do what; restart the server", &[
        "allow-shutdown", "allow-public", "acl", "user", "sandbox", "tls-cert", "tls-key", "tls-client-ca",
        "native-secret-file", "rack-secret", "admin-token-file", "admin-host", "snapshot-folder",
    ]),
    ("all nodes of a rack must agree on it; restart them", &[
        "rack", "node", "peers", "micro-shards", "rack-timeout", "coordinator", "rack-lease", "acknowledge", "read-copies",
        "rack-waiting", "rack-fabric",
    ]),
    ("the log on flash is opened at the start; restart the server", &[
        "flash", "flash-format", "durability", "durability-interval", "flash-width", "flash-delay", "flash-promote",
        "flash-wait",
    ]),
    ("`minos ctl flash` changes it", &["scrub-rate", "compaction-rate"]),
    ("the admin endpoint is set up at the start; restart the server", &["admin-connections", "admin-timeout"]),
];

/// Sets a number of the control loop.
fn control(
    values: &mut Values,
    text: &str,
    set: fn(&mut minos_sched::ControlConfig, f64),
) -> Result<(), String> {
    let number = text.parse().map_err(|_| format!("expected a number, not {text:?}"))?;
    set(&mut values.tuning.control, number);
    values.tuning.control.check().map_err(|error| match error {
        ConfigError::Percentile(_) | ConfigError::Alpha(_) => {
            let text = error.to_string();
            text.split_once(": ").map_or(text.clone(), |(_, rest)| rest.to_owned())
        }
        error => error.to_string(),
    })
}

impl Setting {
    fn name(&self) -> &'static str {
        self.option.trim_start_matches('-')
    }

    fn read(&self, values: &Values) -> String {
        match &self.kind {
            Kind::Number(number) => number.unit.text((number.read)(values)),
            Kind::Word(word) => (word.read)(values),
        }
    }

    fn write(&self, values: &mut Values, text: &str) -> Result<(), String> {
        match &self.kind {
            Kind::Number(number) => {
                let value = number.unit.parse(text)?;
                number.check(value, values)?;
                (number.write)(values, value);
                Ok(())
            }
            Kind::Word(word) => (word.write)(values, text),
        }
    }

    fn shown(&self, values: &Values) -> Shown {
        let value = self.read(values);
        let (allowed, metric) = match &self.kind {
            Kind::Number(number) => {
                let max = number.max(values);
                let (min, text) = (number.unit.text(number.min), number.unit.text(max));
                let allowed = match (max, number.room) {
                    (u64::MAX, _) => format!("{min} or more"),
                    (0, Some((_, remedy))) if number.min > 0 => remedy.to_owned(),
                    _ => format!("{min} to {text}"),
                };
                (allowed, Some(number.unit.metric((number.read)(values))))
            }
            Kind::Word(word) => {
                ((word.allowed)(), value.parse().ok().filter(|value: &f64| value.is_finite()))
            }
        };
        Shown { name: self.name(), value, allowed, metric }
    }
}

impl Number {
    fn max(&self, values: &Values) -> u64 {
        self.room.map_or(self.max, |(room, _)| self.max.min(room(values)))
    }

    fn check(&self, value: u64, values: &Values) -> Result<(), String> {
        let [min, max, text] = [self.min, self.max, value].map(|number| self.unit.text(number));
        if !(self.min..=self.max).contains(&value) {
            return Err(match self.max {
                u64::MAX => format!("{text} is not allowed; it must be {min} or more"),
                _ => format!("{text} is not allowed; it must be between {min} and {max}"),
            });
        }
        match self.room {
            Some((room, remedy)) if value > room(values) => match room(values) {
                0 => Err(remedy.to_owned()),
                room => Err(format!(
                    "{text} is more than the {} that this server has room for: {remedy}",
                    self.unit.text(room)
                )),
            },
            _ => Ok(()),
        }
    }
}

/// A setting that can change, as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
    /// The value as a metric, if it is a number: in bytes or seconds.
    pub metric: Option<f64>,
}

/// The names of all settings that can change.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(Setting::name)
}

/// All settings that can change.
pub(crate) fn shown(values: &Values) -> Vec<Shown> {
    SETTINGS.iter().map(|setting| setting.shown(values)).collect()
}

/// Sets one.
pub(super) fn set(values: &mut Values, name: &str, text: &str) -> Result<(), SettingError> {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.name() == name) else {
        return Err(fixed(name).unwrap_or_else(|| SettingError::Unknown(name.to_owned())));
    };
    let name = setting.name();
    setting.write(values, text).map_err(|why| SettingError::Value { name, why })?;
    policy(values.choice, &values.tuning).map(drop).map_err(|error| {
        let text = error.to_string();
        // The reason may begin with the same name.
        let why = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        SettingError::Value { name, why: why.map_or(text.clone(), str::to_owned) }
    })
}

/// Why the option of this name cannot be set, if it is one.
pub(crate) fn fixed(name: &str) -> Option<SettingError> {
    FIXED.iter().find_map(|(why, names)| {
        let name = names.iter().find(|known| **known == name)?;
        Some(SettingError::Fixed { name, why })
    })
}

/// Tells of each setting whose values differ.
pub(super) fn each_difference(old: &Values, new: &Values, mut tell: impl FnMut(&'static str, &str, &str)) {
    for setting in SETTINGS {
        let (before, after) = (setting.read(old), setting.read(new));
        if before != after {
            tell(setting.name(), &before, &after);
        }
    }
}

/// Checks the bounds of all numbers.
pub(super) fn check(values: &Values) -> Result<(), InvalidOption> {
    for Setting { option, kind } in SETTINGS {
        if let Kind::Number(Number { min, max, read, .. }) = kind {
            crate::server::config::bound(option, read(values), *min, *max)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        config::ServerConfig,
        settings::{Room, Tuning},
    };

    fn values() -> Values {
        let config = ServerConfig::new(2);
        let room = Room {
            connections: 2047,
            value_bytes: 16 << 20,
            memory_bytes: 64 << 20,
            has_tls: true,
            has_users: false,
        };
        Values {
            tuning: Tuning::of(&config, 8 << 20),
            choice: config.choice(),
            memory_bytes: 64 << 20,
            slow_us: 10_000,
            log: LogLevel::Start,
            room,
        }
    }

    #[test]
    fn each_setting_reads_what_it_writes() {
        let values = values();
        for shown in shown(&values).iter().filter(|shown| shown.name != "acl-waiting") {
            assert_eq!(values.with(&[(shown.name, &shown.value)]), Ok(values), "{shown:?}");
        }
    }

    #[test]
    fn what_cannot_be_set_shows_no_bounds_but_the_remedy() {
        let shown = shown(&values());
        let allowed = |name| shown.iter().find(|shown| shown.name == name).unwrap().allowed.as_str();
        assert_eq!(allowed("acl-waiting"), "the server has no users; restart it with --acl");
        assert_eq!(allowed("tls-handshakes"), "1 to 65536");
    }

    #[test]
    fn each_setting_takes_another_value() {
        for (name, text) in [
            ("memory", "32m"),
            ("dispatch", "stealing"),
            ("handoff-workers", "2"),
            ("percentile", "95.5"),
            ("threshold", "64k"),
            ("cost", "bytes"),
            ("alpha", "0.5"),
            ("epoch", "100ms"),
            ("steal", "off"),
            ("slice", "32k"),
            ("max-connections", "2047"),
            ("idle-timeout", "1m 30s"),
            ("stall-timeout", "5s"),
            ("min-rate", "0"),
            ("receive-memory", "1m"),
            ("max-item-size", "16m"),
            ("max-buffer", "64k"),
            ("detail-prefixes", "3"),
            ("stop-timeout", "0s"),
            ("tls-handshakes", "1"),
            ("tls-timeout", "1s"),
            ("watch", "0"),
            ("slow-threshold", "never"),
            ("log-level", "debug"),
        ] {
            let changed = values().with(&[(name, text)]).unwrap();
            let mut told = Vec::new();
            each_difference(&values(), &changed, |name, _, after| told.push((name, after.to_owned())));
            assert_eq!(told, [(name, text.to_owned())]);
        }
    }

    #[test]
    fn what_is_refused_says_why() {
        for (name, text, why) in [
            ("max-connections", "0", "max-connections: 0 is not allowed; it must be between 1 and 1048576"),
            (
                "max-connections",
                "2048",
                "max-connections: 2048 is more than the 2047 that this server has room for",
            ),
            ("max-connections", "many", "expected a whole number"),
            ("max-item-size", "17m", "17m is more than the 16m"),
            ("max-item-size", "2g", "it must be between 1 and 1g"),
            ("memory", "65m", "restart it with a larger --memory"),
            ("memory", "7m", "it must be 8m or more"),
            ("percentile", "0", "percentile: 0 is not allowed; allowed is above 0, at most 100"),
            ("percentile", "nan", "percentile: NaN is not allowed"),
            ("percentile", "x", "percentile: expected a number, not \"x\""),
            ("threshold", "-1", "threshold: expected auto or a number of bytes"),
            ("dispatch", "fastest", "dispatch: expected one of size-aware"),
            ("handoff-workers", "4", "between 1 and 3"),
            ("slow-threshold", "soon", "expected a time"),
            ("log-level", "loud", "expected one of start, off, error"),
            ("acl-waiting", "5", "the server has no users"),
            ("workers", "3", "workers cannot be set while the server runs: threads, their rings"),
            ("scrub-rate", "3", "`minos ctl flash` changes it"),
            ("colour", "red", "there is no setting \"colour\""),
        ] {
            let error = values().with(&[("watch", "1"), (name, text)]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error =
            values().with(&[("dispatch", "handoff"), ("handoff-workers", "3")]).unwrap_err().to_string();
        assert!(error.starts_with("handoff-workers: 3 of 2 workers is not allowed"), "{error}");
    }

    #[test]
    fn no_name_is_there_twice() {
        let fixed = FIXED.iter().flat_map(|(_, names)| names.iter().copied());
        let mut names: Vec<_> = SETTINGS.iter().map(Setting::name).chain(fixed).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
