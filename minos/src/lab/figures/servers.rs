//! Figures 3 and 9 to 12 of the vector paper: a server above a device, by the widths of multigets and of multireads
//! (SoCC'12 §2.1, §5). Server and clients share this machine's processors; the device is modelled.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use minos_device::Device;
use minos_engine::{CreateError, StoreConfig, TierConfig, Tiered};
use minos_net::Address;
use minos_node::{
    Server, ServerConfig,
    config::{Gathering, VectorWidth},
};
use minos_tier::{Durability, Format, Memory, Options, Superblock};
use minos_workload::{
    Arrivals, DatagramOptions, GroupSpec, Pace, Place, Popularity, Report, RunConfig, Shape, SizeRange,
    StreamSpec, Target, TargetProtocol, Workload, WorkloadSpec, Writes,
};

use super::{
    answered,
    devices::Study,
    plots::{Corner, Evidence, Paper, Plot, Scale},
    table::{Cell, Table},
};
use crate::{
    lab::bench::{
        device::{Point, measure, modelled_in_blocks},
        tier::{StorePoint, StoreStudy, measure_store},
    },
    serve::random_seed,
};

const WIDTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const KEYS: u64 = 1 << 16;
/// Bytes of a value: as many as the paper's server reads for one.
const VALUE_BYTES: u64 = 512;
/// The unit of the log's reads, for which the modelled device takes the paper's time.
const PAGE_BYTES: u32 = 4096;
const DEVICE_BYTES: u64 = 128 << 20;
const SEGMENT_BYTES: u32 = 1 << 20;
/// The index, and little more: nearly all items are on the device.
const MEMORY_BYTES: u64 = 4 << 20;
const WORKERS: usize = 2;
/// Threads above the device or the store of figure 3: one for each of its engines.
const THREADS: usize = 4;
/// Requests of each of them in flight at the device.
const DEPTH: usize = 64;
/// Enough for the widest vector of reads of single keys.
const CONNECTIONS: u32 = 64;
/// Rates of a curve, as shares of the highest.
const SHARES: [f64; 4] = [0.2, 0.5, 0.7, 0.85];
/// Longest wait of a read for others: the paper's has no end, which a client would wait for at the end of a run.
const DELAY: Duration = Duration::from_millis(1);

const fn curve(number: &'static str, series: &'static str) -> [Plot; 1] {
    [Plot::new(Paper::Vector, number, ("lookups a second", Scale::Linear), &["median us"])
        .lines(series)
        .log_y()
        .legend_at(Corner::UpperLeft)
        .evidence(Evidence::Modelled)]
}

/// Lookups of the device, of a store above it within this process, and of a server, by the width of vectors.
pub(super) const FIGURE_3: [Plot; 1] =
    [Plot::new(Paper::Vector, "3", ("width", Scale::Log2), &["device", "store", "server"])
        .y_called("lookups a second")
        .log_y()
        .legend_at(Corner::LowerRight)
        .evidence(Evidence::Modelled)];
/// Latency against throughput: multigets of several widths, read one by one.
pub(super) const FIGURE_9: [Plot; 1] = curve("9", "multiget");
/// Single gets, read in vectors of several widths.
pub(super) const FIGURE_10: [Plot; 1] = curve("10", "multiread");
/// Multigets that are read as they are.
pub(super) const FIGURE_11: [Plot; 1] = curve("11", "multiget");
/// The highest throughput of multigets that are read as they are, and of those that are gathered in a queue.
pub(super) const FIGURE_12: [Plot; 1] =
    [Plot::new(Paper::Vector, "12", ("multiget", Scale::Log2), &["direct", "queue"])
        .y_called("lookups a second")
        .legend_at(Corner::LowerRight)
        .evidence(Evidence::Modelled)];

pub(super) fn figure_3(study: &Study<'_>) -> Result<Table> {
    let &Study { window: duration, seed, bar, .. } = study;
    let (threads, writes) = (THREADS, false);
    let items = StoreStudy { keys: KEYS, value_bytes: VALUE_BYTES as usize, duration, seed };
    let of_store = modelled_in_blocks(DEVICE_BYTES, PAGE_BYTES);
    let stores =
        measure_store(&of_store, &items, &WIDTHS.map(|width| StorePoint { threads, width, writes }))?;
    let rig = Rig::filled(study)?;
    let mut rows = Vec::new();
    for (width, store) in WIDTHS.into_iter().zip(stores) {
        bar.tick();
        let request_bytes = PAGE_BYTES as usize;
        let point = Point { threads, depth: DEPTH, width, request_bytes, writes, duration, seed };
        let device = measure(&rig.device, &point)?.iops;
        let server = rig.served(VectorWidth::Direct)?.peak(width)?.operations_per_s;
        rows.push([width as f64, device, store.keys_per_s, server].map(Cell::Number).to_vec());
    }
    Ok(Table { title: title(), columns: vec!["width", "device", "store", "server"], rows })
}

pub(super) fn figure_9(study: &Study<'_>) -> Result<Table> {
    curves(study, WIDTHS.map(|width| (width, 1, exactly(1))))
}

pub(super) fn figure_10(study: &Study<'_>) -> Result<Table> {
    curves(study, WIDTHS.map(|width| (1, width, exactly(width))))
}

pub(super) fn figure_11(study: &Study<'_>) -> Result<Table> {
    curves(study, WIDTHS.map(|width| (width, width, VectorWidth::Direct)))
}

pub(super) fn figure_12(study: &Study<'_>) -> Result<Table> {
    let rig = Rig::filled(study)?;
    let mut rows = Vec::new();
    for width in WIDTHS {
        let [direct, queue] = [VectorWidth::Direct, exactly(width)].map(|reads| {
            study.bar.tick();
            Ok::<_, anyhow::Error>(rig.served(reads)?.peak(width)?.operations_per_s)
        });
        rows.push([width as f64, direct?, queue?].map(Cell::Number).to_vec());
    }
    Ok(Table { title: title(), columns: vec!["multiget", "direct", "queue"], rows })
}

