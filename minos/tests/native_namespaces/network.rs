//! Two network namespaces and the cable between them.

use std::{
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// Separates the namespaces of one process.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// The server's addresses.
pub(crate) const SERVER: [&str; 2] = ["10.77.0.1", "fd77::1"];
/// The least MTU that IPv6 allows.
pub(crate) const IPV6_MTU_MIN: usize = 1280;

/// The device at the ends, and the one between routers.
pub(crate) const CABLE: &str = "cable";
const MIDDLE: &str = "middle";

/// A place with its own namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Server,
    Client,
    /// The router next to the server, where there is one.
    Left,
    /// The router next to the client.
    Right,
}

/// The properties of the path between server and client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Largest IP packet, in bytes.
    pub(crate) mtu: usize,
    /// Largest IP packet between two routers, which neither end can see.
    pub(crate) middle_mtu: Option<usize>,
    /// Packets that are lost at each end, of 1000. A packet may be a whole train.
    pub(crate) lost_permille: u32,
    /// True if trains pass through it in one piece.
    pub(crate) has_offload: bool,
    /// True if the receiving device joins consecutive datagrams.
    pub(crate) is_joined: bool,
    /// Queues of each device, in both directions.
    pub(crate) queues: usize,
    /// Bandwidth limit; a short queue before it drops the excess.
    pub(crate) megabits_max: Option<u32>,
}

impl Path {
    pub(crate) const PLAIN: Self = Self {
        mtu: 1500,
        middle_mtu: None,
        lost_permille: 0,
        has_offload: true,
        is_joined: false,
        queues: 1,
        megabits_max: None,
    };
}

/// Two namespaces with a cable between them, or three cables and two routers; removed when dropped.
pub(crate) struct Network {
    names: Vec<String>,
}

impl Network {
    /// Creates the cable, or returns the reason why namespaces cannot be created.
    pub(crate) fn new(path: Path) -> Result<Self, String> {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("minos-{}-{number}", std::process::id());
        let ends = if path.middle_mtu.is_some() { 4 } else { 2 };
        let names = ["server", "client", "left", "right"].map(|end| format!("{prefix}-{end}"));
        let network = Self { names: names.into_iter().take(ends).collect() };
        for name in &network.names {
            run("ip", &["netns", "add", name])?;
        }
        network.lay(path);
        Ok(network)
    }

