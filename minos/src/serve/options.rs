//! The options of `minos serve`, declared once: flags, help and configuration file come from here.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use super::{
    available::{Available, memory_default},
    flash::FlashOptions,
    native::NativeOptions,
    numa::NumaOptions,
    rack::{RackOptions, Serves},
    region::RegionPlace,
    security::{ClientAddress, SecurityOptions},
    values::{AccessMode, EngineKind, Evict, Switch, designs, name_of, names, parse_backing, random_seed},
    watch::WatchOptions,
};
use crate::{admin::AdminOptions, secret::warn_if_others_may_read};
use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use minos_base::{SizeText, limits::BURST_MAX};
use minos_engine::{Backing, CHAIN_BUCKETS_MAX, StoreConfig};
use minos_net::Address;
use minos_node::{
    ServerConfig,
    config::{Design, LargeOrder, Placement, PollMode},
    settings::parse_time,
};
use minos_sched::{Cost, Threshold};

/// Serve memcached clients; small requests never wait for large ones.
///
/// Every option can stand in a TOML file too, under its name without the dashes: `memory = "4g"`.
/// The command line wins.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    /// TOML file with more options
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where memcached clients connect: IP:PORT or unix:/PATH, with --tls-cert also notls:IP:PORT; may be given several
    /// times [default: 127.0.0.1:11211]
    #[arg(long, value_name = "ADDR", help_heading = "Addresses")]
    pub(crate) memcached: Vec<ClientAddress>,
    /// Where Redis clients connect: IP:PORT or unix:/PATH, with --tls-cert also notls:IP:PORT; may be given several times
    /// [default: nowhere]
    #[arg(long, value_name = "ADDR", help_heading = "Addresses")]
    pub(crate) resp: Vec<ClientAddress>,

    /// Memory of the store, index and all overheads included [default: 1g, or half of what the machine or its
    /// control group has]
    #[arg(long, value_name = "SIZE", help_heading = "Store")]
    pub(crate) memory: Option<SizeText>,
    /// Behaviour when the memory is full: a cache evicts, a store refuses new values and keeps the old ones
    #[arg(long, value_enum, default_value_t = EngineKind::Cache, help_heading = "Store")]
    pub(crate) engine: EngineKind,
    /// Which items a cache evicts [default: approx-lru]
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Store")]
    pub(crate) evict: Option<Evict>,
    /// Who accesses a partition: any worker, by a lock (crcw); its owner, which alone writes (crew); or its owner alone
    /// (erew). The last two have no locks, and take --dispatch keyhash
    #[arg(long, value_enum, default_value_t = AccessMode::Crcw, help_heading = "Store")]
    pub(crate) access: AccessMode,
    /// Partitions, a power of two [default: by the memory]
    #[arg(long, value_name = "N", help_heading = "Store")]
    pub(crate) partitions: Option<u32>,
    /// Memory behind the store: auto, hugetlb, private, small-pages, memfd or file:/PATH [default: auto]
    #[arg(long, value_name = "KIND", value_parser = parse_backing, help_heading = "Store")]
    pub(crate) backing: Option<Backing>,
    /// Memory that outlives the server, so that the next server continues with its items: a file on tmpfs or DAX, or the
    /// memory of this name at a `minos keeper`
    #[arg(long, value_name = "PATH|keeper:PATH[=NAME]", value_parser = OsStringValueParser::new().map(RegionPlace::of), help_heading = "Store")]
    pub(crate) region: Option<RegionPlace>,
    /// Memory that only large values of a cache may take [default: an eighth, or room for the largest]
    #[arg(long, value_name = "SIZE", help_heading = "Store")]
    pub(crate) large_reserve: Option<SizeText>,
    /// Memory beside --memory to buffer large values that replace small items; one value always fits
    /// [default: a sixteenth of --memory]
    #[arg(long, value_name = "SIZE", help_heading = "Store")]
    pub(crate) buffer_memory: Option<SizeText>,
    /// Longest chain of the index, in buckets of 7 items: a store refuses an item that needs a longer one as out
    /// of memory, a cache evicts the chain's oldest
    #[arg(long, value_name = "BUCKETS", default_value_t = CHAIN_BUCKETS_MAX as u32, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Store")]
    pub(crate) chain_max: u32,
    /// Seed of the key hash, or a file that holds it, which no list of processes shows [default: random]
    #[arg(long, value_name = "N|file:PATH", help_heading = "Store")]
    pub(crate) hash_seed: Option<HashSeed>,

    /// Worker threads [default: one a processor]
    #[arg(long, value_name = "N", help_heading = "Workers")]
    workers: Option<usize>,
    /// Bind each worker to a processor when there are enough
    #[arg(long, value_enum, default_value_t = Switch::On, help_heading = "Workers")]
    pub(crate) pin: Switch,
    #[command(flatten)]
    pub(crate) numa: NumaOptions,
    /// How an idle worker waits for requests
    #[arg(long, default_value = "adaptive", value_parser = names::<PollMode>(PollMode::NAMES), help_heading = "Workers")]
    pub(crate) poll: PollMode,

    /// Design, which decides the worker that executes a request [default: size-aware, keyhash with --access crew or erew]
    #[arg(long, value_parser = designs(), help_heading = "Policy")]
    dispatch: Option<Design>,
    /// Workers that do nothing but hand requests on, with --dispatch handoff: 1 to 3
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Policy")]
    pub(crate) handoff_workers: usize,
    /// Percentile of the sizes of requests up to which a request is small
    #[arg(long, value_name = "P", default_value_t = 99.0, help_heading = "Policy")]
    pub(crate) percentile: f64,
    /// Largest small value: auto, by the percentile, or a fixed size
    #[arg(long, value_name = "auto|BYTES", default_value = "auto", help_heading = "Policy")]
    pub(crate) threshold: Threshold,
    /// Cost of a request, by which workers are shared out: packets, bytes or fixed+bytes
    #[arg(long, value_name = "COST", default_value = "packets", help_heading = "Policy")]
    pub(crate) cost: Cost,
    /// Weight of the last epoch in the moving average
    #[arg(long, value_name = "A", default_value_t = 0.9, help_heading = "Policy")]
    pub(crate) alpha: f64,
    /// Time between two plans
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, help_heading = "Policy")]
    pub(crate) epoch: Duration,
    /// Let an idle worker take small requests: a large worker from its own RX queue, a small worker from any
    #[arg(long, value_enum, default_value_t = Switch::On, help_heading = "Policy")]
    pub(crate) steal: Switch,
    /// Bytes of a large transfer served between two polls of the RX queues; should be a multiple of the
    /// packet size
    #[arg(long, value_name = "SIZE", default_value = "65160", help_heading = "Policy")]
    pub(crate) slice: SizeText,
    /// Large requests that may wait in a worker's ring
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Policy")]
    pub(crate) ring_size: usize,

    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Limits")]
    pub(crate) max_connections: usize,
    /// Silence after which a connection is closed; 0 is never
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_time, help_heading = "Limits")]
    pub(crate) idle_timeout: Duration,
    /// Longest time that a large transfer waits for its client; each byte that moves extends it, at
    /// --min-rate
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time, help_heading = "Limits")]
    pub(crate) stall_timeout: Duration,
    /// Lowest lasting rate of a large transfer, in bytes a second; 0: any byte restarts --stall-timeout
    #[arg(long, value_name = "SIZE", default_value = "16k", help_heading = "Limits")]
    pub(crate) min_rate: SizeText,
    /// Memory for large values that are still arriving from memcached clients [default: an eighth of --memory]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) receive_memory: Option<SizeText>,
    /// Largest value, at most 1g [default: 8m, or as many as a segment of --flash has room for]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) max_item_size: Option<SizeText>,
    /// Bytes buffered for one connection in one direction
    #[arg(long, value_name = "SIZE", default_value = "256k", help_heading = "Limits")]
    pub(crate) max_buffer: SizeText,
    /// Prefixes of keys that `stats detail` counts
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Limits")]
    pub(crate) detail_prefixes: usize,
    /// Keys that Redis' clients have read and are told of when they change, each counted once a connection
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Limits")]
    pub(crate) tracking_table_max_keys: usize,
    /// Let clients stop the server by the command `shutdown`
    #[arg(long, value_enum, default_value_t = Switch::Off, help_heading = "Limits")]
    pub(crate) allow_shutdown: Switch,
    /// Time for requests under way to finish when the server stops. Above flash, memory is written as long as flash does
    /// not stand still for twice this time
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time, help_heading = "Limits")]
    pub(crate) stop_timeout: Duration,

    #[command(flatten)]
    pub(crate) security: SecurityOptions,
    #[command(flatten)]
    pub(crate) flash: FlashOptions,
    #[command(flatten)]
    pub(crate) native: NativeOptions,
    #[command(flatten)]
    pub(crate) rack: RackOptions,
    #[command(flatten)]
    pub(crate) admin: AdminOptions,
    #[command(flatten)]
    pub(crate) watch: WatchOptions,

    /// Order in which a large worker serves its requests; fifo runs each to completion
    #[arg(long, default_value = "shortest", value_parser = names::<LargeOrder>(LargeOrder::NAMES), help_heading = "Research")]
    pub(crate) large_order: LargeOrder,
    /// Longest wait for a slice, with --large-order shortest
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time, help_heading = "Research")]
    pub(crate) large_wait_max: Duration,
    /// Keys of a burst that are prefetched together; 1 is no prefetching
    #[arg(long, value_name = "N", default_value_t = BURST_MAX as u64, value_parser = clap::value_parser!(u64).range(1..=BURST_MAX as u64), help_heading = "Research")]
    pub(crate) prefetch_depth: u64,
}

