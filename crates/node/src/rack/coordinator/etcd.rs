//! Election of one of several coordinators by etcd, which keeps the directory, too.
//!
//! The leader holds a key that is bound to an etcd lease. What it writes it writes in transactions that ask whether the key
//! is still the one that it has made, so that one that was deposed writes nothing, and whether the directory is still the
//! last one, so that a transaction without an answer, which was repeated, does nothing when it is executed late. Its mandate
//! ends by its own clock before etcd can give the key to another, so that no lease of a node is granted later. A thread talks
//! to etcd: the coordinator never waits for it.

use std::{
    convert::Infallible,
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, PutOptions, Txn, TxnOp, TxnOpResponse,
    WatchFilterType, WatchOptions, WatchStream,
};
use minos_unit::Terms;
use tokio::{
    runtime,
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::{error::Elapsed, sleep, timeout},
};

use super::{CoordinatorError, EtcdConfig, Event, Reign, reign::Draft};
use crate::rack::member::terms;

/// Time that etcd has to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Time after a failure until etcd is asked again.
const RETRY: Duration = Duration::from_millis(100);
/// The leader renews its lease so many times within one.
const RENEWALS_A_LEASE: u32 = 6;
/// Time between two looks whether an idle connection still stands. etcd hangs up on those who look more often than each 5 s.
const LOOK_EVERY: Duration = Duration::from_secs(6);

/// What fails with etcd.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Etcd(#[from] Error),
    #[error("no answer in time")]
    Late(#[from] Elapsed),
    #[error("{0}")]
    Other(&'static str),
}

/// The right to lead, and the way to etcd.
pub(super) struct Mandate {
    term: Arc<Term>,
    drafts: UnboundedSender<Draft>,
}

/// Until when a mandate is valid, by the clock of this process.
struct Term {
    zero: Instant,
    until_us: AtomicU64,
    terms: Terms,
}

impl Term {
    fn is_held(&self) -> bool {
        self.zero.elapsed().as_micros() < u128::from(self.until_us.load(Relaxed))
    }

    /// etcd has renewed the lease, and was asked to at this time.
    fn extend(&self, asked: Instant) {
        let asked_us = asked.saturating_duration_since(self.zero).as_micros() as u64;
        self.until_us.store(asked_us + self.terms.used_us(), Relaxed);
    }
}

/// Ends a mandate, before the lease is given back.
struct End(Arc<Term>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.until_us.store(0, Relaxed);
    }
}

impl Mandate {
    pub(super) fn is_held(&self) -> bool {
        self.term.is_held()
    }

    /// Has the directory written. That it is comes as an event, unless another coordinator is elected before.
    pub(super) fn keep(&self, draft: Draft) {
        // If nobody listens, the mandate is over.
        let _ = self.drafts.send(draft);
    }
}

