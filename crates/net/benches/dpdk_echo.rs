//! Datagrams a second that one thread receives and sends back, over memif from another process: the most that a server's core
//! can do.
//!
//! `cargo bench -p minos-net --features dpdk --bench dpdk_echo -- [--bytes N] [--window N] [--seconds N] [--cpus A,B]`

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use minos_net::{
    Port, PortOptions,
    dpdk::{DpdkDevice, DpdkOptions, DpdkPort, Side},
    pin_to,
    udp::{BURST_MESSAGES, TRAIN_SEGMENTS_MAX, TransmitBurst},
};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 11311;
const BUFFER_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
/// Silence after which what is under way is lost.
const SILENCE: Duration = Duration::from_millis(200);
const ROUNDS: usize = 3;

/// What to measure.
struct Plan {
    bytes: usize,
    /// Datagrams under way at a time.
    window: usize,
    seconds: u64,
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
        cpus: [cpus.first().copied().unwrap_or(0), cpus.get(1).copied().unwrap_or(1)],
    };
    let result = match value("--serve") {
        Some(path) => serve(Path::new(&path), plan.cpus[0]),
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

fn port(path: &Path, side: Side, ip: Ipv4Addr) -> io::Result<DpdkPort> {
    let options = DpdkOptions { device: DpdkDevice::Memif(path.to_owned()), side, arguments: Vec::new() };
    let wanted = PortOptions {
        address: (ip, PORT).into(),
        count: 1,
        shares_address: false,
        receive_buffer_bytes: BUFFER_BYTES,
        from_card: false,
    };
    DpdkPort::open_all(&options, &wanted)?.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Sends back all that comes.
fn serve(path: &Path, cpu: usize) -> io::Result<()> {
    let port = port(path, Side::Server { separates_large: false }, SERVER)?;
    pin_to(cpu)?;
    println!("serving");
    let (mut burst, mut echo) = (port.burst(), TransmitBurst::new());
    loop {
        if port.receive_at_most(&mut burst, BURST_MESSAGES)? == 0 {
            continue;
        }
        for message in DpdkPort::messages(&mut burst) {
            // There is room for a burst.
            let _ = echo.push(message.peer, message.bytes, message.segment_bytes);
        }
        port.send(&mut echo);
    }
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
    let port = port(&path, Side::Client { queues: 1 }, CLIENT)?;
    pin_to(plan.cpus[1])?;
    port.reach(SERVER, PATIENCE)?;
    for _ in 0..ROUNDS {
        let (echoed, lost) = round(&port, plan)?;
        let rate = echoed as f64 / plan.seconds as f64 / 1e6;
        println!("{rate:.2} M datagrams/s of {} bytes, {lost} lost", plan.bytes);
    }
    Ok(())
}

/// Datagrams that came back within the time, and those that did not.
fn round(port: &DpdkPort, plan: &Plan) -> io::Result<(u64, u64)> {
    let server = SocketAddr::from((SERVER, PORT));
    let payload = vec![0x4d; plan.bytes * TRAIN_SEGMENTS_MAX];
    let (mut burst, mut trains) = (port.burst(), TransmitBurst::new());
    let (mut under_way, mut echoed, mut lost) = (0, 0, 0);
    let (begun, mut heard) = (Instant::now(), Instant::now());
    let time = Duration::from_secs(plan.seconds);
    while begun.elapsed() < time {
        let count = TRAIN_SEGMENTS_MAX.min(plan.window - under_way);
        if count >= BURST_MESSAGES.min(plan.window) {
            // The first one has room.
            let _ = trains.push(server, &payload[..count * plan.bytes], plan.bytes);
            port.send(&mut trains);
            under_way += count;
        }
        let received = port.receive_at_most(&mut burst, BURST_MESSAGES)?;
        under_way = under_way.saturating_sub(received);
        echoed += received as u64;
        if received > 0 {
            heard = Instant::now();
        } else if heard.elapsed() > SILENCE {
            lost += under_way as u64;
            (under_way, heard) = (0, Instant::now());
        }
    }
    Ok((echoed, lost))
}
