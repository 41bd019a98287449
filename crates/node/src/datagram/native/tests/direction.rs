//! Which worker executes what.

use minos_base::SizeClass;
use minos_proto::native::{Header, Status};
use minos_sched::WorkerId;

use super::site::Site;

#[test]
fn a_datagram_goes_to_the_queue_that_it_names() {
    let (mut site, mut client) = Site::with_client(3);
    for (named, arrives_at, misdirected) in [(1, 1, 0), (1, 0, 1), (2, 1, 2), (4, 1, 2), (1, 4, 2), (9, 2, 2)]
    {
        client.header.queue = named;
        let trains = client.send(&mut site, arrives_at, &[client.put(b"k", b"v")]);
        assert_eq!(client.read(&trains)[0].status, Status::Ok);
        assert_eq!(Header::parse(&trains[0].bytes).unwrap().queue, named);
        assert_eq!(site.counter("native_misdirected"), misdirected, "{named} {arrives_at}");
    }
}

#[test]
fn a_datagram_is_lost_where_the_ring_is_full() {
    let (mut site, mut client) = Site::with_client(2);
    site.ring_capacity = 0;
    client.header.queue = 1;
    assert!(client.send(&mut site, 0, &[client.put(b"k", b"v")]).is_empty());
    assert_eq!(site.counter("native_misdirected_dropped"), 1);
    site.ring_capacity = 1;
    let trains = client.send(&mut site, 0, &[client.get(b"k")]);
    assert_eq!(client.read(&trains)[0].status, Status::NotFound);
}

#[test]
fn large_operations_go_to_the_large_worker() {
    let (mut site, mut client) = Site::with_client(2);
    site.placement.class_max = SizeClass::of(100);
    site.placement.large_worker = Some(WorkerId(1));
    let value = [7; 110];
    let answers = client.ask(&mut site, &[client.put(b"small", b"v"), client.put(b"large", &value)]);
    assert!(answers.iter().all(|answer| answer.status == Status::Ok));
    assert_eq!(site.counter("native_large_handed_over"), 1);
    let trains = client.send(&mut site, 0, &[client.get(b"large"), client.get(b"small")]);
    let queues: Vec<_> = trains.iter().map(|train| Header::parse(&train.bytes).unwrap().queue).collect();
    assert_eq!(queues, [0, 1], "says who executed it");
    let answers = client.read(&trains);
    assert_eq!((&answers[0].value[..], &answers[1].value[..]), (&b"v"[..], &value[..]));
    assert_eq!(site.counter("native_large_handed_over"), 2);
    site.ring_capacity = 0;
    let answer = client.ask_one(&mut site, client.get(b"large"));
    assert_eq!(answer.status, Status::Busy);
    assert_eq!(site.counter("native_large_ring_full"), 1);
    // Its own worker needs no ring.
    client.header.queue = 1;
    assert_eq!(client.ask_one(&mut site, client.get(b"large")).value, value);
}
