//! The native client and its commands, against the server that was just built.

mod common;

use std::{
    fs,
    io::Write,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use minos_client::{
    Compared, Config, Error, OnceFor, Outcome, QueueBy, Request, StoreOptions, Verb, blocking::Client,
};
use tempfile::TempDir;

/// Longest time until a server listens: long, because the machine may be busy.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A server with a native address; killed when dropped. It is not started like other servers under test,
/// because those accept connections.
struct Native {
    child: Child,
    folder: TempDir,
    address: String,
}

impl Native {
    fn start(options: &[&str]) -> Self {
        let folder = TempDir::with_prefix("minos-test-").unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(common::program());
        command.args(["serve", "--native=127.0.0.1:0", "--memory=256m", "--pin=off", "--poll=sleep"]);
        if !options.iter().any(|option| option.starts_with("--workers")) {
            command.arg("--workers=2");
        }
        command.arg("--memcached=127.0.0.1:0");
        command.args(options).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let mut native = Self { child, folder, address: String::new() };
        native.address = native.wait_for_address();
        native
    }

    /// The address that the server prints once it listens there.
    fn wait_for_address(&mut self) -> String {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
            let mut found = log.lines().filter_map(|line| line.strip_prefix("listening on native "));
            if let Some(address) = found.next() {
                return address.to_owned();
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server has ended:\n{log}");
            assert!(Instant::now() < deadline, "the server names no native address:\n{log}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn client(&self) -> Client {
        self.client_with(Config::new())
    }

    /// A client with a long time-out, because many tests share the machine.
    fn client_with(&self, config: Config) -> Client {
        Client::connect(&self.address, config.timeout(Duration::from_secs(20))).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        command(&self.address, arguments).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // Both calls fail only for a process that has exited.
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("--- the server at {} said:\n{log}", self.address);
        }
    }
}

fn command(address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(common::program());
    command.args(arguments).args(["--timeout", "20s"]).env("MINOS_SERVER", address);
    command
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 + index / 253) as u8).collect()
}

#[test]
fn every_operation_does_what_it_says() {
    for engine in common::ENGINES {
        let native = Native::start(engine);
        // Executed twice because its answer was late, a store would have another CAS unique than it said.
        let mut client = native.client_with(Config::new().once_for(OnceFor::AllWrites));
        assert_eq!(client.get("a"), Ok(None));
        let cas = client.put_with("a", "one", StoreOptions::new().flags(9)).unwrap();
        let value = client.get("a").unwrap().unwrap();
        assert_eq!((&value.bytes[..], value.flags, value.cas), (&b"one"[..], 9, cas));
        assert_eq!(client.add("a", "x", StoreOptions::new()), Ok(None));
        assert!(client.add("b", "x", StoreOptions::new()).unwrap().is_some());
        assert!(client.replace("b", "y", StoreOptions::new()).unwrap().is_some());
        assert_eq!(client.replace("c", "y", StoreOptions::new()), Ok(None));
        assert!(client.append("a", "!").unwrap().is_some());
        assert!(client.prepend("a", "number ").unwrap().is_some());
        assert_eq!(client.append("c", "!"), Ok(None));
        assert_eq!(client.get("a").unwrap().unwrap().bytes, b"number one!");
        let changed = client.compare_and_swap("a", "two", cas, StoreOptions::new());
        assert_eq!(changed, Ok(Compared::Changed));
        let cas = client.get("a").unwrap().unwrap().cas;
        let stored = client.compare_and_swap("a", "two", cas, StoreOptions::new());
        assert!(matches!(stored, Ok(Compared::Stored { .. })));
        assert_eq!(client.compare_and_swap("c", "x", 1, StoreOptions::new()), Ok(Compared::Missing));
        assert_eq!(client.touch("a", Some(Duration::from_secs(100))), Ok(true));
        assert_eq!(client.touch("c", None), Ok(false));
        assert_eq!(client.get_and_touch("a", None).unwrap().unwrap().bytes, b"two");
        assert_eq!(client.get_and_touch("c", None), Ok(None));
        assert_eq!(client.delete("a"), Ok(true));
        assert_eq!(client.delete("a"), Ok(false));
        assert_eq!(client.touch("b", Some(Duration::ZERO)), Ok(true));
        assert_eq!(client.get("b"), Ok(None), "it expired at once");
    }
}

#[test]
fn numbers_are_counted() {
    let native = Native::start(&[]);
    let mut client = native.client();
    assert_eq!(client.incr("n", 1), Ok(None));
    assert_eq!(client.incr_or_create("n", 5, 40, StoreOptions::new()), Ok(40));
    assert_eq!(client.incr_or_create("n", 5, 40, StoreOptions::new()), Ok(45));
    assert_eq!(client.decr("n", 3), Ok(Some(42)));
    assert_eq!(client.decr("n", 100), Ok(Some(0)));
    assert_eq!(client.decr_or_create("m", 1, 7, StoreOptions::new()), Ok(7));
    client.put("text", "abc").unwrap();
    assert_eq!(client.incr("text", 1), Err(Error::NotANumber));
}

