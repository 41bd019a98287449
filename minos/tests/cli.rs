//! `minos cli` with both protocols.

mod common;

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use minos_testkit::Server;

const MINOS: &str = env!("CARGO_BIN_EXE_minos");

/// Runs `minos cli` with arguments, and with lines on its standard input. Returns what it prints.
fn cli(server: &str, arguments: &[&str], lines: &str) -> String {
    let mut child = Command::new(MINOS)
        .args(["cli", "--server", server])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended without reading.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    let output = child.wait_with_output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn commands_of_memcached_are_executed() {
    let server = Server::minos(Path::new(MINOS), &["--memory=64m"]).unwrap();
    let url = format!("memcached://{}", server.address());
    assert_eq!(cli(&url, &["set", "k", "a b"], ""), "STORED\n");
    assert_eq!(
        cli(&url, &[], "get k\n\nms m 2 T0 xy\nmg m v\nincr k 1\n"),
        concat!(
            "VALUE k 0 3\na b\r\nEND\n",
            "HD\n",
            "VA 2\nxy\r\n",
            "CLIENT_ERROR cannot increment or decrement non-numeric value\n",
        )
    );
    // What answers nothing is not waited for.
    assert_eq!(
        cli(&url, &[], "set q 0 0 1 noreply v\nmg none v q\nget q\nmn\n"),
        "VALUE q 0 1\nv\r\nEND\nMN\n"
    );
    assert!(cli(&url, &["stats"], "").ends_with("\nEND\n"));
    let theirs = Server::memcached(&[]).unwrap();
    let url_of_theirs = format!("memcached://{}", theirs.address());
    assert_eq!(cli(&url_of_theirs, &["set", "k", "v"], ""), "STORED\n");
    for url in [&url, &url_of_theirs] {
        assert!(cli(url, &["lru_crawler", "metadump", "all"], "").starts_with("key="));
    }
    assert_eq!(cli(&url, &[], "set 'k\n"), "a quote is not closed\n");
    drop(server);
    assert!(cli(&url, &["version"], "").contains("cannot connect"), "the control");
}

#[test]
fn a_value_has_the_length_that_stands_before_it() {
    let servers = [Server::minos(Path::new(MINOS), &["--memory=64m"]), Server::memcached(&[])];
    for server in servers.map(Result::unwrap) {
        let url = format!("memcached://{}", server.address());
        let differs = |length: &str| format!("the length is {length}, but the value has 3 bytes\n");
        let (code, said) = minos(&["cli", "--server", &url, "set", "k", "0", "0", "5", "abc"]);
        assert_eq!((code, said), (1, format!("minos: {}", differs("5"))));
        let missing = "the length of the value is missing\n";
        for (line, said) in [
            ("set k 0 0 2 abc", &*differs("2")),
            ("cas k 0 0 x 1 abc", &*differs("x")),
            ("ms k 5 T0 abc", &*differs("5")),
            ("ms k 3", missing),
            ("set k", missing),
            ("set", missing),
            ("add k 0 0 abc", missing),
            ("set k 0 0 3 abc", "STORED\n"),
            ("ms k 3 abc", "HD\n"),
        ] {
            assert_eq!(cli(&url, &[], &format!("{line}\nmn\n")), format!("{said}MN\n"), "{line}");
        }
        // memcached 1.6.18 reads the value behind some lines as a command.
        let said = cli(&url, &[], "set k x 0 7 version\nget k\n");
        let (refusal, value) = ("CLIENT_ERROR bad command line format\n", "VALUE k 0 3\nabc\r\nEND\n");
        assert!(said.starts_with(refusal) && said.ends_with(value), "{said}");
    }
}

#[test]
fn commands_of_redis_are_executed() {
    let server = Server::redis(&[]).unwrap();
    let url = format!("redis://{}", server.address());
    let lines = "SET k \"a\\x00b\"\nGET k\nMGET k none\nNONE\nTTL k\n";
    let expected = concat!("OK\n", "\"a\\x00b\"\n", "1) \"a\\x00b\"\n2) (nil)\n", "(error) ",);
    let said = cli(&url, &[], lines);
    assert!(said.starts_with(expected) && said.contains("unknown command 'NONE'"), "{said}");
    assert!(said.ends_with("(integer) -1\n"), "{said}");
    assert!(cli(&url, &[], "help\n").contains(" SETRANGE "));
}

#[test]
fn replies_that_a_client_does_not_want_are_not_waited_for() {
    let (minos, _) = common::start_with_resp(&["--memory=64m"]);
    let redis = common::redis();
    for server in [&minos, &redis] {
        let url = format!("redis://{}", server.address());
        assert_eq!(cli(&url, &["client", "reply", "off"], ""), "");
        assert_eq!(cli(&url, &["CLIENT", "REPLY", "Skip"], ""), "");
        let lines = "client reply skip\nset k v\nget k\nclient reply off\nset k w\nclient reply skip\n\
                     get k\nget k\nclient reply on\nget k\nclient reply skip\nclient reply on\nget k\n";
        assert_eq!(cli(&url, &[], lines), "\"v\"\nOK\n\"w\"\nOK\n\"w\"\n");
        assert!(cli(&url, &[], "client reply bogus\nget k\n").ends_with("\n\"w\"\n"), "the control");
    }
    // A refusal is told.
    let url = format!("redis://{}", redis.address());
    let said = cli(&url, &[], "acl setuser default -client|reply\nclient reply off\nget k\n");
    assert!(said.starts_with("OK\n(error) ") && said.ends_with("\n\"w\"\n"), "{said}");
}

/// Runs `minos` with arguments; its exit code and what it prints.
fn minos(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(MINOS).args(arguments).env_remove("MINOS_SERVER").output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code().unwrap(), text)
}

#[test]
fn get_set_del_and_stats_speak_memcacheds_protocol() {
    for server in
        [Server::minos(Path::new(MINOS), &["--memory=64m"]).unwrap(), Server::memcached(&[]).unwrap()]
    {
        let server = format!("--server=memcached://{}", server.address());
        let ask = |arguments: &[&str]| minos(&[arguments, &[&server, "--timeout=60s"]].concat());
        assert_eq!(ask(&["set", "k y", "value", "--flags=7", "--ttl=100s"]), (0, String::new()));
        assert_eq!(ask(&["set", "k y", "x", "--add"]), (1, "minos: k y: not stored\n".to_owned()));
        assert_eq!(ask(&["set", "other", "x", "--replace"]), (1, "minos: other: not stored\n".to_owned()));
        let (code, verbose) = ask(&["get", "-v", "k y"]);
        assert!(code == 0 && verbose.starts_with("k y 7 5 ") && verbose.ends_with("\nvalue\n"), "{verbose}");
        assert_eq!(ask(&["get", "k y", "none"]), (1, "value\nminos: none: not found\n".to_owned()));
        assert_eq!(ask(&["del", "k y"]), (0, String::new()));
        assert_eq!(ask(&["del", "k y"]), (1, "minos: k y: not found\n".to_owned()));
        assert!(ask(&["stats"]).1.contains("curr_items"));
        assert_eq!(ask(&["stats", "nonsense"]).0, 1);
    }
    let (code, text) = minos(&["get", "k", "--server=memcached://127.0.0.1:1"]);
    assert!(code == 2 && text.contains("cannot use the server memcached://127.0.0.1:1"), "{text}");
}
