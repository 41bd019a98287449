//! The options of `minos bench --target device:...`.

use clap::{Args, ValueEnum};
use minos_base::SizeText;
use minos_device::DriverChoice;

/// Options of a device.
#[derive(Args, Debug)]
#[command(next_help_heading = "With --target device:PATH, device:memory, tier:PATH or tier:memory")]
pub(in crate::lab::bench) struct DeviceArgs {
    /// Bytes of a request, a power of two; with tier:, of a value [default: 4k; tier: 1k].
    #[arg(long, value_name = "SIZE")]
    block: Option<SizeText>,

    /// Requests of a vector, submitted together [default: 1].
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..=4096))]
    width: Option<u32>,

    /// Requests of each thread in flight [default: 32, or the width].
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,

    /// Bytes to use from the front; a missing file is created with so many [default: all; device:memory: 64m;
    /// tier: room for all items].
    #[arg(long, value_name = "SIZE")]
    pub(in crate::lab::bench) device_size: Option<SizeText>,

    /// Write to a file or block device that exists, which destroys its contents.
    #[arg(long)]
    pub(in crate::lab::bench) device_write: bool,

    /// A flush after each N writes of a thread. It takes a place in flight and counts by itself.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) flush_every: Option<u32>,

    /// Refuse to measure buffers that io_uring maps with each request, as with too low an RLIMIT_MEMLOCK.
    #[arg(long)]
    pub(super) must_register: bool,

    /// How to transfer [default: auto].
    #[arg(long, value_enum, value_name = "DRIVER")]
    driver: Option<DriverArg>,
}

/// Drivers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DriverArg {
    /// io_uring, or threads where the kernel refuses that
    Auto,
    /// io_uring only
    Ring,
    /// io_uring only, as on kernels before Linux 6.1
    CooperativeRing,
    /// Threads that block
    Threads,
}

impl DeviceArgs {
    /// The first option given that applies to a device only.
    pub(in crate::lab::bench) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--block", self.block.is_some()),
            ("--width", self.width.is_some()),
            ("--depth", self.depth.is_some()),
            ("--device-size", self.device_size.is_some()),
            ("--device-write", self.device_write),
            ("--flush-every", self.flush_every.is_some()),
            ("--must-register", self.must_register),
            ("--driver", self.driver.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Bytes of a request.
    pub(super) fn request_bytes(&self) -> u64 {
        self.block.map_or(4096, |size| size.0)
    }

    /// Bytes of a value above a device.
    pub(in crate::lab::bench) fn value_bytes(&self) -> u64 {
        self.block.map_or(1024, |size| size.0)
    }

    /// Requests of a vector, and requests in flight.
    pub(in crate::lab::bench) fn width_and_depth(&self) -> (usize, usize) {
        let width = self.width.unwrap_or(1);
        (width as usize, self.depth.unwrap_or(width.max(32)) as usize)
    }

    pub(in crate::lab::bench) fn driver_choice(&self) -> DriverChoice {
        match self.driver {
            None | Some(DriverArg::Auto) => DriverChoice::Auto,
            Some(DriverArg::Ring) => DriverChoice::Ring,
            Some(DriverArg::CooperativeRing) => DriverChoice::CooperativeRing,
            Some(DriverArg::Threads) => DriverChoice::Threads,
        }
    }
}
