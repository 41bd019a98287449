//! An interface, its receive queues, and the frames of all ports there.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::net::xdp::XdpDesc;

use super::{
    CardFacts, Refusal,
    bpf::{Link, Program, SocketMap},
    frames::{Frame, Frames},
    interface::Interface,
    program::{Action, Steering, program},
    ring::{Consumer, Producer},
    socket::Socket,
};
use crate::{PortOptions, frame::ETHERNET_BYTES, neighbours::Neighbours};

/// Sockets of a server at most: one for each pair of a port and a receive queue.
const SOCKETS_MAX: usize = 1024;
/// Frames of a port that may be on their way out.
const SEND_FRAMES: usize = 1024;
/// Fewest frames that a receive queue may fill.
const RECEIVE_FRAMES_MIN: usize = 256;
/// Most entries of a ring.
const RING_MAX: usize = 1 << 15;

/// An interface with the sockets of all ports at all its receive queues.
#[derive(Debug)]
pub(super) struct Card {
    // Dropped first, so that packets go to the kernel's stack before the sockets are closed.
    _link: Link,
    _map: SocketMap,
    pub(super) interface: Interface,
    pub(super) neighbours: Neighbours,
    pub(super) is_zero_copy: bool,
    pub(super) frames: Frames,
    ports: usize,
    /// That of queue *q* and port *p* is at *q* × `ports` + *p*. The first of a queue has its rings.
    sockets: Vec<Socket>,
    queues: Vec<Mutex<Queue>>,
}

/// A receive queue's rings for frames without packets.
#[derive(Debug)]
pub(super) struct Queue {
    fill: Producer<u64>,
    sent: Consumer<u64>,
    /// Frames to send with.
    free: Vec<Frame>,
}

/// A port's rings.
pub(super) struct PortRings {
    /// One for each receive queue.
    pub(super) receiving: Vec<Consumer<XdpDesc>>,
    pub(super) sending: Producer<XdpDesc>,
    /// The queue that the port sends with.
    pub(super) send_queue: usize,
}

/// Numbers of frames and ring entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    ports: usize,
    queues: usize,
    /// Queues that can send, the first ones.
    send_queues: usize,
    frame_bytes: usize,
    /// Frames that a queue may fill.
    receive_frames: usize,
    /// Entries of a socket's receive ring.
    receive_ring: usize,
}

impl Sizes {
    /// The memory for received datagrams is that of as many UDP sockets.
    fn of(interface: &Interface, wanted: &PortOptions) -> Result<Self, Refusal> {
        let (ports, queues, name) = (wanted.count, interface.receive_queues, &interface.name);
        if queues == 0 {
            return Err(Refusal::new(format!("{name} has no receive queue")));
        }
        if ports * queues > SOCKETS_MAX {
            let sockets = ports * queues;
            return Err(Refusal::new(format!(
                "{queues} receive queues and {ports} ports need {sockets} sockets, more than {SOCKETS_MAX}: give {name} fewer queues (ethtool -L)"
            )));
        }
        let mtu = interface.mtu_bytes;
        let frame_bytes = Frames::frame_bytes_for(mtu + ETHERNET_BYTES)
            .ok_or_else(|| Refusal::new(format!("the MTU of {name}, {mtu}, is too large for a frame")))?;
        let of_port = (wanted.receive_buffer_bytes / frame_bytes).clamp(1, RING_MAX);
        let receive_frames = (of_port * ports).div_ceil(queues).clamp(RECEIVE_FRAMES_MIN, RING_MAX);
        let receive_ring = of_port.next_power_of_two().min(receive_frames.next_power_of_two());
        let send_queues = queues.min(interface.send_queues).max(1);
        Ok(Self { ports, queues, send_queues, frame_bytes, receive_frames, receive_ring })
    }

    /// The queue that a port sends with.
    fn send_queue(&self, port: usize) -> usize {
        port % self.send_queues
    }

    /// Frames that the ports of a queue may send with.
    fn send_frames(&self, queue: usize) -> usize {
        (0..self.ports).filter(|&port| self.send_queue(port) == queue).count() * SEND_FRAMES
    }

    fn frames(&self) -> usize {
        self.queues * self.receive_frames + self.ports * SEND_FRAMES
    }
}

