//! Stops above a device that takes long, or does nothing any more.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use minos_device::{
    Device, MemoryOptions, ServiceTime,
    faulty::{Faults, Twin},
};
use minos_node::Stop;
use minos_tier::{Durability, Options};

use super::{MEMORY, Rig, config, connect, flash_rig, value};

/// All of it fits into memory.
const KEYS: usize = 8000;
const MEMORY_BYTES: u64 = 16 << 20;
/// Longer than the device takes for one write, and much shorter than for all.
const STOP_TIMEOUT: Duration = Duration::from_millis(400);

fn above(device: &Device, options: &Options) -> Rig {
    let mut config = config(2);
    config.stop_timeout = STOP_TIMEOUT;
    Rig::on(device, MEMORY_BYTES, options, config)
}

/// Stores all keys, and has the device do as it is told from then on before the server is stopped.
fn stop(rig: Rig, change: impl FnOnce()) -> Arc<Stop> {
    let mut client = connect(&rig);
    (0..KEYS).for_each(|number| client.set(&format!("key{number}"), &value(number)));
    drop(client);
    change();
    let stop = Arc::clone(rig.server.stop());
    stop.request();
    rig.server.join().unwrap();
    stop
}

/// Before the fix, the stop ended after twice its time, and most items were lost.
#[test]
fn a_stop_waits_for_a_slow_device_that_goes_on() {
    for options in [Options::store(Durability::None), Options::cache()] {
        // 4 MiB a second.
        let (latency, blocks_per_second) = (Duration::ZERO, f64::from(4 << 20) / f64::from(4096));
        let service_time = ServiceTime { engines: 1, latency, blocks_per_second, whole_vectors: false };
        let capacity_bytes = 32 << 20;
        let memory =
            MemoryOptions { capacity_bytes, service_time: Some(service_time), ..MemoryOptions::default() };
        let device = Device::in_memory(&memory);
        flash_rig::format(&device, MEMORY.1);
        let begun = Instant::now();
        let stopped = stop(above(&device, &options), || ());
        assert!(begun.elapsed() > 2 * STOP_TIMEOUT && !stopped.has_lost());
        let rig = above(&device, &options);
        let mut client = connect(&rig);
        (0..KEYS).for_each(|number| assert_eq!(client.get(&format!("key{number}")), Some(value(number))));
    }
}

#[test]
fn a_stop_ends_above_a_device_that_stands_still_and_tells_what_is_lost() {
    for (options, is_loss) in [
        (Options::store(Durability::None), true),
        // Nothing that it holds back was acknowledged.
        (Options::store(Durability::Flush), false),
        (Options::cache(), false),
    ] {
        let twin = Twin::over(flash_rig::device(MEMORY.1), Faults::none(), 7);
        flash_rig::format(&twin.device(), MEMORY.1);
        let faults = Faults { slow: 1.0, slow_polls_max: u32::MAX, ..Faults::none() };
        let stopped = stop(above(&twin.device(), &options), || twin.set_faults(faults));
        assert_eq!(stopped.has_lost(), is_loss, "{options:?}");
    }
}
