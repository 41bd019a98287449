//! Memcached over TLS: clients of other implementations, clients without a certificate, and clients that are none.

mod admin;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod rig;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rig::{Authority, Rig, python};

#[test]
fn clients_of_other_implementations_work() {
    let rig = Rig::start(&[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/clients.py");
    let ca = rig.authority_file();
    let output = Command::new(python()).arg(script).arg(rig.address().to_string()).arg(&ca).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}; run `cargo xtask setup`");
    assert!(rig.stat("tls_admitted") >= 4, "{said}");
    assert_eq!(rig.stat("tls_broken"), 0);
}

/// The standard output of `openssl s_client` with a command that the server answers.
fn s_client(rig: &Rig, options: &[&str]) -> String {
    let mut command = Command::new("openssl");
    let address = rig.address().to_string();
    command.args([
        "s_client",
        "-quiet",
        "-verify_return_error",
        "-servername",
        "localhost",
        "-connect",
        &address,
    ]);
    command.arg("-CAfile").arg(rig.authority_file()).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"set o 0 0 2\r\nhi\r\nget o\r\nquit\r\n").unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn both_versions_of_the_protocol_are_spoken() {
    let rig = Rig::start(&[]);
    for version in ["-tls1_2", "-tls1_3"] {
        let said = s_client(&rig, &[version]);
        assert!(said.contains("STORED\r\nVALUE o 0 2\r\nhi\r\nEND\r\n"), "{version}: {said}");
    }
    let said = s_client(&rig, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]);
    assert!(!said.contains("STORED"), "{said}");
}

#[test]
fn clients_without_a_certificate_are_refused_if_there_are_authorities() {
    let rig = Rig::with_client_certificates();
    let refused = rig.stat("tls_refused");
    let said = s_client(&rig, &[]);
    assert!(!said.contains("STORED") && said.contains("certificate required"), "{said}");
    let strange = Authority::new();
    let files = strange.certificate_in(rig.folder(), "strange");
    let said = s_client(&rig, &["-cert", &files.0, "-key", &files.1]);
    assert!(!said.contains("STORED"), "{said}");
    rig.wait_for("tls_refused", refused + 2);
    let files = rig.authority.certificate_in(rig.folder(), "known");
    let said = s_client(&rig, &["-cert", &files.0, "-key", &files.1]);
    assert!(said.contains("STORED"), "{said}");
}

#[test]
fn large_values_go_both_ways_and_beside_small_ones() {
    let rig = Rig::start(&["--max-item-size=16m", "--threshold=1000"]);
    let value: Vec<u8> = (0..10_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut client = rig.connect();
    let mut small = rig.connect();
    for round in 0..3 {
        client.write_all(format!("set big {round} 0 {}\r\n", value.len()).as_bytes()).unwrap();
        client.write_all(&value).unwrap();
        client.write_all(b"\r\nget nothing big nothing\r\n").unwrap();
        rig.ask(&mut small, b"set s 0 0 1\r\nx\r\n", b"STORED\r\n");
        let head = format!("STORED\r\nVALUE big {round} {}\r\n", value.len());
        rig.expect(&mut client, head.as_bytes());
        rig.expect(&mut client, &value);
        rig.expect(&mut client, b"\r\nEND\r\n");
    }
    assert_eq!(rig.stat("tls_broken"), 0);
}

/// The record that ends a value has the next command too, of which no event of the socket tells. The reply to the value comes
/// later: it is held until it is durable.
#[test]
fn a_command_behind_a_large_value_in_its_last_record_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let flash = format!("--flash={}:256m", folder.path().join("flash").display());
    let rig = Rig::start(&[&flash, "--engine=store", "--durability=flush"]);
    let mut client = rig.connect();
    let value = vec![b'v'; 100_000];
    for _ in 0..500 {
        // Sometimes the first visit receives this alone, and nobody looks for events before the reply.
        client.write_all(format!("set big 0 0 {}\r\n{:010}", value.len() + 10, 7).as_bytes()).unwrap();
        client.write_all(&[&value[..], b"\r\nget nothing\r\n"].concat()).unwrap();
        rig.expect(&mut client, b"STORED\r\nEND\r\n");
    }
}

/// A client may end TLS behind its last request, and wait for the server to do so.
#[test]
fn a_client_that_ends_tls_behind_a_request_is_answered_and_closed() {
    let rig = Rig::start(&[]);
    let mut client = rig.connect();
    let mut bytes = Vec::new();
    client.conn.writer().write_all(b"mn\r\n").unwrap();
    client.conn.send_close_notify();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut bytes).unwrap();
    }
    client.sock.write_all(&bytes).unwrap();
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"MN\r\n");
}

#[test]
fn a_pipeline_of_thousands_is_answered_in_order() {
    let rig = Rig::start(&[]);
    let mut client = rig.connect();
    let all: String = (0..5000).map(|at| format!("set k{at} 0 0 5\r\n{at:05}\r\nget k{at}\r\n")).collect();
    let replies: String =
        (0..5000).map(|at| format!("STORED\r\nVALUE k{at} 0 5\r\n{at:05}\r\nEND\r\n")).collect();
    let mut sender = client.sock.try_clone().unwrap();
    // The replies outgrow all buffers before the first is read.
    client.conn.set_buffer_limit(None);
    client.conn.writer().write_all(all.as_bytes()).unwrap();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut sender).unwrap();
    }
    rig.expect(&mut client, replies.as_bytes());
}

