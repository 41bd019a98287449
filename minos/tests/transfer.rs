//! `minos dump`, `restore` and `import` between Minos, memcached and Redis; completions and manual pages.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use minos_testkit::{Client, Server};

const MINOS: &str = env!("CARGO_BIN_EXE_minos");
/// Above what a small worker sends at once.
const LARGE_BYTES: usize = 700_000;
const MANY: usize = 3000;

fn minos(arguments: &[&str]) -> Output {
    Command::new(MINOS).args(arguments).output().unwrap()
}

#[track_caller]
fn run(arguments: &[&str]) -> String {
    let output = minos(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

fn server() -> Server {
    Server::minos(Path::new(MINOS), &["--memory=128m", "--workers=2"]).unwrap()
}

fn url(server: &Server) -> String {
    format!("memcached://{}", server.address())
}

/// Sends one command and returns the first line of its reply.
fn ask(server: &Server, command: &[u8]) -> String {
    let mut client = Client::connect(server.address()).unwrap();
    client.send(command).unwrap();
    client.line().unwrap()
}

/// Stores what is hard to copy, and many small items.
fn fill(server: &Server) {
    let mut client = Client::connect(server.address()).unwrap();
    let large = "l".repeat(LARGE_BYTES);
    for command in [
        "ms plain 5 F7\r\nvalue\r\n".to_owned(),
        "ms AAEgJQ== 2 b\r\nxx\r\n".to_owned(),
        "ms short 1 T1000\r\ns\r\n".to_owned(),
        format!("ms large {LARGE_BYTES}\r\n{large}\r\n"),
    ] {
        client.send(command.as_bytes()).unwrap();
        assert_eq!(client.line().unwrap(), "HD", "{}", &command[..10]);
    }
    for number in 0..MANY {
        client.send(format!("set many-{number} 0 0 3\r\nabc\r\n").as_bytes()).unwrap();
    }
    (0..MANY).for_each(|_| assert_eq!(client.line().unwrap(), "STORED"));
}

/// Checks for what [`fill`] stores.
#[track_caller]
fn check(server: &Server) {
    assert_eq!(ask(server, b"mg plain v f\r\n"), "VA 5 f7");
    assert_eq!(ask(server, b"mg AAEgJQ== b v t\r\n"), "VA 2 t-1");
    let short = ask(server, b"mg short t\r\n");
    let ttl_s: u32 = short.trim().strip_prefix("HD t").unwrap().parse().unwrap();
    assert!((900..=1000).contains(&ttl_s), "{short}");
    let mut client = Client::connect(server.address()).unwrap();
    client.send(b"mg large v\r\n").unwrap();
    assert_eq!(client.line().unwrap(), format!("VA {LARGE_BYTES}"));
    assert_eq!(client.line().unwrap().trim_end().bytes().filter(|&byte| byte == b'l').count(), LARGE_BYTES);
    for number in 0..MANY {
        client.send(format!("mg many-{number} s\r\n").as_bytes()).unwrap();
    }
    (0..MANY).for_each(|_| assert_eq!(client.line().unwrap(), "HD s3"));
}

#[test]
fn a_dump_fills_another_server() {
    let (one, other) = (server(), server());
    fill(&one);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump").to_str().unwrap().to_owned();
    let told = run(&["dump", &file, "--from", &url(&one)]);
    assert!(told.contains(&format!("{} items copied", MANY + 4)), "{told}");
    let again = minos(&["dump", &file, "--from", &url(&one)]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("File exists"), "{again:?}");
    run(&["restore", &file, "--to", &url(&other)]);
    check(&other);
    // The control: a damaged file is refused by name.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let damaged = minos(&["restore", &file, "--to", &url(&other)]);
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("damaged behind record"), "{damaged:?}");
}

#[test]
fn a_server_with_users_is_copied_by_one_of_them() {
    let mut hash = Command::new(MINOS);
    hash.args(["secret", "--hash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = hash.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "p@ss:word").unwrap();
    let hash = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("users"), format!("user app on {} ~* +@all", hash.trim())).unwrap();
    let acl = format!("--acl={}", path("users"));
    let guarded = || Server::minos(Path::new(MINOS), &["--memory=128m", "--workers=2", &acl]).unwrap();
    let (open, one, other) = (server(), guarded(), guarded());
    let with = |login: &str, server: &Server| format!("memcached://{login}@{}", server.address());
    fill(&open);
    // A server without users is not told the password.
    run(&["dump", &path("first"), "--from", &with("app:p@ss:word", &open)]);
    run(&["restore", &path("first"), "--to", &with("app:p@ss:word", &one)]);
    run(&["import", &with("app:p@ss:word", &one), "--to", &with("app:p@ss:word", &other)]);
    run(&["dump", &path("last"), "--from", &with("app:p@ss:word", &other)]);
    let copied = server();
    run(&["restore", &path("last"), "--to", &url(&copied)]);
    check(&copied);
    assert_eq!(ask(&copied, b"mg login s\r\n"), "EN");
    for (server, said) in [
        (url(&one), "the server has users: say memcached://USER@HOST:PORT"),
        (with("app", &one), "no password in the URL, nor in MINOS_PASSWORD"),
        (with("app:wrong", &one), "the server refuses app: CLIENT_ERROR authentication failure"),
    ] {
        let refused = String::from_utf8(minos(&["restore", &path("first"), "--to", &server]).stderr).unwrap();
        assert!(refused.contains(said) && !refused.contains("wrong"), "{refused}");
        let refused = String::from_utf8(minos(&["get", "plain", "--server", &server]).stderr).unwrap();
        assert!(refused.contains(said) && !refused.contains("wrong"), "{refused}");
    }
    let got = minos(&["get", "plain", "--server", &with("app:p@ss:word", &one)]);
    assert_eq!(got.stdout, b"value\n");
    // The list of processes does not show it.
    let by_variable = |login: &str| {
        let mut command = Command::new(MINOS);
        command.args(["get", "plain", "--server", &with(login, &one)]).env("MINOS_PASSWORD", "p@ss:word");
        command.output().unwrap()
    };
    assert_eq!(by_variable("app").stdout, b"value\n");
    assert!(!by_variable("app:").status.success());
    let wrong = minos(&["dump", &path("none"), "--from", "memcache://app:p@ss:word@localhost:1"]);
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("'--from <URL>' is no URL of a server") && !said.contains("p@ss"), "{said}");
}

#[test]
fn items_come_from_memcached() {
    let (theirs, ours) = (Server::memcached(&["-m", "128"]).unwrap(), server());
    fill(&theirs);
    run(&["import", &url(&theirs), "--to", &url(&ours)]);
    check(&ours);
    // And go back: a team that moves to another server can return.
    let back = Server::memcached(&["-m", "128"]).unwrap();
    run(&["import", &url(&ours), "--to", &url(&back)]);
    check(&back);
}

/// Reads move memcached's items within its lists by age, which then leave out half of them.
#[test]
fn items_that_are_read_meanwhile_come_from_memcached_too() {
    let (theirs, ours) = (Server::memcached(&["-m", "128"]).unwrap(), server());
    fill(&theirs);
    let keys: Vec<u8> = (0..MANY).flat_map(|number| format!("mg many-{number}\r\n").into_bytes()).collect();
    let ends = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let mut reader = Client::connect(theirs.address()).unwrap();
        let ends = &ends;
        scope.spawn(move || {
            while !ends.load(Relaxed) {
                reader.send(&keys).unwrap();
                (0..MANY).for_each(|_| assert_eq!(reader.line().unwrap(), "HD"));
            }
        });
        let told = minos(&["import", &url(&theirs), "--to", &url(&ours)]);
        ends.store(true, Relaxed);
        told
    });
    assert!(told.status.success(), "{told:?}");
    check(&ours);
}

