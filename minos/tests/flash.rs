//! `minos serve --flash` as an operator runs it: items outlive the server, and nothing foreign is written over.

mod common;

use std::{
    fs, io,
    net::TcpListener,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use common::{
    Wanted, connect,
    keeper::Keeper,
    kills::{Promise, Region, kill_and_check},
    refusal, stop,
};
use minos_client::{Config, StoreOptions, blocking};
use minos_testkit::{Answer, Client, Packet, PacketClient, Server};
use tempfile::TempDir;

/// Three times what memory holds.
const KEYS: u32 = 12_000;
const VALUE_BYTES: usize = 1000;
const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";
/// Requests in one write.
const BURST: usize = 60;

fn file() -> (TempDir, PathBuf) {
    let folder = TempDir::with_prefix("minos-flash-").unwrap();
    let path = folder.path().join("flash");
    (folder, path)
}

fn serve(engine: &str, path: &Path) -> Server {
    serve_with(engine, path, &[])
}

fn serve_with(engine: &str, path: &Path, others: &[&str]) -> Server {
    let (engine, flash) = (format!("--engine={engine}"), format!("--flash={}:64m", path.display()));
    let minos_only = [&[&*engine, &flash, "--stop-timeout=60s"], others].concat();
    common::start(Wanted {
        memory: "4m",
        max_item_size: Some("64k"),
        minos_only: &minos_only,
        ..Wanted::default()
    })
}

fn kill(server: Server) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
}

fn refused(options: &[&str]) -> String {
    refusal(&[&["--memory=4m", "--max-item-size=64k"], options].concat())
}

fn value(key: u32) -> Vec<u8> {
    format!("{key} ").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

fn fill(client: &mut Client) {
    let items: Vec<_> = (0..KEYS).map(|key| (format!("key{key}"), value(key))).collect();
    for burst in items.chunks(BURST) {
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let lines = client.set_many(burst).unwrap();
            if lines.iter().all(|line| line == "STORED") {
                break;
            }
            // On a busy machine flash may be behind for longer than a request waits.
            let is_behind = |line: &String| line == "STORED" || line == OUT_OF_MEMORY;
            assert!(lines.iter().all(is_behind) && Instant::now() < patience, "{lines:?}");
        }
    }
}

/// How many keys are found; each has its value.
fn found(client: &mut Client) -> u32 {
    let keys: Vec<_> = (0..KEYS).map(|key| format!("key{key}")).collect();
    let found = keys.chunks(BURST).flat_map(|burst| client.get_many(burst).unwrap());
    let found = found.zip(0..).filter_map(|(found, key)| Some((key, found?)));
    found.map(|(key, found)| assert_eq!(found.value, value(key), "{key}")).count() as u32
}

fn stat(client: &mut Client, name: &str) -> u64 {
    let stats = client.stats("flash").unwrap();
    stats.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1.parse().unwrap()
}

#[test]
fn a_store_has_everything_after_a_restart() {
    let (_folder, path) = file();
    let server = serve("store", &path);
    let mut client = connect(&server);
    fill(&mut client);
    assert_eq!(client.ask("delete key7").unwrap(), "DELETED");
    assert_eq!(found(&mut client), KEYS - 1);
    assert!(stat(&mut client, "flash_items") > 0 && stat(&mut client, "read_found") > 0);
    stop(server);
    let server = serve("store", &path);
    let mut client = connect(&server);
    assert_eq!(found(&mut client), KEYS - 1, "{}", server.log());
    assert_eq!(client.get("key7").unwrap(), None);
}