    /// `program` within the namespace of `end`.
    pub(crate) fn command(&self, end: End, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(end), program]).stdin(Stdio::null());
        command
    }

    /// Packets dropped on purpose so far, at both ends.
    pub(crate) fn lost(&self) -> u64 {
        [End::Server, End::Client].map(|end| self.lost_at(end)).iter().sum()
    }

    fn lay(&self, path: Path) {
        match path.middle_mtu {
            None => {
                let client = (End::Client, ["10.77.0.2", "fd77::2"]);
                self.join((End::Server, SERVER), client, CABLE, path.mtu, path.queues)
            }
            Some(middle_mtu) => self.lay_routers(path.mtu, middle_mtu),
        }
        for end in [End::Server, End::Client] {
            if !path.has_offload {
                // The kernel splits a train before it passes it to such a device.
                self.inside(end, "ip", &["link", "set", CABLE, "gso_max_segs", "1"]);
            }
            if path.is_joined {
                self.inside(end, "ethtool", &["-K", CABLE, "gro", "on"]);
            }
            if let Some(megabits) = path.megabits_max {
                let rate = format!("{megabits}mbit");
                let limit = ["tbf", "rate", &rate, "burst", "128k", "limit", "128k"];
                self.inside(end, "tc", &[&["qdisc", "add", "dev", CABLE, "root"][..], &limit].concat());
            }
            self.lose(end, path.lost_permille);
            self.inside(end, "ip", &["link", "set", "lo", "up"]);
        }
    }

    /// Three cables in a row, with a router at each end of the middle one.
    fn lay_routers(&self, mtu: usize, middle_mtu: usize) {
        let (left, right) = (["10.77.0.254", "fd77::fe"], ["10.77.2.254", "fd77:2::fe"]);
        let (left_middle, right_middle) = (["10.77.1.1", "fd77:1::1"], ["10.77.1.2", "fd77:1::2"]);
        self.join((End::Server, SERVER), (End::Left, left), CABLE, mtu, 1);
        self.join((End::Left, left_middle), (End::Right, right_middle), MIDDLE, middle_mtu, 1);
        self.join((End::Client, ["10.77.2.2", "fd77:2::2"]), (End::Right, right), CABLE, mtu, 1);
        let routes =
            [(End::Server, left), (End::Client, right), (End::Left, right_middle), (End::Right, left_middle)];
        for (end, [ipv4, ipv6]) in routes {
            self.inside(end, "ip", &["route", "add", "default", "via", ipv4]);
            self.inside(end, "ip", &["-6", "route", "add", "default", "via", ipv6]);
        }
        for router in [End::Left, End::Right] {
            let forward =
                "echo 1 > /proc/sys/net/ipv4/ip_forward && echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
            self.inside(router, "sh", &["-c", forward]);
        }
    }

    /// Creates a cable between two namespaces, named `device` in both.
    fn join(&self, from: (End, [&str; 2]), to: (End, [&str; 2]), device: &str, mtu: usize, queues: usize) {
        let (mtu_text, queues) = (mtu.to_string(), queues.to_string());
        let queues = ["numrxqueues", &queues, "numtxqueues", &queues];
        let near = ["link", "add", device, "mtu", &mtu_text];
        let far = ["peer", "name", device, "netns", self.name(to.0), "mtu", &mtu_text];
        self.inside(from.0, "ip", &[&near[..], &queues, &["type", "veth"], &far, &queues].concat());
        for (end, [ipv4, ipv6]) in [from, to] {
            self.inside(end, "ip", &["address", "add", &format!("{ipv4}/24"), "dev", device]);
            if mtu >= IPV6_MTU_MIN {
                self.inside(end, "ip", &["address", "add", &format!("{ipv6}/64"), "dev", device, "nodad"]);
            }
            self.inside(end, "ip", &["link", "set", device, "up"]);
        }
    }

    /// Drops `permille` of the packets that arrive at `end`, at random, and counts them.
    fn lose(&self, end: End, permille: u32) {
        if permille == 0 {
            return;
        }
        let chance = match permille {
            ..1000 => format!("numgen random mod 1000 < {permille}"),
            _ => String::new(),
        };
        let rules = format!(
            "add table inet loss; \
             add chain inet loss arriving {{ type filter hook prerouting priority 0; }}; \
             add rule inet loss arriving meta l4proto udp {chance} counter drop"
        );
        self.inside(end, "nft", &[&rules]);
    }

    fn lost_at(&self, end: End) -> u64 {
        let rules = self.inside(end, "nft", &["list", "ruleset"]);
        let count = rules.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no counter in {rules}"))
    }

    /// Runs a program that must succeed, and returns its output.
    pub(crate) fn inside(&self, end: End, program: &str, arguments: &[&str]) -> String {
        let whole = [&["netns", "exec", self.name(end), program], arguments].concat();
        run("ip", &whole).unwrap_or_else(|error| panic!("{error}"))
    }

    fn name(&self, end: End) -> &str {
        &self.names[end as usize]
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // A namespace that was not created cannot be removed; the cable vanishes with its ends.
            run("ip", &["netns", "delete", name]).ok();
        }
    }
}

/// True if `program` is installed.
pub(crate) fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The output of a program, or the reason of its failure.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(said(&output)),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {}: {}{}", arguments.join(" "), said(&output), error.trim()))
        }
        Err(error) => Err(format!("cannot run {program}: {error}")),
    }
}
