//! The options of `--port dpdk`, and the start of a server over the transport that was chosen.

use std::sync::Arc;

use anyhow::ensure;
use clap::Args;
use minos_engine::{Engine, Mode};
use minos_node::{Server, ServerConfig, StartError};
use minos_tier::Keeper;

use super::values::Switch;

/// The options of `minos serve --port dpdk`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DpdkArgs {
    /// With --port dpdk: memif:PATH, where one process connects; or the PCI address of a card; or net_ and the rest of a
    /// virtual driver's arguments
    #[arg(long, value_name = "DEVICE")]
    dpdk_device: Option<String>,
    /// With --port dpdk: arguments of DPDK's environment (EAL), separated by spaces
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    dpdk_args: Option<String>,
    /// With --port dpdk: send queues of their own for large replies [default: off]
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "on", value_name = "on|off")]
    dpdk_large_queues: Option<Switch>,
}

/// The transports of a server.
#[derive(Clone, Debug)]
pub(crate) enum Transports {
    Kernel,
    #[cfg(feature = "dpdk")]
    Dpdk(minos_net::dpdk::Dpdk),
}

impl DpdkArgs {
    /// Rejects options that would have no effect.
    ///
    /// # Errors
    /// Names them.
    pub(super) fn refuse(&self) -> anyhow::Result<()> {
        let given =
            self.dpdk_device.is_some() || self.dpdk_args.is_some() || self.dpdk_large_queues.is_some();
        ensure!(!given, "--dpdk-device, --dpdk-args and --dpdk-large-queues go with --port dpdk only");
        Ok(())
    }

    /// The transports for `--port dpdk`.
    ///
    /// # Errors
    /// There is no device, or this program was built without DPDK.
    #[cfg(feature = "dpdk")]
    pub(super) fn transports(&self) -> anyhow::Result<Transports> {
        use minos_net::{
            Side,
            dpdk::{Dpdk, DpdkOptions},
        };

        let Some(device) = &self.dpdk_device else {
            anyhow::bail!("--port dpdk: which device? See --dpdk-device")
        };
        let Ok(device) = device.parse();
        let arguments = self.dpdk_args.iter().flat_map(|text| text.split_whitespace());
        Ok(Transports::Dpdk(Dpdk(DpdkOptions {
            device,
            side: Side::Server { separates_large: self.dpdk_large_queues == Some(Switch::On) },
            arguments: arguments.map(str::to_owned).collect(),
        })))
    }

    #[cfg(not(feature = "dpdk"))]
    #[expect(clippy::unused_self, reason = "the device is looked at in the other build")]
    pub(super) fn transports(&self) -> anyhow::Result<Transports> {
        anyhow::bail!("--port dpdk: this program was built without the feature dpdk (docs/network.md)")
    }
}

impl Transports {
    /// Starts a server.
    pub(super) fn start<M: Mode>(
        &self,
        config: ServerConfig,
        store: Arc<Engine<M>>,
    ) -> Result<Server, StartError> {
        match self {
            Self::Kernel => Server::start(config, store),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => Server::start_over(dpdk, config, store),
        }
    }

    /// Starts a server whose items leave memory for flash.
    pub(super) fn start_above_flash(
        &self,
        config: ServerConfig,
        keeper: Keeper,
    ) -> Result<Server, StartError> {
        match self {
            Self::Kernel => Server::start_above_flash(config, keeper),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(dpdk) => Server::start_above_flash_over(dpdk, config, keeper),
        }
    }
}
