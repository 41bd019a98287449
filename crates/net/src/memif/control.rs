//! The conversation in which two processes agree on memory, over a Unix socket of whole messages.
//!
//! ```text
//! server: hello     client: init     server: ack
//!                           add region (each)  ack
//!                           add ring (each)    ack
//!                           connect            connected
//! ```
//!
//! Then either says `disconnect`, or is gone. A server speaks with one client at a time.

use std::{
    convert::Infallible,
    fs,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::PermissionsExt as _,
    },
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
        listen, recvmsg, sendmsg, socket_with,
    },
};

use super::{
    bell::{Bell, Bells},
    link::{Link, Queues},
    message::{AddRing, Hello, Init, MESSAGE_BYTES, Message, VERSION},
    region::Region,
    ring::{BUFFER_BYTES, Incoming, LOG2_ENTRIES_MAX, Outgoing, Ring, Side, ring_bytes},
};
use crate::socket::retry;

/// Most regions of a client.
const REGIONS_MAX: usize = 16;
/// Most bytes that a client may share, all regions together.
const SHARED_BYTES_MAX: u64 = 1 << 30;
/// Time for each message of a conversation.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Time within which a client's server is there.
const SERVER_WITHIN: Duration = Duration::from_secs(2);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Why a conversation has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("this side has ended")]
    Stopped,
    #[error("the other process is gone")]
    Gone,
    #[error("the other process says: {0}")]
    Told(String),
    #[error("{0}")]
    Refused(&'static str),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Self {
        match error {
            Errno::CONNRESET | Errno::PIPE => Self::Gone,
            error => Self::Failed(error.into()),
        }
    }
}

/// A socket to the other process, and what ends the wait for it.
#[derive(Clone, Copy)]
struct Talk<'a> {
    socket: BorrowedFd<'a>,
    stop: Option<BorrowedFd<'a>>,
}

impl Talk<'_> {
    fn say(&self, message: &Message, file: Option<BorrowedFd<'_>>) -> Result<(), Ended> {
        let (bytes, mut space) =
            (message.encode(), [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let (mut ancillary, files) = (SendAncillaryBuffer::new(&mut space), file.as_slice());
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(files));
        }
        // It waits for nobody: a peer that does not read is given up.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        retry(|| sendmsg(self.socket, &[IoSlice::new(&bytes)], &mut ancillary, flags))?;
        Ok(())
    }

    /// The next message, with the file that came along.
    fn hear(&self, within: Option<Duration>) -> Result<(Message, Option<OwnedFd>), Ended> {
        wait(self.socket, self.stop, within)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut ancillary, mut bytes) = (RecvAncillaryBuffer::new(&mut space), [0; MESSAGE_BYTES]);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        let received = retry(|| recvmsg(self.socket, &mut pieces, &mut ancillary, flags))?;
        let rights = |message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        };
        let file = ancillary.drain().find_map(rights);
        match (received.bytes, Message::decode(&bytes)) {
            (0, _) => Err(Ended::Gone),
            (MESSAGE_BYTES, Some(Message::Disconnect { reason })) => Err(Ended::Told(reason)),
            (MESSAGE_BYTES, Some(message)) => Ok((message, file)),
            _ => Err(Ended::Refused("a message that is none")),
        }
    }

    fn expect(&self, expected: &Message) -> Result<(), Ended> {
        let (message, _) = self.hear(Some(ANSWER_WITHIN))?;
        (message == *expected).then_some(()).ok_or(Ended::Refused("another message was due"))
    }
}

