//! Polling by io_uring: receipts and sends of a whole burst travel in one system call.
//!
//! Each watched socket has one receipt in flight, into memory of its own, and at most one send. So a
//! request costs no system call of its own: [`Poller::poll`] submits what the last burst left and reaps
//! what has completed.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use io_uring::{
    IoUring, opcode,
    squeue::Entry as Submission,
    types::{Fd, SubmitArgs, Timespec},
};
use rustix::io::Errno;

use crate::{Interest, Poller, Progress, Ready, Socket, Token, Wait};

/// Submissions that are gathered before the kernel is called at the latest.
const SUBMISSIONS: u32 = 256;
/// Completions the kernel keeps for us before it has to use memory of its own.
const COMPLETIONS: u32 = 4096;
/// Memory of a receipt in flight. A request that is longer is received on by a plain call.
const RECEIPT_BYTES: usize = 4096;
/// Bytes of replies kept for a socket whose send is in flight, before more are refused.
const QUEUED_BYTES_MAX: usize = 64 << 10;

/// A set of sockets served by io_uring.
pub struct Uring {
    ring: IoUring,
    /// Sockets by the index in their token.
    entries: Vec<Option<Box<Entry>>>,
    /// Sockets that were removed while operations on their memory were in flight.
    leaving: HashMap<u64, Box<Entry>>,
    /// Completions (user data, result) that were taken from the ring when it had no room for more.
    reaped: VecDeque<(u64, i32)>,
}

/// A socket and what is in flight for it. The kernel holds addresses of `receipt` and `outgoing`, so that an
/// entry lives until nothing is in flight any more, and neither is touched meanwhile; and the number of `fd`, so that
/// the entry keeps it open.
struct Entry {
    token: Token,
    fd: Arc<OwnedFd>,
    receipt: Box<[u8; RECEIPT_BYTES]>,
    state: Receipt,
    outgoing: Vec<u8>,
    sending: bool,
    queued: Vec<u8>,
    /// A send was refused or failed, and the caller waits to be told when it can go on.
    wants_writable: bool,
    broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receipt {
    /// None is in flight, and nothing has come.
    Idle,
    /// One is in flight.
    InFlight,
    /// So many bytes have come.
    Bytes(usize),
    /// The stream has ended or is broken.
    Ended,
}

/// What an operation was, in the lowest bits of its user data.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const CANCEL: u64 = 2;
const KIND_BITS: u32 = 2;

impl Poller for Uring {
    const NAME: &'static str = "io_uring";
    // What was received lies in its buffers until somebody asks for it.
    const KEEPS_NOTHING: bool = false;

    fn open() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        Ok(Self { ring, entries: Vec::new(), leaving: HashMap::new(), reaped: VecDeque::new() })
    }