/// While it waits for whoever reads its list, memcached holds a lock of its items: so many keys fill the buffers between.
#[test]
fn a_long_list_holds_nobody_up() {
    const KEYS: usize = 200_000;
    let (theirs, ours) = (Server::memcached(&["-m", "128"]).unwrap(), server());
    let mut client = Client::connect(theirs.address()).unwrap();
    let filler = "f".repeat(200);
    for number in 0..KEYS {
        client.send(format!("ms {filler}{number} 1 q\r\nv\r\n").as_bytes()).unwrap();
    }
    client.send(b"mn\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "MN");
    let said = run(&["import", &url(&theirs), "--to", &url(&ours)]);
    assert!(said.contains(&format!("{KEYS} items copied")), "{said}");
}

/// A client that was told to bring a new value, and brings none, would leave the old one to all others.
#[test]
fn stale_items_are_left_out_and_left_as_they_are() {
    for theirs in [Server::memcached(&["-m", "64"]).unwrap(), server()] {
        let ours = server();
        for (command, reply) in [
            ("ms st 5 T100\r\nvalue\r\n", "HD"),
            ("md st I T60\r\n", "HD"),
            ("ms AAEgJQ== 2 b\r\nxx\r\n", "HD"),
            ("md AAEgJQ== b I\r\n", "HD"),
            ("mg empty N60 s\r\n", "HD s0 W"),
            ("ms won 5\r\nvalue\r\n", "HD"),
            ("md won I\r\n", "HD"),
            ("mg won s\r\n", "HD s5 X W"),
            ("ms good 0\r\n\r\n", "HD"),
        ] {
            assert_eq!(ask(&theirs, command.as_bytes()), reply, "{command}");
        }
        let said = run(&["import", &url(&theirs), "--to", &url(&ours)]);
        assert!(
            said.contains("1 items copied") && said.contains("4 items left out that are stale"),
            "{said}"
        );
        assert_eq!(ask(&ours, b"mg good s\r\n"), "HD s0");
        assert_eq!(ask(&ours, b"mg st s\r\n"), "EN");
        // The next client is told to bring a value, and so is no other where one was told before.
        assert_eq!(ask(&theirs, b"mg st s\r\n"), "HD s5 X W");
        assert_eq!(ask(&theirs, b"mg AAEgJQ== b s\r\n"), "HD s2 X W");
        assert_eq!(ask(&theirs, b"mg won s\r\n"), "HD s5 Z X");
        assert_eq!(ask(&theirs, b"mg empty s\r\n"), "HD s0 Z");
    }
}

#[test]
fn a_value_comes_with_its_own_expiry_from_redis() {
    let (theirs, ours) = (Server::redis(&[]).unwrap(), server());
    const KEYS: usize = 500;
    let fill = |word: &str, client: &mut Client| {
        for number in 0..KEYS {
            let expiry = if word == "temporary" { " EX 1000" } else { "" };
            client.send(format!("SET k{number} {word}{expiry}\r\n").as_bytes()).unwrap();
        }
        (0..KEYS).for_each(|_| assert_eq!(client.line().unwrap(), "+OK"));
    };
    fill("permanent", &mut Client::connect(theirs.address()).unwrap());
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut writer, ends, fill) = (Client::connect(theirs.address()).unwrap(), &ends, &fill);
        scope.spawn(move || {
            while !ends.load(Relaxed) {
                fill("temporary", &mut writer);
                fill("permanent", &mut writer);
            }
        });
        for _ in 0..20 {
            let told = minos(&["import", &format!("redis://{}", theirs.address()), "--to", &url(&ours)]);
            assert!(told.status.success(), "{told:?}");
            let mut client = Client::connect(ours.address()).unwrap();
            for number in 0..KEYS {
                client.send(format!("mg k{number} t v\r\n").as_bytes()).unwrap();
                let (head, value) = (client.line().unwrap(), client.line().unwrap());
                assert_eq!(head.ends_with("t-1"), value == "permanent", "{head} {value}");
            }
        }
        ends.store(true, Relaxed);
    });
}