/// The default address for memcached clients.
const MEMCACHED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 11211);

const VALUE_BYTES_MAX_DEFAULT: u64 = 8 << 20;

impl ServeOptions {
    /// Worker threads, as given or one for each processor.
    pub(crate) fn workers(&self) -> usize {
        self.workers.unwrap_or_else(|| minos_net::allowed_cpus().len().max(1))
    }

    /// True if the items are on flash after a stop, and count there without the memory above. A node of a rack may begin
    /// without them.
    pub(super) fn keeps_on_flash(&self) -> bool {
        self.flash.flash.is_some() && self.rack.rack.is_none()
    }

    /// The seed of the key hash, if one is given.
    pub(crate) fn given_seed(&self) -> Option<u64> {
        self.hash_seed.as_ref().map(|seed| seed.number)
    }

    /// The configurations of server and store.
    ///
    /// # Errors
    /// Names the option that asks for something unavailable.
    pub(crate) fn configs(&self) -> anyhow::Result<(ServerConfig, StoreConfig)> {
        self.refuse_what_is_not_there()?;
        if let Some(HashSeed { file: Some(path), .. }) = &self.hash_seed {
            warn_if_others_may_read("--hash-seed", path)?;
        }
        let mut server = self.server_config();
        server.tls = self.security.tls(&[&self.memcached[..], &self.resp].concat())?;
        server.access = self.security.access()?;
        server.after_bind = self.security.after_bind()?;
        server.native = self.native.config()?;
        self.security.check_public(&server)?;
        let others = Serves {
            promises_durability: self.flash.promises_durability(),
            native: server.native.as_ref().map(|native| native.address),
        };
        server.rack = self.rack.config(others)?;
        let mut store = self.store_config();
        if let Some(rack) = &mut server.rack {
            self.rack.rack_fabric.lend(rack, &mut store)?;
        }
        let placement = self.numa.placement(self.workers());
        store.memory_nodes = self.memory_nodes(&placement, &store.backing);
        server.store_settings.extend(self.numa.settings(&placement));
        server.place(placement);
        Ok((server, store))
    }