/// Before the fix, the store began with fewer items in silence.
#[test]
fn damage_of_a_stopped_store_is_told() {
    const TOLD: &str = "it was damaged since it was stopped";
    let (_folder, path) = file();
    let server = serve("store", &path);
    fill(&mut connect(&server));
    stop(server);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; 3 << 20], 4 << 20).unwrap();
    let server = serve("store", &path);
    let mut client = connect(&server);
    let (lost, log) = (stat(&mut client, "lost"), server.log());
    assert!(lost > 0 && log.contains(TOLD) && log.contains(&format!("lost={lost} items={KEYS}")), "{log}");
    let items = client.stats("").unwrap().into_iter().find(|(name, _)| name == "curr_items").unwrap().1;
    assert_eq!(items, (u64::from(KEYS) - lost).to_string());
    stop(server);
    // It is told once.
    let server = serve("store", &path);
    assert_eq!((stat(&mut connect(&server), "lost"), server.log().contains(TOLD)), (0, false));
}

#[test]
fn damage_of_a_killed_store_is_told() {
    const TOLD: &str = "it is damaged: pages in these segments were complete";
    let (_folder, path) = file();
    let server = serve("store", &path);
    fill(&mut connect(&server));
    let patience = Instant::now() + Duration::from_secs(60);
    // The first segments are complete, and a journal says so.
    while stat(&mut connect(&server), "flash_items") < u64::from(KEYS) / 2 {
        assert!(Instant::now() < patience, "nothing comes to flash: {}", server.log());
    }
    kill(server);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; 3 << 20], 4 << 20).unwrap();
    let server = serve("store", &path);
    let (damaged, log) = (stat(&mut connect(&server), "damaged_pages"), server.log());
    assert!(damaged > 0 && log.contains(TOLD) && log.contains(&format!("pages={damaged}")), "{log}");
    kill(server);
    // It is told once.
    let server = serve("store", &path);
    assert_eq!((stat(&mut connect(&server), "damaged_pages"), server.log().contains(TOLD)), (0, false));
}

#[test]
fn a_stop_tells_what_happened_to_its_file() {
    let (_folder, path) = file();
    for (harm, told) in [
        (fs::remove_file as fn(PathBuf) -> io::Result<()>, "was removed: all items on flash are lost"),
        (|path| fs::write(path, b""), "flash cannot be read again: it may be damaged"),
    ] {
        let mut server = serve("store", &path);
        fill(&mut connect(&server));
        let patience = Instant::now() + Duration::from_secs(60);
        while stat(&mut connect(&server), "flash_items") < u64::from(KEYS) / 2 {
            assert!(Instant::now() < patience, "nothing comes to flash: {}", server.log());
        }
        harm(path.clone()).unwrap();
        server.terminate(Duration::from_secs(60)).unwrap();
        let log = server.log();
        assert!(log.contains(told), "{log}");
    }
}

/// Before the fix, the program ended as if nothing had happened.
#[test]
fn a_stop_that_loses_items_is_no_success() {
    let (_folder, path) = file();
    let flash = format!("--flash={}:64m", path.display());
    // The stop has no time for what memory holds.
    let minos_only = ["--engine=store", &flash, "--stop-timeout=0s"];
    let mut server = common::start(Wanted { memory: "4m", minos_only: &minos_only, ..Wanted::default() });
    connect(&server).set_many(&[("key".to_owned(), value(1))]).unwrap();
    let status = server.terminate(Duration::from_secs(60)).unwrap().unwrap();
    let log = server.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("up to so many items are lost items=1"), "{log}");
}

#[test]
fn a_cache_that_was_killed_keeps_what_was_on_flash() {
    let (_folder, path) = file();
    let server = serve("cache", &path);
    let mut client = connect(&server);
    fill(&mut client);
    let patience = Instant::now() + Duration::from_secs(60);
    while stat(&mut client, "flash_items") == 0 {
        assert!(Instant::now() < patience, "nothing comes to flash: {}", server.log());
    }
    kill(server);
    let server = serve("cache", &path);
    let mut client = connect(&server);
    assert!(found(&mut client) > 0, "{}", server.log());
}

/// The options of the servers in the README's walk, with a small device at `path`.
fn walk(path: &Path) -> Vec<Vec<String>> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let path = path.display().to_string();
    let commands = readme.lines().filter_map(|line| line.strip_prefix("minos serve --flash "));
    let options = commands.map(|rest| {
        let own = rest.split_whitespace().take_while(|word| !["&", "#"].contains(word));
        let own = own.map(|word| word.replace("/tmp/minos.flash", &path).replace(":4g", ":64m"));
        ["--flash".to_owned()].into_iter().chain(own).collect()
    });
    options.collect()
}

