//! Racks of real processes: any client of any node sees one store, whatever happens to nodes.

mod apart;
mod binary;
mod copies;
mod counts;
mod cut;
mod directory;
#[cfg(feature = "etcd")]
mod etcd;
mod flash;
#[path = "../common/keeper.rs"]
#[allow(dead_code, reason = "each test file uses its part of this")]
mod keeper;
mod kills;
mod machines;
mod native;
mod native_copies;
mod pipelines;
#[path = "../common/ports.rs"]
mod ports;
mod redis;
mod up;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use minos_testkit::Client;
use ports::free_ports;
use rustix::process::{Pid, Signal, kill_process_group};
use up::{Rack, insist, stat};

/// A coordinator that does not start.
const COORDINATE: [&str; 8] =
    ["rack", "coordinate", "--rack", "r", "--listen", "/dev/null/c", "--peers", "/a"];

fn value(of: usize) -> Vec<u8> {
    format!("value {of}").into_bytes()
}

#[test]
fn a_client_of_any_node_sees_one_store() {
    const KEYS: usize = 200;
    let rack = Rack::up(4, &[]);
    let mut clients: Vec<Client> = (0..4).map(|node| rack.client(node)).collect();
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(clients[number % 4].set(key, &value(number)).unwrap(), "STORED");
    }
    for client in &mut clients {
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(client.get(key).unwrap().unwrap().value, value(number));
        }
        // In one line, and in many that are sent at once.
        let found = client.get_many(&keys).unwrap();
        assert!(found.iter().enumerate().all(|(number, it)| it.as_ref().unwrap().value == value(number)));
        let items: Vec<_> =
            keys.iter().enumerate().map(|(number, key)| (key.clone(), value(number))).collect();
        assert!(client.set_many(&items).unwrap().iter().all(|said| said == "STORED"));
    }
    // Three quarters of the keys are elsewhere, and most were read there.
    let reads = stat(&mut clients[0], "remote_hits");
    assert!((200..=400).contains(&reads), "{reads}");
    assert_eq!(clients[2].ask("flush_all").unwrap(), "OK");
    for client in &mut clients {
        assert!(keys.iter().all(|key| client.get(key).unwrap().is_none()));
    }
}

#[test]
fn commands_do_the_same_from_any_node() {
    let rack = Rack::up(3, &[]);
    let mut clients: Vec<Client> = (0..3).map(|node| rack.client(node)).collect();
    for number in 0..12 {
        let key = format!("c{number}");
        for node in 0..3 {
            let client = &mut clients[node];
            assert_eq!(client.ask(&format!("delete {key} noreply\r\nincr {key} 1")).unwrap(), "NOT_FOUND");
            assert_eq!(client.store(&format!("add {key} 7 0 1"), b"5").unwrap(), "STORED");
            assert_eq!(client.store(&format!("add {key} 7 0 1"), b"5").unwrap(), "NOT_STORED");
            assert_eq!(client.ask(&format!("incr {key} 6")).unwrap(), "11");
            assert_eq!(client.store(&format!("append {key} 0 0 2"), b"00").unwrap(), "STORED");
            let found = client.get(&key).unwrap().unwrap();
            assert_eq!((found.value.as_slice(), found.flags), (b"1100".as_slice(), 7));
            let other = &mut clients[(node + 1) % 3];
            assert_eq!(other.ask(&format!("mg {key} s f k t")).unwrap(), format!("HD s4 f7 k{key} t-1"));
            assert_eq!(other.ask(&format!("touch {key} 1000")).unwrap(), "TOUCHED");
            let told = other.ask(&format!("mg {key} t")).unwrap();
            // Seconds may pass in between on a busy machine.
            let left_s = told.strip_prefix("HD t").and_then(|left_s| left_s.parse::<u32>().ok());
            assert!(left_s.is_some_and(|left_s| (900..=1000).contains(&left_s)), "{told}");
            assert_eq!(other.ask(&format!("ms {key} 2 q\r\nhi\r\nmn")).unwrap(), "MN");
            assert_eq!(other.ask(&format!("gat 0 {key}")).unwrap(), format!("VALUE {key} 0 2"));
            assert_eq!((other.line().unwrap().as_str(), other.line().unwrap().as_str()), ("hi", "END"));
            let answer = clients[node].ask(&format!("mg {key}x v N30")).unwrap();
            assert_eq!(answer.split(' ').next(), Some("VA"), "{answer}");
            assert_eq!(clients[node].line().unwrap(), "");
            assert_eq!(clients[node].ask(&format!("delete {key}x")).unwrap(), "DELETED");
        }
    }
}

