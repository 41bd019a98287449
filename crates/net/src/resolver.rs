//! The hardware addresses of hosts on a link where the kernel neither asks nor answers (ARP).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::{
    frame::{Arp, Mac},
    neighbours::{Neighbours, Recent},
};

/// Time between two questions for a hardware address.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Time between two looks for the answer.
const LOOK_AGAIN_AFTER: Duration = Duration::from_micros(100);

/// What ports with one address know of others.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) neighbours: Neighbours,
    /// The address that was asked for last, or 0.
    asked_for: AtomicU32,
}

/// What becomes of a frame that is no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// This host asks for the address, and is to be answered.
    Question(Mac, Ipv4Addr),
    /// Nothing is to be done.
    Other,
    /// It is no packet of ARP.
    Invalid,
}

impl Resolver {
    pub(crate) fn new() -> Self {
        Self { neighbours: Neighbours::new(), asked_for: AtomicU32::new(0) }
    }

    /// Notes the answer to a question, and tells of questions for `here`.
    pub(crate) fn hear(&self, arp: Option<Arp>, here: Ipv4Addr, recent: &mut Recent) -> Heard {
        match arp {
            Some(Arp::Request { mac, ip, wanted }) if wanted == here => return Heard::Question(mac, ip),
            Some(Arp::Reply { mac, ip }) if self.is_asked_for(ip) => {
                self.neighbours.note(recent, (ip, 0).into(), mac);
            }
            Some(_) => {}
            None => return Heard::Invalid,
        }
        Heard::Other
    }

    fn is_asked_for(&self, peer: Ipv4Addr) -> bool {
        let asked_for = self.asked_for.load(Relaxed);
        asked_for != 0 && asked_for == u32::from(peer)
    }

    /// The hardware address that leads to `peer`: that of its last datagram, or the one that was asked for.
    #[inline]
    pub(crate) fn mac_of(&self, recent: &mut Recent, peer: SocketAddr) -> Option<Mac> {
        let IpAddr::V4(ip) = peer.ip() else { return None };
        self.neighbours.find(recent, peer).or_else(|| self.neighbours.find(recent, (ip, 0).into()))
    }

    /// Waits until the hardware address of `peer` is known: `ask` asks for it while there is a link, and `look` takes what has
    /// come.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `within`.
    pub(crate) fn reach(
        &self,
        peer: Ipv4Addr,
        within: Duration,
        (is_up, ask): (impl Fn() -> bool, impl Fn()),
        mut look: impl FnMut(),
    ) -> io::Result<()> {
        let (end, mut next_question) = (Instant::now() + within, Instant::now());
        self.asked_for.store(peer.into(), Relaxed);
        while self.neighbours.find(&mut Recent::default(), (peer, 0).into()).is_none() {
            let now = Instant::now();
            if now > end {
                let reason = if is_up() { "nobody has this address" } else { "there is no link" };
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{peer}: {reason}")));
            }
            if now >= next_question && is_up() {
                next_question = now + ASK_AGAIN_AFTER;
                ask();
            }
            look();
            thread::sleep(LOOK_AGAIN_AFTER);
        }
        Ok(())
    }
}