/// Stands for election until it is dropped. Then the leader's key is given back, so that another one need not wait.
pub(super) struct Candidacy {
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Candidacy {
    /// Stands for election, as the coordinator of this rack that listens there. A new rack gets the directory of these bytes.
    ///
    /// # Errors
    /// The names of etcd's servers make no sense, or there can be no thread.
    pub(super) fn start(
        config: &EtcdConfig,
        (rack, listens_at): (&str, String),
        new: Vec<u8>,
        events: Sender<Event>,
    ) -> Result<Self, CoordinatorError> {
        let failed = |error: io::Error| CoordinatorError::Etcd(error.to_string());
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let candidate = Candidate::new(config, (rack, listens_at), new, events);
        let (stop, stopped) = oneshot::channel();
        let run = move || runtime.block_on(candidate.run(stopped));
        let thread = thread::Builder::new().name("minos-etcd".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        self.stop = None;
        // It ends soon: etcd has a bounded time to answer.
        self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread knows.
struct Candidate {
    client: Option<Client>,
    config: EtcdConfig,
    /// Keys.
    leader: String,
    directory: String,
    listens_at: String,
    new: Vec<u8>,
    /// The etcd lease, if there is one.
    lease: Option<i64>,
    events: Sender<Event>,
}

impl Candidate {
    fn new(
        config: &EtcdConfig,
        (rack, listens_at): (&str, String),
        new: Vec<u8>,
        events: Sender<Event>,
    ) -> Self {
        let (leader, directory) = (config.leader(rack), config.directory(rack));
        Self { client: None, config: config.clone(), leader, directory, listens_at, new, lease: None, events }
    }

    async fn run(mut self, stopped: oneshot::Receiver<Infallible>) {
        tokio::select! {
            () = self.stand() => {}
            _ = stopped => {}
        }
        self.resign().await;
    }

    async fn stand(&mut self) {
        let mut was_there = true;
        loop {
            match self.turn().await {
                Ok(()) => was_there = true,
                Err(error) => {
                    if was_there {
                        tracing::warn!(%error, "etcd does not elect a coordinator of the rack");
                    }
                    was_there = false;
                }
            }
            self.resign().await;
            sleep(RETRY).await;
        }
    }

    /// Waits until nobody leads, stands, and leads as long as that goes well.
    async fn turn(&mut self) -> Result<(), Trouble> {
        let mut client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(connect(&self.config).await?).clone(),
        };
        self.wait_for_vacancy(&mut client).await?;
        let asked = Instant::now();
        let ttl_s = self.config.ttl.as_secs().try_into().unwrap_or(i64::MAX);
        let lease = within(client.lease_grant(ttl_s, None)).await?;
        self.lease = Some(lease.id());
        let ttl = Duration::from_secs(lease.ttl().try_into().unwrap_or(0));
        let terms = terms(ttl).map_err(|_| Trouble::Other("it grants no lease of use"))?;
        let term = Arc::new(Term { zero: asked, until_us: AtomicU64::new(0), terms });
        term.extend(asked);
        let _end = End(Arc::clone(&term));
        let Some(revision) = self.win(&mut client, lease.id()).await? else { return Ok(()) };
        let fence = Fence { key: self.leader.clone(), revision };
        let Kept { bytes, revision } = self.load(&mut client, &fence).await?;
        let (drafts, to_keep) = unbounded_channel();
        // Without a coordinator, the drafts end.
        let mandate = Mandate { term: Arc::clone(&term), drafts };
        let _ = self.events.send(Event::Elected(Reign::Etcd(mandate), bytes));
        tokio::select! {
            renewed = renew(client.clone(), lease.id(), ttl, &term) => renewed.map(|never| match never {}),
            kept = self.keep(client, (&fence, revision), to_keep) => kept,
        }
    }

    /// Waits until nobody holds the leader's key.
    async fn wait_for_vacancy(&self, client: &mut Client) -> Result<(), Trouble> {
        loop {
            let found = within(client.get(self.leader.as_str(), None)).await?;
            let Some(key) = found.kvs().first() else { return Ok(()) };
            let _ = self.events.send(Event::StandsBy(String::from_utf8_lossy(key.value()).into_owned()));
            let next = found.header().map_or(0, |header| header.revision() + 1);
            let options =
                WatchOptions::new().with_start_revision(next).with_filters([WatchFilterType::NoPut]);
            let mut watch = within(client.watch(self.leader.as_str(), Some(options))).await?;
            // Whatever comes, and if nothing does, it looks again.
            let _ = timeout(self.config.ttl, first_event(&mut watch)).await;
        }
    }

    /// Takes the leader's key, unless another one has it. Returns the revision by which it is known.
    async fn win(&self, client: &mut Client, lease: i64) -> Result<Option<i64>, Trouble> {
        let is_free = Compare::create_revision(self.leader.as_str(), CompareOp::Equal, 0);
        let options = PutOptions::new().with_lease(lease);
        let take = TxnOp::put(self.leader.as_str(), self.listens_at.as_str(), Some(options));
        let said = within(client.txn(Txn::new().when([is_free]).and_then([take]))).await?;
        Ok(said.header().filter(|_| said.succeeded()).map(|header| header.revision()))
    }

    /// The directory. A new rack gets its first one, so that all its leaders begin with the same.
    async fn load(&self, client: &mut Client, fence: &Fence) -> Result<Kept, Trouble> {
        let key = self.directory.as_str();
        let is_new = Compare::create_revision(key, CompareOp::Equal, 0);
        let put = TxnOp::put(key, self.new.as_slice(), None);
        within(client.txn(Txn::new().when([fence.holds(), is_new]).and_then([put]))).await?;
        let get = Txn::new().when([fence.holds()]).and_then([TxnOp::get(key, None)]);
        let said = within(client.txn(get)).await?;
        let found = said.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(mut found) => found.take_kvs().pop(),
            _ => None,
        });
        let found = found.ok_or(Trouble::Other("another coordinator was elected"))?;
        Ok(Kept { revision: found.mod_revision(), bytes: found.into_key_value().1 })
    }

    /// Writes drafts in the place of the directory of a revision, one after another, until the coordinator steps down or is
    /// deposed.
    async fn keep(
        &self,
        mut client: Client,
        (fence, mut revision): (&Fence, i64),
        mut drafts: UnboundedReceiver<Draft>,
    ) -> Result<(), Trouble> {
        while let Some(Draft { epoch, bytes }) = drafts.recv().await {
            let draft = self.replacing((fence, revision), &bytes);
            revision = loop {
                match self.try_keep(&mut client, fence, (&draft, &bytes)).await {
                    Err(error @ (Trouble::Etcd(_) | Trouble::Late(_))) => {
                        tracing::debug!(%error, epoch, "the directory is not kept yet");
                    }
                    kept => break kept?,
                }
                sleep(RETRY).await;
            };
            let _ = self.events.send(Event::Kept(Ok(epoch)));
        }
        Ok(())
    }

    /// Puts a directory in the place of that of a revision, if nobody else leads.
    fn replacing(&self, (fence, revision): (&Fence, i64), bytes: &[u8]) -> Txn {
        let is_last = Compare::mod_revision(self.directory.as_str(), CompareOp::Equal, revision);
        let put = TxnOp::put(self.directory.as_str(), bytes, None);
        Txn::new().when([fence.holds(), is_last]).and_then([put])
    }

    /// Writes a draft; returns its revision. An earlier attempt that got no answer may have done it.
    async fn try_keep(
        &self,
        client: &mut Client,
        fence: &Fence,
        (draft, bytes): (&Txn, &[u8]),
    ) -> Result<i64, Trouble> {
        let said = within(client.txn(draft.clone())).await?;
        if let Some(header) = said.header().filter(|_| said.succeeded()) {
            return Ok(header.revision());
        }
        let kept = self.load(client, fence).await?;
        if kept.bytes == bytes {
            Ok(kept.revision)
        } else {
            Err(Trouble::Other("somebody else has changed the directory"))
        }
    }

    /// Gives the leader's key back, if this process may have it.
    async fn resign(&mut self) {
        if let (Some(client), Some(lease)) = (&mut self.client, self.lease.take())
            && let Err(error) = within(client.lease_revoke(lease)).await
        {
            tracing::debug!(%error, "the lease ends by itself");
        }
    }
}

/// The directory as etcd has it.
struct Kept {
    bytes: Vec<u8>,
    revision: i64,
}

/// The leader's key as one leader has made it.
struct Fence {
    key: String,
    revision: i64,
}

impl Fence {
    /// True while no other leader was elected.
    fn holds(&self) -> Compare {
        Compare::create_revision(self.key.as_str(), CompareOp::Equal, self.revision)
    }
}

async fn connect(config: &EtcdConfig) -> Result<Client, Trouble> {
    let options =
        ConnectOptions::new().with_connect_timeout(ANSWER_MAX).with_keep_alive(LOOK_EVERY, ANSWER_MAX);
    let options = match &config.user {
        Some((name, password)) => options.with_user(name, password).with_auto_token_refresh(true),
        None => options,
    };
    within(Client::connect(&config.servers, Some(options))).await
}

/// Renews the lease until it is lost.
async fn renew(mut client: Client, lease: i64, ttl: Duration, term: &Term) -> Result<Infallible, Trouble> {
    loop {
        sleep(ttl / RENEWALS_A_LEASE).await;
        let asked = Instant::now();
        let renewed = timeout(ttl / RENEWALS_A_LEASE, client.lease_keep_alive(lease)).await;
        match renewed.map_err(Trouble::from).and_then(|renewed| Ok(renewed?)) {
            Ok(_) => term.extend(asked),
            Err(error @ Trouble::Etcd(Error::LeaseKeepAliveError(_))) => return Err(error),
            Err(error) if !term.is_held() => return Err(error),
            Err(error) => tracing::debug!(%error, "the lease is not renewed yet"),
        }
    }
}

/// Waits for a change, or for the end of the watch.
async fn first_event(watch: &mut WatchStream) {
    while let Ok(Some(said)) = watch.message().await {
        if !said.events().is_empty() {
            return;
        }
    }
}

/// What a call to etcd returns in time.
async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Trouble> {
    Ok(timeout(ANSWER_MAX, call).await??)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use minos_rack::{MicroShards, ServerId, UnitId};
    use minos_testkit::Server;
    use minos_unit::{Change, Node, Standing};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);
    const RACK: &str = "r";

