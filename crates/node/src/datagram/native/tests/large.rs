//! Values that are too large for a datagram, on their way through the small path.

use std::{net::SocketAddr, time::Duration};

use minos_base::{SizeClass, limits::SLICE_BYTES};
use minos_proto::native::{
    AckHead, AckState, Composer, DataHead, Detail, Flags, FragmentHead, FragmentRange, Grant, HEADER_BYTES,
    Header, Kind, OpFlags, Opcode, Operation, Status, push_ranges, replies,
};
use minos_sched::WorkerId;

use super::site::{Answer, Client, Site, Train, config, sealed_config};
use crate::{datagram::native::SizeLimit, server::config::NativeConfig};

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 / 3) as u8).collect()
}

fn deferred<'a>(client: &Client, key: &'a [u8], value_bytes: usize, once: u32) -> Operation<'a> {
    let put = client.put(key, b"");
    let detail = Detail { value_bytes: value_bytes as u32, once, item_flags: 3, ..put.detail };
    Operation { flags: OpFlags::DEFERRED | OpFlags::ONCE, detail, ..put }
}

/// The fragments of `value` except `missing`, one message each; the last asks for an answer.
fn fragments(
    client: &mut Client,
    grant: &Grant,
    value: &[u8],
    missing: &[usize],
) -> Vec<(SocketAddr, Vec<u8>, usize)> {
    let queue = std::mem::replace(&mut client.header.queue, grant.queue);
    let parts: Vec<_> = value.chunks(grant.fragment_bytes as usize).enumerate().collect();
    let last = parts.len() - 1;
    let sent = parts.into_iter().filter(|(index, _)| !missing.contains(index));
    let messages = sent.map(|(index, part)| {
        let mut head = [0; 16];
        FragmentHead { transfer: grant.transfer, index: index as u32 }.write(&mut head);
        let datagram = client.datagram(Kind::Fragment, index == last, &[&head, part]);
        client.message(datagram)
    });
    let messages = messages.collect();
    client.header.queue = queue;
    messages
}

/// The acknowledgements and records in answers.
fn answers(trains: &[Train]) -> (Vec<AckState>, Vec<Answer>) {
    let (mut acks, mut records) = (Vec::new(), Vec::new());
    for datagram in trains.iter().flat_map(Train::datagrams) {
        let header = Header::parse(datagram).unwrap();
        match header.kind {
            Kind::Ack => acks.push(AckHead::parse(header.body(datagram)).unwrap().0.state),
            _ => records.extend(replies(datagram, &header).map(|record| Answer::from(record.unwrap()))),
        }
    }
    (acks, records)
}

/// Copies the fragments among `trains` into `value`.
fn collect(trains: &[Train], value: &mut [Option<u8>]) -> usize {
    let mut count = 0;
    for datagram in trains.iter().flat_map(Train::datagrams) {
        let header = Header::parse(datagram).unwrap();
        if header.kind == Kind::Data {
            let (head, bytes) = DataHead::parse(header.body(datagram)).unwrap();
            let range = head.fragments().unwrap().range(head.index).unwrap();
            value[range].iter_mut().zip(bytes).for_each(|(to, byte)| *to = Some(*byte));
            count += 1;
        }
    }
    count
}

fn store_large(site: &mut Site, client: &mut Client, key: &[u8], value: &[u8], once: u32) -> Grant {
    let operation = deferred(client, key, value.len(), once);
    let granted = client.ask_one(site, operation);
    assert_eq!(granted.status, Status::Granted);
    let grant = Grant::parse(&granted.value).unwrap();
    let messages = fragments(client, &grant, value, &[2]);
    let (acks, records) = answers(&site.deliver(usize::from(grant.queue), &messages));
    assert_eq!((&acks[..], records.len()), (&[AckState::Open][..], 0));
    let begun = client.ask_one(site, operation);
    assert_eq!(begun.status, Status::InProgress, "the first copy holds the number");
    let all: Vec<_> =
        (0..value.len().div_ceil(grant.fragment_bytes as usize)).filter(|at| *at != 2).collect();
    let messages = fragments(client, &grant, value, &all);
    let (acks, records) = answers(&site.deliver(usize::from(grant.queue), &messages));
    assert_eq!((&acks[..], records[0].status), (&[AckState::Done][..], Status::Ok));
    let retried = client.ask_one(site, operation);
    assert_eq!((retried.status, retried.cas), (Status::Ok, records[0].cas));
    grant
}