    fn add(&mut self, token: Token, socket: &Socket, _interest: Interest) -> io::Result<()> {
        let index = index_of(token);
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        // The kernel writes to the memory of whoever has the name until all that was started for it has ended.
        if self.entries[index].is_some() || self.leaving.contains_key(&user_data(token, 0)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.entries[index] = Some(Box::new(Entry::new(token, socket.share())));
        self.start_receipt(token);
        Ok(())
    }

    fn change(&mut self, token: Token, _socket: &Socket, interest: Interest) -> io::Result<()> {
        if let Some(entry) = entry(&mut self.entries, token) {
            entry.wants_writable = interest != Interest::Read;
        }
        Ok(())
    }

    fn remove(&mut self, token: Token, _socket: &Socket) {
        let Some(slot) = self.entries.get_mut(index_of(token)) else { return };
        let Some(entry) = slot.take_if(|entry| entry.token == token) else { return };
        if !entry.is_in_flight() {
            return;
        }
        // What is in flight holds the socket open until it ends.
        for kind in [RECEIVE, SEND] {
            let cancel = opcode::AsyncCancel::new(user_data(token, kind)).build();
            self.push(cancel.user_data(user_data(token, CANCEL)));
        }
        self.leaving.insert(user_data(token, 0), entry);
        // Before the caller closes the socket, whose number may be another's as soon as that has happened.
        self.submit_all();
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, max: usize, wait: Wait) -> io::Result<()> {
        self.submit(wait)?;
        while ready.len() < max {
            let Some((data, result)) = self.next_completion() else { break };
            self.complete(data, result, ready);
        }
        Ok(())
    }

    fn receive(&mut self, token: Token, socket: &Socket, buffer: &mut [u8]) -> Progress {
        let Some(entry) = entry(&mut self.entries, token) else { return Progress::Closed };
        match entry.state {
            Receipt::Ended => Progress::Closed,
            // With a receipt in flight a plain call could overtake it.
            Receipt::InFlight => Progress::Blocked,
            Receipt::Idle => socket.receive(buffer),
            Receipt::Bytes(bytes) => {
                debug_assert!(buffer.len() >= RECEIPT_BYTES);
                buffer[..bytes].copy_from_slice(&entry.receipt[..bytes]);
                entry.state = Receipt::Idle;
                if bytes < RECEIPT_BYTES {
                    return Progress::Bytes(bytes);
                }
                match socket.receive(&mut buffer[bytes..]) {
                    Progress::Bytes(more) => Progress::Bytes(bytes + more),
                    // The end shows again at the next receipt.
                    Progress::Blocked | Progress::Closed => Progress::Bytes(bytes),
                }
            }
        }
    }

    fn send(&mut self, token: Token, _socket: &Socket, bytes: &[u8]) -> Progress {
        let Some(entry) = entry(&mut self.entries, token) else { return Progress::Closed };
        if entry.broken {
            return Progress::Closed;
        }
        let room = QUEUED_BYTES_MAX - entry.queued.len();
        if entry.sending && room < bytes.len() {
            entry.wants_writable = true;
            return Progress::Blocked;
        }
        entry.queued.extend_from_slice(bytes);
        if !entry.sending {
            self.start_send(token);
        }
        Progress::Bytes(bytes.len())
    }

    fn expect(&mut self, token: Token, _socket: &Socket) {
        self.start_receipt(token);
    }

    fn lend(&mut self, token: Token, _socket: &Socket) -> Progress {
        match entry(&mut self.entries, token) {
            None => Progress::Closed,
            Some(entry) if entry.broken => Progress::Closed,
            Some(entry) if entry.sending || entry.state == Receipt::InFlight => {
                entry.wants_writable = true;
                Progress::Blocked
            }
            Some(_) => Progress::Bytes(0),
        }
    }

    fn has_unsubmitted(&mut self) -> bool {
        !self.reaped.is_empty() || !self.ring.submission().is_empty()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it lives, which the lifetime says.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Uring {
    /// Calls the kernel if there is anything to submit, to reap or to wait for.
    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        let (has_submissions, has_task_work) = {
            let queue = self.ring.submission();
            (!queue.is_empty(), queue.taskrun() || queue.cq_overflow())
        };
        let result = match wait {
            Wait::No if !has_submissions && !has_task_work => return Ok(()),
            Wait::No => self.ring.submit(),
            Wait::For(duration) => {
                let timeout = timespec(duration);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        match result.map_err(|error| Errno::from_io_error(&error)) {
            Ok(_) | Err(Some(Errno::INTR | Errno::TIME | Errno::BUSY | Errno::AGAIN)) => Ok(()),
            Err(error) => Err(error.unwrap_or(Errno::IO).into()),
        }
    }

    fn start_receipt(&mut self, token: Token) {
        let Some(entry) = entry(&mut self.entries, token) else { return };
        if entry.state != Receipt::Idle {
            return;
        }
        entry.state = Receipt::InFlight;
        let receive =
            opcode::Recv::new(Fd(entry.fd.as_raw_fd()), entry.receipt.as_mut_ptr(), RECEIPT_BYTES as u32);
        self.push(receive.build().user_data(user_data(token, RECEIVE)));
    }

    /// Sends what is queued.
    fn start_send(&mut self, token: Token) {
        let Some(entry) = entry(&mut self.entries, token) else { return };
        debug_assert!(!entry.sending);
        std::mem::swap(&mut entry.outgoing, &mut entry.queued);
        entry.queued.clear();
        if entry.outgoing.is_empty() {
            return;
        }
        entry.sending = true;
        let fd = Fd(entry.fd.as_raw_fd());
        // The kernel goes on by itself where a socket takes only a part.
        let send = opcode::Send::new(fd, entry.outgoing.as_ptr(), entry.outgoing.len() as u32)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL);
        self.push(send.build().user_data(user_data(token, SEND)));
    }

    fn push(&mut self, submission: Submission) {
        loop {
            // SAFETY: the memory that the operation names belongs to an entry, which neither moves nor is
            // dropped nor touched before the operation completes: see `Entry` and `remove`.
            if unsafe { self.ring.submission().push(&submission) }.is_ok() {
                return;
            }
            self.submit_some();
        }
    }

    /// Hands all submissions to the kernel.
    fn submit_all(&mut self) {
        while !self.ring.submission().is_empty() {
            self.submit_some();
        }
    }

    /// Calls the kernel; if it refuses, makes it room for completions.
    fn submit_some(&mut self) {
        if let Err(error) = self.ring.submit() {
            tracing::debug!(%error, "the kernel takes no submissions at the moment");
            let completions = self.ring.completion();
            self.reaped.extend(completions.map(|completion| (completion.user_data(), completion.result())));
        }
    }

    fn next_completion(&mut self) -> Option<(u64, i32)> {
        self.reaped.pop_front().or_else(|| {
            let completion = self.ring.completion().next()?;
            Some((completion.user_data(), completion.result()))
        })
    }

    /// Takes note of a completion, and says so where the caller has something to do now.
    fn complete(&mut self, data: u64, result: i32, ready: &mut Vec<Ready>) {
        let (kind, name) = (data & ((1 << KIND_BITS) - 1), data >> KIND_BITS << KIND_BITS);
        if let Some(entry) = self.leaving.get_mut(&name) {
            entry.ended(kind);
            if !entry.is_in_flight() {
                self.leaving.remove(&name);
            }
            return;
        }
        let index = (data >> KIND_BITS) as u32 as usize;
        let Some(Some(entry)) = self.entries.get_mut(index) else { return };
        if user_data(entry.token, 0) != name {
            return;
        }
        let token = entry.token;
        match kind {
            RECEIVE => {
                entry.state = received(result);
                match entry.state {
                    // Nothing came of it; try again.
                    Receipt::Idle => self.start_receipt(token),
                    _ => ready.push(Ready { token, readable: true, writable: false, hangup: false }),
                }
            }
            SEND => {
                entry.sending = false;
                entry.broken |= result < entry.outgoing.len() as i32;
                entry.outgoing.clear();
                let wakes = std::mem::take(&mut entry.wants_writable) || entry.broken;
                if !entry.queued.is_empty() && !entry.broken {
                    self.start_send(token);
                }
                if wakes {
                    ready.push(Ready { token, readable: false, writable: true, hangup: false });
                }
            }
            _ => {}
        }
    }
}

impl Entry {
    fn new(token: Token, fd: Arc<OwnedFd>) -> Self {
        Self {
            token,
            fd,
            receipt: Box::new([0; RECEIPT_BYTES]),
            state: Receipt::Idle,
            outgoing: Vec::new(),
            sending: false,
            queued: Vec::new(),
            wants_writable: false,
            broken: false,
        }
    }

    /// Whether the kernel holds addresses of its memory.
    fn is_in_flight(&self) -> bool {
        self.sending || self.state == Receipt::InFlight
    }

    fn ended(&mut self, kind: u64) {
        match kind {
            RECEIVE => self.state = Receipt::Idle,
            SEND => self.sending = false,
            _ => {}
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The last replies leave with this, as far as the sockets take them.
        if let Err(error) = self.ring.submit() {
            tracing::debug!(%error, "replies are lost");
        }
        // Closing the ring cancels what is in flight, but not before this returns; what the kernel may
        // still write to is left to it.
        let entries = self.entries.drain(..).flatten();
        for entry in entries.chain(self.leaving.drain().map(|(_, entry)| entry)) {
            if entry.is_in_flight() {
                let Entry { receipt, outgoing, .. } = *entry;
                std::mem::forget((receipt, outgoing));
            }
        }
    }
}

/// What a completed receipt means.
fn received(result: i32) -> Receipt {
    const RETRY: [i32; 3] = [-libc::EAGAIN, -libc::EINTR, -libc::ENOBUFS];
    match result {
        1.. => Receipt::Bytes(result as usize),
        0 => Receipt::Ended,
        _ if RETRY.contains(&result) => Receipt::Idle,
        _ => Receipt::Ended,
    }
}

fn entry(entries: &mut [Option<Box<Entry>>], token: Token) -> Option<&mut Entry> {
    entries.get_mut(index_of(token))?.as_deref_mut().filter(|entry| entry.token == token)
}

/// The lower half of a token counts from zero; the upper half tells apart those who share it.
fn index_of(token: Token) -> usize {
    token.0 as u32 as usize
}

/// Two bits of a token's upper half are given up; its users come round to a number only after a billion.
fn user_data(token: Token, kind: u64) -> u64 {
    token.0 << KIND_BITS | kind
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::from(duration)
}

#[cfg(test)]
mod tests;