fn serve_as(options: &[String]) -> Server {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Server::minos(Path::new(env!("CARGO_BIN_EXE_minos")), &options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_readmes_walk_ends_with_a_hit() {
    let (_folder, path) = file();
    let [first, second] = &walk(&path)[..] else { panic!("the README has two servers above flash") };
    let server = serve_as(first);
    let mut client = connect(&server);
    assert_eq!(client.set("greeting", b"hello").unwrap(), "STORED");
    // A group may have begun before the item came; the second has not.
    for round in 0..2 {
        let (syncs, patience) = (stat(&mut client, "syncs"), Instant::now() + Duration::from_secs(60));
        assert_eq!(client.set("more", round.to_string().as_bytes()).unwrap(), "STORED");
        while stat(&mut client, "syncs") == syncs {
            assert!(Instant::now() < patience, "nothing becomes durable: {}", server.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // A dropped server is killed.
    drop(server);
    let server = serve_as(second);
    let found = connect(&server).get("greeting").unwrap();
    assert_eq!(found.map(|found| found.value), Some(b"hello".to_vec()), "{}", server.log());
}

#[test]
fn nothing_foreign_is_written_over() {
    let (_folder, path) = file();
    let flash = format!("--flash={}", path.display());
    let text = b"somebody's letters".repeat(1 << 20);
    fs::write(&path, &text).unwrap();
    for options in [&[&*flash][..], &[&flash, "--flash-format"]] {
        let message = refused(options);
        assert!(message.contains("not a table"), "{message}");
        assert!(fs::read(&path).unwrap() == text, "{options:?}");
    }
    // The beginning of btrfs, one byte, and one in the last sector.
    for (at, bytes) in [(65_600, &b"_BHRfS_M"[..]), (128 << 10, b"x"), ((32 << 20) - 1, b"x")] {
        let mut disk = vec![0; 32 << 20];
        disk[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, &disk).unwrap();
        let message = refused(&[&flash, "--flash-format"]);
        assert!(message.contains("not a table") && message.contains("blkdiscard"), "{message}");
        assert!(fs::read(&path).unwrap() == disk, "{at}");
    }
    fs::write(&path, vec![0; 32 << 20]).unwrap();
    assert!(refused(&[&flash]).contains("--flash-format makes one"));
}

#[test]
fn a_disk_that_was_partitioned_since_is_left_as_it_is() {
    let (_folder, path) = file();
    let flash = format!("--flash={}", path.display());
    stop(serve("store", &path));
    let table = fs::read(&path).unwrap();
    let mut partitions = [0; 66];
    partitions[..16].fill(0x80);
    partitions[64..].copy_from_slice(&[0x55, 0xaa]);
    for (at, bytes) in [(446, &partitions[..]), (4086, b"SWAPSPACE2")] {
        let mut disk = table.clone();
        disk[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, &disk).unwrap();
        for options in [&[&*flash][..], &[&flash, "--flash-format"]] {
            let message = refused(options);
            assert!(message.contains("not a table"), "{message}");
            assert!(fs::read(&path).unwrap() == disk, "{at} {options:?}");
        }
    }
    let mut rotten = table;
    rotten[3] ^= 1;
    fs::write(&path, rotten).unwrap();
    drop(serve("store", &path));
}

#[test]
fn no_table_is_lost_to_a_start_that_fails() {
    let (folder, path) = file();
    let region = format!("--region={}", folder.path().join("region").display());
    let server = serve_with("store", &path, &[&region]);
    assert_eq!(connect(&server).set("key", b"old").unwrap(), "STORED");
    stop(server);
    let table = fs::read(&path).unwrap();
    let other = folder.path().join("other");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--memcached={}", listener.local_addr().unwrap());
    let wait = "--flash-wait=2h".to_owned();
    for (option, reason) in [
        (&region, "items above another table; remove it"),
        (&address, "cannot listen"),
        (&wait, "--flash-wait"),
    ] {
        let message =
            refused(&["--engine=store", &format!("--flash={}", path.display()), "--flash-format", option]);
        assert!(message.contains(reason), "{message}");
        assert!(fs::read(&path).unwrap() == table, "{option}");
        let message = refused(&["--engine=store", &format!("--flash={}:64m", other.display()), option]);
        assert!(message.contains(reason) && !other.exists(), "{message}");
    }
    let server = serve_with("store", &path, &[&region]);
    assert_eq!(connect(&server).get("key").unwrap().unwrap().value, b"old");
}

#[test]
fn a_keeper_that_ends_costs_nothing_that_flash_gets() {
    let (folder, path) = file();
    let keeper = Keeper::start(folder.path(), &[]);
    let region = format!("--region={}", keeper.region("a"));
    let mut server = serve_with("store", &path, &[&region]);
    assert_eq!(connect(&server).set("key", b"old").unwrap(), "STORED");
    let other = format!("--flash={}:64m", folder.path().join("other").display());
    let message = refused(&["--engine=store", &other, &region]);
    assert!(message.contains("items above another table; remove it"), "{message}");
    drop(keeper);
    let patience = Instant::now() + Duration::from_secs(30);
    let wait_for = |said: &str| {
        while !server.log().contains(said) {
            assert!(Instant::now() < patience, "{}", server.log());
            thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for("a stop writes it to flash");
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-USR2", &pid]).status().unwrap().success());
    wait_for("could not go on with this memory");
    assert!(server.terminate(Duration::from_secs(60)).unwrap().is_some_and(|status| status.success()));
    let log = server.log();
    assert!(
        log.contains("gone with its keeper") && !log.contains("are lost") && !log.contains("region: lost"),
        "{log}"
    );
    let server = serve("store", &path);
    assert_eq!(connect(&server).get("key").unwrap().unwrap().value, b"old");
}

#[test]
fn no_table_is_made_for_values_without_room() {
    let (_folder, path) = file();
    drop(serve("store", &path));
    let table = fs::read(&path).unwrap();
    let too_large = |flash: &str| refusal(&["--memory=4m", "--max-item-size=4m", flash, "--flash-format"]);
    // A segment of 64 MiB has 1 MiB, and a record half of that.
    let message = too_large(&format!("--flash={}", path.display()));
    assert!(message.contains("find no room in a record"), "{message}");
    assert!(fs::read(&path).unwrap() == table, "the old table is not as it was");
    let other = path.with_extension("new");
    let message = too_large(&format!("--flash={}:64m", other.display()));
    assert!(message.contains("find no room in a record"), "{message}");
    drop(serve("store", &other));
}

#[test]
fn a_seed_of_the_key_hash_is_that_of_the_table() {
    let (_folder, path) = file();
    drop(serve_with("cache", &path, &["--hash-seed=7"]));
    let other = [&*format!("--flash={}", path.display()), "--hash-seed=8"];
    assert!(refused(&other).contains("hashes keys otherwise"));
    drop(serve_with("cache", &path, &["--hash-seed=7"]));
    drop(serve("cache", &path));
}

#[test]
fn a_device_is_served_once() {
    let (_folder, path) = file();
    let _server = serve("cache", &path);
    let message = refused(&[&format!("--flash={}", path.display())]);
    assert!(message.contains("in use"), "{message}");
}

#[test]
fn what_is_not_there_yet_is_said() {
    let (_folder, path) = file();
    let flash = format!("--flash={}:64m", path.display());
    assert!(refused(&["--flash-format"]).contains("--flash"));
    assert!(refused(&[&flash, "--region=x"]).contains("--engine store"));
}

#[test]
fn native_changes_that_were_acknowledged_survive_a_kill() {
    for (durability, keeps) in [("--durability=flush", true), ("--durability=none", false)] {
        let (_folder, path) = file();
        let mut server = serve_with("store", &path, &[durability, "--native=127.0.0.1:0"]);
        let native = server.native_address().unwrap().to_string();
        let mut client =
            blocking::Client::connect(&native, Config::new().timeout(Duration::from_secs(60))).unwrap();
        let items: Vec<_> = (0..100).map(|key| (format!("key{key}"), value(key))).collect();
        assert!(client.put_many(items, StoreOptions::default()).into_iter().all(|stored| stored.is_ok()));
        // A dropped server is killed.
        drop(server);
        let server = serve("store", &path);
        assert_eq!(found(&mut connect(&server)), if keeps { 100 } else { 0 }, "{}", server.log());
    }
}

#[test]
fn kills_lose_nothing_that_was_acknowledged() {
    kill_and_check(Promise { durability: "flush", region: Region::None }, 2, 1);
    kill_and_check(Promise { durability: "none", region: Region::File }, 2, 2);
    kill_and_check(Promise { durability: "none", region: Region::Keeper }, 2, 3);
    kill_and_check(Promise { durability: "flush", region: Region::Keeper }, 2, 4);
}

#[test]
fn a_region_belongs_to_the_last_server_of_its_table() {
    let (folder, path) = file();
    let region = format!("--region={}", folder.path().join("region").display());
    for log in ["new", "warm: 1 items"] {
        let server = serve_with("store", &path, &[&region]);
        assert!(server.log().contains(log), "{}", server.log());
        assert_eq!(connect(&server).set("key", b"old").unwrap(), "STORED");
        stop(server);
    }
    let others = [&*region, "--engine=store", "--workers=2"];
    let flash = format!("--flash={}:64m", folder.path().join("other").display());
    let message = refused(&[&[&*flash], &others[..]].concat());
    assert!(message.contains("another table"), "{message}");
    let server = serve("store", &path);
    assert_eq!(connect(&server).get("key").unwrap().unwrap().value, b"old");
    stop(server);
    let flash = format!("--flash={}", path.display());
    let message = refused(&[&[&*flash], &others[..]].concat());
    assert!(message.contains("used without this region"), "{message}");
}

/// The answer to a packet, which is repeated while flash is behind.
fn change(client: &mut PacketClient, packet: &Packet) -> Answer {
    const OUT_OF_MEMORY: u16 = 0x82;
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = client.ask(packet).unwrap();
        if answer.status != OUT_OF_MEMORY {
            return answer;
        }
        assert!(Instant::now() < patience, "{answer:?}");
    }
}

#[test]
fn packets_find_what_is_on_flash() {
    let (_folder, path) = file();
    let server = serve("store", &path);
    fill(&mut connect(&server));
    let mut client = PacketClient::connect(server.address()).unwrap();
    let keys = || (0..KEYS).step_by(97).map(|key| (key, format!("key{key}")));
    let reads: Vec<u8> = keys().flat_map(|(_, key)| Packet::of(0x0d, key).bytes()).collect();
    client.send(reads).unwrap();
    for (number, key) in keys() {
        let got = client.answer().unwrap().unwrap();
        assert!(got.key == key.as_bytes() && got.value == value(number), "{key}");
    }
    for (number, key) in keys() {
        let joined = change(&mut client, &Packet { value: b"!".to_vec(), ..Packet::of(0x0e, &key) });
        assert_eq!(joined.status, 0, "{key}");
        let touched = change(&mut client, &Packet::touch(0x1d, &key, 0));
        assert_eq!(touched.value, [&value(number)[..], b"!"].concat());
        assert_eq!(change(&mut client, &Packet { cas: touched.cas, ..Packet::of(0x04, &key) }).status, 0);
        assert_eq!(client.ask(&Packet::of(0x00, &key)).unwrap().status, 1);
    }
    assert_eq!(client.ask(&Packet::new(0x08)).unwrap().status, 0);
    assert_eq!(found(&mut connect(&server)), 0);
    stop(server);
}