#[test]
fn what_a_server_refuses_is_named() {
    let (one, small) =
        (server(), Server::memcached(&["-m", "64", "-I", "1k", "-o", "slab_chunk_max=512"]).unwrap());
    ask(&one, format!("ms large 4000\r\n{}\r\n", "l".repeat(4000)).as_bytes());
    ask(&one, b"ms good 1\r\nv\r\n");
    let output = minos(&["import", &url(&one), "--to", &url(&small)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("refused: \"large\": SERVER_ERROR object too large"),
        "{said}"
    );
    assert_eq!(ask(&small, b"mg good s\r\n"), "HD s1");
}

/// Memcached before 1.6.9 has the lists by age alone.
#[test]
fn a_server_without_a_list_by_hash_gives_its_other_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            thread::spawn(move || {
                while let Some(Ok(line)) = lines.next() {
                    let reply = match &line[..] {
                        "version" => "VERSION 1.5.6\r\n",
                        "lru_crawler metadump all" => {
                            "key=old exp=-1 la=1 cas=1 fetch=no cls=1 size=9\r\nEND\r\n"
                        }
                        "lru_crawler metadump hash" => "BADCLASS invalid class id\r\n",
                        "stats flash" | "stats rack" => "ERROR\r\n",
                        "mg old f t c v" => "VA 1 f0 t-1\r\nv\r\n",
                        _ => panic!("{line}"),
                    };
                    stream.write_all(reply.as_bytes()).unwrap();
                }
            });
        }
    });
    let ours = server();
    let said = run(&["import", &format!("memcached://{address}"), "--to", &url(&ours)]);
    assert!(said.contains("1 items copied"), "{said}");
    assert_eq!(ask(&ours, b"mg old s\r\n"), "HD s1");
}

