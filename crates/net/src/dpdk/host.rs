//! The state that all ports at a device share.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use minos_sync::Ring;

use super::{
    DpdkDevice, DpdkOptions,
    device::Device,
    eal, opened,
    port::Held,
    steering::{Link, Steering},
    sys::Wanted,
};
use crate::{
    DpdkFacts, PortOptions, Side, frame::packet_bytes, resolver::Resolver, row::Row, socket_file::SocketFile,
};

/// Datagrams that wait for a port because another port's queue received them.
const INBOX: usize = 512;
/// Packets that bursts and inboxes may hold beside those of queues.
const PACKETS_HELD: u32 = 4096;
/// Bytes of a packet's memory; an Ethernet frame fits. memif copies fastest if its buffers have as many, and if they are an
/// odd number of cache lines: those at 2048 bytes each share a few sets of the caches.
const FRAME_BYTES: usize = 2048 + 64;
/// Fewest and most packets of a queue; both powers of two.
const DESCRIPTORS: [usize; 2] = [256, 8192];
/// Hardware addresses of the two sides of a memif, which are administered locally.
const MEMIF_MACS: [&str; 2] = ["02:4d:69:6e:6f:01", "02:4d:69:6e:6f:02"];

/// A device, and what its ports share.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) inboxes: Box<[Ring<Held>]>,
    pub(super) device: Arc<Device>,
    pub(super) resolver: Resolver,
    pub(super) steering: Steering,
    pub(super) receive_buffer_bytes: usize,
    pub(super) options: DpdkOptions,
    pub(super) row: Row,
    _socket: Option<SocketFile>,
}

impl Host {
    pub(super) fn open(options: &DpdkOptions, wanted: &PortOptions) -> io::Result<Self> {
        let row = Row::of(wanted)?;
        let link = options.device.link();
        let [receive_queues, send_queues] = Steering::wanted(link, options.side, wanted.count);
        let [least, most] = DESCRIPTORS;
        let descriptors = (wanted.receive_buffer_bytes / FRAME_BYTES).clamp(least, most).next_power_of_two();
        eal::start(&arguments(options, (receive_queues + send_queues) * descriptors))?;
        let shape = Wanted {
            receive_queues: receive_queues as u16,
            send_queues: send_queues as u16,
            descriptors: descriptors as u16,
            packets_held: PACKETS_HELD,
        };
        let (device, socket) = opened::take_or(options, &shape, || {
            let (name, socket) = name_of(options, descriptors)?;
            Ok((Device::open(&name, &shape)?, socket))
        })?;
        let inboxes: Box<[_]> = (0..wanted.count).map(|_| Ring::new(INBOX)).collect();
        let steering = Steering {
            link,
            side: options.side,
            ports: wanted.count,
            receive_queues: device.receive_queues(),
            send_queues: device.send_queues(),
            is_steered: true,
        };
        let mut host = Self {
            inboxes,
            resolver: Resolver::new(),
            steering,
            receive_buffer_bytes: descriptors * FRAME_BYTES,
            options: options.clone(),
            row,
            device,
            _socket: socket,
        };
        host.steering.is_steered = host.steer();
        Ok(host)
    }

    /// The queues that a port looks at.
    pub(super) fn receive_queues(&self, number: usize) -> impl Iterator<Item = usize> + use<> {
        self.steering.receive_queues(number, self.row.first.port() + number as u16)
    }

    pub(super) fn facts(&self) -> DpdkFacts {
        DpdkFacts {
            device: self.options.device.to_string(),
            driver: self.device.driver(),
            receive_queues: self.device.receive_queues(),
            send_queues: self.device.send_queues(),
            is_steered: self.steering.is_steered,
            memory_bytes: self.device.memory_bytes(),
        }
    }

    /// Longest payload of a datagram, in bytes.
    pub(super) fn payload_bytes_max(&self) -> usize {
        self.device.mtu_bytes() - packet_bytes(&(*self.row.first.ip()).into(), 0)
    }

    /// Steers each port to its queue; false if that is left to the device.
    fn steer(&self) -> bool {
        let ports = 0..self.inboxes.len();
        self.steering.link == Link::Peer
            || !self.row.shares_address
                && ports.into_iter().all(|number| {
                    let address = self.row.address(number);
                    let mut queues = self.receive_queues(number);
                    queues.all(|queue| self.device.steer(*address.ip(), address.port(), queue))
                })
    }
}

/// Arguments of DPDK for a device whose queues have so many packets.
fn arguments(options: &DpdkOptions, packets: usize) -> Vec<String> {
    // Beside the packets, those of caches and inboxes, and DPDK's own memory.
    let megabytes = 128 + 2 * packets * (FRAME_BYTES + 512) / (1 << 20);
    let own = match &options.device {
        DpdkDevice::Card(address) => vec!["--in-memory".to_owned(), "-a".to_owned(), address.clone()],
        // Without huge pages there is no `--in-memory`, and nothing to share either.
        _ => ["--no-pci", "--no-huge", "--no-shconf", &format!("-m{megabytes}")].map(str::to_owned).to_vec(),
    };
    own.into_iter().chain(options.arguments.iter().cloned()).collect()
}

/// The name of the device, which is made if it is a virtual one.
fn name_of(options: &DpdkOptions, descriptors: usize) -> io::Result<(String, Option<SocketFile>)> {
    match &options.device {
        DpdkDevice::Card(address) => Ok((address.clone(), None)),
        DpdkDevice::Virtual(text) => {
            let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
            Device::create(name, arguments)?;
            Ok((name.to_owned(), None))
        }
        DpdkDevice::Memif(path) => make_memif(path, options.side, descriptors),
    }
}

fn make_memif(path: &Path, side: Side, descriptors: usize) -> io::Result<(String, Option<SocketFile>)> {
    /// Numbers of this process' devices.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("net_memif{}", NEXT.fetch_add(1, Relaxed));
    // To ask would not do: the driver ends its process if a peer leaves early.
    let no_answer = || false;
    let (role, mac, socket) = match side {
        Side::Server { .. } => ("server", MEMIF_MACS[0], Some(SocketFile::take(path, no_answer)?)),
        Side::Client { .. } => ("client", MEMIF_MACS[1], None),
    };
    let (path, ring) = (path.display(), descriptors.ilog2());
    let arguments = format!(
        "role={role},id=0,socket={path},socket-abstract=no,bsize={FRAME_BYTES},rsize={ring},mac={mac}"
    );
    Device::create(&name, &arguments)?;
    Ok((name, socket.map(SocketFile::made)))
}