fn fetch_all(site: &mut Site, client: &mut Client, key: &[u8], value_bytes: usize) -> Vec<u8> {
    let queue = client.header.queue;
    let mut trains = client.send(site, queue.into(), &[client.get(key)]);
    let (_, records) = answers(&trains);
    assert_eq!((records[0].status, records[0].item_flags), (Status::Large, 3));
    let grant = Grant::parse(&records[0].value).unwrap();
    let mut value = vec![None; value_bytes];
    let mut next = 0;
    loop {
        next += collect(&trains, &mut value) as u32;
        if value.iter().all(Option::is_some) {
            return value.into_iter().flatten().collect();
        }
        let mut ranges = Vec::new();
        push_ranges(&mut ranges, [FragmentRange { first: next, count: u32::from(grant.window) }]);
        let fetch = client.operation(Opcode::Fetch, key, &ranges);
        let detail = Detail { operand: records[0].cas, ..fetch.detail };
        client.header.queue = grant.queue;
        trains = client.send(site, grant.queue.into(), &[Operation { detail, ..fetch }]);
        client.header.queue = queue;
        assert!(!trains.is_empty());
    }
}

#[test]
fn a_large_value_goes_there_and_back() {
    for config in [config(), sealed_config()] {
        let mut site = Site::new(&config, 3);
        site.placement.class_max = SizeClass::of(5000);
        site.placement.large_worker = Some(WorkerId(2));
        let mut client = Client::with_session(&mut site);
        for (once, bytes, queue) in [(1, 100_000, 5), (2, 4500, 3)] {
            let value = value(bytes);
            let grant = store_large(&mut site, &mut client, b"key", &value, once);
            assert_eq!(grant.queue, queue, "the large worker's, or that of who was asked");
            assert_eq!(fetch_all(&mut site, &mut client, b"key", bytes), value);
        }
        assert_eq!(site.counter("native_transfer_bytes"), 0);
        assert!(site.workers.iter().all(|worker| worker.transfers_open() == 0));
        let gone = client.operation(Opcode::Fetch, b"key", &[0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(client.ask_one(&mut site, gone).status, Status::Gone);
        assert_eq!(site.store.check(), Ok(()));
    }
}

/// A large value with a part appended or prepended.
fn joined(opcode: Opcode, value: &[u8], part: &[u8]) -> Vec<u8> {
    if opcode == Opcode::Append { [value, part].concat() } else { [part, value].concat() }
}

#[test]
fn a_large_value_is_joined_in_slices() {
    for opcode in [Opcode::Append, Opcode::Prepend] {
        let (mut site, mut client) = Site::with_session(&config(), 1);
        let old = value(600_000);
        store_large(&mut site, &mut client, b"key", &old, 1);
        site.copies_at_once = false;
        let join = client.operation(opcode, b"key", b"more");
        let join = Operation { flags: OpFlags::ONCE, detail: Detail { once: 2, ..join.detail }, ..join };
        assert!(client.ask(&mut site, &[join]).is_empty(), "nothing is done at once");
        let slices = (old.len() + 4).div_ceil(SLICE_BYTES);
        assert!(site.copy_slices(slices).is_empty(), "the last slice is not the end");
        // Other requests are served meanwhile and see the old value.
        assert_eq!(client.ask_one(&mut site, client.put(b"other", b"1")).status, Status::Ok);
        assert_eq!(client.ask_one(&mut site, join).status, Status::InProgress);
        assert_eq!(fetch_all(&mut site, &mut client, b"key", old.len()), old);
        let (acks, records) = answers(&site.copy_slices(usize::MAX));
        assert_eq!((acks.len(), records.len(), records[0].status), (0, 1, Status::Ok));
        let again = client.ask_one(&mut site, join);
        assert_eq!((again.status, again.cas), (Status::Ok, records[0].cas), "it has happened once");
        let new = joined(opcode, &old, b"more");
        // Not in the burst that sent the old value: the bytes for one client in a burst are bounded.
        site.pass(1);
        assert_eq!(fetch_all(&mut site, &mut client, b"key", new.len()), new);
        assert_eq!(site.workers[0].transfers_open(), 0);
        assert_eq!(site.counter("native_transfer_bytes"), 0);
        assert_eq!(site.store.check(), Ok(()));
    }
}

#[test]
fn a_value_that_is_replaced_while_it_is_joined_is_joined_anew() {
    let (mut site, mut client) = Site::with_session(&config(), 1);
    store_large(&mut site, &mut client, b"key", &value(300_000), 1);
    site.copies_at_once = false;
    let join = client.operation(Opcode::Append, b"key", b"more");
    assert!(client.ask(&mut site, &[join]).is_empty());
    assert!(site.copy_slices(1).is_empty());
    let other = Operation {
        detail: Detail { item_flags: 3, ..client.put(b"key", b"").detail },
        ..client.put(b"key", b"")
    };
    assert_eq!(client.ask_one(&mut site, other).status, Status::Ok);
    assert_eq!(answers(&site.copy_slices(usize::MAX)).1[0].status, Status::Ok);
    let read = client.ask_one(&mut site, client.get(b"key"));
    assert_eq!((read.status, &read.value[..]), (Status::Ok, &b"more"[..]));
}

#[test]
fn a_long_part_is_joined_in_slices_too() {
    let (mut site, mut client) = Site::with_session(&config(), 1);
    let (old, part) = (value(300_000), value(200_000));
    store_large(&mut site, &mut client, b"key", &old, 1);
    site.copies_at_once = false;
    let operation = Operation { opcode: Opcode::Append, ..deferred(&client, b"key", part.len(), 2) };
    let granted = client.ask_one(&mut site, operation);
    let grant = Grant::parse(&granted.value).unwrap();
    let messages = fragments(&mut client, &grant, &part, &[]);
    let (acks, records) = answers(&site.deliver(usize::from(grant.queue), &messages));
    assert_eq!((&acks[..], records.len()), (&[AckState::Open][..], 0), "all is there, and not joined yet");
    site.pass(60);
    let now = site.now;
    site.workers[0].on_tick(now);
    let (acks, records) = answers(&site.copy_slices(usize::MAX));
    assert_eq!((&acks[..], records[0].status), (&[AckState::Done][..], Status::Ok), "it never times out");
    let new = joined(Opcode::Append, &old, &part);
    assert_eq!(fetch_all(&mut site, &mut client, b"key", new.len()), new);
}

#[test]
fn a_store_that_is_given_up_leaves_nothing() {
    let (mut site, mut client) = Site::with_session(&config(), 1);
    let before = site.store.stats().used_bytes;
    let operation = deferred(&client, b"key", 200_000, 9);
    assert_eq!(client.ask_one(&mut site, operation).status, Status::Granted);
    assert_eq!(site.counter("native_transfer_bytes"), 200_000);
    site.pass(6);
    let now = site.now;
    site.workers[0].on_tick(now);
    assert_eq!(site.counter("native_transfer_bytes"), 0);
    assert_eq!(site.store.stats().used_bytes, before);
    assert_eq!(client.ask_one(&mut site, client.get(b"key")).status, Status::NotFound);
}

/// A site whose worker 2 serves large values, and a client with a small value under `key`, whose CAS unique
/// is returned.
fn site_with_large_worker(config: &NativeConfig) -> (Site, Client, u64) {
    let mut site = Site::new(config, 3);
    site.placement = SizeLimit { class_max: SizeClass::of(5000), large_worker: Some(WorkerId(2)) };
    let mut client = Client::with_session(&mut site);
    let cas = client.ask_one(&mut site, client.put(b"key", b"old")).cas;
    (site, client, cas)
}

fn keeps_its_worker(config: &NativeConfig, opcode: Opcode, plan: Option<WorkerId>) {
    let (mut site, mut client, cas) = site_with_large_worker(config);
    let value = value(50_000);
    let key: &[u8] = if opcode == Opcode::Add { b"new" } else { b"key" };
    let put = deferred(&client, key, value.len(), 1);
    let store = Operation { opcode, detail: Detail { operand: cas, ..put.detail }, ..put };
    let lost = client.ask_one(&mut site, store);
    site.placement.large_worker = plan;
    for queue in 0..3 {
        client.header.queue = queue;
        assert_eq!(client.ask_one(&mut site, store), lost, "{opcode:?} under {plan:?} at {queue}");
    }
    let grant = Grant::parse(&lost.value).unwrap();
    assert_eq!((lost.status, grant.queue), (Status::Granted, 5));
    let messages = fragments(&mut client, &grant, &value, &[]);
    let (acks, records) = answers(&site.deliver(5, &messages));
    assert_eq!((acks.last(), records[0].status), (Some(&AckState::Done), Status::Ok));
    assert_eq!(client.ask_one(&mut site, store).cas, records[0].cas, "it has happened once");
    assert!(site.workers.iter().all(|worker| worker.transfers_open() == 0));
}

#[test]
fn a_lost_grant_is_given_again_after_large_values_have_moved() {
    let stores =
        [Opcode::Put, Opcode::Add, Opcode::Replace, Opcode::Append, Opcode::Prepend, Opcode::Compare];
    for config in [config(), sealed_config()] {
        for plan in [Some(WorkerId(1)), Some(WorkerId(0)), None] {
            stores.into_iter().for_each(|opcode| keeps_its_worker(&config, opcode, plan));
        }
    }
}

#[test]
fn nobody_else_is_led_to_the_worker_of_a_store() {
    for config in [config(), sealed_config()] {
        let (mut site, mut client, _) = site_with_large_worker(&config);
        let store = deferred(&client, b"key", 50_000, 1);
        let first = Grant::parse(&client.ask_one(&mut site, store).value).unwrap();
        site.placement.large_worker = Some(WorkerId(1));
        let session = client.header.session;
        client.peer.set_port(40_001);
        client.say_hello(&mut site, Flags::OPEN).unwrap();
        client.say_hello(&mut site, Flags::OPEN).unwrap();
        assert_ne!(client.header.session, session);
        let own = Grant::parse(&client.ask_one(&mut site, store).value).unwrap();
        assert_eq!((first.queue, own.queue), (5, 4), "the number is another session's");
        client.header.session = session;
        let answer = client.ask_one(&mut site, store);
        assert_eq!(
            (answer.status, &answer.value[..]),
            (Status::InProgress, &b""[..]),
            "the grant is not told"
        );
    }
}

#[test]
fn a_store_whose_worker_is_crowded_is_busy() {
    let (mut site, mut client, _) = site_with_large_worker(&config());
    let store = deferred(&client, b"key", 50_000, 1);
    let granted = client.ask_one(&mut site, store);
    (site.placement.large_worker, site.ring_capacity) = (None, 0);
    assert_eq!(client.ask_one(&mut site, store).status, Status::Busy);
    site.ring_capacity = 1;
    assert_eq!(client.ask_one(&mut site, store), granted);
}

/// Another client at the same address.
fn neighbour(site: &mut Site, port: u16) -> Client {
    let mut client = Client::stranger();
    client.peer.set_port(port);
    client.say_hello(site, Flags::NONE).unwrap();
    client.say_hello(site, Flags::OPEN).unwrap();
    client
}

/// The answer to a large PUT of `bytes`: its grant, or else its place in line, 0 for none.
fn ask_for(site: &mut Site, client: &mut Client, bytes: usize) -> Result<Grant, u64> {
    let answer = client.ask_one(site, deferred(client, b"key", bytes, 1));
    match answer.status {
        Status::Granted => Ok(Grant::parse(&answer.value).unwrap()),
        status => {
            assert_eq!(status, Status::Busy);
            Err(answer.cas)
        }
    }
}

/// Sends all of `value`; returns the grants that other clients get then.
fn send_all(site: &mut Site, client: &mut Client, grant: &Grant, value: &[u8]) -> Vec<(SocketAddr, Grant)> {
    let messages = fragments(client, grant, value, &[]);
    let trains = site.deliver(usize::from(grant.queue), &messages);
    let (own, others): (Vec<_>, Vec<_>) = trains.into_iter().partition(|train| train.peer == client.peer);
    assert_eq!(answers(&own).1[0].status, Status::Ok);
    let granted = others.iter().map(|train| {
        let record = answers(std::slice::from_ref(train)).1.remove(0);
        assert_eq!(record.status, Status::Granted);
        (train.peer, Grant::parse(&record.value).unwrap())
    });
    granted.collect()
}

#[test]
fn large_stores_of_an_address_begin_in_turn() {
    let value = value(50_000);
    let mut site = Site::new(&NativeConfig { transfers_per_source: 1, ..config() }, 3);
    site.placement = SizeLimit { class_max: SizeClass::of(5000), large_worker: Some(WorkerId(2)) };
    let [mut first, mut second, mut third] = [1, 2, 3].map(|port| neighbour(&mut site, port));
    let grant = ask_for(&mut site, &mut first, value.len()).unwrap();
    // Large values have moved to another worker meanwhile.
    site.placement.large_worker = Some(WorkerId(1));
    assert_eq!(ask_for(&mut site, &mut second, value.len()), Err(1));
    assert_eq!(ask_for(&mut site, &mut third, value.len()), Err(2));
    assert_eq!(ask_for(&mut site, &mut second, value.len()), Err(1), "it keeps its place");
    assert_eq!(site.counter("native_transfer_bytes"), 50_000, "what waits takes no memory");
    let granted = send_all(&mut site, &mut first, &grant, &value);
    assert_eq!(granted.len(), 1);
    let (peer, grant) = granted[0];
    assert_eq!((peer, grant.queue), (second.peer, 4), "at the worker that it was refused by");
    // Who had a turn goes behind those who wait.
    let again = deferred(&first, b"key", value.len(), 2);
    let answer = first.ask_one(&mut site, again);
    assert_eq!((answer.status, answer.cas), (Status::Busy, 2));
    let granted = send_all(&mut site, &mut second, &grant, &value);
    assert_eq!((granted.len(), granted[0].0), (1, third.peer));
    let granted = send_all(&mut site, &mut third, &granted[0].1, &value);
    assert_eq!((granted.len(), granted[0].0), (1, first.peer));
    assert!(send_all(&mut site, &mut first, &granted[0].1, &value).is_empty());
    assert_eq!(site.counter("native_transfer_bytes"), 0);
}

#[test]
fn who_waits_in_line_and_does_not_ask_again_loses_the_place() {
    let value = value(50_000);
    let mut site = Site::new(&NativeConfig { transfers_per_source: 1, ..config() }, 1);
    let [mut first, mut gone, mut patient] = [1, 2, 3].map(|port| neighbour(&mut site, port));
    let grant = ask_for(&mut site, &mut first, value.len()).unwrap();
    assert_eq!(ask_for(&mut site, &mut gone, value.len()), Err(1));
    for _ in 0..3 {
        assert_eq!(ask_for(&mut site, &mut patient, value.len()), Err(2));
        site.now += Duration::from_millis(100);
    }
    let granted = send_all(&mut site, &mut first, &grant, &value);
    assert_eq!((granted.len(), granted[0].0), (1, patient.peer));
}

#[test]
fn in_a_line_what_awaits_the_memory_of_all_lets_others_pass() {
    let (bytes, of_all) = (Some(200_000), Some(200_000));
    let bounds = NativeConfig { transfer_memory_bytes: of_all, source_memory_bytes: bytes, ..config() };
    let mut site = Site::new(&bounds, 1);
    let mut other = Client::stranger();
    other.peer = ([127, 0, 0, 2], 1).into();
    other.say_hello(&mut site, Flags::NONE).unwrap();
    other.say_hello(&mut site, Flags::OPEN).unwrap();
    let [mut large, mut small] = [1, 2].map(|port| neighbour(&mut site, port));
    let grant = ask_for(&mut site, &mut other, 150_000).unwrap();
    assert_eq!(ask_for(&mut site, &mut large, 180_000), Err(1));
    let asked = deferred(&small, b"key", 40_000, 1);
    let statuses: Vec<Status> = small.ask(&mut site, &[asked]).iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [Status::Busy, Status::Granted]);
    assert!(send_all(&mut site, &mut other, &grant, &value(150_000)).is_empty(), "there is no room for both");
    assert_eq!(site.counter("native_transfer_bytes"), 40_000);
}

#[test]
fn a_fragment_without_sense_is_refused() {
    let (mut site, mut client) = Site::with_client(1);
    let short = client.datagram(Kind::Fragment, true, &[&[1, 2, 3]]);
    assert_eq!(short.len(), HEADER_BYTES + 3);
    assert!(client.refusal(&mut site, short).is_some());
    assert_eq!(site.counter("native_refused_malformed"), 1);
}

impl Client {
    fn datagram(&mut self, kind: Kind, wants_ack: bool, body: &[&[u8]]) -> Vec<u8> {
        self.header.sequence += 1;
        let mut flags = self.marks();
        if wants_ack {
            flags |= Flags::ACK_WANTED;
        }
        let mut out = Vec::new();
        let mut composer = Composer::begin(&mut out, Header { kind, flags, ..self.header }, 60_000);
        body.iter().for_each(|part| assert!(composer.push_bytes(part)));
        composer.finish_with(self.seal.as_ref().map(|keys| &keys.to_server));
        out
    }
}
