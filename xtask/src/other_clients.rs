//! `cargo xtask other-clients`: clients and exporters that others have written, against a server.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use minos_testkit::Server;
use tempfile::TempDir;

use crate::{
    command::{Totals, cargo, root, run, target},
    setup,
};

/// Seconds for all flows of a client.
const WITHIN_S: &str = "300";
/// Time in which an exporter answers.
const ANSWERED: Duration = Duration::from_secs(60);
/// The user of the flows.
const PASSWORD: &str = "secret";

/// Clients or an exporter.
struct Guest {
    name: &'static str,
    /// What it is skipped without: a name, and a command that succeeds if it is there.
    needs: &'static [(&'static str, &'static [&'static str])],
    test: fn(&Rig, &mut Totals) -> anyhow::Result<()>,
}

const GO: (&str, &[&str]) = ("go", &["go", "version"]);

const GUESTS: [Guest; 8] = [
    Guest { name: "go-redis", needs: &[GO], test: go_redis },
    Guest {
        name: "node-redis, ioredis, memjs",
        needs: &[("node", &["node", "--version"]), ("npm", &["npm", "--version"])],
        test: node,
    },
    Guest {
        name: "jedis, lettuce, spymemcached, xmemcached",
        needs: &[("java", &["java", "-version"]), ("mvn", &["mvn", "--version"])],
        test: java,
    },
    Guest { name: "pylibmc's own tests", needs: &[("python3", &["python3", "--version"])], test: pylibmc },
    Guest {
        name: "dalli",
        needs: &[("ruby with dalli", &["ruby", "-rdalli", "-e", ""])],
        test: |rig, totals| rig.check(Command::new("ruby").arg(sources("ruby").join("memcached.rb")), totals),
    },
    Guest {
        name: "PHP's memcached",
        needs: &[("php with memcached", &["php", "-r", "exit(class_exists('Memcached') ? 0 : 1);"])],
        test: |rig, totals| rig.check(Command::new("php").arg(sources("php").join("memcached.php")), totals),
    },
    Guest { name: "memcached_exporter", needs: &[GO], test: memcached_exporter },
    // Of Debian's package of this name.
    Guest {
        name: "redis_exporter",
        needs: &[("prometheus-redis-exporter", &["prometheus-redis-exporter", "-version"])],
        test: redis_exporter,
    },
];

/// Tests what can be tested on this machine, and says what was skipped.
pub(crate) fn test(totals: &mut Totals) -> anyhow::Result<()> {
    run(&mut cargo(&["build", "-p", "minos"]))?;
    let rig = Rig::start()?;
    let mut skipped = Vec::new();
    for Guest { name, needs, test } in GUESTS {
        if let Some((missing, _)) = needs.iter().find(|(_, command)| !succeeds(command)) {
            skipped.push(format!("skipped: {name}: no {missing} here"));
        } else if let Err(error) = test(&rig, totals) {
            println!("failed {name}: {error:#}");
            totals.count_check(false);
        }
    }
    skipped.iter().for_each(|line| println!("{line}"));
    println!("{totals}, {} of {} skipped", skipped.len(), GUESTS.len());
    ensure!(totals.has_passed(), "not all clients work");
    Ok(())
}

fn succeeds(command: &[&str]) -> bool {
    let mut asked = Command::new(command[0]);
    asked.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// A server with a user, and a certificate for localhost.
struct Rig {
    server: Server,
    certificate: PathBuf,
    _folder: TempDir,
}

impl Rig {
    fn start() -> anyhow::Result<Self> {
        let program = target().join("debug/minos");
        let folder = TempDir::new()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (certificate, key, users) = (path("cert.pem"), path("key.pem"), path("users.acl"));
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        make.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]);
        run(make.args(["-keyout", &key, "-out", &certificate]))?;
        let hash = hash(&program)?;
        fs::write(&users, format!("user default on nopass ~* +@all\nuser app on {hash} ~* +@all\n"))?;
        let options = [
            format!("--tls-cert={certificate}"),
            format!("--tls-key={key}"),
            format!("--acl={users}"),
            // A value of 10 MB is among the flows.
            "--max-item-size=16m".to_owned(),
            "--memory=512m".to_owned(),
            "--workers=2".to_owned(),
            "--pin=off".to_owned(),
        ];
        let server = Server::start(&program, |port, _| {
            let places = [
                "serve".to_owned(),
                format!("--resp=127.0.0.1:{port}"),
                format!("--resp=notls:127.0.0.2:{port}"),
                format!("--memcached=notls:127.0.0.3:{port}"),
            ];
            places.iter().chain(&options).cloned().collect()
        })?;
        Ok(Self { server, certificate: certificate.into(), _folder: folder })
    }

    /// The address whose last byte is `host`.
    fn address(&self, host: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, host], self.server.address().port()))
    }

    fn resp(&self) -> String {
        self.address(2).to_string()
    }

    fn memcached(&self) -> String {
        self.address(3).to_string()
    }

    /// Runs the flows of a client, and counts the checks whose results it prints.
    fn check(&self, flows: &Command, totals: &mut Totals) -> anyhow::Result<()> {
        let mut command = Command::new("timeout");
        command.arg(WITHIN_S).arg(flows.get_program()).args(flows.get_args());
        flows.get_current_dir().map(|folder| command.current_dir(folder));
        command.env("MINOS_RESP", self.resp()).env("MINOS_MEMCACHED", self.memcached());
        command.env("MINOS_RESP_TLS", format!("localhost:{}", self.server.address().port()));
        command.env("MINOS_CA", &self.certificate).stdout(Stdio::piped());
        let mut child = Guard(command.spawn().context("cannot run timeout")?);
        let mut seen = 0;
        for line in BufReader::new(child.0.stdout.take().context("no output")?).lines() {
            let line = line?;
            println!("{line}");
            if let Some(has_passed) = result(&line) {
                totals.count_check(has_passed);
                seen += 1;
            }
        }
        let status = child.0.wait()?;
        ensure!(status.success(), "it ended with {status}");
        ensure!(seen > 0, "it checked nothing");
        Ok(())
    }
}

