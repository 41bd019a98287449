//! Two machines whose network is cut and healed: two network namespaces, which need root.

use minos_testkit::Over;
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    counts::{self, Counters},
    machines::SECRET,
    up::{PATIENCE, is_copied},
};

const COORDINATOR: &str = "10.99.0.1:6999";
const TIMEOUT: Duration = Duration::from_millis(500);
/// What two commands may take at most, on a busy machine.
const ROUND_MAX: Duration = Duration::from_secs(20);
const KEYS: usize = 12;

/// Two namespaces with a cable between them, and a node in each; perhaps a coordinator in the first.
struct Machines {
    /// Of all such pairs of this process.
    number: usize,
    processes: Vec<Child>,
    folder: TempDir,
}

fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
    output.is_ok_and(|status| status.success())
}

impl Machines {
    /// Nodes without a coordinator; `None` where namespaces are not permitted.
    fn start() -> Option<Self> {
        let mut machines = Self::wired()?;
        machines.serve("--peers 10.99.0.1:7000,10.99.0.2:7000");
        Some(machines)
    }

    /// The same with a coordinator at the first machine, each node in a unit of its own, and these options of both.
    fn coordinated(coordinate: &str, serve: &str) -> Option<Self> {
        const PEERS: &str = "--peers 0@10.99.0.1:7000,1@10.99.0.2:7000";
        let mut machines = Self::wired()?;
        let keep = machines.folder.path().join("directory");
        let coordinate =
            format!("rack coordinate --listen {COORDINATOR} --directory {} {coordinate}", keep.display());
        machines.spawn(0, &format!("{coordinate} {PEERS}"));
        machines.serve(&format!("--coordinator {COORDINATOR} {PEERS} {serve}"));
        Some(machines)
    }

    fn wired() -> Option<Self> {
        static PAIRS: AtomicUsize = AtomicUsize::new(0);
        let number = PAIRS.fetch_add(1, Relaxed);
        let machines = Self { number, processes: Vec::new(), folder: tempfile::tempdir().unwrap() };
        let [one, other] = [0, 1].map(|machine| machines.name(machine));
        let cable = format!("-n {one} link add cable type veth peer name cable netns {other}");
        if !ip(&format!("netns add {one}")) || !ip(&format!("netns add {other}")) || !ip(&cable) {
            return None;
        }
        std::fs::write(machines.secret(), SECRET).unwrap();
        for machine in 0..2 {
            let name = machines.name(machine);
            assert!(ip(&format!("-n {name} addr add 10.99.0.{}/24 dev cable", machine + 1)));
            assert!(ip(&format!("-n {name} link set cable up")) && ip(&format!("-n {name} link set lo up")));
        }
        Some(machines)
    }

    /// Starts a node on each machine.
    fn serve(&mut self, options: &str) {
        for machine in 0..2 {
            let [clients, redis] = [self.path(machine), self.redis(machine)];
            self.spawn(
                machine,
                &format!(
                    "serve --node {machine} --memcached {} --hash-seed 7 --memory 32m --workers 1 --rack-timeout 500ms --pin off \
                     --resp {} {options}",
                    clients.display(),
                    redis.display()
                ),
            );
        }
    }

    fn spawn(&mut self, machine: usize, line: &str) {
        let process = self.command(machine, line).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.processes.push(process.unwrap());
    }

