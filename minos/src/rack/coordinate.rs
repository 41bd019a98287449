//! `minos rack coordinate`: the coordinator of a rack.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use minos_net::Address;
use minos_node::{
    coordinator::{self, COPIES_MAX, CoordinatorConfig, EtcdConfig, Keep, Loss, ReadPolicy},
    settings::parse_time,
};
use signal_hook::{consts::TERM_SIGNALS, flag};

use crate::{
    secret::read_all,
    serve::rack::{Peer, check_peers},
};

/// Micro-shards that move at a time.
pub(super) const MOVES: usize = 64;
/// Time after which a move is given up.
pub(super) const MOVE_TIME: Duration = Duration::from_secs(60);

/// Run the coordinator of a rack: it lets nodes answer, and moves micro-shards between them. It is on the way of no request
#[derive(Args, Debug)]
pub(crate) struct CoordinateArgs {
    /// Name of the rack
    #[arg(long, value_name = "NAME")]
    rack: String,
    /// Where nodes (--coordinator) and operators find it: a Unix socket, or an address for those who know --rack-secret
    #[arg(long, value_name = "PATH|IP:PORT")]
    listen: Address,
    /// File with secrets, as for `minos serve`: over TCP, nodes and operators must know one of them
    #[arg(long, value_name = "PATH")]
    rack_secret: Option<PathBuf>,
    /// File that keeps the directory: who owns what
    #[arg(long, value_name = "PATH", required_unless_present = "etcd", conflicts_with = "etcd")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The nodes of a new rack, as for `minos serve`. Later ones are in the directory
    #[arg(long, value_name = "UNIT@PATH|IP:PORT[=IP:PORT]", value_delimiter = ',', required = true)]
    peers: Vec<Peer>,
    /// Nodes of --peers, from the first on, that a new rack begins with [default: all]
    #[arg(long, value_name = "N")]
    members: Option<usize>,
    /// Micro-shards of a new rack, as for `minos serve`
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    micro_shards: u32,
    /// Time for which a node answers without a word of the coordinator, as for `minos serve`
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    rack_lease: Duration,
    /// What becomes of the items of a node that is dead
    #[arg(long, value_enum, default_value_t = Lost::Wait)]
    lost: Lost,
    /// Micro-shards that move, or of which a further copy begins, at a time
    #[arg(long, value_name = "N", default_value_t = MOVES)]
    moves: usize,
    /// Copies of each micro-shard, the owner's included, each in another unit: one of them replaces an owner that is lost
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(COPIES_MAX)))]
    copies: u32,
    /// Time between two steps that relieve the busiest node: its hottest micro-shard moves to the least busy node, or later,
    /// if it is read most of the time, gets a copy in another unit (--read-copies) while it is hot [default: none]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    relieve: Option<Duration>,
    /// Time after which a move is given up
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    move_time: Duration,
    /// By what the reads of native clients are balanced within a unit: static, writes, service-times or load
    #[arg(long, value_name = "POLICY", default_value_t)]
    reads: ReadPolicy,
    /// Time between two computations of that balance
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    reads_interval: Duration,
}

/// Looks at what `minos rack coordinate` and `minos rack up` are asked for alike.
pub(super) fn check_wishes(
    members: Option<usize>,
    nodes: usize,
    relieve: Option<Duration>,
) -> anyhow::Result<()> {
    if let Some(members) = members {
        ensure!((1..=nodes).contains(&members), "--members {members}: expected 1 to {nodes}, all nodes");
    }
    ensure!(relieve != Some(Duration::ZERO), "--relieve: 0 is not allowed");
    Ok(())
}

impl CoordinateArgs {
    /// Looks also whether each copy can lie in a unit of its own.
    fn check(&self) -> anyhow::Result<()> {
        check_peers(&self.peers)?;
        check_wishes(self.members, self.peers.len(), self.relieve)?;
        ensure!(self.moves > 0, "--moves: 0 is not allowed");
        let units = self.peers.iter().map(|peer| peer.unit_and_address().0).collect::<BTreeSet<_>>().len();
        let copies = self.copies;
        ensure!(
            copies as usize <= units,
            "--copies {copies}: each is in another unit, and --peers has {units}"
        );
        Ok(())
    }
}

