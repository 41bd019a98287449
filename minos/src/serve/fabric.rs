//! `--rack-fabric`: by what the nodes of a unit read each other's memory.

use std::{fmt, str::FromStr};

#[cfg(not(feature = "ucx"))]
use anyhow::bail;
use minos_engine::StoreConfig;
use minos_node::config::RackConfig;

/// By what the nodes of a unit read each other's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// Those of one machine map it.
    #[default]
    Mapped,
    /// By UCX over these transports, as in its variable `UCX_TLS`, which counts if there are none.
    Ucx(Option<String>),
}

impl FromStr for Fabric {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':').map_or((text, None), |(name, transports)| (name, Some(transports))) {
            ("mapped", None) => Ok(Self::Mapped),
            ("ucx", None) => Ok(Self::Ucx(None)),
            ("ucx", Some(transports)) if !transports.is_empty() => Ok(Self::Ucx(Some(transports.to_owned()))),
            _ => Err("expected mapped, ucx or ucx:TRANSPORTS"),
        }
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped => f.write_str("mapped"),
            Self::Ucx(None) => f.write_str("ucx"),
            Self::Ucx(Some(transports)) => write!(f, "ucx:{transports}"),
        }
    }
}

impl Fabric {
    /// True if nodes read by UCX.
    pub(super) fn is_ucx(&self) -> bool {
        *self != Self::Mapped
    }

    /// Lets the table lie in memory that the other nodes can read.
    ///
    /// # Errors
    /// UCX refuses, or this program was built without it.
    #[cfg(feature = "ucx")]
    pub(super) fn lend(&self, rack: &mut RackConfig, store: &mut StoreConfig) -> anyhow::Result<()> {
        use anyhow::{Context as _, ensure};
        use minos_node::config::{RackFabric, UcxMemory};

        let Self::Ucx(transports) = self else { return Ok(()) };
        let memory = UcxMemory::allocate(transports.as_deref(), store.memory_bytes as usize);
        let memory = std::sync::Arc::new(memory.with_context(|| format!("--rack-fabric {self}"))?);
        ensure!(
            rack.managed.is_none() || memory.is_mappable(),
            "--rack-fabric {self} and --coordinator: micro-shards are copied from memory that is mapped; posix or sysv must be \
             among the transports"
        );
        store.backing = memory.backing();
        rack.fabric = RackFabric::Ucx(memory);
        Ok(())
    }

    #[cfg(not(feature = "ucx"))]
    pub(super) fn lend(&self, _: &mut RackConfig, _: &mut StoreConfig) -> anyhow::Result<()> {
        if self.is_ucx() {
            bail!("--rack-fabric {self}: this program was built without the feature ucx (docs/rack.md)")
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabrics_are_read_as_they_are_shown() {
        for text in ["mapped", "ucx", "ucx:tcp,self"] {
            assert_eq!(text.parse::<Fabric>().unwrap().to_string(), text);
        }
        for text in ["", "mapped:", "ucx:", "memfd"] {
            assert!(text.parse::<Fabric>().is_err(), "{text}");
        }
    }
}
