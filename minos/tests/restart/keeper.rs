//! A server whose memory is a keeper's.

use std::{
    io::{Read as _, Write as _},
    net::Shutdown,
    os::{fd::AsFd as _, unix::net::UnixStream},
    thread,
    time::{Duration, Instant},
};

use minos_net::{pass_file, take_file};
use minos_testkit::Server;
use rustix::process::{Pid, Signal, kill_process};

use super::{MODES, connect, everything_is_there_again, kill_under_load, serve_at, stop};
use crate::common::{keeper::Keeper, refusal};

fn start(options: &[&str]) -> (tempfile::TempDir, Keeper) {
    let folder = tempfile::TempDir::with_prefix("minos-keeper-").unwrap();
    let keeper = Keeper::start(folder.path(), options);
    (folder, keeper)
}

fn stat(server: &Server, name: &str) -> String {
    let stats = connect(server).stats("minos").unwrap();
    stats.into_iter().find(|(other, _)| other == name).unwrap().1
}

#[test]
fn everything_is_there_again_that_a_keeper_has() {
    let (_folder, keeper) = start(&[]);
    for engine in MODES {
        everything_is_there_again(engine, &keeper.region(engine));
    }
}

#[test]
fn what_a_killed_server_left_at_a_keeper_is_right_or_gone() {
    let (_folder, keeper) = start(&[]);
    for engine in MODES {
        let log = kill_under_load(engine, &keeper.region(engine));
        assert!(log.contains("repaired"), "{log}");
    }
}

