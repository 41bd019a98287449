//! The observation of requests: hot keys, large keys and slow requests by each way to them, latencies, health, the page.

mod common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use common::{Wanted, connect, start};
use minos_testkit::Server;
use serde_json::Value;

/// Longest time for anything; a test that takes longer fails.
const WITHIN: Duration = Duration::from_secs(30);

/// A server that looks at every request.
fn start_watching(options: &[&str]) -> (Server, SocketAddr) {
    let mut all = vec!["--admin=127.0.0.1:0", "--admin-timeout=60s"];
    all.extend(options);
    let server = start(Wanted { workers: 2, memory: "64m", minos_only: &all, ..Wanted::default() });
    let deadline = Instant::now() + WITHIN;
    loop {
        let log = server.log();
        let whole = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
        if let Some(address) = whole.lines().find_map(|line| line.strip_prefix("listening on admin ")) {
            return (server, address.parse().expect("an IP address"));
        }
        assert!(Instant::now() < deadline, "no admin endpoint was announced:\n{log}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Status, head and body of an answer.
fn request(admin: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

fn get(admin: SocketAddr, path: &str) -> Value {
    let (status, _, body) = request(admin, "GET", path, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

fn ctl(admin: SocketAddr, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    command.args(["ctl", "--timeout=60s", &format!("--admin={admin}")]).args(arguments);
    let output = command.output().expect("minos can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn stat(stats: &[(String, String)], name: &str) -> String {
    let found = stats.iter().find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("no {name} in {stats:?}")).1.clone()
}

/// The value of a sample in `/metrics`.
fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// With `hot` for most requests, keys in lines, and one that a terminal or a page must not take for its own.
#[test]
fn hot_and_large_keys_are_named() {
    let (server, admin) = start_watching(&["--watch=1"]);
    let mut client = connect(&server);
    client.set("hot", b"value").unwrap();
    client.set("big", &vec![b'b'; 300_000]).unwrap();
    client.set("<b>\u{1b}[31m\"&", &[b'm'; 3000]).unwrap();
    for n in 0..300 {
        client.get("hot").unwrap();
        client.set(&format!("cold{n}"), b"c").unwrap();
        assert_eq!(client.get("big").unwrap().unwrap().value.len(), 300_000);
    }
    let stats = client.stats("hotkeys").unwrap();
    let names = ["0:key", "1:key"].map(|name| stat(&stats, name));
    assert!(names.contains(&"hot".to_owned()) && names.contains(&"big".to_owned()), "{names:?}");
    let share: f64 = stat(&stats, "0:share").parse().unwrap();
    assert!((0.2..0.4).contains(&share), "{share}");
    let stats = client.stats("largekeys").unwrap();
    assert_eq!((stat(&stats, "0:key"), stat(&stats, "0:bytes")), ("big".to_owned(), "300000".to_owned()));
    assert_eq!(stat(&stats, "1:key"), "<b>\\x1b[31m\"&");
    let large = get(admin, "/large");
    assert_eq!((&large["keys"][0]["key"], &large["keys"][0]["bytes"]), (&"big".into(), &300_000.into()));
    assert_eq!(large["keys"][1]["key"], "<b>\\x1b[31m\"&");
    assert!(ctl(admin, &["hot"]).contains("hot "));
    let text = ctl(admin, &["large"]);
    assert!(text.lines().nth(1).unwrap().starts_with("big") && text.contains("300000"), "{text}");
    // Unless a half-life ends in between.
    let shares = || [0; 2].map(|_| get(admin, "/stats/hotkeys")["0:share"].clone());
    assert!((0..10).map(|_| shares()).any(|[one, other]| one == other));
    // A line of keys.
    let (server, admin) = start_watching(&["--watch=4"]);
    let mut client = connect(&server);
    for _ in 0..500 {
        client.send("get a b c hot hot hot\r\n").unwrap();
        assert!(client.found().unwrap().is_none());
    }
    assert_eq!(get(admin, "/hot")["keys"][0]["key"], "hot");
}

#[test]
fn slow_requests_are_kept_and_the_threshold_changes() {
    let (server, admin) = start_watching(&["--watch=1", "--slow-threshold=1h", "--slow-log=3"]);
    let mut client = connect(&server);
    client.set("quick", b"value").unwrap();
    assert_eq!(get(admin, "/slow")["requests"].as_array().unwrap().len(), 0);
    // From now on each request is slow.
    let shown = ctl(admin, &["slow", "--threshold=0s"]);
    assert!(shown.contains("threshold_us 0"), "{shown}");
    for n in 0..5 {
        client.set(&format!("key{n}"), &[b'v'; 100]).unwrap();
    }
    client.set("big", &vec![b'b'; 300_000]).unwrap();
    client.get("big").unwrap();
    // It is noted once its worker has sent all of it.
    client.get("big").unwrap();
    let stats = client.stats("slow").unwrap();
    let slow = get(admin, "/slow");
    let requests = slow["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 3, "{slow}");
    let numbers: Vec<_> = requests.iter().map(|request| request["number"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] > pair[1]), "{numbers:?}");
    let big = requests.iter().find(|request| request["key"] == "big").unwrap();
    assert!(big["bytes"] == 300_000 && ["get", "set"].map(Value::from).contains(&big["command"]), "{big}");
    assert!(big["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{big}");
    assert!(big["us"].as_u64().unwrap() > 0 && big["time"].as_u64().unwrap() > 1_700_000_000);
    assert!(stats.iter().any(|(name, value)| name.ends_with(":key") && value == "big"), "{stats:?}");
    assert!(ctl(admin, &["slow"]).contains("300000"));
    ctl(admin, &["slow", "--threshold=1h"]);
    assert!(ctl(admin, &["slow", "--clear"]).contains("no requests"));
    for (body, part) in [("{}", "threshold_us"), (r#"{"threshold_us": -1}"#, "threshold_us")] {
        let (status, _, said) = request(admin, "PUT", "/slow", body);
        assert!(status == 400 && said.contains(part), "{body}: {said}");
    }
    assert_eq!(request(admin, "POST", "/slow", "").0, 405);
}

#[test]
fn latencies_are_counted_by_size_and_stage() {
    let (server, admin) = start_watching(&["--watch=16"]);
    let mut client = connect(&server);
    client.set("big", &vec![b'b'; 300_000]).unwrap();
    client.set("small", b"value").unwrap();
    for _ in 0..2000 {
        client.get("small").unwrap();
    }
    for _ in 0..20 {
        client.get("big").unwrap();
    }
    let counts = |metrics: &str, labels: &str| {
        sample(metrics, &format!("minos_request_duration_seconds_count{{{labels}}}"))
    };
    // 20 and a store: a request is counted when its reply has left.
    let deadline = Instant::now() + WITHIN;
    let metrics = loop {
        let metrics = request(admin, "GET", "/metrics", "").2;
        let of_large = ["total", "ring"].map(|stage| format!("size=\"large\",stage=\"{stage}\""));
        let by_bytes = "minos_request_duration_by_bytes_seconds_count{bytes_max=\"1048576\"}";
        if of_large.iter().all(|labels| counts(&metrics, labels) == 21.0)
            && sample(&metrics, by_bytes) == 21.0
        {
            break metrics;
        }
        assert!(Instant::now() < deadline, "{metrics}");
    };
    let count = |labels: &str| counts(&metrics, labels);
    let small = count("size=\"small\",stage=\"total\"");
    assert!((1900.0..2100.0).contains(&small), "{small}");
    for stage in ["rx", "service", "tx"] {
        assert_eq!(count(&format!("size=\"small\",stage=\"{stage}\"")), small);
    }
    let large = count("size=\"large\",stage=\"total\"");
    let by_bytes = |bound: &str| {
        sample(&metrics, &format!("minos_request_duration_by_bytes_seconds_count{{bytes_max=\"{bound}\"}}"))
    };
    assert_eq!((by_bytes("256"), by_bytes("1048576"), by_bytes("16384")), (small, large, 0.0));
    // The buckets of a histogram rise to its count.
    let name = "minos_request_duration_seconds_bucket{size=\"small\",stage=\"total\",le=";
    let counts: Vec<f64> = metrics
        .lines()
        .filter(|line| line.starts_with(name))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(counts.len() > 20 && counts.is_sorted() && counts.last() == Some(&small), "{counts:?}");
    assert!(sample(&metrics, "minos_request_duration_seconds_sum{size=\"small\",stage=\"total\"}") > 0.0);
    assert!(sample(&metrics, "minos_watch_samples") >= 100.0);
    let roles = metrics.lines().filter(|line| line.starts_with("minos_worker_role{")).count();
    assert_eq!(roles, 2);
}

#[test]
fn nothing_is_observed_where_that_is_off() {
    let (server, admin) = start_watching(&["--watch=0", "--slow-threshold=0s"]);
    let mut client = connect(&server);
    client.set("big", &vec![b'b'; 300_000]).unwrap();
    for _ in 0..500 {
        client.get("big").unwrap();
    }
    let now = get(admin, "/now");
    for name in ["hot", "large", "slow"] {
        assert_eq!(now[name].as_array().unwrap().len(), 0, "{now}");
    }
    assert_eq!(now["minos"]["watch_samples"], 0);
    let (_server, admin) = start_watching(&["--hot-keys=0", "--large-keys=0", "--slow-log=0"]);
    assert_eq!(get(admin, "/hot")["keys"].as_array().unwrap().len(), 0);
}

#[test]
fn health_follows_the_server() {
    let (server, admin) = start_watching(&["--allow-shutdown=on", "--stop-timeout=30s"]);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(request(admin, "GET", path, "").0, 200, "{path}");
        assert_eq!(request(admin, "PUT", path, "").0, 405, "{path}");
    }
    // A large value under way keeps the server from ending.
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.write_all(b"set big 0 0 300000\r\n").unwrap();
    slow.write_all(&[b'b'; 100_000]).unwrap();
    let deadline = Instant::now() + WITHIN;
    while get(admin, "/stats/minos")["receiving_bytes"] == 0 {
        assert!(Instant::now() < deadline);
    }
    connect(&server).send("shutdown graceful\r\n").unwrap();
    loop {
        assert!(Instant::now() < deadline, "still ready");
        if request(admin, "GET", "/readyz", "").0 == 503 {
            break;
        }
    }
    assert_eq!(request(admin, "GET", "/healthz", "").0, 200);
}

/// Control: with `unsafe-inline` in its policy, or an address of elsewhere in its files, this fails.
#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let (_server, admin) = start_watching(&[]);
    for (path, content_type) in [
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/page.svg", "image/svg+xml"),
    ] {
        let (status, head, body) = request(admin, "GET", path, "");
        assert!(status == 200 && head.contains(&format!("content-type: {content_type}")), "{head}");
        let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        let elsewhere = body.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !elsewhere.contains("http:") && !elsewhere.contains("https:") && !elsewhere.contains("//cdn")
        );
        assert!(!body.contains("innerHTML") && !body.contains("insertAdjacentHTML"));
        assert_eq!(request(admin, "POST", path, "").0, 405);
    }
    assert_eq!(request(admin, "GET", "/page.html", "").0, 404);
}

/// The names of metrics in a text.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    words.filter(|word| word.starts_with("minos_"))
}

/// Control: with any name in these files misspelt, this fails.
#[test]
fn dashboard_and_alerts_name_metrics_that_there_are() {
    let (server, admin) = start_watching(&["--watch=1"]);
    let mut client = connect(&server);
    client.set("key", b"value").unwrap();
    let metrics = request(admin, "GET", "/metrics", "").2;
    let there: std::collections::HashSet<&str> =
        metrics.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    for (text, names_min) in
        [(include_str!("../../deploy/grafana.json"), 20), (include_str!("../../deploy/alerts.yml"), 8)]
    {
        let named: std::collections::BTreeSet<&str> = metrics_in(text).collect();
        assert!(named.len() >= names_min, "{named:?}");
        for name in named {
            assert!(there.contains(name), "no {name}");
        }
    }
    let board: Value = serde_json::from_str(include_str!("../../deploy/grafana.json")).unwrap();
    assert!(board["panels"].as_array().unwrap().iter().all(|panel| panel["targets"][0]["expr"].is_string()));
}

/// The fields without which memcached_exporter 0.16 logs an error or shows less. Control: without `cas_hits` in `stats
/// slabs`, its log says `Failed to parse cas`, and this fails.
#[test]
fn memcached_exporter_finds_its_fields() {
    let (server, _admin) = start_watching(&[]);
    let mut client = connect(&server);
    client.set("key", b"value").unwrap();
    let hits = ["get", "delete", "incr", "decr", "cas", "touch"];
    let general = hits.iter().flat_map(|name| [format!("{name}_hits"), format!("{name}_misses")]);
    let others = "version uptime time cas_badval cmd_set cmd_flush rusage_user rusage_system bytes limit_maxbytes \
                  curr_items total_items bytes_read bytes_written curr_connections total_connections \
                  rejected_connections listen_disabled_num evictions reclaimed store_too_large store_no_memory \
                  accepting_conns threads";
    let general: Vec<String> = general.chain(others.split(' ').map(str::to_owned)).collect();
    let of_class = |names: &str| names.split(' ').map(|name| format!("5:{name}")).collect::<Vec<_>>();
    let slabs = of_class("chunk_size total_chunks used_chunks free_chunks cmd_set cas_hits cas_badval");
    let items = of_class("number age mem_requested evicted outofmemory reclaimed");
    let items = items.iter().map(|name| format!("items:{name}")).collect();
    let settings = vec!["maxconns".to_owned(), "lru_crawler".to_owned()];
    // In both groups it would be one metric of two kinds, which fails the whole scrape.
    let is_twice = |(name, _): &(String, String)| name.ends_with(":mem_requested");
    assert!(!client.stats("slabs").unwrap().iter().any(is_twice));
    for (group, names) in [("", general), ("slabs", slabs), ("items", items), ("settings", settings)] {
        let stats = client.stats(group).unwrap();
        for name in names {
            assert!(stats.iter().any(|(found, _)| *found == name), "no {name} in {group:?}: {stats:?}");
        }
    }
}

/// What `minos top` prints, and whether it ended well.
fn top(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_minos")).arg("top").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn top_shows_a_running_server() {
    let (server, admin) = start_watching(&["--watch=1"]);
    let mut client = connect(&server);
    client.set("large-key", &vec![b'b'; 300_000]).unwrap();
    for _ in 0..100 {
        client.set("hot-key", b"value").unwrap();
    }
    let admin = format!("--admin={admin}");
    let (is_good, text, errors) = top(&["--once", "--interval=50ms", &admin]);
    assert!(is_good, "{errors}");
    for part in
        ["size-aware", "Latency in the server", "hot-key", "large-key", "293.0 KiB", "Memory", "Workers"]
    {
        assert!(text.contains(part), "no {part}:\n{text}");
    }
    // The output is no terminal here.
    let (is_good, _, errors) = top(&[&admin]);
    assert!(!is_good && errors.contains("--once"), "{errors}");
    let (is_good, _, errors) = top(&["--once", "--admin=127.0.0.1:1"]);
    assert!(!is_good && errors.contains("--admin 127.0.0.1:1"), "{errors}");
}