    fn config(etcd: &Server) -> EtcdConfig {
        let servers = vec![format!("http://{}", etcd.address())];
        // So long that no lease ends by itself, however busy the machine is.
        EtcdConfig { servers, prefix: "/minos".to_owned(), ttl: Duration::from_secs(3600), user: None }
    }

    /// The directory of this epoch.
    fn directory(epoch: Epoch) -> Directory {
        let node =
            Node { id: ServerId(0), unit: UnitId(0), standing: Standing::Member, address: String::new() };
        let change = Change { nodes: Some(vec![node.clone()]), ..Change::default() };
        let first = Directory::new(MicroShards::new(8).unwrap(), 1, vec![node]).unwrap();
        (first.epoch()..epoch).fold(first, |directory, _| directory.changed(change.clone()).unwrap())
    }

    fn candidate(config: &EtcdConfig, name: &str) -> (Candidacy, Receiver<Event>) {
        let (sender, events) = channel();
        let candidacy = Candidacy::start(config, (RACK, name.to_owned()), directory(1).encode(), sender);
        (candidacy.unwrap(), events)
    }

    /// Waits until this candidate leads.
    fn elected(events: &Receiver<Event>) -> (Reign, Vec<u8>) {
        loop {
            match events.recv_timeout(LONG).unwrap() {
                Event::Elected(reign, kept) => return (reign, kept),
                Event::StandsBy(_) => {}
                _ => panic!("nothing is to be kept"),
            }
        }
    }