    /// Memory of the store, as given or by the machine's memory.
    fn memory(&self) -> SizeText {
        self.memory.unwrap_or_else(|| memory_default(Available::read()))
    }

    /// The design in force at the start, as given or by `--access`.
    pub(crate) fn dispatch(&self) -> Design {
        self.dispatch.unwrap_or(match self.access {
            AccessMode::Crcw => Design::SizeAware,
            AccessMode::Crew | AccessMode::Erew => Design::KeyHash,
        })
    }

    /// The addresses for memcached clients.
    fn memcached(&self) -> Vec<Address> {
        if self.memcached.is_empty() {
            return vec![Address::Tcp(MEMCACHED)];
        }
        self.memcached.iter().map(|each| each.address.clone()).collect()
    }

    fn refuse_what_is_not_there(&self) -> anyhow::Result<()> {
        let missing = [
            (
                self.access != AccessMode::Crcw && self.flash.flash.is_some(),
                "--access erew and crew: the thread that moves items to flash changes partitions, which are workers' \
                 own; use --access crcw with --flash",
            ),
            (
                self.access != AccessMode::Crcw && self.region.is_some(),
                "--access erew and crew: the next server may have other workers, and these own the partitions; use \
                 --access crcw with --region",
            ),
            (
                self.native.wakes_nobody() && self.poll != PollMode::Busy,
                "--port memif and dpdk wake nobody, so that workers may not sleep; use --poll busy",
            ),
            (
                self.native.is_dpdk() && self.security.is_sandboxed(),
                "--sandbox: DPDK's own thread maps memory and opens files while the server runs; it goes without --port dpdk",
            ),
            (
                self.rack.rack.is_some()
                    && self.region.is_none()
                    && matches!(
                        self.backing,
                        Some(Backing::Private | Backing::Hugetlb | Backing::SmallPages)
                    ),
                "--rack: other nodes read this one's memory; use --region, or --backing memfd",
            ),
            (
                self.rack.rack_fabric.is_ucx()
                    && (self.region.is_some()
                        || self.flash.flash.is_some()
                        || !matches!(self.backing, None | Some(Backing::Auto))),
                "--rack-fabric ucx: UCX has memory of its own, which ends with the process; it goes without --region, \
                 --backing and --flash",
            ),
            (
                self.security.is_sandboxed() && self.rack.rack.is_some(),
                "--sandbox: a node of a rack opens sockets and memory of others while it serves; it goes without --rack",
            ),
            (
                self.security.changes_user() && self.rack.has_private_sockets(),
                "--user: the sockets between nodes would stay root's; start each node as that user, or use IP:PORT in --peers",
            ),
            (
                self.security.changes_user() && self.native.is_memif(),
                "--user: the socket of --port memif would stay root's; start the server as that user",
            ),
            (
                self.engine == EngineKind::Store && (self.evict.is_some() || self.large_reserve.is_some()),
                "--evict and --large-reserve: a store evicts nothing; they go with --engine cache",
            ),
        ];
        match missing.iter().find(|(asked, _)| *asked) {
            Some((_, text)) => anyhow::bail!("{text}"),
            None => self.region.as_ref().map_or(Ok(()), |region| region.check(self.backing.as_ref())),
        }
    }

