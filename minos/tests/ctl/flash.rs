//! `minos ctl flash`.

use super::*;
use tempfile::TempDir;

/// A store above a small device, with further options, and the admin endpoint.
pub(crate) fn start_above(folder: &TempDir, name: &str, others: &[&str]) -> (Server, SocketAddr) {
    let flash = format!("--flash={}:64m", folder.path().join(name).display());
    let options =
        [&[&*flash, "--engine=store", "--max-item-size=64k", "--stop-timeout=60s"], others].concat();
    start_with_admin(2, &options)
}

fn change(admin: SocketAddr, body: &str) -> (u16, String) {
    request(admin, "PUT", "/flash", body)
}

#[test]
fn the_log_is_shown_and_its_rates_change() {
    let folder = TempDir::new().unwrap();
    let (_server, admin) = start_above(&folder, "flash", &["--scrub-rate=2m"]);
    let text = shown(&ctl(admin, &["flash"]));
    let lines: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    assert_eq!((lines["state"], lines["scrub_rate"], lines["bad"]), ("live", "2097152", "0"), "{text}");
    assert_eq!(lines["compaction_rate"], (64 << 20).to_string());
    let text = shown(&ctl(admin, &["flash", "--scrub-rate=3m", "--compaction-rate=0", "--json"]));
    let after: Value = serde_json::from_str(&text).unwrap();
    let rates = (&after["scrub"]["scrub_rate"], &after["compaction"]["compaction_rate"]);
    assert_eq!(rates, (&(3 << 20).into(), &0.into()), "{after}");
    assert_eq!(after, get(admin, "/flash"), "nothing goes on here");
    let metrics = request(admin, "GET", "/metrics", "").1;
    for line in ["# TYPE minos_flash_scrub_rate gauge", "# TYPE minos_flash_moved_bytes counter"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn a_scrub_of_everything_ends_and_is_counted() {
    let folder = TempDir::new().unwrap();
    let (server, admin) = start_above(&folder, "flash", &["--scrub-rate=0", "--durability=flush"]);
    let mut client = connect(&server);
    for key in 0..200 {
        assert_eq!(client.set(&format!("key{key}"), &vec![7; 60_000]).unwrap(), "STORED");
    }
    wait_until(admin, "/flash", |flash| flash["segments"]["sealed"] != 0);
    assert_eq!(get(admin, "/flash")["scrub"]["scrubbed_segments"], 0);
    let begun = shown(&ctl(admin, &["flash", "--scrub=1g"]));
    assert!(begun.contains("scrub_left"), "{begun}");
    wait_until(admin, "/flash", |flash| flash["scrub"]["scrubs"] == 1);
    let shown = get(admin, "/flash");
    let scrub = &shown["scrub"];
    let read_bytes = (&scrub["scrub_read_bytes"], &shown["compaction"]["compaction_read_bytes"]);
    assert!(read_bytes.0.as_u64() >= Some(1 << 20) && read_bytes.1 == 0, "{shown}");
    assert!(scrub["scrubbed_segments"].as_u64() > Some(0), "{scrub}");
    assert_eq!(
        (&scrub["scrub_faults"], &scrub["scrub_rate"], &scrub["scrub_left"]),
        (&0.into(), &0.into(), &Value::Null)
    );
}

#[test]
fn wrong_changes_of_flash_change_nothing() {
    let folder = TempDir::new().unwrap();
    let (_server, admin) = start_above(&folder, "flash", &[]);
    // Whoever asks for the rest sees the server at work.
    let rates = || ["scrub", "compaction"].map(|part| get(admin, "/flash")[part].clone());
    let before = rates();
    let too_much = format!(r#"{{"scrub_rate": {}}}"#, (1u64 << 40) + 1);
    for (body, part) in [
        (r#"{"scrub_rate": -1}"#, "-1"),
        (r#"{"compaction_rate": 1e400}"#, "number"),
        (r#"{"scrub": 0, "scrub_rate": 7}"#, "above 0"),
        (&*too_much, "at most"),
        (r#"{"speed": 1}"#, "speed"),
        ("[", "scrub_rate"),
        ("", "scrub_rate"),
    ] {
        let (status, text) = change(admin, body);
        assert!(status == 400 && text.contains(part), "{body}: {status} {text}");
    }
    assert_eq!(change(admin, &" ".repeat(5000)).0, 413);
    assert_eq!(request(admin, "DELETE", "/flash", "").0, 405);
    assert!(complaint(&ctl(admin, &["flash", "--scrub-rate=2t"])).contains("at most"));
    assert_eq!(rates(), before);
}

#[test]
fn a_server_without_flash_says_so() {
    let (_server, admin) = start_with_admin(1, &[]);
    for (status, text) in [change(admin, r#"{"scrub": 1}"#), request(admin, "GET", "/flash", "")] {
        assert!(status == 404 && text.contains("without --flash"), "{status} {text}");
    }
    assert!(complaint(&ctl(admin, &["flash"])).contains("without --flash"));
}