/// Waits until `socket` has something to read.
fn wait(socket: BorrowedFd<'_>, stop: Option<BorrowedFd<'_>>, within: Option<Duration>) -> Result<(), Ended> {
    let stop = stop.unwrap_or(socket);
    let mut waited = [socket, stop].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let within = within.and_then(|within| Timespec::try_from(within).ok());
    match retry(|| poll(&mut waited, within.as_ref())) {
        Ok(0) => Err(Ended::Refused("no message in time")),
        Ok(_) if waited[0].revents().is_empty() => Err(Ended::Stopped),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// True if somebody listens at this path.
pub(super) fn answers(path: &Path) -> bool {
    let (Ok(socket), Ok(address)) = (seqpacket(), SocketAddrUnix::new(path)) else { return false };
    // One of another kind refuses this one.
    !matches!(retry(|| connect(&socket, &address)), Err(Errno::CONNREFUSED | Errno::NOENT))
}

/// Listens at a path that is nobody's. Only this user's processes may connect.
pub(super) fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = seqpacket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listen(&socket, 4)?;
    Ok(socket)
}

fn seqpacket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Speaks with one client after another until `stop` is readable.
pub(super) fn serve(listener: &OwnedFd, stop: &OwnedFd, link: &Link) {
    loop {
        let ended = wait(listener.as_fd(), Some(stop.as_fd()), None)
            .err()
            .or_else(|| accepted(listener).map(|socket| speak(&socket, (listener, stop), link)));
        match ended {
            Some(Ended::Stopped) => return,
            Some(Ended::Failed(_)) => thread::sleep(TRY_AGAIN_AFTER),
            _ => {}
        }
    }
}

/// Speaks with a client, and returns how that has ended.
fn speak(socket: &OwnedFd, (listener, stop): (&OwnedFd, &OwnedFd), link: &Link) -> Ended {
    let talk = Talk { socket: socket.as_fd(), stop: Some(stop.as_fd()) };
    let ended = match agree(talk, link.queues()) {
        Err(ended) => ended,
        Ok((queues, bells, bytes)) => {
            link.begin(queues, bytes);
            let Err(ended) = talk.say(&Message::Connected, None).and_then(|()| keep(talk, listener, &bells));
            // Before the bells are closed: that may take as long as the client likes.
            link.end();
            ended
        }
    };
    if let Ended::Refused(reason) = ended {
        // It may be gone.
        let _ = talk.say(&Message::Disconnect { reason: reason.to_owned() }, None);
    }
    ended
}

/// A client, unless it is gone already.
fn accepted(listener: &OwnedFd) -> Option<OwnedFd> {
    let accepted = retry(|| accept_with(listener, SocketFlags::CLOEXEC));
    if accepted.is_err() {
        // Descriptors or memory may be short; nobody is to spin over that.
        thread::sleep(TRY_AGAIN_AFTER);
    }
    accepted.ok()
}

/// What a client has offered so far.
#[derive(Default)]
struct Offer {
    regions: Vec<Region>,
    rings: Vec<(AddRing, OwnedFd)>,
}

impl Offer {
    fn add_region(&mut self, number: u16, bytes: u64, file: Option<OwnedFd>) -> Result<(), Ended> {
        let shared = self.regions.iter().map(|region| region.bytes() as u64).sum::<u64>();
        let file = file.ok_or(Ended::Refused("a region without a file"))?;
        if usize::from(number) != self.regions.len() || self.regions.len() == REGIONS_MAX {
            return Err(Ended::Refused("a region with another number than the next, or too many"));
        }
        if bytes > SHARED_BYTES_MAX - shared.min(SHARED_BYTES_MAX) {
            return Err(Ended::Refused("more than 1 GiB of memory"));
        }
        self.regions.push(Region::of_peer(file.as_fd(), bytes).map_err(Ended::Refused)?);
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, bell: Option<OwnedFd>, queues: usize) -> Result<(), Ended> {
        let bell = bell.ok_or(Ended::Refused("a ring without an eventfd"))?;
        if usize::from(ring.number) >= queues {
            return Err(Ended::Refused("more rings than this side has queues"));
        }
        let is_same =
            |other: &AddRing| (other.is_to_server, other.number) == (ring.is_to_server, ring.number);
        if self.rings.iter().any(|(other, _)| is_same(other)) {
            return Err(Ended::Refused("a ring twice"));
        }
        self.rings.push((ring, bell));
        Ok(())
    }

    fn queues(self, count: usize) -> Result<(Queues, Bells, u64), Ended> {
        let mut bells = Bells::new()?;
        let bytes = self.regions.iter().map(|region| region.bytes() as u64).sum();
        let side = Side::Server(self.regions.into());
        let mut queues = Queues {
            incoming: (0..count).map(|_| None).collect(),
            outgoing: (0..count).map(|_| None).collect(),
        };
        for (AddRing { is_to_server, number, region, offset, log2_entries }, bell) in self.rings {
            let ring = Ring::find(&side, (region, offset), log2_entries, bells.add(bell)?);
            let ring = ring.ok_or(Ended::Refused("a ring that is none, or not in its region"))?;
            if is_to_server {
                queues.incoming[usize::from(number)] = Some(Incoming::of(ring, 0));
            } else {
                queues.outgoing[usize::from(number)] = Some(Outgoing::of(ring, 0));
            }
        }
        Ok((queues, bells, bytes))
    }
}

/// Agrees with a client on queues, at most so many in each direction; also its bells, and the bytes that it shares.
fn agree(talk: Talk<'_>, queues: usize) -> Result<(Queues, Bells, u64), Ended> {
    let last = queues as u16 - 1;
    let hello = Hello {
        versions: [VERSION; 2],
        last_region: REGIONS_MAX as u16 - 1,
        last_rings: [last; 2],
        log2_entries_max: LOG2_ENTRIES_MAX,
    };
    talk.say(&Message::Hello(hello), None)?;
    match talk.hear(Some(ANSWER_WITHIN))? {
        (Message::Init(Init { version: VERSION, id: 0, mode: 0 }), _) => {}
        (Message::Init(Init { version: VERSION, .. }), _) => {
            return Err(Ended::Refused("only the interface 0 is here, with Ethernet frames"));
        }
        _ => return Err(Ended::Refused("another version than 2.0")),
    }
    let mut offer = Offer::default();
    loop {
        talk.say(&Message::Ack, None)?;
        match talk.hear(Some(ANSWER_WITHIN))? {
            (Message::AddRegion { number, bytes }, file) => offer.add_region(number, bytes, file)?,
            (Message::AddRing(ring), bell) => offer.add_ring(ring, bell, queues)?,
            (Message::Connect, _) => return offer.queues(queues),
            _ => return Err(Ended::Refused("another message was due")),
        }
    }
}

/// Stays with a client until it leaves, wakes it, and sends others away.
fn keep(talk: Talk<'_>, listener: &OwnedFd, bells: &Bells) -> Result<Infallible, Ended> {
    let stop = talk.stop.unwrap_or(talk.socket);
    loop {
        let waited = [talk.socket, stop, bells.call().as_fd(), listener.as_fd()];
        let mut waited = waited.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        retry(|| poll(&mut waited, None))?;
        if !waited[0].revents().is_empty() {
            talk.hear(None)?;
            return Err(Ended::Refused("a message after the connection"));
        }
        if !waited[1].revents().is_empty() {
            return Err(Ended::Stopped);
        }
        if !waited[2].revents().is_empty() {
            bells.ring();
        }
        if waited[3].revents().is_empty() {
            continue;
        }
        if let Some(other) = accepted(listener) {
            let reason = "another process is connected".to_owned();
            // It may be gone.
            let _ = Talk { socket: other.as_fd(), stop: None }.say(&Message::Disconnect { reason }, None);
        }
    }
}

/// Connects to a server with so many queues in each direction, of `2^log2_entries` buffers each. The connection lives as
/// long as the socket that is returned.
pub(super) fn join(path: &Path, queues: usize, log2_entries: u8, link: &Link) -> Result<OwnedFd, Ended> {
    let socket = connected(path)?;
    let talk = Talk { socket: socket.as_fd(), stop: None };
    let (Message::Hello(hello), _) = talk.hear(Some(ANSWER_WITHIN))? else {
        return Err(Ended::Refused("another message was due"));
    };
    let [least, greatest] = hello.versions;
    if !(least..=greatest).contains(&VERSION) {
        return Err(Ended::Refused("another version than 2.0"));
    }
    if hello.last_rings.iter().any(|last| usize::from(*last) + 1 < queues) {
        return Err(Ended::Refused("the server has fewer queues"));
    }
    let log2_entries = log2_entries.min(hello.log2_entries_max);
    let ask = |message: &Message, file: Option<BorrowedFd<'_>>| {
        talk.say(message, file)?;
        talk.expect(&Message::Ack)
    };
    ask(&Message::Init(Init { version: VERSION, id: 0, mode: 0 }), None)?;
    let rings = (2 * queues) as u32;
    let buffers = (u64::from(rings) * u64::from(ring_bytes(log2_entries))).next_multiple_of(4096);
    let bytes = buffers + ((u64::from(rings) * u64::from(BUFFER_BYTES)) << log2_entries);
    if bytes > SHARED_BYTES_MAX {
        return Err(Ended::Refused("more than 1 GiB of memory"));
    }
    let buffers = buffers as u32;
    let (region, file) = Region::create(bytes as usize)?;
    ask(&Message::AddRegion { number: 0, bytes }, Some(file.as_fd()))?;
    let regions: Arc<[Region]> = [region].into();
    let side = Side::Client(Arc::clone(&regions), buffers);
    let mut found = Vec::new();
    for number in 0..rings {
        let (offset, first) = (number * ring_bytes(log2_entries), number << log2_entries);
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let is_to_server = number < rings / 2;
        Ring::make(&regions, offset, log2_entries, (buffers, first));
        let number = (number % (rings / 2)) as u16;
        let added = AddRing { is_to_server, number, region: 0, offset, log2_entries };
        ask(&Message::AddRing(added), Some(bell.as_fd()))?;
        let ring = Ring::find(&side, (0, offset), log2_entries, Bell::Ours(bell));
        found.push((ring.ok_or(Ended::Refused("the server has changed a ring"))?, first));
    }
    talk.say(&Message::Connect, None)?;
    talk.expect(&Message::Connected)?;
    let incoming = found.split_off(queues).into_iter().map(|(ring, first)| Some(Incoming::of(ring, first)));
    let incoming = incoming.collect();
    let outgoing = found.into_iter().map(|(ring, first)| Some(Outgoing::of(ring, first))).collect();
    link.begin(Queues { incoming, outgoing }, bytes);
    Ok(socket)
}