    fn server_config(&self) -> ServerConfig {
        let mut config = ServerConfig::new(self.workers());
        config.memcached = self.memcached();
        config.resp = self.resp.iter().map(|each| each.address.clone()).collect();
        config.control.percentile = self.percentile;
        config.control.threshold = self.threshold;
        config.control.cost = self.cost;
        config.control.alpha = self.alpha;
        config.dispatch = self.dispatch();
        config.handoff_workers = self.handoff_workers;
        config.epoch = self.epoch;
        config.steal = self.steal == Switch::On;
        config.large_order = self.large_order;
        config.large_wait_max = self.large_wait_max;
        config.slice_bytes = self.slice.0 as usize;
        config.ring_capacity = self.ring_size;
        config.poll = self.poll;
        config.pin = self.pin == Switch::On;
        config.connections_max = self.max_connections;
        config.idle_timeout = (!self.idle_timeout.is_zero()).then_some(self.idle_timeout);
        config.stall_timeout = self.stall_timeout;
        config.rate_min = self.min_rate.0;
        config.receive_memory_bytes = self.receive_memory.map(|size| size.0);
        config.value_bytes_max = self.value_bytes_max();
        config.buffer_bytes_max = self.max_buffer.0 as usize;
        config.detail_prefixes_max = self.detail_prefixes;
        config.tracking_keys_max = self.tracking_table_max_keys;
        config.watch = self.watch.config();
        config.allow_shutdown = self.allow_shutdown == Switch::On;
        config.stop_timeout = self.stop_timeout;
        config.gathering = self.flash.gathering();
        config.promote = self.flash.flash_promote;
        config.flash_wait = self.flash.flash_wait;
        config.store_settings = self.store_settings();
        config
    }

    fn value_bytes_max(&self) -> u64 {
        self.max_item_size.map_or(VALUE_BYTES_MAX_DEFAULT, |size| size.0)
    }

    /// The entries of `stats settings` that only the options know.
    fn store_settings(&self) -> Vec<(&'static str, String)> {
        let evict = match self.engine {
            EngineKind::Cache => name_of(self.evict()),
            EngineKind::Store => "none".to_owned(),
        };
        let region = self.region.as_ref().map(|place| ("region", place.to_string()));
        let others = [
            ("evict", evict),
            ("chain_max", self.chain_max.to_string()),
            ("prefetch_depth", self.prefetch_depth.to_string()),
        ];
        others.into_iter().chain(region).collect()
    }