impl Card {
    /// Takes datagrams for `addresses` from the interface that has their IP address.
    pub(super) fn open(
        addresses: &[SocketAddr],
        wanted: &PortOptions,
    ) -> Result<(Self, Vec<PortRings>), Refusal> {
        let first = addresses.first().ok_or_else(|| Refusal::new("there is no port"))?;
        let interface = Interface::with(*first)?;
        let sizes = Sizes::of(&interface, wanted)?;
        let step = |step: &'static str| move |error| Refusal::of(step, error);
        let map = SocketMap::new((sizes.ports * sizes.queues) as u32).map_err(step("cannot make a map"))?;
        let link = steer(first, wanted, &interface, &map)?;
        let frames = Frames::new(sizes.frames(), sizes.frame_bytes);
        let (frames, free) = frames.map_err(step("cannot map the frames"))?;
        let (sockets, queues, rings) =
            open_sockets(&interface, &sizes, &frames, free).map_err(step("cannot open AF_XDP sockets"))?;
        for (key, socket) in sockets.iter().enumerate() {
            map.insert(key as u32, socket.as_fd()).map_err(step("cannot enter a socket"))?;
        }
        let is_zero_copy = sockets.first().is_some_and(Socket::is_zero_copy);
        let card = Self {
            _link: link,
            _map: map,
            interface,
            neighbours: Neighbours::new(),
            is_zero_copy,
            frames,
            ports: sizes.ports,
            sockets,
            queues: queues.into_iter().map(Mutex::new).collect(),
        };
        Ok((card, rings))
    }

    pub(super) fn facts(&self) -> CardFacts {
        CardFacts {
            interface: self.interface.name.clone(),
            queues: self.queues.len(),
            is_zero_copy: self.is_zero_copy,
            memory_bytes: self.frames.bytes(),
        }
    }

    pub(super) fn socket(&self, queue: usize, port: usize) -> &Socket {
        &self.sockets[queue * self.ports + port]
    }

