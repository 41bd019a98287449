//! Two machines whose network is cut and healed: two network namespaces, which need root.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::machines::SECRET;

const TIMEOUT: Duration = Duration::from_millis(500);
const KEYS: usize = 12;

/// Two namespaces with a cable between them, and a node in each.
struct Machines {
    nodes: Vec<Child>,
    folder: TempDir,
}

fn name(machine: usize) -> String {
    format!("minos-{}-{machine}", std::process::id())
}

fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
    output.is_ok_and(|status| status.success())
}

impl Machines {
    /// `None` where namespaces are not permitted.
    fn start() -> Option<Self> {
        let [one, other] = [0, 1].map(name);
        let mut machines = Self { nodes: Vec::new(), folder: tempfile::tempdir().unwrap() };
        let cable = format!("-n {one} link add cable type veth peer name cable netns {other}");
        if !ip(&format!("netns add {one}")) || !ip(&format!("netns add {other}")) || !ip(&cable) {
            return None;
        }
        let secret = machines.folder.path().join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        for machine in 0..2 {
            assert!(ip(&format!("-n {} addr add 10.99.0.{}/24 dev cable", name(machine), machine + 1)));
            assert!(ip(&format!("-n {} link set cable up", name(machine))));
        }
        for machine in 0..2 {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &name(machine), env!("CARGO_BIN_EXE_minos"), "serve"]);
            command.arg("--memcached").arg(machines.path(machine));
            command.args(["--rack", "r", "--peers", "10.99.0.1:7000,10.99.0.2:7000", "--hash-seed", "7"]);
            command.args(["--node", &machine.to_string(), "--memory", "32m", "--workers", "1"]);
            command.args(["--rack-timeout", "500ms", "--pin", "off", "--rack-secret"]).arg(&secret);
            machines.nodes.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        }
        Some(machines)
    }

    fn path(&self, machine: usize) -> PathBuf {
        self.folder.path().join(format!("clients-{machine}"))
    }

    fn client(&self, machine: usize) -> Client {
        Client::connect(&self.path(machine))
    }

    fn cut(&self, is_cut: bool) {
        assert!(ip(&format!("-n {} link set cable {}", name(0), if is_cut { "down" } else { "up" })));
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
        (0..2).for_each(|machine| {
            ip(&format!("netns del {}", name(machine)));
        });
    }
}

/// A client, and what each key may hold.
struct Client {
    stream: BufReader<UnixStream>,
    may_hold: BTreeMap<usize, Vec<String>>,
}

impl Client {
    fn connect(path: &Path) -> Self {
        let deadline = Instant::now() + Duration::from_secs(20);
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream: BufReader::new(stream), may_hold: BTreeMap::new() }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.stream.get_mut().write_all(command.as_bytes()).unwrap();
        self.line()
    }

    /// Sets a key and reads it; true if the node that owns it has answered.
    fn round(&mut self, key: usize, value: &str) -> bool {
        let began = Instant::now();
        let said = self.ask(&format!("set k{key} 0 0 {}\r\n{value}\r\n", value.len()));
        let is_stored = said == "STORED";
        let may_hold = self.may_hold.entry(key).or_default();
        if is_stored {
            *may_hold = vec![value.to_owned()];
        } else if said.ends_with("the command may be done") {
            may_hold.push(value.to_owned());
        } else {
            assert_eq!(said, "SERVER_ERROR node 1 of the rack cannot be reached");
        }
        let is_read = self.read(key);
        // Each of two commands waits at most for the time-out, on a machine that may be busy.
        assert!(began.elapsed() < 4 * TIMEOUT, "{:?}", began.elapsed());
        is_stored && is_read
    }

    /// Reads a key, which must hold what it may; false if nobody can tell.
    fn read(&mut self, key: usize) -> bool {
        let mut said = self.ask(&format!("get k{key}\r\n"));
        if said.starts_with("SERVER_ERROR node 1 of the rack") {
            return false;
        }
        assert!(said.starts_with(&format!("VALUE k{key} ")), "{said}");
        said = self.line();
        assert_eq!(self.line(), "END");
        let may_hold = &self.may_hold[&key];
        assert!(may_hold.contains(&said), "k{key} holds {said}, not one of {may_hold:?}");
        true
    }
}

#[test]
fn a_cut_network_fails_commands_and_heals() {
    let Some(machines) = Machines::start() else {
        eprintln!("SKIPPED: network namespaces are not permitted here, so no network was cut");
        return;
    };
    let mut client = machines.client(0);
    machines.client(1);
    let mut number = 0;
    let mut rounds = |client: &mut Client, count: usize| {
        let mut served = 0;
        for _ in 0..count {
            number += 1;
            served += usize::from(client.round(number % KEYS, &format!("v{number}")));
        }
        served
    };
    assert_eq!(rounds(&mut client, 500), 500);
    // Shorter than the time-out, longer, and so long that the kernel gives the links up.
    for cut in [300, 1500, 8000].map(Duration::from_millis) {
        machines.cut(true);
        let (mut tried, mut served) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(cut);
                machines.cut(false);
            });
            let began = Instant::now();
            while began.elapsed() < cut {
                tried += 1;
                served += rounds(&mut client, 1);
            }
        });
        // The cut is one, and the node's own keys go on.
        assert!(served < tried || cut < TIMEOUT, "{served} of {tried}");
        assert!(0 < served || tried < KEYS, "{served} of {tried}");
        let healed = Instant::now();
        // What was late may be done now.
        while !(0..KEYS).all(|key| client.read(key)) {
            assert!(healed.elapsed() < Duration::from_secs(15), "not healed");
        }
        eprintln!("healed after a cut of {cut:?} in {:?}", healed.elapsed());
        for round in 0..500 {
            let began = Instant::now();
            // On a machine that is busy a node may be late, but not for long.
            while rounds(&mut client, 1) == 0 {
                eprintln!("round {round} after the cut failed within {:?}", began.elapsed());
                assert!(began.elapsed() < Duration::from_secs(15), "not healed for good");
            }
        }
    }
    let mut other = machines.client(1);
    other.may_hold = client.may_hold;
    assert!((0..KEYS).all(|key| other.read(key)));
}