    fn keep(reign: &Reign, events: &Receiver<Event>, epoch: Epoch) {
        reign.keep(&directory(epoch));
        assert!(matches!(events.recv_timeout(LONG).unwrap(), Event::Kept(Ok(kept)) if kept == epoch));
    }

    fn with_client<T>(config: &EtcdConfig, act: impl AsyncFnOnce(Client) -> Result<T, Error>) -> T {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { act(connect(config).await.unwrap()).await.unwrap() })
    }

    /// Without the fence in its transaction, the last directory would be that of the deposed leader.
    #[test]
    fn a_leader_that_was_deposed_keeps_nothing() {
        let etcd = Server::etcd().unwrap();
        let config = config(&etcd);
        let (_one, of_one) = candidate(&config, "one");
        let (deposed, kept) = elected(&of_one);
        assert_eq!(kept, directory(1).encode());
        keep(&deposed, &of_one, 2);
        // As if its lease had ended, and its clock did not know.
        let key = config.leader(RACK);
        let (_other, of_other) = candidate(&config, "other");
        assert!(matches!(of_other.recv_timeout(LONG).unwrap(), Event::StandsBy(leader) if leader == "one"));
        with_client(&config, async |mut client| client.delete(key, None).await);
        let (leads, kept) = elected(&of_other);
        assert_eq!(kept, directory(2).encode());
        keep(&leads, &of_other, 3);
        assert!(deposed.is_held() && leads.is_held());
        deposed.keep(&directory(4));
        // It learns that another one leads.
        assert!(matches!(of_one.recv_timeout(LONG).unwrap(), Event::StandsBy(leader) if leader == "other"));
        assert!(!deposed.is_held() && leads.is_held());
        let key = config.directory(RACK);
        let found = with_client(&config, async |mut client| client.get(key, None).await);
        assert_eq!(found.kvs()[0].value(), directory(3).encode());
    }

    /// Without the revision in its transaction, the last directory would be the one before.
    #[test]
    fn a_draft_that_is_executed_late_does_nothing() {
        let etcd = Server::etcd().unwrap();
        let config = config(&etcd);
        let (_one, of_one) = candidate(&config, "one");
        let (reign, _) = elected(&of_one);
        let (leader, key) = (config.leader(RACK), config.directory(RACK));
        let found = |key: &str| with_client(&config, async |mut client| client.get(key, None).await);
        let fence = Fence { revision: found(&leader).kvs()[0].create_revision(), key: leader.clone() };
        let candidate = Candidate::new(&config, (RACK, "one".to_owned()), Vec::new(), channel().0);
        let revision = found(&key).kvs()[0].mod_revision();
        // As it was sent first, and got no answer.
        let late = candidate.replacing((&fence, revision), &directory(2).encode());
        keep(&reign, &of_one, 2);
        keep(&reign, &of_one, 3);
        with_client(&config, async |mut client| client.txn(late).await);
        assert_eq!(found(&key).kvs()[0].value(), directory(3).encode());
        keep(&reign, &of_one, 4);
        // One that an attempt without an answer has kept is known to be kept.
        let revision = found(&key).kvs()[0].mod_revision();
        let twice = candidate.replacing((&fence, revision), &directory(5).encode());
        let again = with_client(&config, async |mut client| {
            client.txn(twice.clone()).await?;
            Ok(candidate.try_keep(&mut client, &fence, (&twice, &directory(5).encode())).await.unwrap())
        });
        assert_eq!(again, found(&key).kvs()[0].mod_revision());
    }

    #[test]
    fn who_steps_down_or_ends_gives_its_key_back() {
        let etcd = Server::etcd().unwrap();
        let config = config(&etcd);
        let (one, of_one) = candidate(&config, "one");
        drop(elected(&of_one));
        let (reign, _) = elected(&of_one);
        drop(one);
        assert!(!reign.is_held());
        let (_other, of_other) = candidate(&config, "other");
        elected(&of_other);
    }

    #[test]
    fn etcd_may_ask_for_a_password() {
        let etcd = Server::etcd().unwrap();
        let open = config(&etcd);
        with_client(&open, async |mut client| {
            client.user_add("root", "secret", None).await?;
            client.role_add("root").await?;
            client.user_grant_role("root", "root").await?;
            client.auth_enable().await
        });
        let key = open.leader(RACK);
        let refused = with_client(&open, async |mut client| Ok(client.get(key, None).await.is_err()));
        assert!(refused);
        let closed = EtcdConfig { user: Some(("root".to_owned(), "secret".to_owned())), ..open };
        let (_one, of_one) = candidate(&closed, "one");
        let (reign, _) = elected(&of_one);
        keep(&reign, &of_one, 2);
    }
}
