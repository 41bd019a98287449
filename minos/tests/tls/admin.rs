//! The admin endpoint over TLS: `minos ctl`, `minos top`, the page, and clients that are refused.

use std::{net::SocketAddr, path::Path, process::Output};

use super::*;

/// The admin endpoint of a server that speaks TLS there.
fn admin(rig: &Rig) -> SocketAddr {
    let line = rig.line("listening on admin tls:");
    line.parse().unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn minos(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_minos")).args(arguments).output().unwrap()
}

/// The output of `minos ctl stats admin` with these options.
fn ctl(admin: &str, options: &[&str]) -> Result<String, String> {
    let admin = format!("--admin={admin}");
    let all =
        [&["ctl", "--timeout=60s", "--tls-name=localhost", &admin], options, &["stats", "admin"]].concat();
    let output = minos(&all);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
}

fn ca_option(path: &Path) -> String {
    format!("--tls-ca={}", path.display())
}

#[test]
fn ctl_top_and_the_page_work() {
    let rig = Rig::start(&["--admin=tls:127.0.0.1:0", "--admin-timeout=60s"]);
    let (address, ca) = (admin(&rig), ca_option(&rig.authority_file()));
    let secured = format!("tls:{address}");
    assert!(ctl(&secured, &[&ca]).unwrap().contains("admin_requests"));
    let admin_option = format!("--admin={secured}");
    let set = minos(&["ctl", &admin_option, &ca, "--tls-name=localhost", "set", "watch", "7"]);
    assert_eq!(String::from_utf8_lossy(&set.stdout), "watch 7\n");
    let top = minos(&["top", "--once", "--interval=100ms", &admin_option, &ca, "--tls-name=localhost"]);
    assert!(top.status.success() && top.stdout.len() > 100, "{}", String::from_utf8_lossy(&top.stderr));
    let mut page = rig.connect_to(address);
    page.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("<html"), "{text}");
}

#[test]
fn who_cannot_be_trusted_is_not_asked() {
    let rig = Rig::start(&["--admin=tls:127.0.0.1:0", "--admin-timeout=60s"]);
    let (address, ca) = (admin(&rig), ca_option(&rig.authority_file()));
    let secured = format!("tls:{address}");
    let strange = rig.folder().join("strange.pem");
    fs::write(&strange, Authority::new().pem()).unwrap();
    for (address, options, why) in [
        (&*secured, &[&*ca_option(&strange)][..], "not trusted"),
        (&secured, &["--tls-ca=/dev/null"], "it has no certificate"),
        (&address.to_string(), &[&ca], "write --admin tls:"),
        (&address.to_string(), &[], "--tls-name: write --admin tls:"),
    ] {
        let error = ctl(address, options).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let unsecured = minos(&["ctl", "--timeout=60s", &format!("--admin={address}"), "stats", "admin"]);
    let error = String::from_utf8_lossy(&unsecured.stderr);
    assert!(error.contains("does not answer as an admin endpoint"), "{error}");
    // The certificate is for localhost.
    let option = format!("--admin={secured}");
    assert!(!minos(&["ctl", &option, &ca, "stats"]).status.success());
    assert!(ctl(&secured, &[&ca]).is_ok(), "the control");
    let refused = common::refusal(&["--admin=tls:127.0.0.1:0"]);
    assert!(refused.contains("--tls-cert"), "{refused}");
    assert!(common::refusal(&["--admin=tls:unix:/x"]).contains("needs no TLS"));
}

#[test]
fn clients_show_their_certificates_and_see_the_one_in_force() {
    let rig = Rig::with_client_certificates_and(&["--admin=tls:127.0.0.1:0", "--admin-timeout=60s"]);
    let (secured, ca) = (format!("tls:{}", admin(&rig)), ca_option(&rig.authority_file()));
    assert!(ctl(&secured, &[&ca]).is_err());
    let (cert, key) = rig.authority.certificate_in(rig.folder(), "operator");
    let own = [format!("--tls-cert={cert}"), format!("--tls-key={key}")];
    let with = |ca: &str| ctl(&secured, &[ca, &own[0], &own[1]]);
    let stats = with(&ca).unwrap();
    assert!(
        stats.lines().any(|line| line.starts_with("admin_tls_refused") && line.ends_with(" 1")),
        "{stats}"
    );
    let strange = Authority::new();
    let strange_ca = rig.folder().join("strange.pem");
    fs::write(&strange_ca, strange.pem()).unwrap();
    strange.certificate_in(rig.folder(), "server");
    assert!(with(&ca).is_ok(), "the control");
    rig.hang_up();
    rig.wait_until("are read again", || true);
    assert!(with(&ca).is_err());
    with(&ca_option(&strange_ca)).unwrap();
}

#[test]
fn handshakes_under_way_are_bounded() {
    let rig = Rig::start(&["--admin=tls:127.0.0.1:0", "--admin-timeout=60s", "--admin-connections=2"]);
    let (address, ca) = (admin(&rig), ca_option(&rig.authority_file()));
    let mut silent: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    silent.push(TcpStream::connect(address).unwrap());
    let mut bytes = Vec::new();
    // The oldest is given up. Nothing can be said to it.
    assert!(silent[0].read_to_end(&mut bytes).is_err() || bytes.is_empty(), "{bytes:?}");
    silent[1].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = silent[1].read_to_end(&mut bytes);
    assert!(!String::from_utf8_lossy(&bytes).contains("HTTP"));
    // Nor do silent ones keep anybody out.
    let _also_silent = TcpStream::connect(address).unwrap();
    let stats = ctl(&format!("tls:{address}"), &[&ca]).unwrap();
    let is_counted = |name: &str| stats.lines().any(|line| line.starts_with(name) && !line.ends_with(" 0"));
    assert!(is_counted("admin_tls_refused") && is_counted("admin_connections_rejected"), "{stats}");
}