    /// The nodes that the table's pages come from in turn.
    fn memory_nodes(&self, placement: &Placement, backing: &Backing) -> Vec<usize> {
        let is_taken_at_once = matches!(backing, Backing::Memfd | Backing::File(_));
        if self.access != AccessMode::Crcw && !is_taken_at_once {
            // An owner is the first to touch most pages of its partitions, and so has them on its node.
            return Vec::new();
        }
        placement.memory_nodes()
    }

    fn evict(&self) -> Evict {
        self.evict.unwrap_or(Evict::ApproxLru)
    }

    fn store_config(&self) -> StoreConfig {
        let mut config = StoreConfig::new(self.memory().0);
        config.partitions = self.partitions;
        config.backing = match (&self.region, &self.backing) {
            (Some(place), backing) => place.backing(backing.as_ref()),
            // Other nodes read it.
            (None, None | Some(Backing::Auto)) if self.rack.rack.is_some() => Backing::Memfd,
            (None, backing) => backing.clone().unwrap_or_default(),
        };
        config.owners = self.workers() as u32;
        config.direction_seed = random_seed();
        config.micro_shards = self.rack.micro_shards();
        config.uniques = self.rack.uniques();
        config.value_bytes_max = self.value_bytes_max();
        config.eviction = self.evict().into();
        config.large_bytes_min = self.large_reserve.map(|size| size.0);
        config.buffer_bytes_max = self.buffer_memory.map(|size| size.0);
        config.chain_buckets_max = self.chain_max as usize;
        config.prefetch_depth = self.prefetch_depth as usize;
        config.hash_seed = self.given_seed().unwrap_or_else(random_seed);
        config
    }
}

/// The seed of the key hash, as given or from a file.
#[derive(Clone, Debug)]
pub(crate) struct HashSeed {
    number: u64,
    file: Option<PathBuf>,
}

impl FromStr for HashSeed {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let file = text.strip_prefix("file:").map(PathBuf::from);
        let number = file.as_ref().map_or_else(|| Ok(text.to_owned()), std::fs::read_to_string)?;
        Ok(Self { number: number.trim().parse()?, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use minos_node::settings::{FIXED, names};

    #[test]
    fn each_option_is_a_setting_or_has_a_reason_to_be_none() {
        let command = ServeOptions::augment_args(Command::new("serve"));
        let options: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        assert!(options.len() > 80, "{options:?}");
        let fixed = || FIXED.iter().flat_map(|(_, names)| names.iter().copied());
        for option in &options {
            assert!(names().chain(fixed()).any(|name| name == *option), "{option}");
        }
        let live_only = ["log-level"];
        for name in names().chain(fixed()).filter(|name| !live_only.contains(name)) {
            assert!(options.contains(&name), "there is no --{name}");
        }
    }

    #[test]
    fn the_chart_gives_arguments_that_are_taken() {
        let template = include_str!("../../../deploy/helm/minos/templates/statefulset.yaml");
        let template = template.replace("{{ if .Values.adminTlsName }}tls:{{ end }}", "tls:");
        let template = template.replace("{{ .Values.flashSize }}", "4g");
        let given = template.lines().filter_map(|line| line.trim().strip_prefix("- --"));
        let given: Vec<String> = given
            .map(|argument| match argument.split_once('=') {
                Some(("memory", _)) => "--memory=1g".to_owned(),
                Some(("workers", _)) => "--workers=2".to_owned(),
                _ => format!("--{argument}"),
            })
            .collect();
        assert!(given.len() > 8 && given.iter().all(|argument| !argument.contains('{')), "{given:?}");
        let command = ServeOptions::augment_args(Command::new("serve").no_binary_name(true));
        command.try_get_matches_from(&given).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn the_documentation_has_each_setting() {
        let text = include_str!("../../../docs/operations.md");
        let (_, section) = text.split_once("## Changing settings").unwrap();
        let (section, _) = section.split_once("## Limits").unwrap();
        let rows: Vec<&str> =
            section.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next()).collect();
        for name in names() {
            assert!(rows.iter().any(|row| row.contains(&format!("`{name}`"))), "{name}");
        }
    }
}
