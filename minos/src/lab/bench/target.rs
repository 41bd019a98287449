//! The target of a measurement: a server, a table within this process, or a device.

use std::{fmt, str::FromStr};

use minos_workload::Target;

use super::{device::DeviceTarget, tier::TierTarget};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BenchTarget {
    Server(Target),
    /// A table in the memory of this process: `inproc://cache` or `inproc://store`.
    InProcess(Table),
    /// A device: `device:PATH` or `device:memory`.
    Device(DeviceTarget),
    /// A store above a device, in this process: `tier:PATH` or `tier:memory`.
    Tier(TierTarget),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) enum Table {
    /// It evicts when its memory is full.
    Cache,
    /// It refuses when its memory is full.
    Store,
}

impl FromStr for BenchTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let device = |name: &str| match name {
            "memory" => DeviceTarget::Memory,
            path => DeviceTarget::Path(path.into()),
        };
        match text.split_once(':') {
            Some(("device", "")) => return Err("expected device:PATH or device:memory".to_owned()),
            Some(("tier", "")) => return Err("expected tier:PATH or tier:memory".to_owned()),
            Some(("device", name)) => return Ok(Self::Device(device(name))),
            Some(("tier", name)) => return Ok(Self::Tier(TierTarget(device(name)))),
            _ => {}
        }
        match text.strip_prefix("inproc://") {
            Some("" | "cache") => Ok(Self::InProcess(Table::Cache)),
            Some("store") => Ok(Self::InProcess(Table::Store)),
            Some(_) => Err("expected inproc://cache or inproc://store".to_owned()),
            None => text.parse().map(Self::Server).map_err(|error: minos_workload::ParseTargetError| {
                format!(
                    "{error}; or inproc://cache or inproc://store, a table in this process; or device:PATH or tier:PATH"
                )
            }),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cache => "inproc://cache",
            Self::Store => "inproc://store",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        for table in [Table::Cache, Table::Store] {
            assert_eq!(table.to_string().parse(), Ok(BenchTarget::InProcess(table)));
        }
        assert_eq!("inproc://".parse(), Ok(BenchTarget::InProcess(Table::Cache)));
        for text in ["device:memory", "device:/dev/vdb"] {
            let Ok(BenchTarget::Device(device)) = text.parse() else { panic!("{text}") };
            assert_eq!(device.to_string(), text);
        }
        for text in ["tier:memory", "tier:/dev/vdb"] {
            let Ok(BenchTarget::Tier(tier)) = text.parse() else { panic!("{text}") };
            assert_eq!(tier.to_string(), text);
        }
        let server = "memcached://127.0.0.1:11211";
        assert_eq!(server.parse(), server.parse().map(BenchTarget::Server).map_err(|_| String::new()));
    }

    #[test]
    fn what_is_no_target_is_told_what_is() {
        for text in ["inproc://heap", "inproc:/store", "http://127.0.0.1:1"] {
            let error = text.parse::<BenchTarget>().unwrap_err();
            assert!(error.contains("inproc://store"), "{text}: {error}");
        }
    }
}
