//! Datagrams a second that one thread receives and sends back, over memif from another process: the most that a server's core
//! can do.
//!
//! `cargo bench -p minos-net --bench memif_echo -- [--bytes N] [--window N] [--seconds N] [--cpus A,B] [--ring BYTES]`
//!
//! With `--alone`, both ends are this thread's. It prints the processor time that a datagram takes there and back, which
//! other processes of a shared machine disturb least.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use minos_net::{
    MemifBurst, MemifOptions, MemifPort, Port, PortOptions, Side, Source, pin_to,
    udp::{BURST_MESSAGES, TRAIN_SEGMENTS_MAX, TransmitBurst},
};
use rustix::time::{ClockId, clock_gettime};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 11311;
const RING_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
/// Silence after which what is under way is lost.
const SILENCE: Duration = Duration::from_millis(200);
const ROUNDS: usize = 3;
/// The time whose fastest one is shown.
const PART: Duration = Duration::from_millis(5);

/// What to measure.
struct Plan {
    bytes: usize,
    /// Datagrams under way at a time.
    window: usize,
    seconds: u64,
    /// Of the client's buffers.
    ring_bytes: usize,
    cpus: [usize; 2],
}

/// The server's process; killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default| value(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let cpus: Vec<usize> = value("--cpus")
        .map(|text| text.split(',').filter_map(|cpu| cpu.parse().ok()).collect())
        .unwrap_or_default();
    let plan = Plan {
        bytes: number("--bytes", 32),
        window: number("--window", 512),
        seconds: number("--seconds", 2) as u64,
        ring_bytes: number("--ring", RING_BYTES),
        cpus: [cpus.first().copied().unwrap_or(0), cpus.get(1).copied().unwrap_or(1)],
    };
    let result = match value("--serve") {
        Some(path) => serve(Path::new(&path), plan.cpus[0]),
        None if arguments.iter().any(|argument| argument == "--alone") => measure_alone(&plan),
        None => measure(&plan),
    };
    result.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn port(path: &Path, side: Side, (ip, ring_bytes): (Ipv4Addr, usize)) -> io::Result<MemifPort> {
    let options = MemifOptions { path: path.to_owned(), side };
    let wanted = PortOptions {
        address: (ip, PORT).into(),
        count: 1,
        shares_address: false,
        receive_buffer_bytes: ring_bytes,
        source: Source::Memif(options.clone()),
    };
    MemifPort::open_all(&options, &wanted)?.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Sends back all that comes.
fn serve(path: &Path, cpu: usize) -> io::Result<()> {
    let port = port(path, Side::Server { separates_large: false }, (SERVER, RING_BYTES))?;
    pin_to(cpu)?;
    println!("serving");
    let (mut burst, mut echo) = (port.burst(), TransmitBurst::new());
    loop {
        send_back(&port, &mut burst, &mut echo)?;
    }
}

/// Sends back a burst that has come.
fn send_back(port: &MemifPort, burst: &mut MemifBurst, echo: &mut TransmitBurst) -> io::Result<()> {
    if port.receive_at_most(burst, BURST_MESSAGES)? > 0 {
        for message in MemifPort::messages(burst) {
            // There is room for a burst.
            let _ = echo.push(message.peer, message.bytes, message.segment_bytes);
        }
        port.send(echo);
    }
    Ok(())
}

/// Echoes bursts with both ends, and prints the processor time of the fastest rounds.
fn measure_alone(plan: &Plan) -> io::Result<()> {
    const ROUND: usize = 1000;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("memif");
    let server = port(&path, Side::Server { separates_large: false }, (SERVER, RING_BYTES))?;
    let client = port(&path, Side::Client { queues: 1 }, (CLIENT, plan.ring_bytes))?;
    pin_to(plan.cpus[0])?;
    let payload = vec![0x4d; plan.bytes];
    let (mut burst, mut trains) = (server.burst(), TransmitBurst::new());
    let (mut answers, mut echo) = (client.burst(), TransmitBurst::new());
    meet(&server, &client)?;
    let (begun, mut rounds) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(plan.seconds) || rounds.is_empty() {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        let mut echoed = 0;
        for _ in 0..ROUND {
            for _ in 0..BURST_MESSAGES {
                let _ = trains.push(server.address(), &payload, plan.bytes);
            }
            client.send(&mut trains);
            send_back(&server, &mut burst, &mut echo)?;
            echoed += client.receive_at_most(&mut answers, BURST_MESSAGES)?;
        }
        let after = clock_gettime(ClockId::ThreadCPUTime);
        let taken =
            Duration::try_from(after).unwrap_or_default() - Duration::try_from(before).unwrap_or_default();
        rounds.push(taken.as_nanos() as f64 / echoed.max(1) as f64);
    }
    rounds.sort_by(f64::total_cmp);
    let [fastest, usual] = [rounds[0], rounds[rounds.len() / 2]];
    println!(
        "{fastest:.1} ns a datagram of {} bytes there and back, {usual:.1} ns in the middle of {} rounds",
        plan.bytes,
        rounds.len()
    );
    Ok(())
}

/// Lets the client learn the server's hardware address while the server answers.
fn meet(server: &MemifPort, client: &MemifPort) -> io::Result<()> {
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| client.reach(SERVER, PATIENCE));
        let mut burst = server.burst();
        while !asker.is_finished() {
            server.receive_at_most(&mut burst, BURST_MESSAGES)?;
        }
        asker.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

fn measure(plan: &Plan) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("memif");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--serve").arg(&path).arg("--cpus").arg(plan.cpus[0].to_string()).stdout(Stdio::piped());
    let mut server = Server(command.spawn()?);
    // It says one line once it serves.
    let mut said = server.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    io::Read::read_exact(&mut said, &mut [0; 1])?;
    let port = port(&path, Side::Client { queues: 1 }, (CLIENT, plan.ring_bytes))?;
    pin_to(plan.cpus[1])?;
    port.reach(SERVER, PATIENCE)?;
    for _ in 0..ROUNDS {
        let Round { echoed, lost, fastest } = round(&port, plan)?;
        let rate = |echoed: u64, time: Duration| echoed as f64 / time.as_secs_f64() / 1e6;
        let (whole, part) = (rate(echoed, Duration::from_secs(plan.seconds)), rate(fastest, PART));
        println!(
            "{whole:.2} M datagrams/s of {} bytes, {part:.2} in the fastest {PART:?}, {lost} lost",
            plan.bytes
        );
    }
    Ok(())
}