/// Whether a check has passed, if `line` tells of one.
fn result(line: &str) -> Option<bool> {
    match line.split_once(' ')?.0 {
        "ok" => Some(true),
        "failed" => Some(false),
        _ => None,
    }
}

/// A process that is ended when it is dropped.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hash of the password, as a user's line has it.
fn hash(program: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(["secret", "--hash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Guard(command.spawn()?);
    child.0.stdin.take().context("no input")?.write_all(PASSWORD.as_bytes())?;
    let mut hash = String::new();
    child.0.stdout.take().context("no output")?.read_to_string(&mut hash)?;
    ensure!(child.0.wait()?.success(), "minos secret failed");
    Ok(hash.trim().to_owned())
}

fn sources(language: &str) -> PathBuf {
    root().join("minos/tests/other_clients").join(language)
}

/// A folder for what is built and downloaded.
fn kept(what: &str) -> anyhow::Result<PathBuf> {
    let folder = target().join("other-clients").join(what);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn build_go(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let program = kept("go")?.join(name);
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(package).current_dir(sources("go"));
    run(&mut build)?;
    Ok(program)
}

fn go_redis(rig: &Rig, totals: &mut Totals) -> anyhow::Result<()> {
    rig.check(&Command::new(build_go(".", "go-redis")?), totals)
}

fn node(rig: &Rig, totals: &mut Totals) -> anyhow::Result<()> {
    let folder = kept("node")?;
    for file in fs::read_dir(sources("node"))? {
        let file = file?;
        fs::copy(file.path(), folder.join(file.file_name()))?;
    }
    run(Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&folder))?;
    for flows in ["redis.js", "memcached.js"] {
        rig.check(Command::new("node").arg(flows).current_dir(&folder), totals)?;
    }
    Ok(())
}

fn java(rig: &Rig, totals: &mut Totals) -> anyhow::Result<()> {
    let folder = kept("java")?;
    let mut install = Command::new("mvn");
    install.args(["-q", "-B", "dependency:copy-dependencies"]);
    install.arg(format!("-DoutputDirectory={}", folder.display()));
    run(install.arg("-f").arg(sources("java").join("pom.xml")))?;
    let mut flows = Command::new("java");
    flows.arg("-cp").arg(folder.join("*")).arg(sources("java").join("Flows.java"));
    rig.check(&flows, totals)
}

/// The tests that pylibmc's sources bring, most of them over the binary protocol.
fn pylibmc(rig: &Rig, totals: &mut Totals) -> anyhow::Result<()> {
    const SOURCES: &str = "pylibmc-1.6.3";
    setup::install()?;
    let folder = kept("python")?;
    if !folder.join(SOURCES).is_dir() {
        let mut download = Command::new(setup::python());
        download.args(["-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:", "pylibmc==1.6.3"]);
        run(download.current_dir(&folder))?;
        run(Command::new("tar").args(["xzf", "pylibmc-1.6.3.tar.gz"]).current_dir(&folder))?;
    }
    let (host, port) = (rig.address(3).ip().to_string(), rig.address(3).port().to_string());
    let mut tests = Command::new("timeout");
    tests.arg(WITHIN_S).arg(setup::python()).args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    tests.args(["--import-mode=importlib", "tests"]).current_dir(folder.join(SOURCES));
    // That one starts a server of its own on a fixed port.
    tests.arg("--ignore=tests/test_autoconf.py");
    run(tests.env("MEMCACHED_HOST", host).env("MEMCACHED_PORT", port))?;
    println!("ok pylibmc's own tests");
    totals.count_check(true);
    Ok(())
}

fn memcached_exporter(rig: &Rig, totals: &mut Totals) -> anyhow::Result<()> {
    let package = "github.com/prometheus/memcached_exporter/cmd/memcached_exporter";
    let mut exporter = Command::new(build_go(package, "memcached_exporter")?);
    exporter.args(["--memcached.address", &rig.memcached(), "--web.listen-address"]);
    // What its own dashboard and alerts name.
    let wanted = "up version uptime_seconds commands_total current_bytes limit_bytes current_connections \
                  max_connections connections_total current_items items_total items_evicted_total \
                  items_reclaimed_total read_bytes_total written_bytes_total slab_current_items \
                  slab_mem_requested_bytes slab_items_age_seconds slab_commands_total slab_chunk_size_bytes \
                  process_user_cpu_seconds_total";
    scrape(&mut exporter, "memcached_", wanted)?;
    println!("ok memcached_exporter");
    totals.count_check(true);
    Ok(())
}

fn redis_exporter(rig: &Rig, totals: &mut Totals) -> anyhow::Result<()> {
    let mut exporter = Command::new("prometheus-redis-exporter");
    exporter.arg(format!("-redis.addr=redis://{}", rig.resp())).arg("-web.listen-address");
    let wanted = "up uptime_in_seconds connected_clients memory_used_bytes memory_max_bytes \
                  memory_used_rss_bytes mem_fragmentation_ratio commands_processed_total keyspace_hits_total \
                  keyspace_misses_total net_input_bytes_total net_output_bytes_total db_keys db_keys_expiring \
                  expired_keys_total evicted_keys_total rejected_connections_total blocked_clients \
                  connected_slaves slowlog_length start_time_seconds instance_info config_maxclients \
                  cpu_user_seconds_total exporter_last_scrape_error";
    let text = scrape(&mut exporter, "redis_", wanted)?;
    ensure!(text.contains("\nredis_exporter_last_scrape_error{err=\"\"} 0\n"), "it has met an error");
    println!("ok redis_exporter");
    totals.count_check(true);
    Ok(())
}

/// Starts an exporter, whose last argument is an address, and reads its metrics. It must find the server up, have the
/// `wanted` metrics, and complain about nothing. Returns the text.
fn scrape(exporter: &mut Command, prefix: &str, wanted: &str) -> anyhow::Result<String> {
    // Free as long as nobody else takes it.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let log = tempfile::NamedTempFile::new()?;
    exporter.arg(address.to_string()).stdout(Stdio::null()).stderr(log.reopen()?);
    let running = Guard(exporter.spawn()?);
    let begun = Instant::now();
    let text = loop {
        match get(address) {
            Ok(text) => break text,
            Err(error) if begun.elapsed() > ANSWERED => bail!("it does not answer: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    };
    drop(running);
    check_metrics(&text, prefix, wanted)?;
    let log = fs::read_to_string(log.path())?;
    let is_complaint =
        |line: &&str| ["level=error", "level=warn"].iter().any(|part| line.to_lowercase().contains(part));
    match log.lines().find(is_complaint) {
        Some(line) => bail!("it complains: {line}"),
        None => Ok(text),
    }
}

fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWERED))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn check_metrics(answer: &str, prefix: &str, wanted: &str) -> anyhow::Result<()> {
    ensure!(answer.lines().next().is_some_and(|line| line.contains(" 200 ")), "{answer:.2000}");
    let lines = answer.lines().filter_map(|line| line.strip_prefix(prefix));
    let names: BTreeSet<&str> = lines.filter_map(|line| line.split(['{', ' ']).next()).collect();
    ensure!(answer.contains(&format!("\n{prefix}up 1\n")), "it finds no server:\n{answer:.2000}");
    let missing: Vec<&str> = wanted.split_whitespace().filter(|name| !names.contains(name)).collect();
    ensure!(missing.is_empty(), "there is no {missing:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        assert_eq!(result("ok RESP2: strings"), Some(true));
        assert_eq!(result("failed RESP2: strings: 1. v, not w"), Some(false));
        assert_eq!(result("okay then"), None);
        assert_eq!(result(""), None);
    }

    #[test]
    fn bad_metrics_are_noticed() {
        let good = "HTTP/1.0 200 OK\r\n\r\nx_up 1\nx_items{class=\"1\"} 2\n";
        assert!(check_metrics(good, "x_", "up items").is_ok());
        assert!(check_metrics(good, "x_", "up bytes").is_err());
        assert!(check_metrics(&good.replace("up 1", "up 0"), "x_", "items").is_err());
        assert!(check_metrics(&good.replace("200", "500"), "x_", "items").is_err());
    }
}