#[test]
fn large_values_pass_between_nodes() {
    let rack = Rack::up(2, &[]);
    let mut clients = [rack.client(0), rack.client(1)];
    let values: Vec<Vec<u8>> =
        [3000, 5000, 60_000, 1_000_000].iter().map(|&bytes| vec![b'a' + (bytes % 7) as u8; bytes]).collect();
    for (number, value) in values.iter().enumerate() {
        for key in (0..4).map(|key| format!("large{number}-{key}")) {
            assert_eq!(clients[number % 2].set(&key, value).unwrap(), "STORED");
            for client in &mut clients {
                assert!(client.get(&key).unwrap().unwrap().value == *value);
            }
        }
    }
    let keys: Vec<String> =
        (0..4).flat_map(|number| (0..4).map(move |key| format!("large{number}-{key}"))).collect();
    for client in &mut clients {
        let found = client.get_many(&keys).unwrap();
        assert!(found.iter().enumerate().all(|(at, it)| it.as_ref().unwrap().value == values[at / 4]));
    }
    // Too large: the old value goes, wherever it is.
    for key in &keys[..4] {
        let client = &mut clients[0];
        let said = client.ask(&format!("set {key} 0 0 9000000")).unwrap();
        assert_eq!(said, "SERVER_ERROR object too large for cache");
        client.send(vec![b'x'; 9_000_002]).unwrap();
        assert!(client.get(key).unwrap().is_none());
    }
}

#[test]
fn a_stopped_node_is_read_and_its_writers_are_told() {
    let rack = Rack::up(3, &["--", "--rack-timeout", "300ms"]);
    let key = rack.key_of(1);
    let (mut client, mut other) = (rack.client(0), rack.client(2));
    insist(|| client.set(&key, b"before"), |said| said == "STORED");
    rack.signal(1, Signal::STOP);
    for _ in 0..100 {
        assert_eq!(insist(|| other.get(&key), |_| true).unwrap().value, b"before");
    }
    let said = client.set(&key, b"after").unwrap();
    assert_eq!(said, "SERVER_ERROR node 1 of the rack is late; the command may be done");
    // Who wants no reply gets none.
    assert_eq!(client.ask(&format!("delete {key}x noreply\r\nmn")).unwrap(), "MN");
    rack.signal(1, Signal::CONT);
    // Its reply, which comes now, is nobody's. On a busy machine the node may be late again, and append all the same.
    insist(|| client.ask(&format!("append {key} 0 0 1\r\n!")), |said| said == "STORED");
    let found = insist(|| other.get(&key), |_| true).unwrap().value;
    let appended = found.strip_prefix(b"after").unwrap_or_default();
    assert!(!appended.is_empty() && appended.iter().all(|&byte| byte == b'!'), "{found:?}");
}

#[test]
fn a_stopped_node_takes_nothing_from_clients_of_others() {
    let rack = Rack::up(2, &["--unit-size", "1", "--", "--rack-timeout", "300ms"]);
    let [own, other] = [0, 1].map(|node| rack.key_of(node));
    let mut client = rack.client(0);
    insist(|| client.set(&own, b"here"), |said| said == "STORED");
    rack.signal(1, Signal::STOP);
    // The error is the whole reply to a line of keys.
    let late = "SERVER_ERROR node 1 of the rack is late; the command may be done";
    assert_eq!(client.ask(&format!("get {own} {other} {own}\r\nmn")).unwrap(), late);
    assert_eq!(client.line().unwrap(), "MN");
    // More than the memory for values that arrive.
    let value = vec![b'v'; 1_000_000];
    let set = [format!("set {other} 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut clients: Vec<Client> = (0..12).map(|_| rack.client(0)).collect();
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| client.send(&set).unwrap());
        let said: Vec<String> = clients.iter_mut().map(|client| client.line().unwrap()).collect();
        assert!(said.iter().any(|line| line == late), "{said:?}");
        assert_eq!(client.set(&own, &value).unwrap(), "STORED", "after {said:?}");
    }
    rack.signal(1, Signal::CONT);
}