#[test]
fn memory_is_one_servers_at_a_time() {
    let (_folder, keeper) = start(&[]);
    let region = keeper.region("a");
    let server = serve_at("store", &region);
    assert_eq!(stat(&server, "store_lasting"), "1");
    let option = format!("--region={region}");
    let refused = |more: &[&str]| refusal(&[&[&*option, "--memory=64m", "--engine=store"], more].concat());
    let held = format!("process {} has it", server.pid());
    let text = refused(&[]);
    assert!(text.contains(&held) && text.contains(&region), "{text}");
    let list = keeper.list();
    assert!(list.contains(&format!("a 64m memfd held by {} for ", server.pid())), "{list}");
    let output = keeper.operate(&["drop", "a"]);
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains(&held),
        "{output:?}"
    );
    assert_eq!(connect(&server).set("a", b"1").unwrap(), "STORED");
    stop(server);
    assert!(keeper.list().contains("a 64m memfd free for "), "{}", keeper.list());
    // What does not fit is refused, and stays.
    let text = refused(&["--partitions=2"]);
    assert!(text.contains("partitions 16, but 2"), "{text}");
    let text = refused(&["--backing=hugetlb"]);
    assert!(text.contains("in memfd, but hugetlb"), "{text}");
    let text = refused(&["--backing=private"]);
    assert!(text.contains("--backing private"), "{text}");
    let text = refusal(&["--region=keeper:/tmp/none=a/b"]);
    assert!(text.contains("letters, digits"), "{text}");
    let server = serve_at("store", &region);
    assert_eq!(connect(&server).get("a").unwrap().unwrap().value, b"1");
    stop(server);
    assert!(keeper.operate(&["drop", "a"]).status.success());
    let output = keeper.operate(&["drop", "a"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no memory of that name"), "{output:?}");
    let server = serve_at("store", &region);
    assert!(server.log().contains("new path=keeper:"), "{}", server.log());
    assert_eq!(connect(&server).get("a").unwrap(), None);
}

#[test]
fn a_server_serves_on_without_its_keeper() {
    let (folder, keeper) = start(&[]);
    let region = keeper.region("a");
    let server = serve_at("cache", &region);
    assert_eq!(connect(&server).set("a", b"1").unwrap(), "STORED");
    drop(keeper);
    let deadline = Instant::now() + Duration::from_secs(30);
    // The counter may change before the log says so.
    while stat(&server, "store_lasting") != "0" || !server.log().contains("the keeper has ended") {
        assert!(Instant::now() < deadline, "{}", server.log());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(connect(&server).get("a").unwrap().unwrap().value, b"1");
    assert_eq!(connect(&server).set("b", b"2").unwrap(), "STORED");
    // Nobody has the memory of a server that ends now.
    let mut server = server;
    let status = server.terminate(Duration::from_secs(60)).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{}", server.log());
    assert!(server.log().contains("lost, because its keeper has ended"), "{}", server.log());
    let text = refusal(&[&format!("--region={region}"), "--memory=64m"]);
    assert!(text.contains("its keeper cannot be asked"), "{text}");
    let _keeper = Keeper::start(folder.path(), &[]);
    let server = serve_at("cache", &region);
    assert!(server.log().contains("new path=keeper:"), "{}", server.log());
    assert_eq!(connect(&server).get("a").unwrap(), None);
}

#[test]
fn no_upgrade_begins_while_the_keeper_hangs() {
    let (_folder, keeper) = start(&[]);
    let server = serve_at("store", &keeper.region("a"));
    keeper.signal(Signal::STOP);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::USR2).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !server.log().contains("SIGUSR2: its keeper does not reply") {
        assert!(Instant::now() < deadline, "{}", server.log());
        thread::sleep(Duration::from_millis(5));
    }
    // The same program goes on.
    assert_eq!(connect(&server).set("key", b"value").unwrap(), "STORED");
    assert!(!server.log().contains("starting the new program"), "{}", server.log());
}

#[test]
fn a_keeper_that_ends_says_what_is_lost() {
    let (_folder, keeper) = start(&[]);
    let server = serve_at("cache", &keeper.region("held"));
    let log = keeper.terminate();
    assert!(log.contains("held") && log.contains("a running server has this memory"), "{log}");
    assert_eq!(connect(&server).set("a", b"1").unwrap(), "STORED");
    stop(server);
}

#[test]
fn memory_is_bounded() {
    let (_folder, keeper) = start(&["--memory-max=100m", "--max-memories=2"]);
    let first = serve_at("cache", &keeper.region("a"));
    let region = format!("--region={}", keeper.region("b"));
    let text = refusal(&[&region, "--memory=64m"]);
    assert!(text.contains("no room for 64m") && text.contains("--memory-max"), "{text}");
    assert!(keeper.list().contains("memories 1, 64m of 100m, refused 1, "), "{}", keeper.list());
    stop(first);
    assert!(keeper.operate(&["drop", "a"]).status.success());
    stop(serve_at("cache", &keeper.region("b")));
}

/// The reply to what a stranger sends before it says that it sends no more.
fn reply(keeper: &Keeper, sent: &[u8]) -> String {
    let mut stream = UnixStream::connect(&keeper.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It may have been closed already.
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn strangers_cannot_harm_a_keeper() {
    let (_folder, keeper) = start(&["--memory-max=64m"]);
    let server = serve_at("cache", &keeper.region("a"));
    for sent in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\n\n\n",
        b"\xff\xfe\0\n",
        b"take \n",
        b"take ../../etc/passwd\n",
        b"create 2097152 memfd\n",
        b"publish\n",
        b"remove\n",
        b"drop a\n",
        b"take a\n",
        b"take b\ntake c\n",
        b"take b\ncreate 1 memfd\n",
        b"take b\ncreate 2097152 memfd\n",
        b"take b\ncreate 18446744073709551615 memfd\n",
        b"take b\ncreate 18446744073707454464 hugetlb\n",
        &[b'x'; 100_000],
    ] {
        let said = reply(&keeper, sent);
        assert!(said.starts_with("error ") || said.starts_with("none\nerror "), "{said:?}");
    }
    assert_eq!(reply(&keeper, b""), "");
    // A descriptor that nobody has asked for.
    let stream = UnixStream::connect(&keeper.socket).unwrap();
    pass_file(&stream, stream.as_fd()).unwrap();
    drop(stream);
    assert_eq!(connect(&server).set("a", b"1").unwrap(), "STORED");
    stop(server);
    let server = serve_at("cache", &keeper.region("a"));
    assert_eq!(connect(&server).get("a").unwrap().unwrap().value, b"1");
}

#[test]
fn connections_are_bounded() {
    let (_folder, keeper) = start(&["--max-connections=3"]);
    let server = serve_at("cache", &keeper.region("a"));
    let more = [(); 2].map(|()| UnixStream::connect(&keeper.socket).unwrap());
    let said = reply(&keeper, b"list\n");
    assert!(said.contains("too many connections"), "{said}");
    drop(more);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !keeper.operate(&["list"]).status.success() {
        assert!(Instant::now() < deadline, "{}", keeper.log());
    }
    assert!(!keeper.list().contains("connections 2, refused 0"), "{}", keeper.list());
    stop(server);
}

#[test]
fn nobody_makes_kept_memory_shorter() {
    let (_folder, keeper) = start(&[]);
    let region = keeper.region("a");
    let server = serve_at("cache", &region);
    assert_eq!(connect(&server).set("a", b"1").unwrap(), "STORED");
    stop(server);
    let mut stream = UnixStream::connect(&keeper.socket).unwrap();
    stream.write_all(b"take a\n").unwrap();
    let mut memory = [0; 13];
    stream.read_exact(&mut memory).unwrap();
    assert_eq!(&memory, b"memory memfd\n");
    let file = std::fs::File::from(take_file(&stream).unwrap());
    assert!(file.set_len(0).is_err() && file.set_len(128 << 20).is_err());
    let text = refusal(&[&format!("--region={region}"), "--memory=64m"]);
    assert!(text.contains("has it"), "{text}");
    drop(stream);
    // The holder is gone; the file that it has open does not count.
    let server = serve_at("cache", &region);
    assert_eq!(connect(&server).get("a").unwrap().unwrap().value, b"1");
}