/// A socket to the server at `path`, which may be about to start.
fn connected(path: &Path) -> io::Result<OwnedFd> {
    let (address, end) = (SocketAddrUnix::new(path)?, Instant::now() + SERVER_WITHIN);
    loop {
        let socket = seqpacket()?;
        match retry(|| connect(&socket, &address)) {
            Ok(()) => return Ok(socket),
            Err(Errno::NOENT | Errno::CONNREFUSED) if Instant::now() < end => thread::sleep(TRY_AGAIN_AFTER),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use proptest::prelude::*;

    use super::*;

    /// What a client says to a server of two queues, and with which file.
    enum Say {
        Message(Message),
        /// With sealed memory of so many bytes.
        Memory(Message, usize),
        /// With an eventfd.
        Bell(Message),
        Bytes(Vec<u8>),
    }

    /// How a server ends a conversation.
    fn ended(says: Vec<Say>) -> String {
        let (here, there) = pair();
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let client = Talk { socket: here.as_fd(), stop: None };
        for say in says {
            match say {
                Say::Message(message) => client.say(&message, None).unwrap(),
                Say::Memory(message, bytes) => {
                    let (_, file) = Region::create(bytes).unwrap();
                    client.say(&message, Some(file.as_fd())).unwrap();
                }
                Say::Bell(message) => client.say(&message, Some(stop.as_fd())).unwrap(),
                Say::Bytes(bytes) => drop(rustix::net::send(&here, &bytes, SendFlags::NOSIGNAL).unwrap()),
            }
        }
        rustix::net::shutdown(&here, rustix::net::Shutdown::Write).unwrap();
        let talk = Talk { socket: there.as_fd(), stop: Some(stop.as_fd()) };
        agree(talk, 2)
            .map(|(queues, ..)| queues.incoming.len())
            .map_or_else(|ended| ended.to_string(), |count| count.to_string())
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
    }

    const INIT: Message = Message::Init(Init { version: VERSION, id: 0, mode: 0 });
    const RING: AddRing = AddRing { is_to_server: true, number: 0, region: 0, offset: 0, log2_entries: 3 };

    fn region(number: u16, bytes: u64) -> Say {
        Say::Memory(Message::AddRegion { number, bytes }, bytes as usize)
    }

    #[test]
    fn what_a_client_may_not_say_is_refused() {
        let init = || Say::Message(INIT);
        let ring = |ring| Say::Bell(Message::AddRing(ring));
        let cases: [(Vec<Say>, &str); 15] = [
            (vec![], "gone"),
            (vec![Say::Bytes(vec![3; 127])], "is none"),
            (vec![Say::Bytes(vec![0xff; 128])], "is none"),
            (vec![Say::Message(Message::Connect)], "version"),
            (vec![Say::Message(Message::Init(Init { version: 1, id: 0, mode: 0 }))], "version"),
            (vec![Say::Message(Message::Init(Init { version: VERSION, id: 1, mode: 0 }))], "interface 0"),
            (vec![Say::Message(Message::Init(Init { version: VERSION, id: 0, mode: 1 }))], "interface 0"),
            (vec![init(), Say::Message(Message::Disconnect { reason: "enough".into() })], "says: enough"),
            (vec![init(), Say::Message(Message::AddRegion { number: 0, bytes: 4096 })], "without a file"),
            (vec![init(), Say::Bell(Message::AddRegion { number: 0, bytes: 4096 })], "no memfd"),
            (vec![init(), region(1, 4096)], "another number"),
            (vec![init(), Say::Memory(Message::AddRegion { number: 0, bytes: u64::MAX }, 4096)], "1 GiB"),
            (vec![init(), ring(AddRing { number: 2, ..RING })], "more rings"),
            (vec![init(), ring(RING), ring(RING)], "a ring twice"),
            (
                vec![init(), region(0, 4096), ring(RING), Say::Message(Message::Connect)],
                "a ring that is none",
            ),
        ];
        for (says, reason) in cases {
            let ended = ended(says);
            assert!(ended.contains(reason), "{ended}, not {reason}");
        }
        assert_eq!(ended(vec![init(), region(0, 4096), Say::Message(Message::Connect)]), "2");
        let many = (0..=REGIONS_MAX as u16).map(|number| region(number, 4096));
        let ended = ended(std::iter::once(init()).chain(many).collect());
        assert!(ended.contains("too many"), "{ended}");
    }

    #[test]
    fn a_client_that_says_nothing_is_given_up_and_a_stop_ends_all() {
        let (_here, there) = pair();
        let stop = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        let talk = Talk { socket: there.as_fd(), stop: Some(stop.as_fd()) };
        assert!(matches!(agree(talk, 2), Err(Ended::Stopped)));
        let silent = wait(there.as_fd(), None, Some(Duration::from_millis(1)));
        assert!(matches!(silent, Err(Ended::Refused("no message in time"))));
        // Nor does one that never reads hold up the server.
        let (one, _other) = UnixDatagram::pair().unwrap();
        let talk = Talk { socket: one.as_fd(), stop: None };
        assert!((0..100_000).any(|_| talk.say(&Message::Ack, None).is_err()));
    }

    proptest! {
        #[test]
        fn any_conversation_ends(
            says in proptest::collection::vec((0..10_u16, proptest::collection::vec(any::<u8>(), 126), any::<bool>()), 0..8)
        ) {
            let says = says.into_iter().map(|(number, rest, with_file)| {
                let bytes = [&number.to_le_bytes()[..], &rest].concat();
                match Message::decode(bytes[..].try_into().unwrap()) {
                    Some(Message::AddRegion { number, bytes }) if with_file => {
                        Say::Memory(Message::AddRegion { number: number % 2, bytes: bytes % 8192 }, 8192)
                    }
                    Some(Message::AddRing(ring)) if with_file => {
                        let (number, region) = (ring.number % 2, ring.region % 2);
                        let (offset, log2_entries) = (ring.offset % 8192, ring.log2_entries % 16);
                        Say::Bell(Message::AddRing(AddRing { number, region, offset, log2_entries, ..ring }))
                    }
                    _ => Say::Bytes(bytes),
                }
            });
            ended(std::iter::once(Say::Message(INIT)).chain(says).collect());
        }
    }
}