/// One of several coordinators.
#[derive(Args, Debug)]
struct EtcdOptions {
    /// Servers of etcd, which elects one of several coordinators and keeps the directory. Needs a program that was built with
    /// `--features etcd`
    #[arg(long, value_name = "http://HOST:PORT", value_delimiter = ',', value_parser = parse_server)]
    etcd: Vec<String>,
    /// What the names of its keys begin with; the name of the rack follows
    #[arg(long, value_name = "KEY", default_value = "/minos", conflicts_with = "directory")]
    etcd_prefix: String,
    /// Time after which another coordinator is elected if the leader is silent, in whole seconds. etcd may make it longer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time, conflicts_with = "directory")]
    etcd_ttl: Duration,
    /// User of etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password", conflicts_with = "directory")]
    etcd_user: Option<String>,
    /// File with the password of --etcd-user
    #[arg(long, value_name = "PATH", requires = "etcd_user")]
    etcd_password: Option<PathBuf>,
}

impl EtcdOptions {
    fn config(&self) -> anyhow::Result<EtcdConfig> {
        let ttl_s = minos_base::seconds_up(self.etcd_ttl);
        ensure!((1..=3600).contains(&ttl_s), "--etcd-ttl: expected 1s to 1h");
        let password = |path: &PathBuf| {
            let text = fs::read_to_string(path);
            text.with_context(|| format!("--etcd-password {}", path.display()))
        };
        let password = self.etcd_password.as_ref().map(password).transpose()?;
        let user = self.etcd_user.clone().zip(password.map(|text| text.trim_end().to_owned()));
        let (servers, prefix) = (self.etcd.clone(), self.etcd_prefix.trim_end_matches('/').to_owned());
        Ok(EtcdConfig { servers, prefix, ttl: Duration::from_secs(ttl_s), user })
    }
}

/// The URL of a server of etcd.
fn parse_server(text: &str) -> Result<String, String> {
    let port = text
        .strip_prefix("http://")
        .and_then(|rest| rest.rsplit_once(':'))
        .filter(|(host, _)| !host.is_empty());
    match port.map(|(_, port)| port.trim_end_matches('/').parse::<u16>()) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("expected http://HOST:PORT; TLS is not spoken".to_owned()),
    }
}

/// What becomes of the items of a dead node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lost {
    /// They wait for it, unless an operator gives it up
    Wait,
    /// Its micro-shards go to other nodes, which begin without items
    Drop,
}

/// Coordinates until a signal comes.
pub(super) fn run(args: &CoordinateArgs) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        flag::register(*signal, Arc::clone(&stop))?;
    }
    let keep = match &args.directory {
        Some(path) => Keep::File(path.clone()),
        None => Keep::Etcd(args.etcd.config()?),
    };
    let file = args.rack_secret.as_deref();
    let secrets = file.map(|path| read_all("--rack-secret", path)).transpose()?;
    args.check()?;
    let members = args.peers.iter().take(args.members.unwrap_or(args.peers.len()));
    let config = CoordinatorConfig {
        rack: args.rack.clone(),
        listen: args.listen.clone(),
        secrets: secrets.unwrap_or_default(),
        keep,
        nodes: members.map(Peer::unit_and_address).collect(),
        micro_shards: args.micro_shards,
        lease: args.rack_lease,
        loss: match args.lost {
            Lost::Wait => Loss::Never,
            Lost::Drop => Loss::Allowed,
        },
        moves_max: args.moves,
        copies: args.copies,
        relieve: args.relieve,
        move_time_max: args.move_time,
        reads: args.reads,
        reads_interval: args.reads_interval,
    };
    let begun = || println!("coordinator {}", args.listen);
    Ok(coordinator::run(config, begun, || stop.load(Ordering::Relaxed))?)
}
