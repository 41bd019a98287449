//! A burst of messages: which datagrams are admitted, and the execution of their operations in chunks.

use std::{net::SocketAddr, time::Instant};

use arrayvec::ArrayVec;
use minos_base::limits::BURST_MAX;
use minos_engine::{Access, Mode, Staged, StagedOwned};
use minos_proto::native::{
    Flags, Header, Hello, Kind, Malformed, OpFlags, Opcode, Operation, Reason, ReplyRecord, Status,
    WELCOME_BYTES, operations, refusal_of,
};
use minos_sched::WorkerId;

use super::{
    Acceptance, AnswerTo, Check, Egress, HandOff, Job, NativeShared,
    counters::NativeCounters,
    outlet::Outlet,
    sessions::Ticket,
    transfers::{Around, Permit, Transfers, Waiter},
    waiting::Waits,
};
use crate::{
    ops::{Context, Placement},
    rack::{Intent, Owner},
};

/// The environment in which a burst is served.
pub(super) struct Burst<'b, M: Mode, P, E, H> {
    pub(super) shared: &'b NativeShared<M>,
    pub(super) id: WorkerId,
    /// The queue at whose socket messages arrive.
    pub(super) queue: usize,
    pub(super) now: Instant,
    pub(super) cx: Context<'b, M, P>,
    pub(super) metrics: &'b NativeCounters,
    pub(super) transfers: &'b mut Transfers<M>,
    pub(super) outlet: Outlet<'b, E>,
    pub(super) hand_off: &'b mut H,
    pub(super) waits: &'b mut Waits<M>,
    /// The ticket of the operation that goes on, if it is to be executed once.
    pub(super) ticket: Option<Ticket>,
    /// Its permit to wait.
    pub(super) permit: Option<Permit>,
    /// The cookie checked last: the datagrams of a message have one source, and mostly one cookie.
    pub(super) last_cookie: Option<(SocketAddr, u64, Check)>,
    /// The client of the operation that the probe has chosen.
    pub(super) looked_at: Option<SocketAddr>,
    /// Datagrams that were admitted.
    pub(super) admitted: u32,
    /// STATS that are still answered in this burst.
    pub(super) reports_left: u32,
}

/// Operations whose cache misses overlap, from any number of datagrams.
pub(super) struct Chunk<'d, 's> {
    operations: ArrayVec<Pending<'d, 's>, BURST_MAX>,
    /// The addressees of the answers, one for each datagram.
    to: ArrayVec<AnswerTo, BURST_MAX>,
}

/// A parsed operation, and the lookup of its key.
struct Pending<'d, 's> {
    operation: Operation<'d>,
    /// Place in [`Chunk::to`].
    to: usize,
    lookup: Lookup<'s>,
}

