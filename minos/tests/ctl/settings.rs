//! `minos ctl set` and CONFIG SET on a running server: each change has its effect, and what is refused changes nothing.

use minos_client::{Config, Error, blocking::Client};

use super::*;

/// A server that speaks Redis' protocol too, its admin endpoint, and a client of Redis' protocol.
fn start_with_resp(options: &[&str]) -> (Server, SocketAddr, minos_testkit::Client) {
    let mut all = vec!["--resp=127.0.0.1:0"];
    all.extend(options);
    let (server, admin) = start_with_admin(2, &all);
    let log = server.log();
    let resp = log.lines().find_map(|line| line.strip_prefix("listening on resp ")).expect("an address");
    let client = minos_testkit::Client::connect(resp.parse().unwrap()).unwrap();
    (server, admin, client)
}

fn set(admin: SocketAddr, pairs: &[&str]) -> String {
    shown(&ctl(admin, &[&["set"], pairs].concat()))
}

fn setting(admin: SocketAddr, name: &str) -> String {
    shown(&ctl(admin, &["get", name])).trim_end().to_owned()
}

/// A value of `stats settings`, which `minos ctl` does not change.
fn stat(server: &Server, name: &str) -> String {
    let stats = connect(server).stats("settings").unwrap();
    stats.into_iter().find(|(each, _)| each == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Waits until `done`.
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn larger_items_are_taken_once_they_are_allowed() {
    let (server, admin, mut redis) = start_with_resp(&["--max-item-size=1k", "--buffer-memory=4m"]);
    let mut client = connect(&server);
    let value = vec![b'v'; 100_000];
    assert_eq!(client.set("k", &value).unwrap(), "SERVER_ERROR object too large for cache");
    assert_eq!(set(admin, &["max-item-size", "200k"]), "max-item-size 200k\n");
    // The connection was there before.
    assert_eq!(client.set("k", &value).unwrap(), "STORED");
    assert_eq!(stat(&server, "item_size_max"), "204800");
    assert_eq!(redis.ask("CONFIG SET proto-max-bulk-len 1kb").unwrap(), "+OK");
    assert_eq!(client.set("k", &value).unwrap(), "SERVER_ERROR object too large for cache");
    assert_eq!(setting(admin, "max-item-size"), "1k");
    // There are no buffers for more.
    let error = complaint(&ctl(admin, &["set", "max-item-size", "64m"]));
    assert!(error.contains("64m is more than the 4m") && error.contains("--max-item-size"), "{error}");
    assert_eq!(setting(admin, "max-item-size"), "1k");
}

#[test]
fn the_threshold_and_its_percentile_change() {
    let (server, admin, mut redis) = start_with_resp(&["--epoch=1h"]);
    let threshold = || get(admin, "/stats/minos")["threshold_bytes"].as_u64().unwrap();
    set(admin, &["threshold", "1000"]);
    wait_for("the threshold", || (1000..1100).contains(&threshold()));
    assert_eq!(stat(&server, "threshold"), "1000");
    assert_eq!(redis.ask("CONFIG SET threshold 64k").unwrap(), "+OK");
    wait_for("the threshold", || (65536..70000).contains(&threshold()));
    // Of a hundred sizes, half are at most 100 bytes.
    let mut client = connect(&server);
    for n in 0..100 {
        let bytes = if n % 2 == 0 { 100 } else { 10_000 };
        assert_eq!(client.set(&format!("k{n}"), &vec![b'v'; bytes]).unwrap(), "STORED");
    }
    set(admin, &["threshold", "auto", "percentile", "40", "epoch", "10ms"]);
    wait_for("the threshold", || {
        client.get("k0").unwrap();
        client.get("k1").unwrap();
        (100..200).contains(&threshold())
    });
    assert_eq!(redis.ask("CONFIG SET percentile 99").unwrap(), "+OK");
    wait_for("the threshold", || (10_000..11_000).contains(&threshold()));
}

#[test]
fn connections_and_their_silence_are_limited_anew() {
    let (server, admin, mut redis) = start_with_resp(&["--max-connections=64"]);
    let mut one = connect(&server);
    assert_eq!(set(admin, &["max-connections", "2"]), "max-connections 2\n");
    let mut refused = connect(&server);
    assert_eq!(refused.line().unwrap(), "ERROR Too many open connections");
    assert_eq!(redis.ask("CONFIG SET maxclients 100").unwrap(), "+OK");
    let mut next = connect(&server);
    assert_eq!(next.set("k", b"v").unwrap(), "STORED");
    assert_eq!(get(admin, "/stats")["max_connections"], 100);
    // 127 queue places are not enough.
    let error = complaint(&ctl(admin, &["set", "max-connections", "1000"]));
    assert!(error.contains("1000 is more than the 127"), "{error}");
    assert_eq!(one.set("k", b"v").unwrap(), "STORED");
    set(admin, &["idle-timeout", "1s"]);
    wait_for("a silent connection", || one.rest().is_ok_and(|rest| rest.is_empty()));
    // It may have been the first to be closed.
    set(admin, &["idle-timeout", "0"]);
    assert_eq!(setting(admin, "idle-timeout"), "0s");
}

#[test]
fn the_log_tells_more_when_it_is_told_to() {
    let (server, admin, mut redis) = start_with_resp(&["--epoch=20ms"]);
    let has_debug = |server: &Server| server.log().contains("DEBUG");
    let mut client = connect(&server);
    assert_eq!(client.set("k", b"v").unwrap(), "STORED");
    assert!(!has_debug(&server), "the control: {}", server.log());
    set(admin, &["log-level", "debug"]);
    wait_for("a line for developers", || {
        client.get("k").unwrap();
        has_debug(&server)
    });
    assert!(server.log().contains("setting=\"log-level\""), "{}", server.log());
    assert_eq!(stat(&server, "verbosity"), "1");
    assert_eq!(client.ask("verbosity 0").unwrap(), "OK");
    assert_eq!(setting(admin, "log-level"), "start");
    assert_eq!(redis.ask("CONFIG SET loglevel nothing").unwrap(), "+OK");
    set(admin, &["watch", "7"]);
    assert!(!server.log().contains("setting=\"watch\""), "the log is off: {}", server.log());
    assert_eq!(client.ask("verbosity 1").unwrap(), "OK");
    assert_eq!(setting(admin, "log-level"), "debug");
}

#[test]
fn sampling_and_memory_change() {
    let (server, admin, mut redis) = start_with_resp(&["--watch=0"]);
    let samples = || get(admin, "/stats/minos")["watch_samples"].as_u64().unwrap();
    let mut client = connect(&server);
    for _ in 0..100 {
        client.get("k").unwrap();
    }
    assert_eq!(samples(), 0);
    set(admin, &["watch", "1"]);
    for _ in 0..100 {
        client.get("k").unwrap();
    }
    wait_for("samples", || samples() >= 90);
    set(admin, &["memory", "32m"]);
    assert_eq!(get(admin, "/stats")["limit_maxbytes"], 32 << 20);
    assert_eq!(client.ask("cache_memlimit 16").unwrap(), "OK");
    assert_eq!(setting(admin, "memory"), "16m");
    assert_eq!(redis.ask("CONFIG SET maxmemory 0").unwrap(), "+OK");
    assert_eq!(setting(admin, "memory"), "64m");
    let error = complaint(&ctl(admin, &["set", "memory", "65m"]));
    assert!(error.contains("65m is more than the 64m") && error.contains("--memory"), "{error}");
}

#[test]
fn the_design_and_other_limits_change() {
    let (server, admin, mut redis) = start_with_resp(&[]);
    assert_eq!(set(admin, &["dispatch", "stealing", "slice", "8k"]), "dispatch stealing\nslice 8k\n");
    assert_eq!(stat(&server, "dispatch"), "stealing");
    assert_eq!(stat(&server, "slice_bytes"), "8192");
    assert_eq!(redis.ask("CONFIG SET dispatch size-aware").unwrap(), "+OK");
    wait_for("the design", || stat(&server, "dispatch") == "size-aware");
    for (name, value, stat_name, expected) in [
        ("stall-timeout", "7s", "stall_timeout", "7"),
        ("min-rate", "1k", "min_rate", "1024"),
        ("receive-memory", "5m", "receive_memory", "5242880"),
        ("max-buffer", "64k", "buffer_size_max", "65536"),
        ("detail-prefixes", "9", "detail_prefixes_max", "9"),
        ("steal", "off", "steal", "no"),
        ("alpha", "0.5", "alpha", "0.5"),
        ("cost", "bytes", "cost", "bytes"),
        ("slow-threshold", "5ms", "slow_us", "5000"),
    ] {
        set(admin, &[name, value]);
        assert_eq!(stat(&server, stat_name), expected, "{name}");
    }
    // A command line longer than the new buffer.
    let mut client = connect(&server);
    client.send(format!("get {}\r\n", "k ".repeat(40_000))).ok();
    assert!(client.rest().is_ok_and(|rest| !rest.windows(3).any(|three| three == b"END")));
    let metrics = request(admin, "GET", "/metrics", "").1;
    assert!(metrics.contains("minos_setting{name=\"stall-timeout\"} 7\n"), "{metrics}");
    let changes = get(admin, "/stats/minos")["settings_changes"].as_u64().unwrap();
    assert_eq!(changes, 12);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (server, admin, mut redis) = start_with_resp(&[]);
    let before = get(admin, "/settings");
    let told = shown(&ctl(admin, &["show"]));
    for name in ["threshold", "max-item-size", "log-level", "size-aware, "] {
        assert!(told.contains(name), "{told}");
    }
    for (pairs, why) in [
        (&["watch", "1", "percentile", "0"][..], "percentile: 0 is not allowed; allowed is above 0"),
        (&["watch", "1", "threshold", "big"], "expected auto or a number of bytes"),
        (&["watch", "1", "workers", "3"], "workers cannot be set while the server runs"),
        (&["watch", "1", "tls-timeout", "3s"], "the server speaks no TLS"),
        (&["watch", "1", "colour", "red"], "there is no setting \"colour\""),
        (&["watch", "1", "watch", "2"], "watch is given twice"),
        (&["watch", "1", "steal"], "each NAME needs a VALUE"),
    ] {
        let error = complaint(&ctl(admin, &[&["set"], pairs].concat()));
        assert!(error.contains(why), "{error}");
    }
    assert!(complaint(&ctl(admin, &["get", "colour"])).contains("no setting"));
    for (line, why) in [
        ("watch 1 percentile 0", "argument 'percentile'"),
        ("watch 1 maxclients x", "argument 'maxclients'"),
        ("watch 1 timeout x", "couldn't be parsed into an integer"),
        ("watch 1 maxmemory 1x", "argument must be a memory value"),
        ("watch 1 loglevel loud", "argument must be one of debug"),
        ("watch 1 workers 3", "cannot be set while the server runs"),
        ("watch 1 port 1", "can't set immutable config"),
        ("watch 1 colour red", "Unknown option"),
    ] {
        let said = redis.ask(&format!("CONFIG SET {line}")).unwrap();
        assert!(said.starts_with("-ERR") && said.contains(why), "{line}: {said}");
    }
    let twice = r#"{"watch": 1, "watch": 2}"#;
    for body in [r#"{"watch": [1]}"#, "[]", r#"{"watch": true}"#, "x", twice, r#"{"epoch": "1ns"}"#] {
        assert_eq!(request(admin, "PUT", "/settings", body).0, 400, "{body}");
    }
    assert_eq!(request(admin, "DELETE", "/settings", "").0, 405);
    assert_eq!(get(admin, "/settings"), before);
    assert_eq!(stat(&server, "watch"), "128");
}

#[test]
fn a_change_needs_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let option = format!("--admin-token-file={}", token.display());
    let (_server, admin) = start_with_admin(1, &[&option]);
    assert!(complaint(&ctl(admin, &["set", "watch", "5"])).contains("token"));
    assert_eq!(setting(admin, "watch"), "128");
    let with = format!("--token-file={}", token.display());
    assert_eq!(shown(&ctl(admin, &[&with, "set", "watch", "5"])), "watch 5\n");
}

/// A client that was there before hears of another limit with an answer, and asks for one if it has heard nothing.
#[test]
fn native_clients_learn_of_another_largest_item() {
    let options = ["--max-item-size=1k", "--buffer-memory=4m", "--native=127.0.0.1:0"];
    let (mut server, admin, _redis) = start_with_resp(&options);
    let native = server.native_address().unwrap().to_string();
    let mut client = Client::connect(&native, Config::new().timeout(Duration::from_secs(60))).unwrap();
    let value = vec![b'v'; 100_000];
    assert_eq!(client.put("k", &value[..]), Err(Error::TooLarge { bytes_max: 1024 }));
    assert_eq!(set(admin, &["max-item-size", "200k"]), "max-item-size 200k\n");
    wait_for("the larger one", || client.put("k", &value[..]).is_ok());
    assert_eq!(set(admin, &["max-item-size", "2k"]), "max-item-size 2k\n");
    wait_for("the smaller one", || {
        client.get("k").unwrap();
        client.put("k", &value[..]) == Err(Error::TooLarge { bytes_max: 2048 })
    });
}