    /// The sockets of a port.
    pub(super) fn sockets(&self, port: usize) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().skip(port).step_by(self.ports)
    }

    /// Returns frames to the queues that filled them.
    pub(super) fn give_back(&self, frames: impl Iterator<Item = (usize, Frame)>) {
        let mut held: Option<(usize, MutexGuard<'_, Queue>)> = None;
        for (number, frame) in frames {
            if held.as_ref().is_some_and(|(other, _)| *other != number) {
                held.take().into_iter().for_each(|(number, queue)| self.refill(number, &queue));
            }
            let (_, queue) = held.get_or_insert_with(|| (number, self.queue(number)));
            // There is room for every frame of the queue.
            queue.fill.push(frame.into_address());
        }
        held.into_iter().for_each(|(number, queue)| self.refill(number, &queue));
    }

    /// Takes at most `count` frames of a queue to send with.
    pub(super) fn take_free(&self, number: usize, frames: &mut Vec<Frame>, count: usize) {
        let mut queue = self.queue(number);
        while let Some(address) = queue.sent.pop() {
            // SAFETY: the kernel has just given it back.
            queue.free.extend(unsafe { self.frames.around(address) }.map(|(frame, _)| frame));
        }
        queue.sent.release();
        let rest = queue.free.len().saturating_sub(count);
        frames.extend(queue.free.drain(rest..));
    }

    /// Shows the kernel frames to fill.
    fn refill(&self, number: usize, queue: &Queue) {
        queue.fill.publish();
        if queue.fill.needs_wakeup() {
            self.socket(number, 0).wake_receiving();
        }
    }

    fn queue(&self, number: usize) -> MutexGuard<'_, Queue> {
        self.queues[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loads the program and lets it work. Datagrams go to the kernel's stack until their sockets are entered in `map`.
fn steer(
    first: &SocketAddr,
    wanted: &PortOptions,
    interface: &Interface,
    map: &SocketMap,
) -> Result<Link, Refusal> {
    let steering = Steering {
        mac: interface.mac,
        ip: first.ip(),
        port: first.port(),
        ports: wanted.count as u16,
        shares_address: wanted.shares_address,
        sockets: map.as_fd().as_raw_fd(),
        otherwise: Action::Pass,
    };
    let program = Program::load(&program(&steering));
    let program = program.map_err(|error| Refusal::of("cannot load the program", error))?;
    let attached = program.attach(interface.index);
    attached.map_err(|error| Refusal::of(&format!("cannot attach the program to {}", interface.name), error))
}

type Opened = (Vec<Socket>, Vec<Queue>, Vec<PortRings>);

/// Opens a socket for each queue and port, and deals the frames.
fn open_sockets(
    interface: &Interface,
    sizes: &Sizes,
    frames: &Frames,
    mut free: Vec<Frame>,
) -> io::Result<Opened> {
    let (mut sockets, mut queues) = (Vec::<Socket>::new(), Vec::new());
    let mut receiving: Vec<Vec<_>> = (0..sizes.ports).map(|_| Vec::new()).collect();
    let mut sending: Vec<Option<_>> = (0..sizes.ports).map(|_| None).collect();
    for number in 0..sizes.queues {
        let first_of_queue = sockets.len();
        for port in 0..sizes.ports {
            let socket = Socket::open()?;
            receiving[port].push(socket.map_receiving(sizes.receive_ring as u32)?);
            if sizes.send_queue(port) == number {
                sending[port] = Some(socket.map_sending(SEND_FRAMES as u32)?);
            }
            if sockets.is_empty() {
                socket.register(frames)?;
            }
            if port == 0 {
                queues.push(open_queue(&socket, sizes, number, &mut free)?);
            }
            let beside = sockets.get(first_of_queue).or(sockets.first());
            match beside {
                None => socket.bind(interface.index, number as u32)?,
                Some(other) => socket.bind_beside(other, interface.index, number as u32)?,
            }
            sockets.push(socket);
        }
    }
    let rings = receiving.into_iter().zip(sending).enumerate().filter_map(|(port, (receiving, sending))| {
        Some(PortRings { receiving, sending: sending?, send_queue: sizes.send_queue(port) })
    });
    let rings = rings.collect();
    Ok((sockets, queues, rings))
}

/// The rings of a queue, whose first socket is `socket`, with frames of those in `free`.
fn open_queue(socket: &Socket, sizes: &Sizes, number: usize, free: &mut Vec<Frame>) -> io::Result<Queue> {
    let send_frames = sizes.send_frames(number);
    let fill_ring = sizes.receive_frames.next_power_of_two();
    let sent_ring = send_frames.next_power_of_two().max(1);
    let (mut fill, sent) = socket.map_queue(fill_ring as u32, sent_ring as u32)?;
    for frame in free.drain(free.len() - sizes.receive_frames..) {
        fill.push(frame.into_address());
    }
    fill.publish();
    let free = free.drain(free.len() - send_frames..).collect();
    Ok(Queue { fill, sent, free })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(queues: usize, mtu_bytes: usize) -> Interface {
        Interface {
            name: "card".to_owned(),
            index: 7,
            mac: [2; 6],
            mtu_bytes,
            receive_queues: queues,
            send_queues: queues,
        }
    }

    fn sizes(ports: usize, queues: usize, mtu_bytes: usize) -> Result<Sizes, Refusal> {
        let wanted = PortOptions {
            address: ([10, 0, 0, 1], 11311).into(),
            count: ports,
            shares_address: false,
            receive_buffer_bytes: 4 << 20,
            source: crate::Source::Card,
        };
        Sizes::of(&interface(queues, mtu_bytes), &wanted)
    }

    #[test]
    fn memory_is_that_of_as_many_udp_sockets() {
        for (ports, queues) in [(4, 1), (4, 2), (4, 4), (16, 8)] {
            let sizes = sizes(ports, queues, 1500).unwrap();
            assert_eq!(sizes.queues * sizes.receive_frames * sizes.frame_bytes, ports * (4 << 20));
            assert_eq!(sizes.frames() * sizes.frame_bytes, ports * (6 << 20));
            let sent: usize = (0..queues).map(|queue| sizes.send_frames(queue)).sum();
            assert_eq!(sent, ports * SEND_FRAMES);
        }
    }

    #[test]
    fn what_a_card_cannot_do_is_refused_with_a_reason() {
        assert!(sizes(4, 2, 9000).unwrap_err().to_string().contains("the MTU of card, 9000"));
        assert!(sizes(4, 0, 1500).unwrap_err().to_string().contains("no receive queue"));
        assert!(sizes(128, 16, 1500).unwrap_err().to_string().contains("ethtool -L"));
    }
}