#[test]
fn lines_of_many_keys_wait_for_others_under_way() {
    let rack = Rack::up(2, &["--unit-size", "1", "--", "--rack-waiting", "8"]);
    let keys: Vec<String> = (0..300).map(|key| format!("k{key}")).collect();
    let mut clients: Vec<Client> = (0..16).map(|_| rack.client(0)).collect();
    for key in &keys {
        assert_eq!(clients[0].set(key, b"value").unwrap(), "STORED");
    }
    let line = format!("get {}\r\n", keys.join(" "));
    clients.iter_mut().for_each(|client| client.send(&line).unwrap());
    for client in &mut clients {
        for key in &keys {
            assert_eq!(client.line().unwrap(), format!("VALUE {key} 0 5"));
            assert_eq!(client.line().unwrap(), "value");
        }
        assert_eq!(client.line().unwrap(), "END");
    }
    assert!(stat(&mut clients[0], "forward_parked") > 0, "the control: all had room");
}

#[test]
fn a_killed_or_stopped_node_is_read_and_comes_back_with_its_items() {
    lose_and_find(Rack::up(3, &[]));
}

#[test]
fn a_node_comes_back_with_the_items_that_a_keeper_has() {
    let rack = Rack::up_kept(3, &[]);
    let kept = rack.kept();
    assert!((0..3).all(|node| kept.contains(&format!("node-{node} 32m memfd held by"))), "{kept}");
    lose_and_find(rack);
}

/// Before, the rack went down with all items that the other nodes still had.
#[test]
fn nodes_go_on_where_another_one_cannot_be_started_again() {
    let mut rack = Rack::up_kept(2, &["--", "--rack-timeout", "300ms"]);
    let key = rack.key_of(0);
    let mut client = rack.client(0);
    insist(|| client.set(&key, b"value"), |said| said == "STORED");
    rack.kill_keeper();
    rack.signal(1, Signal::KILL);
    // It is tried twice.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        assert_eq!(client.get(&key).unwrap().unwrap().value, b"value");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!rack.is_alive(1) && !rack.has_announced());
    rack.start_keeper();
    rack.wait_for_restart(1);
    assert_eq!(client.get(&key).unwrap().unwrap().value, b"value");
}

/// Before, the clients of a node kept the others from its keys.
#[test]
fn a_node_that_is_full_of_clients_serves_the_other_nodes() {
    let mut rack = Rack::up(2, &["--", "--max-connections", "4", "--rack-timeout", "5s"]);
    let (key, address) = (rack.key_of(0), rack.nodes[0].0);
    // Its next process needs a new link.
    rack.signal(1, Signal::KILL);
    let held = std::iter::from_fn(|| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"mn\r\n").unwrap();
        let mut said = [0; 2];
        stream.read_exact(&mut said).ok().filter(|()| &said == b"MN").map(|()| stream)
    });
    let held: Vec<_> = held.take(5).collect();
    assert!((1..=4).contains(&held.len()), "{held:?}");
    rack.wait_for_restart(1);
    let mut client = rack.client(1);
    insist(|| client.set(&key, b"value"), |said| said == "STORED");
    assert_eq!(client.get(&key).unwrap().unwrap().value, b"value");
    drop(held);
}

/// Before, a signal came for each of its threads, and the second one ended the nodes at once.
#[test]
fn nodes_stop_well_when_the_process_is_killed_that_has_started_them() {
    let rack = Rack::up(2, &[]);
    let controls = [0, 1].map(|node| rack.folder.path().join(format!("node-{node}.control")));
    assert!(controls.iter().all(|path| path.exists()));
    rack.signal_host(Signal::KILL);
    // A process that does not end well leaves them.
    insist(|| Ok(controls.iter().any(|path| path.exists())), |are_there| !are_there);
}

/// Before, another rack went on with the items that a keeper had under the names of its nodes.
#[test]
fn a_rack_takes_no_memory_of_another_one() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let keeper = keeper::Keeper::start(folders[0].path(), &[]);
    let up = |folder: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(["rack", "up", "-n", "2", "--memory", "8m", "--ends-with-parent", "--dir"]).arg(folder);
        command.args(["--base-port", &free_ports(2).to_string(), "--keeper"]).arg(&keeper.socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let starts = |folder: &Path| {
        let mut process = up(folder);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let nodes = lines.by_ref().take(2).map_while(Result::ok).count();
        rustix::process::kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        (nodes, process.wait_with_output().unwrap())
    };
    let (nodes, output) = starts(folders[0].path());
    assert!(nodes == 2 && output.status.success(), "{output:?}");
    let (nodes, output) = starts(folders[1].path());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(nodes == 0 && text.contains("hashes keys otherwise (--hash-seed)"), "{text}");
    // The first one finds its own as it was.
    let (nodes, output) = starts(folders[0].path());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(nodes == 2 && text.contains("warm"), "{text}");
}

