//! Users over memcached's protocols: logins, and each user's rights against each command.

#[path = "../common/mod.rs"]
mod common;
mod packets;
mod resp;

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Client, Server};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use packets::{AUTH, Packet};

const WITHIN: Duration = Duration::from_secs(60);
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";

/// The hash of "secret".
fn hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| hash_of("secret"))
}

/// The hash of a password, as `minos secret --hash` prints it.
fn hash_of(password: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    command.args(["secret", "--hash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

struct Rig {
    server: Server,
    file: NamedTempFile,
}

impl Rig {
    fn start(users: &str, options: &[&str]) -> Self {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(&file, users).unwrap();
        let acl = format!("--acl={}", file.path().display());
        let all = [&[&*acl, "--memory=64m", "--pin=off", "--workers=1"], options].concat();
        let server = Server::minos(&common::program(), &all).unwrap_or_else(|error| panic!("{error}"));
        Self { server, file }
    }

    fn client(&self) -> Client {
        common::connect(&self.server)
    }

    /// A connection that is this user.
    fn user(&self, name: &str) -> Client {
        let mut client = self.client();
        assert_eq!(log_in(&mut client, name, "secret"), "STORED");
        client
    }

    fn replace(&self, users: &str) {
        let lines = || {
            self.server.log().matches("read again").count() + self.server.log().matches("force stay").count()
        };
        let before = lines();
        std::fs::write(&self.file, users).unwrap();
        kill_process(Pid::from_raw(self.server.pid() as i32).unwrap(), Signal::HUP).unwrap();
        let deadline = Instant::now() + WITHIN;
        while lines() == before {
            assert!(Instant::now() < deadline, "{}", self.server.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Counters, read by the user `watcher`.
    fn stat(&self, group: &str, name: &str) -> u64 {
        let stats = self.user("watcher").stats(group).unwrap();
        stats.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1.parse().unwrap()
    }
}

fn watcher() -> String {
    format!("user watcher on {} +stats\n", hash())
}

fn log_in(client: &mut Client, name: &str, password: &str) -> String {
    client.set("auth", format!("{name} {password}").as_bytes()).unwrap()
}

#[test]
fn a_connection_must_say_who_it_is() {
    let rig = Rig::start(
        &(watcher() + &format!("user app on {} ~* +@all\nuser gone off {0} ~* +@all", hash())),
        &[],
    );
    let mut client = rig.client();
    for line in ["get a", "version", "flush_all", "mn", "set a 0 0", "SET a 0 0 1", "quit"] {
        assert_eq!(client.ask(line).unwrap(), UNAUTHENTICATED, "{line}");
    }
    for (name, password) in [("app", "Secret"), ("app", ""), ("App", "secret"), ("gone", "secret"), ("", "")]
    {
        assert_eq!(log_in(&mut client, name, password), "CLIENT_ERROR authentication failure");
        assert_eq!(client.ask("get a").unwrap(), UNAUTHENTICATED);
    }
    client.send("set auth 0 0 10\r\napp secretXX").unwrap();
    assert_eq!(client.line().unwrap(), "CLIENT_ERROR bad command line termination");
    // Both in one packet, and in single bytes.
    client.send("set auth 0 0 10\r\napp secret\r\nset a 0 0 1\r\nx\r\nget a\r\n").unwrap();
    assert_eq!([(); 5].map(|()| client.line().unwrap()), ["STORED", "STORED", "VALUE a 0 1", "x", "END"]);
    let mut slow = rig.client();
    for byte in b"set auth 0 0 10\r\napp secret\r\nget a\r\n" {
        slow.send([*byte]).unwrap();
    }
    assert_eq!([(); 4].map(|()| slow.line().unwrap()), ["STORED", "VALUE a 0 1", "x", "END"]);
    assert_eq!(rig.stat("", "auth_errors"), 5);
    assert!(rig.stat("", "auth_cmds") >= 7);
}

#[test]
fn what_is_no_login_is_bounded() {
    let rig = Rig::start(&format!("user app on {} ~* +@all", hash()), &[]);
    let mut client = rig.client();
    client.send(vec![b'x'; 5000]).ok();
    assert_eq!(client.rest().unwrap_or_default(), b"");
    let mut client = rig.client();
    client.send("set auth 0 0 1000000000\r\n").unwrap();
    assert_eq!(client.rest().unwrap(), b"CLIENT_ERROR authentication failure\r\n");
    let mut client = rig.client();
    client.send("set auth 0 0 18446744073709551615\r\n").unwrap();
    assert_eq!(client.rest().unwrap(), b"CLIENT_ERROR authentication failure\r\n");
    drop(rig.user("app"));
}

/// Requests in text, and the users who may make them.
const RIGHTS: [(&str, &[&str]); 38] = [
    ("get a:1", &["reader", "half", "all"]),
    ("gets b:1 a:1", &["reader", "half", "all"]),
    ("get c:1", &["reader", "all"]),
    ("get a:1 c:1 a:2", &["reader", "all"]),
    ("mg a:1 v t h", &["reader", "half", "all"]),
    ("mg YToz b v", &["reader", "half", "all"]),
    ("me a:1", &["reader", "half", "all"]),
    ("gat 0 a:1", &["writer", "all"]),
    ("gats 0 b:1", &["half", "all"]),
    ("mg a:1 v T0", &["writer", "all"]),
    ("mg a:1 v N0", &["writer", "all"]),
    ("mg a:1 v R30", &["writer", "all"]),
    ("set a:1 0 0 1\r\n1", &["writer", "all"]),
    ("set b:1 0 0 1\r\n1", &["half", "all"]),
    ("set c:1 0 0 1\r\n1", &["all"]),
    ("add a:1 0 0 1\r\n1", &["writer", "all"]),
    ("replace a:1 0 0 1\r\n1", &["writer", "all"]),
    ("append a:1 0 0 1\r\n1", &["writer", "all"]),
    ("prepend a:1 0 0 1\r\n1", &["writer", "all"]),
    ("cas a:1 0 0 1 1\r\n1", &["writer", "all"]),
    ("ms a:1 1\r\n1", &["writer", "all"]),
    ("ms a:1 1 MA\r\n1", &["writer", "all"]),
    ("incr a:1 1", &["writer", "all"]),
    ("decr a:1 1", &["writer", "all"]),
    ("ma a:1", &["writer", "all"]),
    ("ma a:1 MD v", &["writer", "all"]),
    ("delete a:1", &["writer", "all"]),
    ("md b:1 I", &["half", "all"]),
    ("touch a:1 0", &["writer", "all"]),
    ("flush_all", &["half", "operator", "all"]),
    ("stats settings", &["watcher", "operator", "all"]),
    ("stats reset", &["operator", "all"]),
    ("stats detail on", &["operator", "all"]),
    ("stats detail dump", &["watcher", "operator", "all"]),
    ("lru_crawler metadump all", &["operator", "all"]),
    ("verbosity 0", &["operator", "all"]),
    ("cache_memlimit 64", &["operator", "all"]),
    ("shutdown", &["operator", "all"]),
];

const USERS: [&str; 6] = ["reader", "writer", "half", "operator", "watcher", "all"];

fn all_users() -> String {
    let rules = [
        "+@read ~*",
        "+@write -@dangerous ~a:*",
        "+@read +@write %R~a:* ~b:*",
        "+@admin +@dangerous",
        "+stats -stats|reset -stats|detail",
        "+@all ~*",
    ];
    USERS.iter().zip(rules).map(|(name, rules)| format!("user {name} on {} {rules}\n", hash())).collect()
}

#[test]
fn each_users_rights_against_each_command() {
    let rig = Rig::start(&all_users(), &[]);
    let mut denied = 0;
    for user in USERS {
        let mut client = rig.user(user);
        for (request, allowed) in RIGHTS {
            client.send(format!("{request}\r\nmn\r\n")).unwrap();
            let mut lines = Vec::new();
            while lines.last().is_none_or(|line| line != "MN") {
                lines.push(client.line().unwrap());
            }
            let is_denied = lines[0].starts_with(&format!("CLIENT_ERROR the user {user} may not "));
            assert_eq!(is_denied, !allowed.contains(&user), "{user}: {request}: {lines:?}");
            assert!(!is_denied || lines.len() == 2, "{lines:?}");
            denied += u64::from(is_denied);
        }
        assert!(client.ask("version").unwrap().starts_with("VERSION"));
    }
    assert!(denied > 100, "{denied}");
    // `stats reset` has set it to zero.
    assert!(rig.user("reader").ask("delete a:1").unwrap().contains("may not use delete"));
    assert_eq!(rig.stat("", "cmd_denied"), 1);
}

#[test]
fn each_users_rights_against_each_packet() {
    let rig = Rig::start(&all_users(), &[]);
    for user in USERS {
        let mut stream = TcpStream::connect(rig.server.address()).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let login = Packet::new(0x21).key("PLAIN").value(format!("\0{user}\0secret"));
        assert_eq!(login.ask(&mut stream), (0, b"Authenticated".to_vec()));
        for (packet, allowed) in packets::RIGHTS {
            let packet = packet();
            let (status, body) = packet.ask(&mut stream);
            assert_eq!(status == AUTH, !allowed.contains(&user), "{user}: {packet:?}: {status} {body:?}");
        }
    }
}

#[test]
fn sasl_is_that_of_memcached() {
    let rig = Rig::start(&format!("user app on {} ~* +@all", hash()), &[]);
    let connect = || {
        let stream = TcpStream::connect(rig.server.address()).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        stream
    };
    let mut stream = connect();
    assert_eq!(Packet::new(0x20).ask(&mut stream), (0, b"PLAIN".to_vec()));
    assert_eq!(Packet::new(0x0b).ask(&mut stream).0, 0, "the version is no secret");
    for (mechanism, secret) in [("PLAIN", "\0app\0wrong"), ("PLAIN", "app"), ("CRAM-MD5", "\0app\0secret")] {
        let login = Packet::new(0x21).key(mechanism).value(secret);
        assert_eq!(login.ask(&mut stream), (AUTH, b"Auth failure.".to_vec()), "{secret}");
    }
    let login = Packet::new(0x21).key("PLAIN").value("\0app\0secret");
    assert_eq!(login.ask(&mut stream).0, 0);
    assert_eq!(Packet::new(0x01).extras(8).key("k").value("v").ask(&mut stream).0, 0);
    let mut stream = connect();
    assert_eq!(Packet::new(0x00).key("k").ask(&mut stream).0, AUTH);
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "as with memcached, the connection ends");
}

#[test]
fn clients_of_other_implementations_log_in() {
    let rig = Rig::start(&format!("user app on {} ~* +@all", hash()), &[]);
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python");
    let script: PathBuf = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/access/clients.py").into();
    let address = rig.server.address().to_string();
    let output = Command::new(python).arg(script).arg(address).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}; run `cargo xtask setup`");
}

#[test]
fn a_refused_value_is_discarded() {
    let rig = Rig::start(&all_users(), &["--threshold=1000"]);
    let mut client = rig.user("reader");
    let value = "v".repeat(3_000_000);
    client
        .send(format!(
            "set a:1 0 0 {0}\r\n{value}\r\nset a:1 0 0 {0} noreply\r\n{value}\r\nget a:1\r\n",
            value.len()
        ))
        .unwrap();
    assert_eq!(client.line().unwrap(), "CLIENT_ERROR the user reader may not use set");
    assert_eq!(client.line().unwrap(), "END");
}

#[test]
fn many_keys_are_looked_at_all() {
    let rig = Rig::start(&all_users(), &[]);
    let mut all = rig.user("all");
    let keys: Vec<String> = (0..2000).map(|at| format!("a:{at}")).collect();
    let items: Vec<_> = keys.iter().map(|key| (key.clone(), b"x")).collect();
    assert!(all.set_many(&items).unwrap().iter().all(|line| line == "STORED"));
    let mut half = rig.user("half");
    half.send(format!("get {}\r\nmn\r\n", keys.join(" "))).unwrap();
    let mut lines = 0;
    while half.line().unwrap() != "MN" {
        lines += 1;
    }
    assert_eq!(lines, 2 * keys.len() + 1);
    half.send(format!("get {} c:1\r\nmn\r\n", keys.join(" "))).unwrap();
    assert_eq!(half.line().unwrap(), "CLIENT_ERROR the user half may not read this key");
    assert_eq!(half.line().unwrap(), "MN");
}

/// Before the fix, the first bytes after the next login were taken for the rest of the line, whose keys were not looked at
/// any more.
#[test]
fn a_line_of_keys_ends_with_its_user() {
    let user = |hash: &str| format!("user half on {hash} +@read ~a:*\nuser all on {hash} +@all ~*\n");
    let rig = Rig::start(&user(hash()), &[]);
    let mut all = rig.user("all");
    let value = vec![b'v'; 1 << 20];
    let keys: Vec<String> = (0..30).map(|at| format!("a:{at}")).collect();
    for key in &keys {
        assert_eq!(all.set(key, &value).unwrap(), "STORED");
    }
    assert_eq!(all.set("secret2", b"TOPSECRET").unwrap(), "STORED");
    let mut half = rig.user("half");
    half.send(format!("get {} a:1234567\r\n", keys.join(" "))).unwrap();
    assert!(half.line().unwrap().starts_with("VALUE a:0 "));
    // The same user with another password.
    rig.replace(&user(&hash_of("other")));
    half.send("set auth 0 0 10\r\nhalf other\r\n").unwrap();
    half.send("   secret2\r\nquit\r\n").unwrap();
    let rest = String::from_utf8(half.rest().unwrap()).unwrap();
    assert!(rest.ends_with("STORED\r\nERROR\r\n"), "{}", &rest[rest.len() - 100..]);
}

#[test]
fn strangers_may_be_somebody_too() {
    let rig = Rig::start("user default on nopass ~* +@read", &[]);
    let mut client = rig.client();
    assert_eq!(client.get("a").unwrap(), None);
    assert_eq!(client.set("a", b"x").unwrap(), "CLIENT_ERROR the user default may not use set");
    // By packets such a client may become another user, however they come.
    rig.replace(&format!("user default on nopass ~* +@read\nuser app on {} ~* +@all", hash()));
    let mut stream = TcpStream::connect(rig.server.address()).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let set = Packet::new(0x01).extras(8).key("k").value("v");
    assert_eq!(set.ask(&mut stream).0, AUTH);
    let login = Packet::new(0x21).key("PLAIN").value("\0app\0secret");
    assert_eq!(login.ask_in_pieces(&mut stream).0, 0);
    assert_eq!(set.ask(&mut stream).0, 0);
}

#[test]
fn new_users_are_in_force_at_once() {
    let line = |rules: &str| format!("user app on {} {rules}\n", hash());
    let rig = Rig::start(&line("~* +@all"), &[]);
    let mut client = rig.user("app");
    assert_eq!(client.set("a", b"x").unwrap(), "STORED");
    rig.replace(&line("~* +@read"));
    assert_eq!(client.set("a", b"y").unwrap(), "CLIENT_ERROR the user app may not use set");
    rig.replace(&line("~* +@nonsense"));
    assert!(rig.server.log().contains("the users in force stay: --acl"), "{}", rig.server.log());
    assert_eq!(client.get("a").unwrap().unwrap().value, b"x");
    rig.replace(&watcher());
    assert_eq!(client.ask("get a").unwrap(), UNAUTHENTICATED);
    drop(rig.user("watcher"));
}

#[test]
fn logins_delay_no_requests() {
    let rig = Rig::start(&all_users(), &[]);
    let mut client = rig.user("all");
    assert_eq!(client.set("a", b"x").unwrap(), "STORED");
    // On a busy machine the read itself may take longer than all checks.
    assert!((0..10).any(|_| is_read_before_logins(&rig, &mut client)));
}

/// True if a read is answered while logins that came before it wait.
fn is_read_before_logins(rig: &Rig, client: &mut Client) -> bool {
    // Each takes the thread that checks passwords tens of milliseconds.
    let mut guessers: Vec<Client> = (0..100).map(|_| rig.client()).collect();
    guessers.iter_mut().for_each(|guesser| guesser.send("set auth 0 0 9\r\nall wrong\r\n").unwrap());
    assert!(client.get("a").unwrap().is_some());
    // The last one waits still, though the same worker has served the read.
    let last = guessers[99].socket();
    last.set_nonblocking(true).unwrap();
    let waits = last.peek(&mut [0]).is_err();
    last.set_nonblocking(false).unwrap();
    // Who was right before need not wait for those who guess.
    drop(rig.user("all"));
    for guesser in &mut guessers {
        assert_eq!(guesser.line().unwrap(), "CLIENT_ERROR authentication failure");
    }
    waits
}

#[test]
fn too_many_logins_are_refused() {
    let rig = Rig::start(&all_users(), &["--acl-waiting=2"]);
    drop(rig.user("watcher"));
    let mut guessers: Vec<Client> = (0..50).map(|_| rig.client()).collect();
    guessers.iter_mut().for_each(|guesser| guesser.send("set auth 0 0 9\r\nall wrong\r\n").unwrap());
    let lines: Vec<String> = guessers.iter_mut().map(|guesser| guesser.line().unwrap()).collect();
    let refused = lines.iter().filter(|line| *line == "SERVER_ERROR too many logins are under way").count();
    let checked = lines.iter().filter(|line| *line == "CLIENT_ERROR authentication failure").count();
    assert!(refused > 0 && checked >= 2 && refused + checked == 50, "{lines:?}");
    assert_eq!(rig.stat("minos", "auth_crowded"), refused as u64);
}

#[test]
fn a_file_that_is_of_no_use_is_refused() {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, "# users\nuser app on >plain\n").unwrap();
    let text = common::refusal(&[&format!("--acl={}", file.path().display())]);
    assert!(text.contains("line 2: >...: a password itself has no place here"), "{text}");
    assert!(common::refusal(&["--acl=/no/such"]).contains("--acl /no/such"));
}

/// Who knows the seed finds keys that collide.
#[test]
fn a_seed_that_others_may_read_brings_a_warning() {
    use std::os::unix::fs::PermissionsExt;
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "7\n").unwrap();
    let warning = format!("--hash-seed: other users may read it path={}", file.path().display());
    for (mode, is_warned_of) in [(0o600, false), (0o640, true)] {
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
        // It is refused for its address.
        let seed = format!("--hash-seed=file:{}", file.path().display());
        let text = common::refusal(&["--memcached=0.0.0.0:0", &seed]);
        assert!(text.contains("--allow-public"), "{text}");
        assert_eq!(text.contains(&warning), is_warned_of, "{text}");
    }
}
