//! What TLS costs a server: processor time of small GETs, and bytes of large ones.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::{
    Samples,
    contestants::{self, Contestant},
    idle::Counts,
    report::{Report, cell},
};

/// The driver runs on the second processor. It is Redis' own, for both servers alike.
const DRIVER: [&str; 4] = ["taskset", "-c", "1", "redis-benchmark"];
const SMALL_BYTES: &str = "32";
const LARGE_BYTES: u64 = 10_000_000;
/// Pipeline depths, and GETs that a second of measurement begins.
const PIPELINES: [(&str, u64); 3] = [("1", 20_000), ("16", 150_000), ("64", 250_000)];
const LARGE_GETS_A_SECOND: u64 = 50;
const CONNECTIONS: &str = "16";

/// A server, with or without TLS.
struct Subject {
    server: Contestant,
    is_tls: bool,
}

/// Each server alone on one processor, over TLS and without.
pub(super) fn measure(program: &Path, rounds: u32, seconds: u32) -> anyhow::Result<Report> {
    let folder = TempDir::new()?;
    let subjects = subjects(program, folder.path())?;
    for subject in &subjects {
        subject.drive(&["-t", "set", "-d", SMALL_BYTES, "-r", "10000", "-n", "100000", "-P", "16"])?;
    }
    let mut report = Report::new(
        "What TLS costs",
        &format!(
            "Measured. GETs of {SMALL_BYTES} bytes on {CONNECTIONS} connections, then of 10 MB on one, by redis-benchmark on \
             the other processor; TLS 1.3, AES-256-GCM; user and system time of the server's process, alone on one \
             processor; median (smallest..largest) of {rounds} interleaved rounds. The last row is what one processor \
             encrypts without sending it: `openssl speed -evp aes-256-gcm -bytes 16384`. `cargo xtask measure tls`"
        ),
        &[
            "server",
            "10 MB, MB a second of processor time",
            "10 MB, MB/s",
            "us a GET, pipeline 1",
            "16",
            "64",
        ],
    );
    let mut samples = vec![[(); 5].map(|()| Samples::default()); subjects.len()];
    let mut alone = Samples::default();
    for _ in 0..rounds {
        alone.push(encryption_mb_a_second()?);
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            let small =
                PIPELINES.map(|(pipeline, a_second)| subject.small(pipeline, a_second * u64::from(seconds)));
            let [by_cpu, by_wall] = subject.large(LARGE_GETS_A_SECOND * u64::from(seconds))?;
            samples[0].push(by_cpu);
            samples[1].push(by_wall);
            for (samples, us) in samples[2..].iter_mut().zip(small) {
                samples.push(us?);
            }
        }
    }
    for (subject, samples) in subjects.iter().zip(&samples) {
        let name = format!("{}{}", subject.server.name, if subject.is_tls { ", TLS" } else { "" });
        let cells = samples.iter().zip([0, 0, 3, 3, 3]).map(|(samples, decimals)| cell(samples, decimals));
        report.rows.push([name].into_iter().chain(cells).collect());
    }
    let nothing = || "".to_owned();
    let alone = [cell(&alone, 0), cell(&alone, 0), nothing(), nothing(), nothing()];
    report.rows.push(["encryption alone".to_owned()].into_iter().chain(alone).collect());
    Ok(report)
}

fn subjects(program: &Path, folder: &Path) -> anyhow::Result<Vec<Subject>> {
    let [cert, key] = ["cert", "key"].map(|name| folder.join(format!("{name}.pem")).display().to_string());
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-out", &cert, "-keyout", &key])
        .stderr(Stdio::null())
        .status()?;
    ensure!(made.success(), "openssl cannot make a certificate");
    let plain = ["--workers", "1", "--poll", "sleep"];
    let files = ["--tls-cert", &cert, "--tls-key", &key];
    let secured = [&plain[..], &files[..]].concat();
    let subject = |server, is_tls| Subject { server, is_tls };
    Ok(vec![
        subject(contestants::minos_resp(program, "0", &plain)?, false),
        subject(contestants::redis("0")?, false),
        subject(contestants::minos_resp(program, "0", &secured)?, true),
        subject(contestants::redis_over_tls("0", &cert, &key)?, true),
    ])
}

impl Subject {
    fn drive(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let port = self.server.address().port().to_string();
        let mut command = Command::new(DRIVER[0]);
        command.args(&DRIVER[1..]).args(["-p", &port, "--csv"]).args(arguments);
        if self.is_tls {
            command.args(["--tls", "--insecure", "--tls-ciphersuites", "TLS_AES_256_GCM_SHA384"]);
        }
        let output = command.output().context("redis-benchmark")?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && !said.contains("ERR"), "{command:?}: {said}");
        Ok(())
    }

    /// Microseconds of the server's processor time for each of `gets` small GETs.
    fn small(&self, pipeline: &str, gets: u64) -> anyhow::Result<f64> {
        let before = Counts::of(self.server.pid())?;
        let number = gets.to_string();
        self.drive(&["-t", "get", "-r", "10000", "-c", CONNECTIONS, "-P", pipeline, "-n", &number])?;
        let after = Counts::of(self.server.pid())?;
        Ok((after.cpu_ns - before.cpu_ns) as f64 / 1000.0 / gets as f64)
    }

    /// Megabytes of large values, sent to one connection, a second of the server's processor time, and a second.
    fn large(&self, gets: u64) -> anyhow::Result<[f64; 2]> {
        self.drive(&["-t", "set", "-d", &LARGE_BYTES.to_string(), "-c", "1", "-n", "1"])?;
        let (before, begin) = (Counts::of(self.server.pid())?, Instant::now());
        self.drive(&["-t", "get", "-c", "1", "-n", &gets.to_string()])?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_seconds = (Counts::of(self.server.pid())?.cpu_ns - before.cpu_ns) as f64 / 1e9;
        let megabytes = (gets * LARGE_BYTES) as f64 / 1e6;
        Ok([megabytes / cpu_seconds, megabytes / seconds])
    }
}

/// What one processor encrypts, in MB/s.
fn encryption_mb_a_second() -> anyhow::Result<f64> {
    let arguments = ["-c", "0", "openssl", "speed", "-mr", "-seconds", "1", "-bytes", "16384"];
    let output = Command::new("taskset").args(arguments).args(["-evp", "aes-256-gcm"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("+F:")?.rsplit(':').next());
    let bytes: f64 = rate.with_context(|| format!("openssl speed said {said}"))?.parse()?;
    Ok(bytes / 1e6)
}