#[test]
fn strings_come_from_redis() {
    let (theirs, ours) = (Server::redis(&[]).unwrap(), server());
    let mut redis = Client::connect(theirs.address()).unwrap();
    for (command, reply) in [
        ("SET plain value", "+OK"),
        ("SET \"a b\" xx", "+OK"),
        ("SET short s PX 900500", "+OK"),
        ("LPUSH list element", ":1"),
        ("LPUSH another element", ":1"),
        ("HSET hash field value", ":1"),
    ] {
        redis.send(format!("{command}\r\n").as_bytes()).unwrap();
        assert_eq!(redis.line().unwrap(), reply, "{command}");
    }
    let long = "k".repeat(251);
    redis.send(format!("SET {long} v\r\n").as_bytes()).unwrap();
    assert_eq!(redis.line().unwrap(), "+OK");
    let url_of_theirs = format!("redis://{}", theirs.address());
    let output = minos(&["import", &url_of_theirs, "--to", &url(&ours)]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("a key of 251 bytes"), "{text}");
    assert!(text.contains("3 items copied") && text.contains("1 refused"), "{text}");
    assert!(text.contains("3 keys left out that are no strings: 1 hash, 2 list"), "{text}");
    assert_eq!(ask(&ours, b"mg plain v f t\r\n"), "VA 5 f0 t-1");
    assert_eq!(ask(&ours, b"mg YSBi b v\r\n"), "VA 2");
    let short = ask(&ours, b"mg short t\r\n");
    let left_s: u32 = short["HD t".len()..].parse().unwrap();
    assert!((600..=901).contains(&left_s), "{short}");
    assert_eq!(ask(&ours, b"mg list v\r\n"), "EN");
}

#[test]
fn a_database_without_keys_is_imported() {
    let (redis, to) = (Server::redis(&[]).unwrap(), server());
    let said = run(&["import", &format!("redis://{}", redis.address()), "--to", &url(&to)]);
    assert!(said.contains("0 items copied"), "{said}");
}

#[test]
fn keys_that_the_protocol_cannot_name_are_left_out_and_counted() {
    let mut server = Server::minos(Path::new(MINOS), &["--memory=128m", "--resp=127.0.0.1:0"]).unwrap();
    let mut client = Client::connect(server.resp_address().unwrap()).unwrap();
    for key in ["k ".repeat(100), "k ".repeat(50)] {
        client.send(format!("SET \"{key}\" v\r\n").as_bytes()).unwrap();
        assert_eq!(client.line().unwrap(), "+OK");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump").display().to_string();
    let said = run(&["dump", &file, "--from", &url(&server)]);
    assert!(said.contains("1 items copied") && said.contains("1 keys left out"), "{said}");
}

#[test]
fn completions_and_manual_pages_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = minos(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("serve") && script.contains("restore"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    run(&["man", folder.path().to_str().unwrap()]);
    let page = std::fs::read_to_string(folder.path().join("minos-serve.1")).unwrap();
    assert!(page.contains("\\-\\-memcached") && page.contains("threshold"));
}

/// A copy of a part does not pass for one of all.
#[test]
fn a_dump_tells_what_is_on_flash() {
    let folder = tempfile::tempdir().unwrap();
    let flash = format!("--flash={}:64m", folder.path().join("flash").display());
    let options = ["--memory=4m", "--max-item-size=64k", "--workers=2", &flash];
    let server = Server::minos(Path::new(MINOS), &options).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let items: Vec<_> = (0..12_000).map(|key| (format!("key{key}"), vec![b'v'; 1000])).collect();
    items.chunks(60).for_each(|burst| drop(client.set_many(burst).unwrap()));
    let cold = |client: &mut Client| {
        let stats = client.stats("flash").unwrap();
        stats.into_iter().find(|(name, _)| name == "flash_items").unwrap().1
    };
    while cold(&mut client) == "0" {}
    let dumped =
        |name: &str| run(&["dump", folder.path().join(name).to_str().unwrap(), "--from", &url(&server)]);
    let told = dumped("part");
    assert!(told.contains("items on flash left out"), "{told}");
    client.send(b"flush_all\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "OK");
    while cold(&mut client) != "0" {}
    let told = dumped("empty");
    assert!(told.contains("0 items copied") && !told.contains("left out"), "{told}");
}