#[test]
fn vectors_mix_hits_and_misses() {
    let native = Native::start(common::OWNED[0]);
    let mut client = native.client();
    let items = (0..5000).map(|index| (format!("key{index}"), vec![b'v'; index % 300]));
    let stored = client.put_many(items, StoreOptions::new());
    assert_eq!(stored.len(), 5000);
    assert!(stored.iter().all(Result::is_ok), "{:?}", stored.iter().find(|result| result.is_err()));
    let found = client.get_many((0..6000).map(|index| format!("key{index}")));
    for (result, index) in found.into_iter().zip(0..) {
        let bytes = result.unwrap().map(|value| value.bytes.len());
        assert_eq!(bytes, (index < 5000).then_some(index % 300), "key{index}");
    }
    let deleted = client.delete_many(["key1", "nothing"]);
    assert_eq!(deleted, [Ok(true), Ok(false)]);
    // What a busy server answers late is sent again.
    let counters = client.counters();
    assert!(counters.datagrams_sent < 1500 + counters.lost, "{counters:?}");
}

#[test]
fn values_of_any_size_come_back_as_they_were() {
    for options in [&["--native-datagram=1448"][..], &["--native-datagram=512"], &["--engine=store"]] {
        let native = Native::start(options);
        let mut client = native.client();
        for bytes in [0, 1, 1_300, 1_350, 1_400, 1_450, 4_096, 65_536, 300_001, 2_000_000] {
            client.put("value", pattern(bytes)).unwrap();
            let value = client.get("value").unwrap().unwrap();
            assert!(value.bytes == pattern(bytes), "{bytes} bytes with {options:?}");
        }
        client.append("value", pattern(100_000)).unwrap().unwrap();
        assert_eq!(client.get("value").unwrap().unwrap().bytes.len(), 2_100_000);
        let many = client.put_many(
            (0..20).map(|index| (format!("{index}"), pattern(50_000 + index))),
            StoreOptions::new(),
        );
        assert!(many.iter().all(Result::is_ok), "{many:?}");
        for (result, index) in client.get_many((0..20).map(|index| index.to_string())).into_iter().zip(0..) {
            assert!(result.unwrap().unwrap().bytes == pattern(50_000 + index));
        }
        assert_eq!(client.put("value", pattern(20_000_000)), Err(Error::TooLarge { bytes_max: 8 << 20 }));
    }
}

#[test]
fn every_way_to_direct_and_every_server_mode_works() {
    let modes: [&[&str]; 4] =
        [&["--native-single-port"], common::OWNED[0], common::OWNED[1], &["--access=crcw", "--workers=1"]];
    for mode in modes {
        let native = Native::start(mode);
        for queue_by in [QueueBy::Access, QueueBy::Random, QueueBy::Key, QueueBy::Wrong] {
            let config = Config::new().queue_by(queue_by).once_for(OnceFor::AllWrites);
            let mut client = native.client_with(config);
            let keys: Vec<String> = (0..50).map(|index| format!("key{index}")).collect();
            let stored = client.put_many(keys.iter().map(|key| (key, key.as_str())), StoreOptions::new());
            assert!(stored.iter().all(Result::is_ok), "{mode:?} {queue_by:?} {stored:?}");
            for (key, result) in keys.iter().zip(client.get_many(&keys)) {
                assert_eq!(result.unwrap().unwrap().bytes, key.as_bytes(), "{mode:?} {queue_by:?}");
            }
            client.put("large", pattern(100_000)).unwrap();
            assert!(client.get("large").unwrap().unwrap().bytes == pattern(100_000));
        }
    }
}

const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const OTHER_SECRET: &str = "8:102132435465768798a9bacbdcedfe0fefcdab89674523011032547698badcfe";

#[test]
fn a_secret_is_made_and_can_be_replaced() {
    let make = |arguments: &[&str]| {
        let output = Command::new(common::program()).arg("secret").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let line = String::from_utf8(output.stdout).unwrap();
        line.parse::<minos_client::Secret>().unwrap()
    };
    let (old, new) = (make(&["--id", "1"]), make(&["--id", "2"]));
    assert_eq!((old.id(), new.id()), (1, 2));
    assert_ne!(make(&[]), make(&[]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secrets");
    fs::write(&path, format!("{}\n{}\n", new.reveal(), old.reveal())).unwrap();
    let native = Native::start(&[&format!("--native-secret-file={}", path.display())]);
    native.client_with(Config::new().secret(&old)).put("a", "by the old one").unwrap();
    let by_the_new_one = native.run(&["get", "a", "--secret-file", &path.display().to_string()]);
    assert_eq!(by_the_new_one.stdout, b"by the old one\n");
}

#[test]
fn a_secret_keeps_strangers_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, SECRET).unwrap();
    let native = Native::start(&[&format!("--native-secret-file={}", path.display())]);
    let mut client = native.client_with(Config::new().secret(&SECRET.parse().unwrap()));
    client.put("a", pattern(200_000)).unwrap();
    assert!(client.get("a").unwrap().unwrap().bytes == pattern(200_000));
    assert_eq!(client.incr_or_create("n", 1, 1, StoreOptions::new()), Ok(1));
    for config in [Config::new(), Config::new().secret(&OTHER_SECRET.parse().unwrap())] {
        let refused = Client::connect(&native.address, config.timeout(Duration::from_secs(20)));
        assert_eq!(refused.err(), Some(Error::Secret));
    }
    let with_file = native.run(&["get", "n", "--secret-file", &path.display().to_string()]);
    assert_eq!((code(&with_file), &with_file.stdout[..]), (Some(0), &b"1\n"[..]));
    let without = native.run(&["get", "n"]);
    assert_eq!(code(&without), Some(2));
    assert!(String::from_utf8_lossy(&without.stderr).contains("shared secret"));
}