fn lose_and_find(mut rack: Rack) {
    let key = rack.key_of(1);
    let mut client = rack.client(0);
    let mut is_read_without = false;
    for round in 0..6 {
        assert_eq!(client.set(&key, &value(round)).unwrap(), "STORED");
        rack.signal(1, if round % 2 == 0 { Signal::KILL } else { Signal::TERM });
        let began = Instant::now();
        // At least once, however late this process is.
        loop {
            let is_lost = !rack.is_alive(1);
            assert_eq!(client.get(&key).unwrap().unwrap().value, value(round));
            is_read_without |= is_lost && !rack.has_announced();
            if began.elapsed() > Duration::from_millis(100) {
                break;
            }
        }
        rack.wait_for_restart(1);
        assert_eq!(client.get(&key).unwrap().unwrap().value, value(round));
        rack.wait_until_attached();
        assert_eq!(rack.client(1).get(&key).unwrap().unwrap().value, value(round));
        assert_eq!(rack.client(2).get(&key).unwrap().unwrap().value, value(round));
    }
    assert!(is_read_without, "the control: each read found the node there");
}

#[test]
fn what_is_read_from_another_node_stays_in_memory() {
    let rack = Rack::up(2, &[]);
    let (hot, cold) = (rack.key_of(1), format!("{}-cold", rack.key_of(1)));
    let (mut client, mut writer) = (rack.client(0), rack.client(1));
    for key in [&hot, &cold] {
        assert_eq!(client.set(key, b"value").unwrap(), "STORED");
    }
    // More than twice the memory of both nodes.
    let value = vec![b'v'; 3500];
    for round in 0..400 {
        let items: Vec<_> = (0..100).map(|number| (format!("w{round}-{number}"), &value)).collect();
        assert!(writer.set_many(&items).unwrap().iter().all(|said| said == "STORED"));
        assert!(client.get(&hot).unwrap().is_some(), "evicted in round {round}");
    }
    assert!(client.get(&cold).unwrap().is_none(), "nothing was evicted");
    assert!(stat(&mut client, "remote_noted") > 0);
}

/// Before, each node had it among its arguments.
#[test]
fn no_list_of_processes_shows_the_seed_of_the_hash() {
    let rack = Rack::up(2, &[]);
    let path = rack.folder.path().join("hash-seed");
    let seed = std::fs::read_to_string(&path).unwrap();
    assert!(seed.parse::<u64>().is_ok(), "{seed}");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for (_, pid) in &rack.nodes {
        let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(arguments.contains("hash-seed") && !arguments.contains(&seed), "{arguments}");
    }
}

#[test]
fn units_read_only_their_own_memory() {
    let rack = Rack::up(4, &["--unit-size", "2"]);
    let mut client = rack.client(0);
    for number in 0..200 {
        let key = format!("u{number}");
        assert_eq!(client.set(&key, &value(number)).unwrap(), "STORED");
        assert_eq!(client.get(&key).unwrap().unwrap().value, value(number));
    }
    let stats = client.stats("rack").unwrap();
    let of = |name: &str| stats.iter().find(|(other, _)| other == name).unwrap().1.clone();
    assert_eq!((of("node:1:memory").as_str(), of("node:2:unit").as_str()), ("attached", "1"));
    // About a quarter of the reads each.
    let (hits, asked) = (stat(&mut client, "remote_hits"), stat(&mut client, "remote_asked"));
    assert!((20..=80).contains(&hits) && (60..=140).contains(&asked), "{hits} {asked}");
}

#[test]
fn strangers_get_nothing_from_a_node() {
    let rack = Rack::up(2, &[]);
    let path = rack.folder.path().join("node-0");
    for hello in [
        "get a\r\n",
        "minos-peer 3 other 0 coordinator\r\nget a\r\n",
        "minos-peer 3 local 1 coordinator\r\nmn\r\n",
        "minos-peer 3 local 0 ring\r\nmn\r\n",
        "\u{80}",
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(hello.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{hello}: {}", String::from_utf8_lossy(&answer));
    }
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"minos-peer 3 local 0 coordinator\r\nmn\r\n").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"MN\r\n");
    let key = rack.key_of(1);
    stream.write_all(format!("set {key} 0 0 1\r\nx\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert_eq!(line, "SERVER_ERROR this node of the rack does not own the key\r\n");
}

#[test]
fn status_shows_each_node() {
    let rack = Rack::up(2, &[]);
    let status = |addresses: &[String]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        let output = command.args(["rack", "status", "--timeout=60s"]).args(addresses).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_up, text) = status(&[rack.nodes[0].0.to_string(), rack.nodes[1].0.to_string()]);
    assert!(is_up && text.contains("node 1 of rack local, 2 nodes") && text.contains("attached"), "{text}");
    let (is_up, text) = status(&[format!("127.0.0.1:{}", free_ports(1))]);
    assert!(!is_up && text.contains("cannot connect"), "{text}");
}