/// Datagrams that came back within the time, and those that did not.
#[derive(Default)]
struct Round {
    echoed: u64,
    lost: u64,
    /// Those of the fastest part of the time, in which no other process had the processors.
    fastest: u64,
}

fn round(port: &MemifPort, plan: &Plan) -> io::Result<Round> {
    let server = SocketAddr::from((SERVER, PORT));
    let payload = vec![0x4d; plan.bytes * TRAIN_SEGMENTS_MAX];
    let (mut burst, mut trains) = (port.burst(), TransmitBurst::new());
    let (mut under_way, mut round, mut before) = (0, Round::default(), 0);
    let (begun, mut heard) = (Instant::now(), Instant::now());
    let mut part_begun = begun;
    let time = Duration::from_secs(plan.seconds);
    loop {
        let now = Instant::now();
        if now - begun >= time {
            return Ok(round);
        }
        if now - part_begun >= PART {
            // A part during which this thread stood still is longer.
            let is_whole = now - part_begun < PART + PART / 50;
            round.fastest = round.fastest.max(if is_whole { round.echoed - before } else { 0 });
            (part_begun, before) = (now, round.echoed);
        }
        let count = TRAIN_SEGMENTS_MAX.min(plan.window - under_way);
        if count >= BURST_MESSAGES.min(plan.window) {
            // The first one has room.
            let _ = trains.push(server, &payload[..count * plan.bytes], plan.bytes);
            port.send(&mut trains);
            under_way += count;
        }
        let received = port.receive_at_most(&mut burst, BURST_MESSAGES)?;
        under_way = under_way.saturating_sub(received);
        round.echoed += received as u64;
        if received > 0 {
            heard = now;
        } else if now - heard > SILENCE {
            round.lost += under_way as u64;
            (under_way, heard) = (0, now);
        }
    }
}
