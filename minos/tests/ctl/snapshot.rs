//! `minos ctl snapshot`, and a server of the copy.

use super::{flash::start_above, *};
use minos_testkit::{Client, Over, skip};
use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use tempfile::TempDir;

const KEYS: u32 = 300;
const VALUE_BYTES: usize = 20_000;

fn value(key: u32, version: u32) -> Vec<u8> {
    format!("{key} {version} ").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

fn begin(admin: SocketAddr, body: &str) -> (u16, String) {
    request(admin, "POST", "/snapshot", body)
}

/// Stores a version of a key. On a busy machine flash may be behind for longer than a request waits.
fn store(client: &mut Client, key: u32, version: u32) {
    let deadline = Instant::now() + WITHIN;
    loop {
        match client.set(&format!("key{key}"), &value(key, version)).unwrap().as_str() {
            "STORED" => return,
            said => {
                let is_behind = said == "SERVER_ERROR out of memory storing object";
                assert!(is_behind && Instant::now() < deadline, "{said}");
            }
        }
    }
}

/// Changes every third key over and over, and deletes and stores every fifth.
fn disturb(server: &Server, stop: &AtomicBool) -> u32 {
    let (mut client, mut version) = (connect(server), 1);
    while !stop.load(Relaxed) {
        for key in (0..KEYS).filter(|key| key % 3 == 0) {
            store(&mut client, key, version);
        }
        for key in (0..KEYS).filter(|key| key % 3 == 1 && key % 5 == 0) {
            assert_eq!(client.ask(&format!("delete key{key}")).unwrap(), "DELETED");
            store(&mut client, key, 0);
        }
        version += 1;
    }
    version
}

#[test]
fn a_copy_is_made_under_a_writer_and_served() {
    let folder = TempDir::new().unwrap();
    let option = format!("--snapshot-folder={}", folder.path().display());
    let (server, admin) = start_above(&folder, "flash", &[&option, "--durability=interval"]);
    let mut client = connect(&server);
    for key in 0..KEYS {
        store(&mut client, key, 0);
    }
    assert_eq!(client.ask("delete key2").unwrap(), "DELETED");
    assert_eq!(get(admin, "/snapshot")["state"], "none");
    let stop = AtomicBool::new(false);
    let (output, versions) = thread::scope(|scope| {
        let writer = scope.spawn(|| disturb(&server, &stop));
        let over = Over(&stop);
        let output = ctl(admin, &["snapshot", "copy", "--rate=0", "--json"]);
        drop(over);
        (output, writer.join().unwrap())
    });
    let last: Value = serde_json::from_str(&shown(&output)).unwrap();
    assert_eq!((&last["state"], &last["bytes"]), (&"done".into(), &last["copied_bytes"]));
    let again = ctl(admin, &["snapshot", "copy"]);
    assert!(complaint(&again).contains("exists"), "{again:?}");
    let text = shown(&ctl(admin, &["snapshot"]));
    assert!(text.contains("done") && get(admin, "/flash")["snapshots"]["snapshots"] == 1, "{text}");
    let path = folder.path().join("copy");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(server);
    let (server, _) = start_above(&folder, "copy", &[]);
    let mut client = connect(&server);
    assert_eq!(client.get("key2").unwrap(), None, "a deleted item is back");
    for key in (0..KEYS).filter(|key| *key != 2) {
        let got = client.get(&format!("key{key}")).unwrap().map(|found| found.value);
        // Deleted for a moment.
        let may_miss = key % 3 == 1 && key % 5 == 0;
        let changed = if key % 3 == 0 { versions } else { 1 };
        let is_right =
            got.as_ref().is_some_and(|got| (0..changed).any(|version| *got == value(key, version)));
        assert!(is_right || got.is_none() && may_miss, "{key}");
    }
}

#[test]
fn wrong_snapshots_are_refused() {
    let folder = TempDir::new().unwrap();
    let (_server, admin) = start_above(&folder, "none", &[]);
    let (status, text) = begin(admin, r#"{"name": "copy", "rate": 0}"#);
    assert!(status == 403 && text.contains("--snapshot-folder"), "{status} {text}");
    let option = format!("--snapshot-folder={}", folder.path().display());
    let (_server, admin) = start_above(&folder, "flash", &[&option]);
    for (body, part) in [
        (r#"{"name": "../copy", "rate": 0}"#, "no name"),
        (r#"{"name": "", "rate": 0}"#, "no name"),
        (r#"{"name": "copy", "rate": -1}"#, "rate"),
        (r#"{"name": "copy"}"#, "rate"),
        (r#"{"name": "copy", "rate": 0, "folder": "/"}"#, "folder"),
        ("", "name"),
    ] {
        let (status, text) = begin(admin, body);
        assert!(status == 400 && text.contains(part), "{body}: {status} {text}");
    }
    assert_eq!(begin(admin, &" ".repeat(5000)).0, 413);
    assert_eq!(request(admin, "PUT", "/snapshot", "").0, 405);
    // The table itself is there already.
    assert_eq!(begin(admin, r#"{"name": "flash", "rate": 0}"#).0, 409);
    assert_eq!(get(admin, "/snapshot")["state"], "none");
    let (_server, admin) = start_with_admin(1, &[]);
    assert_eq!(begin(admin, r#"{"name": "copy", "rate": 0}"#).0, 404);
    assert!(complaint(&ctl(admin, &["snapshot", "copy"])).contains("without --flash"));
}

#[test]
fn a_snapshot_can_be_cancelled_and_another_be_made() {
    let folder = TempDir::new().unwrap();
    let option = format!("--snapshot-folder={}", folder.path().display());
    let (server, admin) = start_above(&folder, "flash", &[&option, "--durability=flush"]);
    assert_eq!(connect(&server).set("key", &value(1, 0)).unwrap(), "STORED");
    let error = complaint(&ctl(admin, &["snapshot", "--cancel"]));
    assert!(error.contains("no snapshot is under way"), "{error}");
    assert_eq!(begin(admin, r#"{"name": "copy", "rate": 1}"#).0, 202);
    wait_copying(admin);
    shown(&ctl(admin, &["snapshot", "--cancel"]));
    wait_until(admin, "/snapshot", |snapshot| snapshot["state"] == "failed");
    assert_eq!(get(admin, "/snapshot")["reason"], "cancelled");
    assert!(shown(&ctl(admin, &["snapshot", "copy"])).contains("done"));
}

#[test]
fn a_server_that_stops_leaves_no_half_copy() {
    let folder = TempDir::new().unwrap();
    let option = format!("--snapshot-folder={}", folder.path().display());
    let (mut server, admin) = start_above(&folder, "flash", &[&option, "--durability=flush"]);
    let mut client = connect(&server);
    for key in 0..KEYS {
        store(&mut client, key, 0);
    }
    assert_eq!(begin(admin, r#"{"name": "copy", "rate": 1}"#).0, 202);
    wait_copying(admin);
    assert_eq!(begin(admin, r#"{"name": "other", "rate": 0}"#).0, 409);
    let status = server.terminate(Duration::from_secs(60)).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{}", server.log());
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["flash"], "{}", server.log());
}

/// Waits until this snapshot has copied something.
fn wait_copying(admin: SocketAddr) {
    wait_until(admin, "/snapshot", |snapshot| snapshot["copied_bytes"] != 0);
}

fn parts(folder: &TempDir) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".part")).count()
}

#[test]
fn a_start_removes_what_a_killed_server_left_and_nothing_of_a_living_one() {
    let folder = TempDir::new().unwrap();
    let option = format!("--snapshot-folder={}", folder.path().display());
    let options = [&*option, "--durability=flush"];
    let [(dead, admin), (living, other)] =
        ["flash", "other"].map(|name| start_above(&folder, name, &options));
    for (server, admin) in [(&dead, admin), (&living, other)] {
        assert_eq!(connect(server).set("key", &value(1, 0)).unwrap(), "STORED");
        assert_eq!(begin(admin, &format!(r#"{{"name": "copy{}", "rate": 1}}"#, server.pid())).0, 202);
        wait_copying(admin);
    }
    drop(dead);
    assert_eq!(parts(&folder), 2);
    let (again, _) = start_above(&folder, "flash", &options);
    assert!(again.log().contains("removed an incomplete snapshot"), "{}", again.log());
    assert_eq!(parts(&folder), 1);
    assert_eq!(get(other, "/snapshot")["state"], "copying");
    shown(&ctl(other, &["snapshot", "--cancel"]));
    let deadline = Instant::now() + WITHIN;
    while parts(&folder) > 0 {
        assert!(Instant::now() < deadline, "{}", living.log());
    }
}

/// A store whose folder for snapshots is a disk of this size, or the reason why none can be mounted here.
fn start_with_disk(folder: &TempDir, size: &str) -> Result<(Server, SocketAddr), String> {
    let unshare = ["--map-root-user", "--mount"];
    let tried = Command::new("unshare").args(unshare).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    tried.map_err(|error| error.to_string()).and_then(|tried| match tried.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&tried.stderr).into_owned()),
    })?;
    let (disk, flash) = (folder.path().join("disk"), folder.path().join(size));
    fs::create_dir_all(&disk).unwrap();
    let script = format!(r#"mount -t tmpfs -o size={size} none "$0" && exec "$@""#);
    let server = Server::start("unshare".as_ref(), |port, _| {
        let disk = disk.display().to_string();
        let served = [
            format!("--memcached=127.0.0.1:{port}"),
            format!("--flash={}:64m", flash.display()),
            format!("--snapshot-folder={disk}"),
        ];
        let command = ["sh", "-c", &script, &disk, env!("CARGO_BIN_EXE_minos"), "serve", "--engine=store"];
        let options =
            ["--memory=64m", "--workers=1", "--pin=off", "--durability=flush", "--admin=127.0.0.1:0"];
        let others = [&unshare[..], &command, &options].concat();
        others.into_iter().map(str::to_owned).chain(served).collect()
    });
    let server = server.unwrap();
    let admin = admin_address(&server).parse().unwrap();
    Ok((server, admin))
}

#[test]
fn a_full_disk_ends_a_snapshot_and_nothing_else() {
    for (size, is_enough) in [("1m", false), ("64m", true)] {
        let folder = TempDir::new().unwrap();
        let (server, admin) = match start_with_disk(&folder, size) {
            Ok(started) => started,
            Err(reason) => return skip(format!("no disk can be mounted here: {reason}")),
        };
        let mut client = connect(&server);
        for key in 0..KEYS {
            store(&mut client, key, 0);
        }
        let output = ctl(admin, &["snapshot", "copy", "--rate=0"]);
        let disk = format!("/proc/{}/root{}", server.pid(), folder.path().join("disk").display());
        let left: Vec<_> = fs::read_dir(disk).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        if is_enough {
            assert!(shown(&output).contains("done") && left == ["copy"], "{left:?}");
            continue;
        }
        let error = complaint(&output);
        assert!(error.contains("the copy cannot be written: No space left on device"), "{error}");
        assert!(server.log().contains("there is no snapshot"), "{}", server.log());
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(get(admin, "/flash")["snapshots"]["snapshots_failed"], 1);
        wait_until(admin, "/flash", |flash| flash["snapshots"]["held_segments"] == 0);
        assert_eq!(client.set("key", &value(1, 1)).unwrap(), "STORED");
    }
}
