//! The commands that ask a server from the command line, over TLS.

use std::{fs, net::SocketAddr, process::Output};

use super::*;

fn minos(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    if matches!(arguments[0], "get" | "set" | "del" | "stats") || arguments.starts_with(&["rack", "status"]) {
        command.args(arguments).arg("--timeout=60s");
    } else {
        command.args(arguments);
    }
    command.output().unwrap()
}

/// The standard output of a command that goes well.
fn shown(arguments: &[&str]) -> String {
    let output = minos(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The standard error of a command that fails.
fn complaint(arguments: &[&str]) -> String {
    let output = minos(arguments);
    assert!(!output.status.success(), "{arguments:?} goes well");
    String::from_utf8(output.stderr).unwrap()
}

fn ca_of(rig: &Rig) -> String {
    format!("--tls-ca={}", rig.authority_file().display())
}

fn url_of(rig: &Rig) -> String {
    format!("memcacheds://localhost:{}", rig.address().port())
}

#[test]
fn items_are_stored_found_and_copied() {
    let rig = Rig::start(&["--resp=127.0.0.1:0"]);
    let (url, ca) = (url_of(&rig), ca_of(&rig));
    let resp: SocketAddr = rig.line("listening on resp ").parse().unwrap();
    let redis = format!("rediss://localhost:{}", resp.port());
    let server = format!("--server={url}");
    shown(&["set", "k", "value", &server, &ca]);
    assert_eq!(shown(&["get", "k", &server, &ca]), "value\n");
    assert!(shown(&["stats", &server, &ca]).contains("curr_items"));
    assert_eq!(shown(&["cli", &server, &ca, "get", "k"]), "VALUE k 0 5\nvalue\r\nEND\n");
    assert_eq!(shown(&["cli", "--server", &redis, &ca, "get", "k"]), "\"value\"\n");
    // The system's authorities are trusted where none are named.
    let get = ["get", "k", &server];
    let of_system =
        |file| Command::new(env!("CARGO_BIN_EXE_minos")).args(get).env("SSL_CERT_FILE", file).output();
    assert_eq!(of_system(rig.authority_file()).unwrap().stdout, b"value\n");
    let strange = rig.folder().join("strange.pem");
    fs::write(&strange, Authority::new().pem()).unwrap();
    let text = String::from_utf8(of_system(strange).unwrap().stderr).unwrap();
    assert!(text.contains("invalid peer certificate"), "{text}");
    for (number, from) in [&url, &redis].into_iter().enumerate() {
        let file = rig.folder().join(format!("dump{number}")).display().to_string();
        shown(&["dump", &file, "--from", from, &ca]);
        shown(&["del", "k", &server, &ca]);
        shown(&["restore", &file, "--to", &url, &ca]);
        assert_eq!(shown(&["get", "k", &server, &ca]), "value\n", "{from}");
    }
    let other = Rig::start(&[]);
    let both = rig.folder().join("both.pem");
    let pem = |rig: &Rig| fs::read_to_string(rig.authority_file()).unwrap();
    fs::write(&both, pem(&rig) + &pem(&other)).unwrap();
    let both = format!("--tls-ca={}", both.display());
    shown(&["import", &redis, "--to", &url_of(&other), &both]);
    assert_eq!(shown(&["get", "k", "--server", &url_of(&other), &ca_of(&other)]), "value\n");
}

#[test]
fn who_cannot_be_trusted_gets_nothing() {
    let rig = Rig::with_client_certificates_and(&["--resp=127.0.0.1:0"]);
    let (url, ca) = (url_of(&rig), ca_of(&rig));
    let resp: SocketAddr = rig.line("listening on resp ").parse().unwrap();
    let redis = format!("rediss://localhost:{}", resp.port());
    let server = format!("--server={url}");
    let by_number = format!("--server=memcacheds://{}", rig.address());
    let (cert, key) = rig.authority.certificate_in(rig.folder(), "me");
    let own = [format!("--tls-cert={cert}"), format!("--tls-key={key}")];
    shown(&["set", "k", "value", &server, &ca, &own[0], &own[1]]);
    shown(&["set", "k", "value", &by_number, &ca, "--tls-name=localhost", &own[0], &own[1]]);
    assert_eq!(shown(&["cli", "--server", &redis, &ca, &own[0], &own[1], "get", "k"]), "\"value\"\n");
    let strange = rig.folder().join("strange.pem");
    fs::write(&strange, Authority::new().pem()).unwrap();
    let strange = format!("--tls-ca={}", strange.display());
    let plain = format!("--server=memcached://{}", rig.address());
    for (options, why) in [
        (&[&server, &strange, &own[0], &own[1]][..], "invalid peer certificate"),
        (&[&by_number, &ca, &own[0], &own[1]], "not valid for name"),
        (&[&server, &ca], "CertificateRequired"),
        (&[&plain], "has closed the connection"),
        (&[&plain, &ca], "--tls-ca: write --server memcacheds://"),
        (&[&server, &"--tls-ca=/dev/null".to_owned()], "--tls-ca /dev/null: it has no certificate"),
    ] {
        let options: Vec<_> = options.iter().map(|option| option.as_str()).collect();
        let text = complaint(&[&["get", "k"], &options[..]].concat());
        assert!(text.contains(why) && !text.contains("value"), "{options:?}: {text}");
    }
    for (options, why) in [
        (&[&strange, &own[0], &own[1]][..], "invalid peer certificate"),
        (&[&ca], "CertificateRequired"),
        (&[&"--tls-name=x".to_owned()], "--tls-name: with rediss://"),
    ] {
        let options: Vec<_> = options.iter().map(|option| option.as_str()).collect();
        let text = complaint(&[&["cli", "--server", &redis], &options[..], &["get", "k"]].concat());
        assert!(text.contains(why), "{options:?}: {text}");
    }
}

#[test]
fn the_state_of_a_rack_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let peers = format!("--peers={}", folder.path().join("node").display());
    let rig = Rig::start(&["--rack=r", "--node=0", &peers, "--hash-seed=1"]);
    let text = shown(&["rack", "status", &url_of(&rig), &ca_of(&rig)]);
    assert!(text.contains("node 0 of rack r, 1 nodes"), "{text}");
    let text = shown(&["rack", "status", &url_of(&rig), &rig.plain.to_string(), &ca_of(&rig)]);
    assert_eq!(text.matches("node 0 of rack r").count(), 2, "{text}");
}