const fn exactly(width: usize) -> VectorWidth {
    VectorWidth::Queue { min: width, max: width }
}

/// Rows for widths of multigets and multireads.
fn curves(study: &Study<'_>, cases: [(usize, usize, VectorWidth); 6]) -> Result<Table> {
    let rig = Rig::filled(study)?;
    let mut rows = Vec::new();
    for (multiget, multiread, reads) in cases {
        study.bar.tick();
        let served = rig.served(reads)?;
        let peak = served.peak(multiget)?;
        let open = SHARES.map(|share| served.open(multiget, peak.achieved_rps * share));
        for report in open.into_iter().chain([Ok(peak)]) {
            let report = report?;
            let numbers =
                [multiget as f64, multiread as f64, report.operations_per_s, report.latency_us.all.p50];
            rows.push(numbers.map(Cell::Number).to_vec());
        }
    }
    let columns = vec!["multiget", "multiread", "lookups a second", "median us"];
    Ok(Table { title: title(), columns, rows })
}

fn title() -> String {
    format!("{VALUE_BYTES} bytes over TCP; a page takes 10 us, 1.8 M a second, 4 engines")
}

/// A device with all items.
struct Rig<'a> {
    study: &'a Study<'a>,
    device: Device,
    workload: Workload,
}

/// A server above it; stopped when dropped.
struct Served<'a> {
    rig: &'a Rig<'a>,
    server: Option<Server>,
    target: Target,
}

impl<'a> Rig<'a> {
    fn filled(study: &'a Study<'a>) -> Result<Self> {
        let device = modelled_in_blocks(DEVICE_BYTES, PAGE_BYTES);
        let [table, seed, hash_seed] = [(); 3].map(|()| random_seed());
        let format = Format { table, seed, hash_seed, clock_zero_unix_s: 0, segment_bytes: SEGMENT_BYTES };
        minos_tier::format(&device, &format)?;
        let workload = Workload::of_spec(&spec(), &Shape::default(), study.seed)?;
        let rig = Self { study, device, workload };
        let served = rig.served(exactly(1))?;
        let loaded =
            minos_workload::load(&served.config(1, Arrivals::Closed { pipeline: 1 }), &rig.workload, |_| {})?;
        ensure!(loaded.errors == 0, "{} items were not stored", loaded.errors);
        // What is in memory goes to the device.
        drop(served);
        Ok(rig)
    }

    fn served(&'a self, width: VectorWidth) -> Result<Served<'a>> {
        let mut config = ServerConfig::new(WORKERS);
        config.memcached = vec!["127.0.0.1:0".parse().context("an address")?];
        config.gathering = Gathering { width, delay: DELAY };
        config.value_bytes_max = VALUE_BYTES;
        config.pin = false;
        let engine = |superblock: &Superblock| -> Result<_, CreateError> {
            let tier = TierConfig { is_lossless: true, ..TierConfig::default() };
            let (hash_seed, value_bytes_max) = (superblock.hash_seed, VALUE_BYTES);
            let store = StoreConfig { tier, hash_seed, value_bytes_max, ..StoreConfig::new(MEMORY_BYTES) };
            Ok((Arc::new(Tiered::create(&store)?), Memory::Empty))
        };
        let options = Options::store(Durability::None);
        let (_, keeper, _) = minos_tier::open(&self.device, &options, config.clock.seconds(), engine)?;
        let server = Server::start_above_flash(config, keeper)?;
        let address = server.addresses().first().context("a server without an address")?;
        let Address::Tcp(address) = address else { anyhow::bail!("{address} is no TCP address") };
        let target = Target { protocol: TargetProtocol::Memcached, place: Place::Tcp(address.to_string()) };
        Ok(Served { rig: self, server: Some(server), target })
    }
}

impl Served<'_> {
    fn peak(&self, multiget: usize) -> Result<Report> {
        self.run(multiget, Arrivals::Closed { pipeline: 1 })
    }

    fn open(&self, multiget: usize, rate: f64) -> Result<Report> {
        self.run(multiget, Arrivals::Open { rate })
    }

    fn run(&self, multiget: usize, arrivals: Arrivals) -> Result<Report> {
        answered(&self.config(multiget, arrivals), &self.rig.workload)
    }

    fn config(&self, multiget: usize, arrivals: Arrivals) -> RunConfig {
        let duration = self.rig.study.window;
        RunConfig {
            target: self.target.clone(),
            arrivals,
            pace: Pace::Due,
            duration,
            warmup: duration / 4,
            drain: Duration::from_secs(10),
            threads: 1,
            connections: CONNECTIONS,
            keys_per_get: multiget as u32,
            check_contents: false,
            cpus: Vec::new(),
            server_pid: Some(std::process::id()),
            receive_buffer: None,
            datagrams: DatagramOptions::default(),
        }
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else { return };
        server.stop().request();
        // A panic of its threads has ended this process.
        let _ = server.join();
    }
}

/// GETs of all items alike.
fn spec() -> WorkloadSpec {
    let group = GroupSpec {
        keys: KEYS,
        key_bytes: 8,
        value_bytes: SizeRange::fixed(VALUE_BYTES),
        popularity: Popularity::Uniform,
        weight: 1.0,
        class: None,
    };
    let stream = StreamSpec {
        name: "gets".to_owned(),
        rate: None,
        connections: None,
        get_ratio: 1.0,
        writes: Writes::Update,
        groups: vec![group],
    };
    WorkloadSpec { name: "gets".to_owned(), streams: vec![stream] }
}