#[test]
fn who_does_not_speak_tls_is_refused_and_harms_nobody() {
    let rig = Rig::start(&[]);
    let mut honest = rig.connect();
    let before = rig.stat("tls_refused");
    let hello = rig.hello();
    let mut strangers =
        vec![b"get a\r\n".to_vec(), b"\x80\x00\x00\x00".to_vec(), vec![0; 100_000], vec![22; 70_000]];
    // A hello that is cut, changed, or followed by what is none of the protocol.
    strangers.extend((0..hello.len()).step_by(7).map(|at| {
        let mut changed = hello.clone();
        changed[at] ^= 0x55;
        changed.extend_from_slice(b"garbage");
        changed
    }));
    strangers.push([&hello[..], &[23, 3, 3, 0x40, 0x10], &[1; 0x4010]].concat());
    for bytes in &strangers {
        let mut stream = TcpStream::connect(rig.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // An alert or a reset, and the end.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    rig.wait_for("tls_refused", before + strangers.len() as u64);
    rig.ask(&mut honest, b"version\r\n", b"VERSION ");
    rig.ask(&mut rig.connect(), b"version\r\n", b"VERSION ");
}

#[test]
fn an_open_stream_ends_with_a_record_that_is_forged() {
    let rig = Rig::start(&[]);
    let mut client = rig.connect();
    rig.ask(&mut client, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    let forged = [&[23, 3, 3, 0, 40][..], &[7; 40]].concat();
    client.sock.write_all(&forged).unwrap();
    let mut rest = Vec::new();
    let error = client.read_to_end(&mut rest).unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
    rig.wait_for("tls_broken", 1);
}

#[test]
fn slow_handshakes_end_in_time() {
    let rig = Rig::start(&["--tls-timeout=300ms"]);
    let hello = rig.hello();
    for bytes in [&b""[..], &hello[..40], &hello] {
        let late = rig.stat("tls_late");
        let mut stream = TcpStream::connect(rig.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(bytes).unwrap();
        // The server's part of the handshake, if there is one, and the end.
        let _ = stream.read_to_end(&mut Vec::new());
        rig.wait_for("tls_late", late + 1);
    }
    // A client that waits for a processor is slow too.
    let is_served = || -> std::io::Result<bool> {
        let mut honest = rig.try_to_connect(rig.address())?;
        honest.write_all(b"version\r\n")?;
        let mut begin = [0; 8];
        honest.read_exact(&mut begin)?;
        Ok(begin == *b"VERSION ")
    };
    assert!((0..20).any(|_| is_served().unwrap_or(false)), "the next client is served");
}

#[test]
fn the_oldest_of_too_many_handshakes_is_given_up() {
    let rig = Rig::start(&["--tls-handshakes=4", "--tls-timeout=600s"]);
    // The one that looked whether the server is there.
    rig.wait_for("tls_refused", 1);
    let mut silent: Vec<_> = (0..4).map(|_| TcpStream::connect(rig.address()).unwrap()).collect();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(rig.stat("tls_crowded"), 0);
    rig.ask(&mut rig.connect(), b"version\r\n", b"VERSION ");
    assert_eq!(rig.stat("tls_crowded"), 1);
    silent[0].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(silent[0].read(&mut [0; 10]).unwrap(), 0, "the oldest");
    silent[3].set_nonblocking(true).unwrap();
    assert!(silent[3].read(&mut [0; 10]).is_err(), "the newest waits");
}

#[test]
fn sighup_takes_up_new_files_and_closes_nothing() {
    let rig = Rig::start(&[]);
    let (mut old, first) = rig.connect_and_see();
    let files = rig.authority.certificate_in(rig.folder(), "server");
    assert_eq!(rig.connect_and_see().1, first, "the control: files alone change nothing");
    rig.hang_up();
    rig.wait_until("certificate, key and authorities are read again", || rig.connect_and_see().1 != first);
    rig.ask(&mut old, b"version\r\n", b"VERSION ");
    let second = rig.connect_and_see().1;
    fs::write(&files.0, "nonsense").unwrap();
    rig.hang_up();
    rig.wait_until("the certificate in force stays", || true);
    assert_eq!(rig.connect_and_see().1, second);
    rig.ask(&mut old, b"version\r\n", b"VERSION ");
}

#[test]
fn files_that_are_of_no_use_are_named() {
    let rig = Rig::start(&[]);
    let (cert, key) = rig.authority.certificate_in(rig.folder(), "another");
    let (_, other) = rig.authority.certificate_in(rig.folder(), "third");
    let refused = |options: &[&str]| common::refusal(options);
    let missing = refused(&["--tls-cert=/no/such", &format!("--tls-key={key}")]);
    assert!(missing.contains("--tls-cert: /no/such: No such file"), "{missing}");
    let swapped = refused(&[&format!("--tls-cert={key}"), &format!("--tls-key={key}")]);
    assert!(swapped.contains("no PEM of the kind"), "{swapped}");
    let mismatch = refused(&[&format!("--tls-cert={cert}"), &format!("--tls-key={other}")]);
    assert!(
        mismatch.contains("keys may not be consistent") || mismatch.contains("KeyMismatch"),
        "{mismatch}"
    );
    let alone = refused(&[&format!("--tls-cert={cert}")]);
    assert!(alone.contains("--tls-key"), "{alone}");
    let both = refused(&[
        &format!("--tls-cert={cert}"),
        &format!("--tls-key={key}"),
        "--memcached=notls:127.0.0.1:0",
    ]);
    assert!(both.contains("with notls: and without"), "{both}");
}
