//! Latency of fast clients beside a crowd of idle and of slow ones.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::ensure;

use super::{
    Samples,
    contestants::{self, Contestant},
    driver::{self, Measurement, Pace},
    report::{Report, cell},
    turn,
};

const QUIET: &str = "xtask/workloads/quiet.toml";
const IDLE: usize = 500;
const SLOW: usize = 500;
/// What each slow client sends, a byte at a time, over and over.
const SLOW_REQUEST: &[u8] = b"set slow 0 0 100\r\n";
/// Time between two bytes of a slow client.
const A_BYTE_EVERY: Duration = Duration::from_millis(500);
const PERCENTILES: [&str; 3] = ["p50", "p99", "p999"];

/// Connections that are open while it lives.
struct Crowd {
    _idle: Vec<TcpStream>,
    slow: Vec<TcpStream>,
}

/// Each server alone on one processor, the driver and the crowd on the other.
pub(super) fn measure(program: &Path, rounds: u32, millis: u32) -> anyhow::Result<Report> {
    let contestants =
        [contestants::minos("Minos", program, "0", &["--workers", "1"])?, contestants::memcached("0", 1)?];
    let mut report = Report::new(
        "Fast clients beside a crowd",
        &format!(
            "Measured. p50, p99, p99.9 in microseconds from the intended send time of 40 k GETs of small values a second \
             on 16 connections, open loop with Poisson arrivals; server alone on one processor; median \
             (smallest..largest) of {rounds} interleaved rounds of {millis} ms. The crowd is {IDLE} idle connections, and \
             {SLOW} that each send a byte of a request every {} ms. `cargo xtask measure crowd`",
            A_BYTE_EVERY.as_millis()
        ),
        &["server", "alone", "beside the crowd"],
    );
    for contestant in &contestants {
        driver::load(program, &contestant.target(), &["--workload", QUIET])?;
    }
    let mut samples = vec![[(); 2].map(|()| [(); 3].map(|()| Samples::default())); contestants.len()];
    for round in 0..rounds {
        for (contestant, [alone, beside]) in contestants.iter().zip(&mut samples) {
            once(program, contestant, (millis, round), alone)?;
            Crowd::gather(contestant.address())?
                .beside(|| once(program, contestant, (millis, round), beside))?;
        }
    }
    for (contestant, samples) in contestants.iter().zip(&samples) {
        let cells = samples
            .iter()
            .map(|samples| samples.iter().map(|samples| cell(samples, 0)).collect::<Vec<_>>().join(", "));
        report.rows.push([contestant.name.to_owned()].into_iter().chain(cells).collect());
    }
    Ok(report)
}

/// Takes one measurement.
fn once(
    program: &Path,
    contestant: &Contestant,
    (millis, draw): (u32, u32),
    samples: &mut [Samples; 3],
) -> anyhow::Result<()> {
    let measurement = Measurement {
        target: &contestant.target(),
        server_pid: contestant.pid(),
        threads: driver::ON_THE_SECOND,
        pace: Pace::Spin,
        drain: "3s",
        warmup_ms: driver::WARMUP_MS,
        millis,
        draw,
        arguments: &["--workload", QUIET],
    };
    let result = turn::run(program, &measurement)?;
    ensure!(turn::is_answered(&result, 0.0), "{}: {result}", contestant.name);
    for (samples, percentile) in samples.iter_mut().zip(PERCENTILES) {
        samples.push(result["latency_us"]["small"][percentile].as_f64().unwrap_or(f64::NAN));
    }
    Ok(())
}

impl Crowd {
    fn gather(server: SocketAddr) -> anyhow::Result<Self> {
        let connect = |number| (0..number).map(|_| TcpStream::connect(server)).collect::<Result<Vec<_>, _>>();
        let (idle, slow) = (connect(IDLE)?, connect(SLOW)?);
        slow.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
        Ok(Self { _idle: idle, slow })
    }

    /// Calls `f` while the slow clients send.
    fn beside<T>(mut self, f: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let sending = scope.spawn(|| self.send(&is_over));
            let result = f();
            is_over.store(true, Relaxed);
            sending.join().unwrap_or(Ok(()))?;
            result
        })
    }

    fn send(&mut self, is_over: &AtomicBool) -> anyhow::Result<()> {
        // One after the other: no two bytes come at once.
        let pause = A_BYTE_EVERY / SLOW as u32;
        let request = SLOW_REQUEST.iter().chain(&[b'v'; 100]).chain(b"\r\n");
        for byte in request.cycle() {
            for stream in &mut self.slow {
                if is_over.load(Relaxed) {
                    return Ok(());
                }
                stream.write_all(&[*byte])?;
                match stream.read(&mut [0; 64]) {
                    Ok(0) => anyhow::bail!("the server closed a slow connection"),
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                    _ => {}
                }
                thread::sleep(pause);
            }
        }
        Ok(())
    }
}
