//! The admin endpoint and `minos ctl`: their output, the switch of designs under load, and each bound.

mod common;
#[path = "ctl/flash.rs"]
mod flash;
#[path = "ctl/settings.rs"]
mod settings;
#[path = "ctl/snapshot.rs"]
mod snapshot;

use std::{
    collections::{HashMap, HashSet},
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use common::{Wanted, connect, start};
use minos_node::config::Design;
use minos_testkit::Server;
use serde_json::Value;

/// Longest time for anything; a test that takes longer fails.
const WITHIN: Duration = Duration::from_secs(30);

/// A server with an admin endpoint at a free port, and that address.
fn start_with_admin(workers: usize, options: &[&str]) -> (Server, SocketAddr) {
    let mut all = vec!["--admin=127.0.0.1:0"];
    all.extend(options);
    if !options.iter().any(|option| option.starts_with("--admin-timeout")) {
        // A client on a busy machine must not count as slow.
        all.push("--admin-timeout=60s");
    }
    let server = start(Wanted { workers, memory: "64m", minos_only: &all, ..Wanted::default() });
    let address = admin_address(&server).parse().expect("an IP address");
    (server, address)
}

/// Waits until what is at `path` is as it must be.
fn wait_until(admin: SocketAddr, path: &str, done: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + WITHIN;
    loop {
        let shown = get(admin, path);
        if done(&shown) {
            return;
        }
        assert!(Instant::now() < deadline, "still so at {path}: {shown}");
    }
}

/// The address of the admin endpoint, from the server's log.
fn admin_address(server: &Server) -> String {
    let deadline = Instant::now() + WITHIN;
    loop {
        let log = server.log();
        let whole = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
        if let Some(address) = whole.lines().find_map(|line| line.strip_prefix("listening on admin ")) {
            return address.to_owned();
        }
        assert!(Instant::now() < deadline, "no admin endpoint was announced:\n{log}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn ctl(admin: impl std::fmt::Display, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    command.args(["ctl", "--timeout=60s", &format!("--admin={admin}")]).args(arguments);
    command.output().expect("minos can be run")
}

/// The output of `minos ctl`, which must have succeeded.
fn shown(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The error output of `minos ctl`, which must have failed.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Sends bytes, and returns status and body of the answer, read until the server closes.
fn http(admin: SocketAddr, bytes: impl AsRef<[u8]>) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    // A server may refuse and close before it has read everything.
    stream.write_all(bytes.as_ref()).ok();
    answer(&mut stream)
}

fn answer(stream: &mut TcpStream) -> (u16, String) {
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => {}
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no HTTP: {head:?}")), body.to_owned())
}

fn request(admin: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    http(
        admin,
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"),
    )
}

fn get(admin: SocketAddr, path: &str) -> Value {
    let (status, body) = request(admin, "GET", path, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn designs_change_under_a_client() {
    // The fewest workers with which every design works.
    let (server, admin) = start_with_admin(3, &[]);
    let mut client = connect(&server);
    let large = vec![b'l'; 500_000];
    assert_eq!(client.set("small", b"s").unwrap(), "STORED");
    assert_eq!(client.set("large", &large).unwrap(), "STORED");
    for name in Design::SERVED.map(Design::name).iter().chain(&["size-aware"]) {
        let text = shown(&ctl(admin, &["dispatch", name, "--handoff-workers=1"]));
        assert_eq!(text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["dispatch", name]);
        let in_force: Value = serde_json::from_str(&shown(&ctl(admin, &["dispatch", "--json"]))).unwrap();
        assert_eq!((&in_force["dispatch"], &in_force["handoff_workers"]), (&(*name).into(), &1.into()));
        assert!(in_force["decision"]["small_workers"].is_u64(), "{in_force}");
        for _ in 0..20 {
            assert_eq!(client.get("small").unwrap().unwrap().value, b"s", "{name}");
        }
        assert!(client.get("large").unwrap().unwrap().value == large, "{name}");
        assert_eq!(client.set("large", &large).unwrap(), "STORED", "{name}");
    }
    let switches = get(admin, "/stats/admin")["admin_switches"].as_u64().unwrap();
    assert_eq!(switches, Design::SERVED.len() as u64 + 1);
    assert_eq!(get(admin, "/stats")["rejected_connections"], 0);
}

#[test]
fn what_cannot_be_switched_to_is_said() {
    let (_server, admin) = start_with_admin(1, &[]);
    let error = complaint(&ctl(admin, &["dispatch", "fastest"]));
    for part in ["fastest", "size-aware", "keyhash"] {
        assert!(error.contains(part), "{error}");
    }
    let before = get(admin, "/dispatch");
    for (body, part) in [
        (r#"{"dispatch": "handoff", "handoff_workers": 1}"#, "worker"),
        (r#"{"dispatch": "helping"}"#, "minos sim dispatch"),
        (r#"{"dispatch": "keyhash", "speed": 1}"#, "speed"),
        (r#"{"dispatch": 7}"#, "dispatch"),
        ("keyhash", "handoff_workers"),
        ("", "handoff_workers"),
    ] {
        let (status, said) = request(admin, "PUT", "/dispatch", body);
        assert_eq!(status, 400, "{body}: {said}");
        assert!(said.contains("error") && said.contains(part), "{body}: {said}");
    }
    assert_eq!(get(admin, "/dispatch")["dispatch"], before["dispatch"]);
    assert_eq!(get(admin, "/stats/admin")["admin_switches"], 0);
}

#[test]
fn statistics_are_those_of_memcached() {
    let (server, admin) = start_with_admin(1, &["--native=127.0.0.1:0"]);
    let mut client = connect(&server);
    client.set("key", b"value").unwrap();
    for (path, group) in [
        ("/stats", ""),
        ("/stats/settings", "settings"),
        ("/stats/items", "items"),
        ("/stats/minos", "minos"),
    ] {
        let object = get(admin, path);
        let names: HashSet<_> = object.as_object().unwrap().keys().cloned().collect();
        let by_memcached: HashSet<_> =
            client.stats(group).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, by_memcached, "{path}");
    }
    assert_eq!(get(admin, "/stats")["cmd_set"], 1);
    assert_eq!(get(admin, "/stats/settings")["admin"], admin.to_string());
    let lines = shown(&ctl(admin, &["stats", "connections"]));
    assert!(lines.contains(":addr"), "{lines}");
    let object: Value = serde_json::from_str(&shown(&ctl(admin, &["stats", "--json"]))).unwrap();
    assert_eq!(object["curr_items"], 1);
    assert!(complaint(&ctl(admin, &["stats", "nothing"])).contains("settings"));
    assert!(complaint(&ctl(admin, &["stats", "a/../b"])).contains("a/../b"));
}

#[test]
fn metrics_can_be_scraped() {
    let (server, admin) = start_with_admin(2, &["--native=127.0.0.1:0"]);
    let mut client = connect(&server);
    client.set("key", b"value").unwrap();
    for _ in 0..3 {
        client.get("key").unwrap();
    }
    let (status, text) = request(admin, "GET", "/metrics", "");
    assert_eq!(status, 200);
    let (types, samples) = parse_metrics(&text);
    for (family, kind) in [
        ("minos_cmd_get", "counter"),
        ("minos_curr_items", "gauge"),
        ("minos_epoch", "counter"),
        ("minos_threshold_bytes", "gauge"),
        ("minos_worker_visits", "counter"),
        ("minos_worker_ring", "gauge"),
        ("minos_native_operations", "counter"),
        ("minos_admin_requests", "counter"),
    ] {
        assert_eq!(types.get(family).map(String::as_str), Some(kind), "{family}");
    }
    assert_eq!(samples["minos_cmd_get"], 3.0);
    assert_eq!(samples["minos_curr_items"], 1.0);
    let visits = |worker| samples[&format!("minos_worker_visits{{worker=\"{worker}\"}}")];
    assert!(visits(0) + visits(1) >= 4.0);
}

/// Checks a text in Prometheus' format, and returns the types of its families and its samples.
fn parse_metrics(text: &str) -> (HashMap<String, String>, HashMap<String, f64>) {
    let (mut types, mut samples) = (HashMap::new(), HashMap::new());
    let mut family_now = String::new();
    let is_name = |name: &str| {
        !name.starts_with(|char: char| char.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (family, kind) = declared.split_once(' ').expect("a type");
            assert!(
                is_name(family) && ["counter", "gauge", "histogram", "untyped"].contains(&kind),
                "{line}"
            );
            assert!(types.insert(family.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
            family_now = family.to_owned();
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a value");
        let (family, labels) = sample.split_once('{').map_or((sample, ""), |(name, labels)| (name, labels));
        let is_part = |part: &str| family.strip_suffix(part) == Some(&family_now);
        let is_histogram = types[&family_now] == "histogram";
        let is_of_family = family == family_now && !is_histogram
            || is_histogram && ["_bucket", "_sum", "_count"].into_iter().any(is_part);
        assert!(is_of_family, "{line}: the samples of a family stand behind its type");
        for label in labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()) {
            let (name, quoted) = label.split_once('=').expect("a label");
            assert!(
                is_name(name) && quoted.len() > 2 && quoted.starts_with('"') && quoted.ends_with('"'),
                "{line}"
            );
        }
        let value = value.parse::<f64>().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
    }
    (types, samples)
}

#[test]
fn paths_and_methods_that_are_not_there() {
    let (_server, admin) = start_with_admin(1, &[]);
    for (method, path, expected) in [
        ("GET", "/none", 404),
        ("POST", "/", 405),
        ("GET", "/stats/nothing", 404),
        ("GET", "/stats/reset", 404),
        ("POST", "/stats", 405),
        ("PUT", "/metrics", 405),
        ("DELETE", "/dispatch", 405),
        ("PUT", "/nothing", 404),
    ] {
        let (status, body) = request(admin, method, path, "");
        assert_eq!(status, expected, "{method} {path}");
        let said: Value = serde_json::from_str(&body).unwrap();
        assert!(said["error"].is_string(), "{method} {path}: {body}");
    }
}

#[test]
fn what_is_too_much_or_no_http_is_refused() {
    let (server, admin) = start_with_admin(1, &[]);
    assert_eq!(http(admin, "garbage\r\n\r\n").0, 400);
    assert_eq!(http(admin, [0xff; 64]).0, 400);
    let long = "x".repeat(9 << 10);
    assert_eq!(http(admin, format!("GET /stats HTTP/1.1\r\nhost: localhost\r\nlong: {long}\r\n\r\n")).0, 431);
    let fields = "a: b\r\n".repeat(65);
    assert_eq!(http(admin, format!("GET /stats HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n")).0, 431);
    let (status, said) = request(admin, "PUT", "/dispatch", &"x".repeat((4 << 10) + 1));
    assert!(status == 413 && said.contains("4096"), "{status} {said}");
    // A chunked body announces no length.
    let piece = format!("800\r\n{}\r\n", "x".repeat(0x800));
    let head = "PUT /dispatch HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(http(admin, format!("{head}{}0\r\n\r\n", piece.repeat(3))).0, 413);
    assert_eq!(get(admin, "/stats/admin")["admin_body_too_large"], 2);
    assert_eq!(connect(&server).set("next", b"value").unwrap(), "STORED");
}

#[test]
fn who_is_too_slow_is_told() {
    let (_server, admin) = start_with_admin(1, &["--admin-timeout=100ms"]);
    for begun in
        ["", "GET /stats HTT", "PUT /dispatch HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"]
    {
        let (status, said) = http(admin, begun);
        assert_eq!(status, 408, "{begun:?}");
        assert!(said.contains("--admin-timeout"), "{said}");
    }
    // On a busy machine this request may time out as well.
    let counts = std::iter::repeat_with(|| request(admin, "GET", "/stats/admin", ""))
        .find(|(status, _)| *status == 200);
    let counts: Value = serde_json::from_str(&counts.unwrap().1).unwrap();
    assert!(counts["admin_timeouts"].as_u64() >= Some(3), "{counts}");
}

#[test]
fn requests_that_pages_send_are_refused() {
    let (_server, admin) = start_with_admin(1, &["--admin-host=metrics.example"]);
    let put = |fields: &str| {
        let body = r#"{"dispatch": "keyhash"}"#;
        http(
            admin,
            format!("PUT /dispatch HTTP/1.1\r\n{fields}\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
        )
    };
    for fields in ["host: evil.example", "host: localhost\r\norigin: http://evil.example"] {
        let (status, said) = put(fields);
        assert!(
            status == 403 && said.contains("evil.example") && said.contains("--admin-host"),
            "{status} {said}"
        );
    }
    assert_eq!(get(admin, "/dispatch")["dispatch"], "size-aware");
    assert_eq!(get(admin, "/stats/admin")["admin_foreign"], 2);
    assert_eq!(put(&format!("host: {admin}\r\norigin: http://{admin}")).0, 200);
    assert_eq!(put("host: metrics.example").0, 200);
}

const SWITCH: &str = r#"{"dispatch": "keyhash"}"#;

/// A connection whose request has begun to be served: the server waits for the body, [`SWITCH`].
fn asking(admin: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let length = SWITCH.len();
    let head = format!("PUT /dispatch HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}expect: 100-continue\r\n\r\n").as_bytes()).unwrap();
    let mut said = [0; 25];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

#[test]
fn who_does_not_ask_keeps_nobody_out() {
    let (_server, admin) = start_with_admin(1, &["--admin-connections=2", "--admin-timeout=60s"]);
    let mut silent: Vec<_> = (0..3).map(|_| TcpStream::connect(admin).unwrap()).collect();
    silent.iter_mut().for_each(|stream| stream.set_read_timeout(Some(WITHIN)).unwrap());
    // The oldest is given up for the third.
    assert_eq!(silent[0].read_to_end(&mut Vec::new()).unwrap(), 0);
    let held = asking(admin);
    assert_eq!(silent[1].read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_eq!(request(admin, "GET", "/healthz", "").0, 200);
    assert_eq!(silent[2].read_to_end(&mut Vec::new()).unwrap(), 0);
    let _also_held = asking(admin);
    let (status, said) = http(admin, "");
    assert!(status == 503 && said.contains("--admin-connections"), "{status} {said}");
    drop(held);
}

#[test]
fn who_is_refused_is_told_and_not_reset() {
    let (_server, admin) = start_with_admin(1, &["--admin-connections=1", "--admin-timeout=60s"]);
    let _held = asking(admin);
    let mut scraper = TcpStream::connect(admin).unwrap();
    scraper.set_read_timeout(Some(WITHIN)).unwrap();
    let mut said = Vec::new();
    scraper.read_to_end(&mut said).unwrap();
    assert!(said.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&said));
    // The late request was read all the same.
    for piece in ["GET /metrics HTTP/1.1\r\n", "host: localhost\r\n\r\n"] {
        scraper.write_all(piece.as_bytes()).unwrap();
    }
    assert_eq!(scraper.read_to_end(&mut said).unwrap(), 0);
}

#[test]
fn too_many_connections() {
    let (_server, admin) = start_with_admin(1, &["--admin-connections=1"]);
    let mut held = asking(admin);
    let (status, said) = http(admin, "");
    assert_eq!(status, 503);
    assert!(said.contains("--admin-connections"), "{said}");
    held.write_all(SWITCH.as_bytes()).unwrap();
    // A client that closes its sending side still gets its answer.
    held.shutdown(Shutdown::Write).unwrap();
    assert_eq!(answer(&mut held).0, 200);
    // The place is free a moment after the answer has come.
    let deadline = Instant::now() + WITHIN;
    let mut rejected = 1;
    let counts: Value = loop {
        let (status, body) = request(admin, "GET", "/stats/admin", "");
        if status == 200 {
            break serde_json::from_str(&body).unwrap();
        }
        assert!(status == 503 && Instant::now() < deadline, "{status}: {body}");
        rejected += 1;
    };
    let expected: [Value; 2] = [2.into(), rejected.into()];
    assert_eq!(
        [&counts["admin_requests"], &counts["admin_connections_rejected"]],
        [&expected[0], &expected[1]]
    );
}

#[test]
fn a_unix_socket_is_for_its_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let option = format!("--admin=unix:{}", path.display());
    let mut server = start(Wanted { memory: "64m", minos_only: &[&option], ..Wanted::default() });
    let admin = admin_address(&server);
    assert_eq!(admin, format!("unix:{}", path.display()));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(shown(&ctl(&admin, &["dispatch", "keyhash"])).contains("keyhash"));
    let status = server.terminate(WITHIN).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{}", server.log());
    assert!(!path.exists());
}

#[test]
fn the_endpoint_ends_with_the_server() {
    let (mut server, admin) = start_with_admin(1, &[]);
    // An idle connection does not delay the stop.
    let _held = TcpStream::connect(admin).unwrap();
    let status = server.terminate(WITHIN).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{}", server.log());
    let error = complaint(&ctl(admin, &["dispatch"]));
    assert!(error.contains("--admin") && error.contains(&admin.to_string()), "{error}");
}

#[test]
fn addresses_and_bounds_that_cannot_be() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let serve = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(["serve", "--memory=64m", "--memcached=127.0.0.1:0"]).args(options);
        complaint(&command.output().expect("minos can be run"))
    };
    let error = serve(&[&format!("--admin={address}")]);
    assert!(error.contains("--admin") && error.contains(&address.to_string()), "{error}");
    assert!(serve(&["--admin-connections=0"]).contains("--admin-connections"));
    assert!(serve(&["--admin-timeout=0"]).contains("--admin-timeout"));
    // A server that answers, but is no admin endpoint.
    let server = common::start_plain();
    assert!(complaint(&ctl(server.address(), &["dispatch"])).contains(&server.address().to_string()));
}

#[test]
fn changes_need_the_token_and_reads_do_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "a-token-of-some-length\n").unwrap();
    let path = file.path().display();
    let (_server, admin) = start_with_admin(1, &[&format!("--admin-token-file={path}")]);
    assert_eq!(get(admin, "/dispatch")["dispatch"], "size-aware");
    let said = complaint(&ctl(admin, &["dispatch", "keyhash"]));
    assert!(said.contains("--admin-token-file"), "{said}");
    let wrong = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&wrong, "another-token-of-some-length\n").unwrap();
    complaint(&ctl(admin, &["dispatch", "keyhash", &format!("--token-file={}", wrong.path().display())]));
    assert_eq!(get(admin, "/dispatch")["dispatch"], "size-aware");
    assert_eq!(get(admin, "/stats/admin")["admin_unauthorized"], 2);
    shown(&ctl(admin, &["dispatch", "keyhash", &format!("--token-file={path}")]));
    assert_eq!(get(admin, "/dispatch")["dispatch"], "keyhash");
    let mut by_variable = Command::new(env!("CARGO_BIN_EXE_minos"));
    by_variable.args(["ctl", "--timeout=60s", &format!("--admin={admin}"), "dispatch", "size-aware"]);
    shown(&by_variable.env("MINOS_ADMIN_TOKEN", "a-token-of-some-length").output().unwrap());
    // No method of reading changes anything, with the token or without.
    for path in ["/dispatch?dispatch=keyhash", "/snapshot", "/flash", "/stats/reset"] {
        request(admin, "GET", path, "");
    }
    assert_eq!(get(admin, "/dispatch")["dispatch"], "size-aware");
    assert!(common::refusal(&["--admin=0.0.0.0:1"]).contains("--admin-token-file"));
}

/// A server under these limits on descriptors, soft and hard, and its admin endpoint.
fn start_limited(limits: [u32; 2], options: &[&str]) -> (Server, SocketAddr) {
    let [soft, hard] = limits;
    let script = format!("ulimit -Sn {soft}; ulimit -Hn {hard}; exec \"$0\" \"$@\"");
    let server = Server::start("/bin/sh".as_ref(), |port, _| {
        let memcached = format!("--memcached=127.0.0.1:{port}");
        let fixed = ["-c", &script, env!("CARGO_BIN_EXE_minos"), "serve", &memcached, "--admin=127.0.0.1:0"];
        fixed.iter().chain(options).map(|text| (*text).to_owned()).collect()
    });
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let address = admin_address(&server).parse().expect("an IP address");
    (server, address)
}

/// Clients that are served, until one is told that there are too many.
fn fill(server: &Server) -> Vec<minos_testkit::Client> {
    let mut clients = Vec::new();
    loop {
        let mut client = connect(server);
        match client.ask("version").unwrap() {
            text if text.starts_with("VERSION") => clients.push(client),
            text => {
                assert_eq!(text, "ERROR Too many open connections");
                return clients;
            }
        }
    }
}

#[test]
fn the_soft_limit_on_descriptors_is_raised() {
    let options = ["--workers=2", "--memory=64m", "--max-connections=100"];
    let (server, admin) = start_limited([64, 1000], &options);
    assert_eq!(fill(&server).len(), 100);
    assert!(!server.log().contains("no room for"), "{}", server.log());
    assert_eq!(request(admin, "GET", "/healthz", "").0, 200);
}

#[test]
fn clients_leave_descriptors_to_those_who_ask_for_health() {
    let (server, admin) = start_limited([200, 200], &["--workers=2", "--memory=64m"]);
    assert!(server.log().contains("has no room for --max-connections 1024"), "{}", server.log());
    let clients = fill(&server);
    let stats = get(admin, "/stats/settings");
    assert_eq!(stats["maxconns"].to_string().trim_matches('"'), clients.len().to_string(), "{stats}");
    assert!(clients.len() > 20, "{}", clients.len());
}