    /// A command line of the program on a machine, as part of the rack.
    fn command(&self, machine: usize, line: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(machine), env!("CARGO_BIN_EXE_minos")]);
        command.args(line.split_ascii_whitespace()).args(["--rack", "r", "--rack-secret"]).arg(self.secret());
        command
    }

    /// What the coordinator answers to an operator.
    fn operate(&self, line: &str) -> String {
        let line = format!("rack {line} --coordinator {COORDINATOR}");
        let output = self.command(0, &line).output().unwrap();
        // What was asked for stands at the end.
        String::from_utf8([output.stderr, output.stdout].concat()).unwrap()
    }

    fn name(&self, machine: usize) -> String {
        format!("minos-{}-{}-{machine}", std::process::id(), self.number)
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    fn path(&self, machine: usize) -> PathBuf {
        self.folder.path().join(format!("clients-{machine}"))
    }

    /// Where clients of Redis' protocol connect.
    fn redis(&self, machine: usize) -> PathBuf {
        self.folder.path().join(format!("redis-{machine}"))
    }

    fn client(&self, machine: usize) -> Client {
        Client::connect(&self.path(machine))
    }

    /// Pulls the cable out of a machine, or plugs it in again. The machine loses its address meanwhile.
    fn cut(&self, machine: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        assert!(ip(&format!("-n {} link set cable {state}", self.name(machine))));
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        (0..2).for_each(|machine| {
            ip(&format!("netns del {}", self.name(machine)));
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
        stream.set_read_timeout(Some(ROUND_MAX)).unwrap();
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
        // Each of two commands waits for the time-out, and nothing for ever.
        assert!(began.elapsed() < ROUND_MAX, "{:?}", began.elapsed());
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

fn skip() {
    minos_testkit::skip("network namespaces are not permitted here, so no network was cut");
}

/// Many rounds, each of which is served in the end.
fn serve_rounds(client: &mut Client, when: &str, is_served: &mut impl FnMut(&mut Client) -> bool) {
    for round in 0..500 {
        let began = Instant::now();
        // On a machine that is busy a node may be late, but not for long.
        while !is_served(client) {
            eprintln!("round {round} {when} failed within {:?}", began.elapsed());
            assert!(began.elapsed() < Duration::from_secs(15), "not served for good {when}");
        }
    }
}

#[test]
fn a_cut_network_fails_commands_and_heals() {
    let Some(machines) = Machines::start() else { return skip() };
    let mut client = machines.client(0);
    machines.client(1);
    let mut number = 0;
    let mut is_served = |client: &mut Client| {
        number += 1;
        client.round(number % KEYS, &format!("v{number}"))
    };
    serve_rounds(&mut client, "before a cut", &mut is_served);
    // Shorter than the time-out, longer, and so long that the kernel gives the links up.
    for cut in [300, 1500, 8000].map(Duration::from_millis) {
        machines.cut(0, true);
        let (mut tried, mut served) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(cut);
                machines.cut(0, false);
            });
            let began = Instant::now();
            while began.elapsed() < cut {
                tried += 1;
                served += usize::from(is_served(&mut client));
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
        serve_rounds(&mut client, "after the cut", &mut is_served);
    }
    let mut other = machines.client(1);
    other.may_hold = client.may_hold;
    assert!((0..KEYS).all(|key| other.read(key)));
}

/// What a client that tracks is told next: a key, or `_`, which stands for all.
fn told(tracker: &mut Client) -> String {
    while tracker.line() != "invalidate" {}
    let keys = tracker.line();
    if keys == "_" {
        return keys;
    }
    // Its length comes before it.
    tracker.line();
    tracker.line()
}

/// Asks for a key, and waits for its value; false if there is none.
fn cache(tracker: &mut Client, key: usize) -> bool {
    tracker.stream.get_mut().write_all(format!("GET k{key}\r\n").as_bytes()).unwrap();
    loop {
        match tracker.line().as_str() {
            // Of all keys; a notice of one has no line of these.
            "invalidate" => drop(tracker.line()),
            "1" | "2" => return true,
            line if line.starts_with(['-', '_']) => return false,
            _ => {}
        }
    }
}

#[test]
fn what_may_have_changed_behind_a_cut_is_told() {
    let Some(machines) = Machines::start() else { return skip() };
    let mut writer = machines.client(1);
    let mut tracker = Client::connect(&machines.redis(0));
    tracker.ask("HELLO 3\r\nCLIENT TRACKING ON\r\n");
    let set = |writer: &mut Client, key: usize, value| {
        writer.ask(&format!("set k{key} 0 0 1\r\n{value}\r\n")) == "STORED"
    };
    // Until a change is told by its key: before, all keys are told once the other node is heard.
    let hears = |tracker: &mut Client, writer: &mut Client, key: usize| {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "k{key} is not told");
            if cache(tracker, key) && set(writer, key, 2) && told(tracker) == format!("k{key}") {
                return;
            }
        }
    };
    (0..KEYS).for_each(|key| wait_until(|| set(&mut writer, key, 1), || format!("k{key} is not stored")));
    for round in 0..2 {
        (0..KEYS).for_each(|key| hears(&mut tracker, &mut writer, key));
        assert!((0..KEYS).all(|key| cache(&mut tracker, key)));
        machines.cut(round, true);
        assert_eq!(told(&mut tracker), "_", "at first");
        assert_eq!(told(&mut tracker), "_", "and as long as it is cut");
        let changed = (0..KEYS).filter(|&key| set(&mut writer, key, 1)).count();
        assert!((1..KEYS).contains(&changed), "the control: {changed} keys were changed behind the cut");
        assert_eq!(told(&mut tracker), "_");
        machines.cut(round, false);
    }
    (0..KEYS).for_each(|key| hears(&mut tracker, &mut writer, key));
}

/// What becomes of the micro-shards of a node that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They wait for it.
    Wait,
    /// Others begin them without items.
    Begin,
    /// Others go on with their copies.
    GoOn,
}

/// A client of a machine that expects anything to fail.
struct Caller {
    path: PathBuf,
    stream: Option<BufReader<UnixStream>>,
}