#[test]
fn nobody_there_is_said_in_time() {
    let client = Client::connect("127.0.0.1:9", Config::new().timeout(Duration::from_millis(50)));
    assert_eq!(client.err(), Some(Error::TimedOut { was_sent: false }));
}

#[test]
fn statistics_are_told() {
    let native = Native::start(&[]);
    let mut client = native.client();
    client.put("a", "1").unwrap();
    client.get("a").unwrap();
    let value = |lines: &[(String, String)], name: &str| {
        lines.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    };
    let lines = client.stats("").unwrap();
    assert_eq!(value(&lines, "get_hits").as_deref(), Some("1"));
    assert_eq!(value(&lines, "cmd_set").as_deref(), Some("1"));
    assert!(value(&client.stats("minos").unwrap(), "native_operations").is_some());
    assert_eq!(client.call(Request::new(Verb::Ping, "")), Ok(Outcome::Done { cas: 0 }));
}

#[test]
fn commands_say_by_their_exit_what_came_of_them() {
    let native = Native::start(&[]);
    let missing = native.run(&["get", "a"]);
    assert_eq!((code(&missing), &missing.stdout[..]), (Some(1), &b""[..]));
    assert_eq!(missing.stderr, b"minos: a: not found\n");
    assert_eq!(code(&native.run(&["set", "a", "-5", "--flags", "3", "--ttl", "1h"])), Some(0));
    let found = native.run(&["get", "a", "b", "--verbose"]);
    assert_eq!(code(&found), Some(1), "one of them is not there");
    let shown = String::from_utf8(found.stdout).unwrap();
    assert!(shown.starts_with("a 3 2 ") && shown.ends_with("\n-5\n"), "{shown}");
    assert_eq!(code(&native.run(&["set", "a", "x", "--add"])), Some(1));
    assert_eq!(code(&native.run(&["set", "a", "x", "--replace"])), Some(0));
    assert_eq!(code(&native.run(&["del", "a"])), Some(0));
    assert_eq!(code(&native.run(&["del", "a"])), Some(1));
    let stats = native.run(&["stats"]);
    assert_eq!(code(&stats), Some(0));
    assert!(String::from_utf8_lossy(&stats.stdout).contains("get_misses"));
    assert_eq!(code(&native.run(&["stats", "nonsense"])), Some(1));
    assert_eq!(code(&native.run(&["get", &"k".repeat(251)])), Some(2));
    assert_eq!(code(&native.run(&["get"])), Some(2));
}

#[test]
fn a_value_from_standard_input_comes_back_byte_by_byte() {
    let native = Native::start(&[]);
    let mut set = command(&native.address, &["set", "large", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    set.stdin.take().unwrap().write_all(&pattern(400_000)).unwrap();
    assert!(set.wait().unwrap().success());
    let shown = native.run(&["get", "large", "--raw"]);
    assert!(shown.stdout == pattern(400_000));
}

#[test]
fn errors_are_said_in_words() {
    let output = |arguments: &[&str]| {
        let output = Command::new(common::program()).args(arguments).output().unwrap();
        (code(&output), String::from_utf8(output.stderr).unwrap())
    };
    let (exit, said) = output(&["get", "a", "--server", "127.0.0.1:9", "--timeout", "50ms"]);
    assert_eq!(exit, Some(2));
    assert!(said.contains("cannot use the server 127.0.0.1:9: no answer in time"), "{said}");
    assert!(said.contains("memcached://127.0.0.1:9"), "{said}");
    let (exit, said) = output(&["get", "a", "--server", "redis://x"]);
    assert_eq!(exit, Some(2));
    for form in ["expected minos://HOST:PORT", "memcached://HOST:PORT", "memcacheds://HOST:PORT"] {
        assert!(said.contains(form), "{said}");
    }
    let (exit, said) = output(&["get", "a", "--secret-file", "/nowhere"]);
    assert_eq!(exit, Some(2));
    assert!(said.contains("cannot read /nowhere"), "{said}");
}