/// Where a key is looked up.
enum Lookup<'s> {
    /// In this node's table, in this bucket if it was read already.
    Here(Option<Staged<'s>>),
    /// In the memory of another node of the rack, if that is attached.
    There(Owner, Option<StagedOwned<'s>>),
    /// In the copy here of what a node of another unit owns.
    Copied(Owner, Option<Staged<'s>>),
}

impl Chunk<'_, '_> {
    pub(super) fn new() -> Self {
        Self { operations: ArrayVec::new(), to: ArrayVec::new() }
    }
}

impl<'b, M: Mode, P: Placement, E: Egress, H: HandOff> Burst<'b, M, P, E, H> {
    /// Admits the datagrams of a message.
    pub(super) fn message<'d>(
        &mut self,
        chunk: &mut Chunk<'d, 'b>,
        peer: SocketAddr,
        bytes: &'d [u8],
        segment_bytes: usize,
    ) {
        self.metrics.messages_in.count();
        self.cx.counters.bytes_read.add(bytes.len() as u64);
        for datagram in bytes.chunks(segment_bytes.max(1)) {
            self.metrics.datagrams_in.count();
            self.datagram(chunk, &peer, datagram);
        }
    }

    /// Executes the operations left and sends all answers.
    pub(super) fn finish(&mut self, chunk: &mut Chunk<'_, 'b>) {
        self.execute_chunk(chunk);
        self.admit_waiting();
        if let Some(peer) = self.looked_at.take() {
            self.cx.probe.sent(self.now, self.cx.now, || peer.to_string());
        }
    }

    fn datagram<'d>(&mut self, chunk: &mut Chunk<'d, 'b>, peer: &SocketAddr, datagram: &'d [u8]) {
        let header = match Header::parse(datagram) {
            Ok(header) => header,
            Err(Malformed::Version(_)) => return self.refuse(*peer, datagram, Reason::Version),
            Err(_) => return self.refuse(*peer, datagram, Reason::Malformed),
        };
        let admitted = match header.kind {
            Kind::Hello => return self.hello(*peer, &header, datagram),
            Kind::Request | Kind::Fragment => self.admit(peer, &header, datagram),
            _ => return self.metrics.ignored.count(),
        };
        let marks = match admitted {
            Ok(marks) => marks,
            Err(reason) => return self.refuse(*peer, datagram, reason),
        };
        // Made here, because a copy would wait for its parts.
        let mut to = self.shared.answer_to(*peer, &header);
        to.header.flags |= marks;
        self.admitted += 1;
        to.number = self.admitted;
        match self.elsewhere(&header) {
            // If that worker's ring is full, the datagram is lost, as in a full socket, and the client sends it
            // again.
            Some(worker) => {
                self.metrics.misdirected.count();
                if (self.hand_off)(worker, Job::datagram(&to, datagram)).is_err() {
                    self.metrics.misdirected_dropped.count();
                }
            }
            None => self.serve(chunk, to, &header, datagram),
        }
    }

    /// Checks cookie, tag and sequence of a datagram; the marks of its answer.
    fn admit(&mut self, peer: &SocketAddr, header: &Header, datagram: &[u8]) -> Result<Flags, Reason> {
        let check = self.check_cookie(peer, header.cookie);
        if check == Check::Invalid {
            return Err(Reason::Cookie);
        }
        self.check_seal(header, datagram)?;
        if self.shared.seals.is_some() {
            match self.shared.sessions.accept(header.session, header.sequence, self.now) {
                Acceptance::Fresh => {}
                Acceptance::Replayed => return Err(Reason::Replayed),
                Acceptance::Unknown => return Err(Reason::Session),
            }
        }
        Ok(if check == Check::Renew { Flags::RENEW } else { Flags::NONE })
    }

    fn check_cookie(&mut self, peer: &SocketAddr, cookie: u64) -> Check {
        match &self.last_cookie {
            Some((source, seen, check)) if *seen == cookie && source == peer => *check,
            _ => {
                let check = self.shared.cookies.check(*peer, cookie, self.now);
                self.last_cookie = Some((*peer, cookie, check));
                check
            }
        }
    }

    /// With a secret only sealed datagrams are served; without one no tag can be checked.
    fn check_seal(&self, header: &Header, datagram: &[u8]) -> Result<(), Reason> {
        let is_right = match &self.shared.seals {
            Some(seals) => seals.verify(header, datagram),
            None => !header.is_sealed(),
        };
        if is_right { Ok(()) } else { Err(Reason::Seal) }
    }

    /// The worker that must get a datagram because its header names another queue. A queue that does not
    /// exist comes from another directory; the answer tells the client so.
    fn elsewhere(&self, header: &Header) -> Option<WorkerId> {
        let queue = usize::from(header.queue);
        if queue == self.queue || queue >= 2 * self.shared.queues {
            return None;
        }
        let worker = WorkerId((queue % self.shared.queues) as u16);
        (worker != self.id).then_some(worker)
    }

    /// Serves a datagram that this worker, or another one, has admitted.
    pub(super) fn serve<'d>(
        &mut self,
        chunk: &mut Chunk<'d, 'b>,
        to: AnswerTo,
        header: &Header,
        datagram: &'d [u8],
    ) {
        let served = match header.kind {
            Kind::Fragment => self.fragment(&to, header, datagram),
            _ => self.request(chunk, to, header, datagram),
        };
        if served.is_err() {
            // The operations before are answered first: the refusal ends the client's wait for them.
            self.execute_chunk(chunk);
            self.refuse(to.peer, datagram, Reason::Malformed);
        }
    }

    fn fragment(&mut self, to: &AnswerTo, header: &Header, datagram: &[u8]) -> Result<(), Malformed> {
        let around = around(&self.cx, self.shared, (self.id, self.now));
        let body = header.body(datagram);
        self.transfers.fragment(&around, to, header.flags, body, self.outlet.close())
    }

    /// Copies a slice of at most `bytes_max` bytes of a large value that has arrived.
    pub(super) fn advance(&mut self, bytes_max: usize) {
        let around = around(&self.cx, self.shared, (self.id, self.now));
        self.transfers.advance(&around, bytes_max, self.outlet.close());
    }

    /// Begins the large stores whose turn has come, and ends the burst.
    pub(super) fn admit_waiting(&mut self) {
        self.outlet.close();
        if self.shared.is_draining() {
            return;
        }
        while let Some((Waiter { worker, handed, .. }, permit)) =
            self.shared.transfer_bounds.admit_next(self.now)
        {
            if worker == self.id {
                self.begin_admitted(&handed, Some(permit));
            } else {
                // If that worker's ring is full, its client asks again.
                drop((self.hand_off)(worker, Job::store(handed, permit)));
            }
        }
    }

    /// Takes the operations of a request while their index buckets are fetched. The operations before a
    /// malformed one are executed.
    fn request<'d>(
        &mut self,
        chunk: &mut Chunk<'d, 'b>,
        to: AnswerTo,
        header: &Header,
        datagram: &'d [u8],
    ) -> Result<(), Malformed> {
        let mut is_listed = false;
        for operation in operations(datagram, header) {
            let mut operation = operation?;
            // Stage 1: replaces the client's hash of the key by the table's, and prefetches the bucket. The table's
            // seed is private, so a client cannot choose keys of one chain.
            let mut lookup = Lookup::Here(None);
            if operation.opcode.names_item() {
                operation.hash = self.cx.store.hash(operation.key);
                if let Some(worker) = self.owner(&operation) {
                    self.hand_to_owner(worker, &to, &operation);
                    continue;
                }
                lookup = self.look_up(&operation);
            }
            // Not before: of a burst's datagrams there is room for those with operations of this worker only.
            if !is_listed {
                chunk.to.push(to);
                is_listed = true;
            }
            let at = chunk.to.len() - 1;
            chunk.operations.push(Pending { operation, to: at, lookup });
            if chunk.operations.is_full() {
                self.execute_chunk(chunk);
                is_listed = false;
            }
        }
        Ok(())
    }

    /// The other worker that must execute an operation, because its key's partition is that worker's.
    #[inline]
    pub(super) fn owner(&self, operation: &Operation<'_>) -> Option<WorkerId> {
        // A FETCH reads, too. In a rack it goes to the owner, since the one that asked may not know the item.
        let is_read = || operation.opcode == Opcode::Fetch || intent(operation.opcode) != Intent::Change;
        self.cx.owner(operation.hash, is_read)
    }

    /// Finds the node that owns a key, and asks for the key's bucket in its memory.
    #[inline]
    fn look_up(&self, operation: &Operation<'_>) -> Lookup<'b> {
        if let Some(rack) = self.cx.rack
            && let Some(owner) = rack.elsewhere(operation.key, || intent(operation.opcode))
        {
            if may_be_copied(operation) && rack.reads_copy(owner.micro_shard) {
                self.cx.store.prefetch_bucket(operation.hash);
                return Lookup::Copied(owner, None);
            }
            rack.prefetch(owner, operation.hash);
            return Lookup::There(owner, None);
        }
        self.cx.store.prefetch_bucket(operation.hash);
        Lookup::Here(None)
    }

    /// The other node that owns the key of an operation which has waited.
    pub(super) fn owner_elsewhere(&self, operation: &Operation<'_>) -> Option<Owner> {
        let rack = self.cx.rack.filter(|_| operation.opcode.names_item())?;
        rack.elsewhere(operation.key, || intent(operation.opcode))
    }

    /// Stage 2 looks the keys up in their buckets, which are cached by now, and prefetches their items; stage
    /// 3 executes and replies.
    fn execute_chunk(&mut self, chunk: &mut Chunk<'_, 'b>) {
        let store = &**self.cx.store;
        if chunk.operations.len() > 1 {
            for Pending { operation, lookup, .. } in &mut chunk.operations {
                match (operation.opcode, lookup) {
                    (Opcode::Get, Lookup::Here(staged) | Lookup::Copied(_, staged)) => {
                        *staged = Some(store.stage(operation.hash));
                    }
                    (Opcode::Get, Lookup::There(owner, staged)) => {
                        *staged = self.cx.rack.and_then(|rack| rack.stage(*owner, operation.hash));
                    }
                    (_, Lookup::Here(_)) if operation.opcode.names_item() => {
                        store.prefetch_item(operation.hash);
                    }
                    _ => {}
                }
            }
        }
        self.metrics.operations.add(chunk.operations.len() as u64);
        if let Some(rack) = self.cx.rack.filter(|rack| rack.is_sampled())
            && let Some(Pending { operation, .. }) = chunk.operations.first()
            && operation.opcode.names_item()
        {
            rack.count(operation.key, intent(operation.opcode));
        }
        let looked_at = self.cx.probe.choose(chunk.operations.len()).map(|at| (at, Instant::now()));
        for Pending { operation, to, lookup } in &chunk.operations {
            let to = &chunk.to[*to];
            match *lookup {
                Lookup::Here(ref staged) => self.execute(to, operation, staged.as_ref()),
                _ if M::Access::IS_BY_THREAD => unreachable!("--rack is refused"),
                Lookup::There(owner, staged) => self.execute_elsewhere(to, operation, (owner, staged)),
                Lookup::Copied(owner, staged) => self.execute_copied(to, operation, (owner, staged)),
            }
        }
        if let Some((at, begun)) = looked_at {
            let Pending { operation, to, .. } = &chunk.operations[at];
            self.look_at(operation, chunk.to[*to].peer, begun);
        }
        chunk.operations.clear();
        chunk.to.clear();
    }

    /// Answers a Hello with the data a client needs. The answer is shorter than a Hello, so it does not
    /// amplify a forged one.
    fn hello(&mut self, peer: SocketAddr, header: &Header, datagram: &[u8]) {
        if let Err(reason) = self.check_seal(header, datagram) {
            return self.refuse(peer, datagram, reason);
        }
        let Ok(hello) = Hello::parse(header.body(datagram)) else {
            return self.refuse(peer, datagram, Reason::Malformed);
        };
        let check = self.check_cookie(&peer, header.cookie);
        // Only a client that has proved to receive at its address gets a session.
        let opened = header.flags.contains(Flags::OPEN) && check != Check::Invalid;
        let session = if opened { self.shared.sessions.open(peer, hello.nonce, self.now) } else { Ok(0) };
        self.metrics.hellos.count();
        let welcome = self.shared.welcome(peer, &hello, session.unwrap_or(0), self.now);
        let mut body = [0; WELCOME_BYTES];
        welcome.write(&mut body);
        let to = self.shared.answer_to(peer, header);
        let answer =
            Header { geometry: welcome.geometry, session: welcome.session, ..to.header_of(Kind::Welcome) };
        self.outlet.single(peer, answer, &body);
    }

    /// Tells a client that a datagram was not served, in no more bytes than it had; no answer if it must not
    /// be answered.
    ///
    /// A refusal is sealed only if the datagram's tag was valid: otherwise anyone could have a refusal sealed
    /// and show it to a client.
    #[cold]
    fn refuse(&mut self, peer: SocketAddr, datagram: &[u8], reason: Reason) {
        self.metrics.count_refusal(reason);
        let request = Header::parse(datagram).unwrap_or(Header::of(Kind::Request));
        let to = self.shared.answer_to(peer, &request);
        let Some(mut refusal) = refusal_of(datagram, reason, to.header.geometry) else { return };
        refusal.flags = to.header.flags.without(Flags::SEALED);
        let is_known = reason != Reason::Seal && request.is_sealed();
        if is_known && self.shared.seals.as_ref().is_some_and(|seals| seals.verify(&request, datagram)) {
            refusal.flags |= Flags::SEALED;
            refusal.secret = request.secret;
        }
        self.outlet.single(peer, refusal, &[]);
    }

    /// Appends a reply that holds only the status of an operation.
    pub(super) fn reply_bare(&mut self, to: &AnswerTo, operation: &Operation<'_>, status: Status) {
        self.outlet.reply(to, &ReplyRecord::bare(operation.opcode, status, operation.request));
    }
}

/// The environment that a burst gives its transfers.
pub(super) fn around<'a, 'b, M: Mode, P>(
    cx: &'a Context<'b, M, P>,
    shared: &'a NativeShared<M>,
    (worker, now): (WorkerId, Instant),
) -> Around<'a, 'b, M, P> {
    let (is_draining, holds_replies) = (shared.is_draining(), shared.holds_replies);
    Around { cx, sessions: &shared.sessions, worker, now, is_draining, holds_replies }
}

/// True if a copy may answer.
fn may_be_copied(operation: &Operation<'_>) -> bool {
    operation.opcode == Opcode::Get && operation.flags.contains(OpFlags::COPIES)
}

/// What an operation does with its key.
#[inline]
fn intent(opcode: Opcode) -> Intent {
    if opcode == Opcode::Get { Intent::Read } else { Intent::Change }
}
