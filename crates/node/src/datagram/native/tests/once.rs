//! Operations that happen once.

use minos_base::KeyHash;
use minos_proto::native::{Detail, OpFlags, Opcode, Operation, Status};

use super::site::{Client, Site, config};

fn once<'a>(client: &Client, opcode: Opcode, key: &'a [u8], value: &'a [u8], number: u32) -> Operation<'a> {
    let operation = client.operation(opcode, key, value);
    let detail = Detail { once: number, operand: 1, ..operation.detail };
    Operation { flags: OpFlags::ONCE, detail, ..operation }
}

#[test]
fn a_retry_is_answered_and_not_executed() {
    let (mut site, mut client) = Site::with_session(&config(), 2);
    client.ask_one(&mut site, client.put(b"n", b"5"));
    client.ask_one(&mut site, client.put(b"text", b"a"));
    let incr = once(&client, Opcode::Incr, b"n", b"", 1);
    let append = once(&client, Opcode::Append, b"text", b"b", 2);
    let first = client.ask(&mut site, &[incr, append]);
    assert_eq!(first[0].value, 6u64.to_le_bytes());
    // The retry may come to any queue.
    client.header.queue = 1;
    assert_eq!(
        client.ask(&mut site, &[append, incr, incr]),
        [&first[1], &first[0], &first[0]].map(Clone::clone)
    );
    assert_eq!(client.ask_one(&mut site, client.get(b"n")).value, b"6");
    assert_eq!(client.ask_one(&mut site, client.get(b"text")).value, b"ab");
    assert_eq!(site.counter("native_once_repeated"), 3);
}

#[test]
fn all_items_are_dropped_once() {
    let (mut site, mut client) = Site::with_session(&config(), 2);
    client.ask_one(&mut site, client.put(b"k", b"1"));
    let flush = Operation { hash: KeyHash(0), ..once(&client, Opcode::Flush, b"", b"", 1) };
    assert_eq!(client.ask_one(&mut site, flush).status, Status::Ok);
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).status, Status::NotFound);
    client.ask_one(&mut site, client.put(b"k", b"2"));
    assert_eq!(client.ask_one(&mut site, flush).status, Status::Ok);
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).value, b"2", "a second copy drops nothing");
}

#[test]
fn a_value_that_is_too_large_drops_the_old_one_once() {
    let (mut site, mut client) = Site::with_session(&config(), 2);
    client.ask_one(&mut site, client.put(b"k", b"1"));
    let put = once(&client, Opcode::Put, b"k", b"", 1);
    let detail = Detail { value_bytes: (1 << 20) + 1, ..put.detail };
    let put = Operation { flags: OpFlags::ONCE | OpFlags::DEFERRED, detail, ..put };
    assert_eq!(client.ask_one(&mut site, put).status, Status::TooLarge);
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).status, Status::NotFound);
    client.ask_one(&mut site, client.put(b"k", b"2"));
    assert_eq!(client.ask_one(&mut site, put).status, Status::TooLarge);
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).value, b"2", "a second copy drops nothing");
}

#[test]
fn a_control_that_forgets_executes_twice() {
    let (mut site, mut client) = Site::with_session(&config(), 1);
    site.shared.sessions().forget_outcomes();
    client.ask_one(&mut site, client.put(b"n", b"5"));
    let incr = once(&client, Opcode::Incr, b"n", b"", 1);
    client.ask(&mut site, &[incr, incr]);
    assert_eq!(client.ask_one(&mut site, client.get(b"n")).value, b"7");
}

#[test]
fn what_is_not_known_is_not_executed() {
    let (mut site, mut client) = Site::with_session(&config(), 1);
    client.ask_one(&mut site, client.put(b"n", b"5"));
    let newest = once(&client, Opcode::Incr, b"n", b"", 1000);
    assert_eq!(client.ask_one(&mut site, newest).status, Status::Ok);
    let old = once(&client, Opcode::Incr, b"n", b"", 1);
    assert_eq!(client.ask_one(&mut site, old).status, Status::TooOld);
    client.header.session = 0;
    let homeless = once(&client, Opcode::Incr, b"n", b"", 1001);
    assert_eq!(client.ask_one(&mut site, homeless).status, Status::NoSession);
    assert_eq!(client.ask_one(&mut site, client.get(b"n")).value, b"6");
    assert_eq!(site.counter("native_once_refused"), 2);
}

#[test]
fn the_outcome_of_a_failure_is_remembered_too() {
    let (mut site, mut client) = Site::with_session(&config(), 1);
    let add = once(&client, Opcode::Replace, b"k", b"1", 7);
    assert_eq!(client.ask_one(&mut site, add).status, Status::NotStored);
    client.ask_one(&mut site, client.put(b"k", b"0"));
    assert_eq!(client.ask_one(&mut site, add).status, Status::NotStored);
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).value, b"0");
}