/// Before, a node with users was said to be none of a rack.
#[test]
fn status_logs_in() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "user default on nopass +stats\n").unwrap();
    let rack = Rack::up(2, &["--", &format!("--acl={}", users.display())]);
    let hash = {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(["secret", "--hash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap()
    };
    std::fs::write(&users, format!("user ops on {} +stats\n", hash.trim())).unwrap();
    for node in 0..2 {
        rack.signal(node, Signal::HUP);
        insist(|| rack.client(node).ask("stats rack"), |said| said.ends_with("unauthenticated"));
    }
    let status = |login: &str, said: &str| {
        let place = format!("{login}{}", rack.nodes[1].0);
        let ask = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
            let output = command.args(["rack", "status", &place]).output()?;
            Ok(String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
        };
        // On a busy machine a password takes longer than it waits.
        insist(ask, |text| text.contains(said))
    };
    assert!(!status("memcached://ops:secret@", "node 1 of rack local").contains("secret"));
    assert!(!status("ops:wrong@", "refuses ops").contains("wrong"));
    status("", "the server has users");
}

#[test]
fn a_node_is_started_again_after_its_program_was_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("minos");
    let install = || {
        let new = folder.path().join("new");
        std::fs::copy(env!("CARGO_BIN_EXE_minos"), &new).unwrap();
        std::fs::rename(new, &program).unwrap();
    };
    install();
    let mut rack = Rack::up_of(&program, 2, &[]);
    install();
    rack.signal(1, Signal::KILL);
    rack.wait_for_restart(1);
}

/// A terminal sends the signal to all processes that were started from it.
#[test]
fn an_interrupt_from_a_terminal_stops_each_node_once() {
    for signal in [Signal::INT, Signal::HUP] {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(["rack", "up", "-n", "2", "--memory", "32m", "--ends-with-parent"]);
        command.args(["--base-port", &free_ports(2).to_string(), "--dir"]).arg(folder.path());
        let mut up = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(up.stdout.take().unwrap());
        assert_eq!(out.lines().take(2).map_while(Result::ok).count(), 2);
        kill_process_group(Pid::from_raw(up.id() as i32).unwrap(), signal).unwrap();
        let output = up.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("stopping"), "{text}");
        assert!(!text.contains("a second signal"), "{text}");
    }
}

#[test]
fn options_that_mean_nothing_are_refused() {
    for (options, reason) in [
        (&["rack", "up", "--unit-size", "0"][..], "--unit-size: 0 is not allowed"),
        (&["rack", "up", "--copies", "2"], "--copies 2: each is in another unit, and there are 1"),
        (
            &[&COORDINATE[..], &["--directory", "/a", "--copies", "2"]].concat(),
            "--copies 2: each is in another unit, and --peers has 1",
        ),
        (&[&COORDINATE[..], &["--directory", "/a", "--moves", "0"]].concat(), "--moves: 0 is not allowed"),
        (
            &[&COORDINATE[..], &["--directory", "/a", "--relieve", "0s"]].concat(),
            "--relieve: 0 is not allowed",
        ),
        (
            &[&COORDINATE[..], &["--directory", "/a", "--members", "2"]].concat(),
            "--members 2: expected 1 to 1",
        ),
        (&[&COORDINATE[..], &["--directory", "/a", "--peers", "/a"]].concat(), "nodes 0 and 1 are both at"),
        (&["rack", "up", "--relieve", "0s"], "--relieve: 0 is not allowed"),
        (&["rack", "up", "--members", "5"], "--members 5: expected 1 to 4"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_minos")).args(options).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(reason), "{options:?}: {text}");
    }
}

#[test]
fn a_rack_goes_on_with_the_nodes_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let up = |nodes: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(["rack", "up", "--memory", "8m", "--ends-with-parent", "-n", nodes, "--dir"]);
        command.arg(folder.path()).args(["--base-port", &free_ports(4).to_string()]).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let starts = |nodes: &str, more: &[&str]| {
        let mut process = up(nodes, more);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().map(Result::unwrap);
        // The directory is kept with its first change.
        let deadline = Instant::now() + Duration::from_secs(30);
        while !folder.path().join("directory").exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        rustix::process::kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        process.wait().unwrap();
        assert!(first.is_some_and(|line| line.starts_with("node 0 ")), "{nodes} {more:?}");
    };
    starts("3", &[]);
    for (nodes, more, reason) in [
        ("2", &[][..], "has a node 2; start it with -n 3"),
        ("4", &[], "has no node 3; start it with --members 3"),
        ("3", &["--unit-size", "1", "--copies", "2"], "node 1 of the rack"),
    ] {
        let output = up(nodes, more).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(reason), "{nodes} {more:?}: {text}");
    }
    starts("4", &["--members", "3"]);
    starts("3", &[]);
}

