//! Server and client with a virtual cable between them, in separate network namespaces: other packet sizes
//! than on loopback, packet loss, devices without segmentation offload.
//!
//! These tests need permission to create namespaces: `cargo xtask namespaces` runs them. Without it they
//! print a message and end.

#[path = "../common/mod.rs"]
mod common;
mod network;
mod work;
mod xdp;

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use minos_testkit::skip;
use network::{End, IPV6_MTU_MIN, Network, Path, SERVER, has};
use tempfile::TempDir;

const NATIVE_PORT: u16 = 11311;
const SERVED_TCP: u16 = 11211;
const READY_WITHIN: Duration = Duration::from_secs(30);
/// The test that runs as the client, and the variables that tell it its server.
const CLIENT_TEST: &str = "client_inside";
const CLIENT_SERVER: &str = "MINOS_NAMESPACE_SERVER";
const CLIENT_DATAGRAM: &str = "MINOS_NAMESPACE_DATAGRAM";
const CLIENT_SECONDS: &str = "MINOS_NAMESPACE_SECONDS";
/// Time-out of a client that must succeed: packets may be lost, and the machine may be busy.
const SECONDS: u64 = 20;

/// A server inside its namespace; killed when dropped.
struct Served {
    child: Child,
    log: PathBuf,
    _folder: TempDir,
}

impl Served {
    fn start(network: &Network, host: &str, datagram_bytes: usize) -> Self {
        let tcp = format!("--memcached=127.0.0.1:{SERVED_TCP}");
        Self::start_with(network, host, datagram_bytes, &[], &[&tcp])
    }

    /// Starts it through `launcher`, with `more` options.
    fn start_with(
        network: &Network,
        host: &str,
        datagram_bytes: usize,
        launcher: &[&str],
        more: &[&str],
    ) -> Self {
        let folder = TempDir::with_prefix("minos-namespaces-").unwrap();
        let log = folder.path().join("log");
        let file = File::create(&log).unwrap();
        let program = common::program();
        let program = program.to_string_lossy();
        let words = [launcher, &[&*program]].concat();
        let mut command = network.command(End::Server, words[0]);
        command.args(&words[1..]);
        command.args(["serve", "--memory=256m", "--workers=2", "--pin=off"]);
        command
            .args(more)
            .arg("--allow-public")
            .arg(format!("--native={}", at(host)))
            .arg(format!("--native-datagram={datagram_bytes}"));
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let mut served = Self { child: command.spawn().unwrap(), log, _folder: folder };
        let end = Instant::now() + READY_WITHIN;
        while !served.log().contains("listening on native") {
            let is_late = Instant::now() > end || served.child.try_wait().unwrap().is_some();
            assert!(!is_late, "the server is not there; it said:\n{}", served.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("--- the server said:\n{}", self.log());
        }
    }
}

fn at(host: &str) -> String {
    if host.contains(':') { format!("[{host}]:{NATIVE_PORT}") } else { format!("{host}:{NATIVE_PORT}") }
}

/// A network; if it is not permitted, prints the reason and returns `None`.
fn network(path: Path) -> Option<Network> {
    let missing = ["ip", "tc", "nft", "ethtool"].into_iter().find(|program| !has(program));
    let network = match missing {
        Some(program) => Err(format!("no {program} here; `cargo xtask setup` installs what the tests need")),
        None => Network::new(path),
    };
    network.map_err(|reason| skip(format!("no network namespaces here: {reason}"))).ok()
}

/// Runs the client's work against a server behind `path`, over each address family that its MTU allows;
/// returns the number of packets dropped on purpose.
fn works(path: Path, datagram_bytes: usize) -> Option<u64> {
    let network = network(path)?;
    let families = if path.mtu >= IPV6_MTU_MIN { 2 } else { 1 };
    for host in &SERVER[..families] {
        let _served = Served::start(&network, host, datagram_bytes);
        let said =
            client(&network, host, datagram_bytes, SECONDS).unwrap_or_else(|said| panic!("{path:?}: {said}"));
        assert!(said.contains(work::DONE), "the client did not work: {said}");
        println!(
            "{path:?} to {host}: {}",
            said.lines().find(|line| line.starts_with("Counters")).unwrap_or("")
        );
    }
    Some(if path.lost_permille > 0 { network.lost() } else { 0 })
}

/// Runs this test program again, in the other namespace, as the client.
fn client(network: &Network, host: &str, datagram_bytes: usize, seconds: u64) -> Result<String, String> {
    client_at(End::Client, network, host, datagram_bytes, seconds)
}

/// The same in any namespace.
fn client_at(
    end: End,
    network: &Network,
    host: &str,
    datagram_bytes: usize,
    seconds: u64,
) -> Result<String, String> {
    let program = std::env::current_exe().unwrap();
    let mut command = network.command(end, &program.to_string_lossy());
    command.args([CLIENT_TEST, "--exact", "--ignored", "--nocapture"]);
    command.env(CLIENT_SERVER, at(host)).env(CLIENT_DATAGRAM, datagram_bytes.to_string());
    command.env(CLIENT_SECONDS, seconds.to_string());
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    if output.status.success() { Ok(said) } else { Err(said) }
}

#[test]
#[ignore = "the client's part of the others; does nothing by itself"]
fn client_inside() {
    let Ok(server) = std::env::var(CLIENT_SERVER) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let timeout = Duration::from_secs(number(CLIENT_SECONDS));
    work::all(&server, number(CLIENT_DATAGRAM) as usize, timeout);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn an_ethernet_cable() {
    works(Path::PLAIN, 1448);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn packets_of_576_bytes() {
    works(Path { mtu: 576, ..Path::PLAIN }, 1448);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn packets_of_9000_bytes() {
    works(Path { mtu: 9000, ..Path::PLAIN }, 8952);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn devices_that_take_no_trains() {
    works(Path { has_offload: false, ..Path::PLAIN }, 1448);
}

/// Trains are split by the sending device, and other datagrams are joined by the receiving one.
#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn devices_that_join_datagrams() {
    works(Path { has_offload: false, is_joined: true, ..Path::PLAIN }, 1448);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn a_cable_narrower_than_what_is_sent() {
    works(Path { megabits_max: Some(100), ..Path::PLAIN }, 1448);
}

/// Neither end knows the largest packet; routers that drop longer ones report it.
#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn a_narrow_place_between_routers() {
    works(Path { middle_mtu: Some(IPV6_MTU_MIN), ..Path::PLAIN }, 1448);
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn lost_trains() {
    let lost = works(Path { lost_permille: 30, ..Path::PLAIN }, 1448);
    assert!(lost.is_none_or(|lost| lost > 0), "nothing was lost, so that nothing was shown");
}

#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn lost_packets() {
    for mtu in [1500, 576] {
        let path = Path { mtu, lost_permille: 30, has_offload: false, ..Path::PLAIN };
        let lost = works(path, 1448);
        assert!(lost.is_none_or(|lost| lost > 10), "{lost:?} were lost");
    }
}

/// The control: if every packet is lost, the same client must fail.
#[test]
#[ignore = "needs network namespaces: cargo xtask namespaces"]
fn control_a_cable_that_loses_everything() {
    let Some(network) = network(Path { lost_permille: 1000, ..Path::PLAIN }) else { return };
    let _served = Served::start(&network, SERVER[0], 1448);
    let said = client(&network, SERVER[0], 1448, 2).expect_err("the client works without a cable");
    assert!(said.contains("no answer in time"), "{said}");
}