impl Caller {
    fn of(machines: &Machines, machine: usize) -> Self {
        Self { path: machines.path(machine), stream: None }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn say(&mut self, command: &str) -> io::Result<String> {
        if self.stream.is_none() {
            let stream = UnixStream::connect(&self.path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            self.stream = Some(BufReader::new(stream));
        }
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.get_mut().write_all(command.as_bytes())?;
        self.line()
    }

    /// The first line of the answer; none if the connection ends.
    fn ask(&mut self, command: &str) -> Option<String> {
        self.say(command).inspect_err(|_| self.stream = None).ok()
    }

    /// Creates a counter; the reply says so, or that it is there.
    fn create(&mut self, key: usize, count: u64) -> Option<String> {
        self.ask(&format!("add {} 0 0 {}\r\n{count}\r\n", counts::name(key), count.to_string().len()))
    }

    /// Increments a counter, which may have been lost with its node.
    fn increment(&mut self, key: usize, begun: u64, fate: Fate) -> Option<u64> {
        let said = self.ask(&format!("incr {} 1\r\n", counts::name(key)))?;
        if said == "NOT_FOUND" {
            assert_eq!(fate, Fate::Begin, "{} is lost", counts::name(key));
            return (self.create(key, begun)? == "STORED").then_some(begun);
        }
        said.parse().ok()
    }

    /// The value of a counter, if it is told. One that is not there may have been lost.
    fn find(&mut self, key: usize, fate: Fate) -> Option<Option<Vec<u8>>> {
        let said = self.ask(&format!("get {}\r\n", counts::name(key)))?;
        if said == "END" {
            return (fate != Fate::Begin).then_some(None);
        }
        let lines = said.starts_with("VALUE ").then(|| [self.line(), self.line()])?;
        let [Ok(value), Ok(_)] = lines else {
            self.stream = None;
            return None;
        };
        Some(Some(value.into_bytes()))
    }
}

/// Waits until something is so.
fn wait_until(mut is_so: impl FnMut() -> bool, what: impl Fn() -> String) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{}", what());
        thread::sleep(Duration::from_millis(20));
    }
}

/// A node that hears neither the coordinator nor others stops answering when its lease is over. It joins again later.
#[test]
fn a_node_that_is_cut_off_answers_nothing_old_and_joins_again() {
    for (fate, coordinate, serve) in [
        (Fate::Wait, "--lost wait", ""),
        (Fate::Begin, "--lost drop", ""),
        (Fate::GoOn, "--copies 2", "--acknowledge copies"),
    ] {
        let Some(machines) = Machines::coordinated(coordinate, serve) else { return skip() };
        cut_off(&machines, fate);
    }
}

fn cut_off(machines: &Machines, fate: Fate) {
    let state = || format!("{fate:?}: {}", machines.operate("state"));
    let mut inside = Caller::of(machines, 0);
    let mut is_there = |key| inside.create(key, 0).is_some_and(|said| said.ends_with("STORED"));
    wait_until(|| (0..counts::KEYS).all(&mut is_there), state);
    let mut theirs = Vec::new();
    let is_theirs =
        |key: &usize| machines.operate(&format!("where {}", counts::name(*key))).ends_with("node 1\n");
    let has_some = || {
        // A node that was late may have lost what is its own.
        machines.operate("balance");
        theirs = (0..counts::KEYS).filter(is_theirs).collect();
        !theirs.is_empty() && (fate != Fate::GoOn || is_copied(&state()))
    };
    wait_until(has_some, state);
    assert!(theirs.len() < counts::KEYS, "{theirs:?}");
    let (counters, is_over) = (&Counters::default(), &AtomicBool::new(false));
    thread::scope(|scope| {
        let over = Over(is_over);
        let turns = move || (0..counts::KEYS).cycle().take_while(move |_| !is_over.load(Relaxed));
        scope.spawn(move || {
            for key in turns() {
                counters.count(key, |begun| inside.increment(key, begun, fate));
            }
        });
        let mut reader = Caller::of(machines, 1);
        scope.spawn(move || {
            for key in turns() {
                counters.read(key, || reader.find(key, fate));
            }
        });
        cut_and_heal(machines, fate, counters, &theirs);
        drop(over);
    });
    eprintln!("{fate:?}: {} reads, {:?} counts", counters.check(Duration::ZERO), counters.acknowledged());
}

/// Cuts the second node off until its lease is over and the others go on, if they do, and lets it join again.
fn cut_and_heal(machines: &Machines, fate: Fate, counters: &Counters, theirs: &[usize]) {
    let state = || format!("{fate:?}: {}", machines.operate("state"));
    let all: Vec<usize> = (0..counts::KEYS).collect();
    // The first count after this may have begun before it.
    let wait_for = |keys: &[usize]| {
        let before = counters.acknowledged();
        wait_until(|| keys.iter().all(|&key| counters.acknowledged()[key] > before[key] + 1), state);
    };
    wait_for(&all);
    machines.cut(1, true);
    wait_until(|| state().contains("node 1 unit 1 member silent"), state);
    let before = counters.acknowledged();
    if fate == Fate::Wait {
        wait_for(&all.iter().copied().filter(|key| !theirs.contains(key)).collect::<Vec<_>>());
    } else {
        wait_for(&all);
    }
    let mut outside = Caller::of(machines, 1);
    let answered = all.iter().find(|&&key| counters.read(key, || outside.find(key, fate)));
    assert_eq!(answered, None, "{fate:?}: a node without a lease answers");
    let is_the_same = |key: &usize| counters.acknowledged()[*key] == before[*key];
    assert!(fate != Fate::Wait || theirs.iter().all(is_the_same), "{fate:?}: somebody counts");
    machines.cut(1, false);
    wait_until(|| all.iter().all(|&key| counters.read(key, || outside.find(key, fate))), state);
    wait_for(&all);
    wait_until(|| state().contains("node 1 unit 1 member alive"), state);
}