/// Before, it started as that user, and could open no socket of another node.
#[test]
fn a_node_with_private_sockets_does_not_change_its_user() {
    let rack = ["serve", "--rack", "r", "--node", "0", "--peers", "/tmp/none", "--hash-seed", "1"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    let output = command.args(rack).args(["--user", "nobody"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("--user: the sockets between nodes would stay root's"),
        "{text}"
    );
}

#[test]
fn what_does_not_go_with_a_rack_is_refused() {
    let rack = ["serve", "--rack", "r", "--node", "0", "--peers", "/tmp/none", "--hash-seed", "1"];
    for (more, reason) in [
        (
            &["--flash", "/tmp/none:64m", "--durability", "flush", "--coordinator", "/tmp/none"][..],
            "--coordinator and --durability",
        ),
        (&["--native"], "--rack and --native: there is no =IP:PORT for node 0"),
        (&["--backing", "private"], "--rack: other nodes read this one's memory"),
        (&["--rack-timeout", "0s"], "--rack-timeout: 0 is not allowed"),
        (&["--micro-shards", "0"], "--micro-shards: 0 is not allowed"),
        (&["--peers", "/tmp/none"], "--peers: nodes 0 and 1 are both at"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_minos")).args(rack).args(more).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(reason), "{more:?}: {text}");
    }
    for (options, reason) in [
        (&["serve", "--rack", "r"][..], "--peers"),
        (
            &["serve", "--rack", "r", "--node", "2", "--peers", "/a,/b", "--hash-seed", "1"],
            "--node: 2 is not allowed",
        ),
        (&["serve", "--rack", "a b", "--node", "0", "--peers", "/a", "--hash-seed", "1"], "--rack a b"),
        (
            &["serve", "--rack", "r", "--node", "0", "--peers", "10.0.0.1:1", "--hash-seed", "1"],
            "--rack-secret is needed",
        ),
        (
            &["serve", "--rack", "r", "--node", "0", "--peers", "/a=127.0.0.1:1", "--hash-seed", "1"],
            "without --native, there must be no =IP:PORT for node 0",
        ),
        (
            &[
                &["serve", "--rack", "r", "--node", "0", "--peers", "/a=127.0.0.1:1"][..],
                &["--hash-seed", "1", "--native", "127.0.0.1:2"],
            ]
            .concat(),
            "clients look for it at 127.0.0.1:1",
        ),
        (&["rack", "up", "-n", "0"], "expected 1 to 64"),
        (&[&COORDINATE[..], &["--etcd", "https://127.0.0.1:1"]].concat(), "TLS is not spoken"),
        (
            &[&COORDINATE[..], &["--etcd", "http://[::1]:1", "--etcd-ttl", "0"]].concat(),
            "--etcd-ttl: expected",
        ),
        (
            &[&COORDINATE[..], &["--etcd", "http://[::1]:1", "--directory", "/a"]].concat(),
            "cannot be used with",
        ),
        (&[&COORDINATE[..], &["--directory", "/a", "--etcd-ttl", "1"]].concat(), "cannot be used with"),
        #[cfg(not(feature = "etcd"))]
        (&[&COORDINATE[..], &["--etcd", "http://127.0.0.1:1"]].concat(), "built without it"),
        (&["rack", "up", "--native", "65530"], "no port is left"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_minos")).args(options).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(reason), "{options:?}: {text}");
    }
}

#[cfg(not(feature = "ucx"))]
#[test]
fn a_fabric_that_is_not_built_in_is_named() {
    let rack = ["serve", "--rack", "r", "--node", "0", "--peers", "/tmp/none", "--hash-seed", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_minos")).args(rack).args(["--rack-fabric", "ucx"]).output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.contains("--rack-fabric ucx: this program was built without the feature ucx"), "{text}");
}
