//! Every operation with its possible outcomes.

use minos_proto::native::{Detail, OpFlags, Opcode, Operation, Status};

use super::site::{Answer, Client, Site};

fn with_detail<'a>(operation: Operation<'a>, change: impl FnOnce(&mut Detail)) -> Operation<'a> {
    let mut operation = operation;
    change(&mut operation.detail);
    operation
}

fn value_of(site: &mut Site, client: &mut Client, key: &[u8]) -> Option<Vec<u8>> {
    let answer = client.ask_one(site, client.get(key));
    match answer.status {
        Status::Ok => Some(answer.value),
        Status::NotFound => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_value_is_stored_and_read_with_what_belongs_to_it() {
    let (mut site, mut client) = Site::with_client(2);
    assert_eq!(client.ask_one(&mut site, client.get(b"k")).status, Status::NotFound);
    let put = with_detail(client.put(b"k", b"value"), |detail| detail.item_flags = 9);
    let stored = client.ask_one(&mut site, put);
    assert_eq!((stored.status, stored.opcode, stored.request), (Status::Ok, Opcode::Put, 2));
    let read = client.ask_one(&mut site, client.get(b"k"));
    let Answer { cas, .. } = stored;
    assert_ne!(cas, 0);
    let expected = Answer {
        opcode: Opcode::Get,
        status: Status::Ok,
        request: 1,
        item_flags: 9,
        cas,
        value: b"value".to_vec(),
    };
    assert_eq!(read, expected);
    assert_eq!(client.ask_one(&mut site, client.put(b"empty", b"")).status, Status::Ok);
    assert_eq!(value_of(&mut site, &mut client, b"empty"), Some(Vec::new()));
}

#[test]
fn conditions_of_stores_are_memcacheds() {
    let (mut site, mut client) = Site::with_client(2);
    let mut store = |opcode, value: &'static [u8]| {
        let operation = client.operation(opcode, b"k", value);
        client.ask_one(&mut site, operation).status
    };
    assert_eq!(store(Opcode::Replace, b"1"), Status::NotStored);
    assert_eq!(store(Opcode::Append, b"1"), Status::NotStored);
    assert_eq!(store(Opcode::Prepend, b"1"), Status::NotStored);
    assert_eq!(store(Opcode::Compare, b"1"), Status::NotFound);
    assert_eq!(store(Opcode::Add, b"2"), Status::Ok);
    assert_eq!(store(Opcode::Add, b"3"), Status::NotStored);
    assert_eq!(store(Opcode::Replace, b"b"), Status::Ok);
    assert_eq!(store(Opcode::Append, b"c"), Status::Ok);
    assert_eq!(store(Opcode::Prepend, b"a"), Status::Ok);
    assert_eq!(value_of(&mut site, &mut client, b"k"), Some(b"abc".to_vec()));
}

#[test]
fn a_comparison_holds_for_the_item_that_was_read() {
    let (mut site, mut client) = Site::with_client(2);
    let cas = client.ask_one(&mut site, client.put(b"k", b"1")).cas;
    let compare = |client: &Client, cas| {
        with_detail(client.operation(Opcode::Compare, b"k", b"2"), |detail| detail.operand = cas)
    };
    let operation = compare(&client, cas + 1);
    assert_eq!(client.ask_one(&mut site, operation).status, Status::Exists);
    let operation = compare(&client, cas);
    let stored = client.ask_one(&mut site, operation);
    assert_eq!(stored.status, Status::Ok);
    assert_ne!(stored.cas, cas);
    let operation = compare(&client, cas);
    assert_eq!(client.ask_one(&mut site, operation).status, Status::Exists);
}

#[test]
fn an_item_is_deleted_if_it_is_the_one_meant() {
    let (mut site, mut client) = Site::with_client(2);
    let delete = |client: &Client, cas| {
        with_detail(client.operation(Opcode::Delete, b"k", b""), |detail| detail.operand = cas)
    };
    let any = delete(&client, 0);
    assert_eq!(client.ask_one(&mut site, any).status, Status::NotFound);
    let cas = client.ask_one(&mut site, client.put(b"k", b"1")).cas;
    let other = delete(&client, cas + 1);
    assert_eq!(client.ask_one(&mut site, other).status, Status::Exists);
    let right = delete(&client, cas);
    assert_eq!(client.ask_one(&mut site, right).status, Status::Ok);
    assert_eq!(value_of(&mut site, &mut client, b"k"), None);
}

#[test]
fn an_item_lives_as_long_as_it_is_told_to() {
    let (mut site, mut client) = Site::with_client(2);
    let with_ttl = |operation, ttl| with_detail(operation, |detail| detail.ttl = ttl);
    let put = with_ttl(client.put(b"k", b"1"), 10);
    client.ask_one(&mut site, put);
    site.pass(8);
    assert_eq!(value_of(&mut site, &mut client, b"k"), Some(b"1".to_vec()));
    let touch = with_ttl(client.operation(Opcode::Touch, b"k", b""), 10);
    assert_eq!(client.ask_one(&mut site, touch).status, Status::Ok);
    site.pass(8);
    let read = with_ttl(client.operation(Opcode::GetTouch, b"k", b""), 10);
    assert_eq!(client.ask_one(&mut site, read).value, b"1");
    site.pass(8);
    assert_eq!(value_of(&mut site, &mut client, b"k"), Some(b"1".to_vec()));
    site.pass(8);
    assert_eq!(value_of(&mut site, &mut client, b"k"), None);
    assert_eq!(client.ask_one(&mut site, touch).status, Status::NotFound);
    assert_eq!(client.ask_one(&mut site, read).status, Status::NotFound);
}

#[test]
fn numbers_are_counted() {
    let (mut site, mut client) = Site::with_client(2);
    let count = |client: &Client, opcode, delta, flags, initial: &'static [u8]| {
        let operation = with_detail(client.operation(opcode, b"n", initial), |detail| detail.operand = delta);
        Operation { flags, ..operation }
    };
    let plain = count(&client, Opcode::Incr, 5, OpFlags::NONE, b"");
    assert_eq!(client.ask_one(&mut site, plain).status, Status::NotFound);
    let crippled = count(&client, Opcode::Incr, 5, OpFlags::CREATE, b"short");
    assert_eq!(client.ask_one(&mut site, crippled).status, Status::BadRequest);
    let mut creating = count(&client, Opcode::Incr, 5, OpFlags::CREATE, &[7, 0, 0, 0, 0, 0, 0, 0]);
    creating.detail.ttl = 100;
    let number = |answer: Answer| {
        assert_eq!(answer.status, Status::Ok);
        u64::from_le_bytes(answer.value.try_into().unwrap())
    };
    assert_eq!(number(client.ask_one(&mut site, creating)), 7);
    assert_eq!(number(client.ask_one(&mut site, creating)), 12);
    assert_eq!(number(client.ask_one(&mut site, plain)), 17);
    let down = count(&client, Opcode::Decr, 100, OpFlags::NONE, b"");
    assert_eq!(number(client.ask_one(&mut site, down)), 0);
    site.pass(101);
    assert_eq!(value_of(&mut site, &mut client, b"n"), None, "made with an expiry");
    client.ask_one(&mut site, client.put(b"n", b"text"));
    assert_eq!(client.ask_one(&mut site, plain).status, Status::NotANumber);
}

#[test]
fn what_cannot_be_done_is_said() {
    let (mut site, mut client) = Site::with_client(2);
    let noop = client.operation(Opcode::Noop, b"", b"");
    assert_eq!(client.ask_one(&mut site, noop).status, Status::Ok);
    let unknown = client.operation(Opcode::Unknown(0x7f), b"k", b"v");
    let answer = client.ask_one(&mut site, unknown);
    assert_eq!((answer.status, answer.opcode), (Status::Unsupported, Opcode::Unknown(0x7f)));
    let deferred_delete = client.operation(Opcode::Delete, b"k", b"");
    let deferred_delete = Operation { flags: OpFlags::DEFERRED, ..deferred_delete };
    assert_eq!(client.ask_one(&mut site, deferred_delete).status, Status::BadRequest);
}

#[test]
fn a_value_beyond_the_limit_is_refused_and_the_old_one_dropped() {
    let (mut site, mut client) = Site::with_client(2);
    client.ask_one(&mut site, client.put(b"k", b"old"));
    let huge = with_detail(client.put(b"k", b""), |detail| detail.value_bytes = (1 << 20) + 1);
    let huge = Operation { flags: OpFlags::DEFERRED, ..huge };
    assert_eq!(client.ask_one(&mut site, huge).status, Status::TooLarge);
    assert_eq!(value_of(&mut site, &mut client, b"k"), None);
    client.ask_one(&mut site, client.put(b"k", b"old"));
    let add = Operation { opcode: Opcode::Add, ..huge };
    assert_eq!(client.ask_one(&mut site, add).status, Status::TooLarge);
    assert_eq!(value_of(&mut site, &mut client, b"k"), Some(b"old".to_vec()));
}

#[test]
fn a_full_store_says_so() {
    let (mut site, mut client) = Site::with_client(2);
    let value = [0; 1000];
    let mut number = 0u32;
    let refused = loop {
        let key = number.to_le_bytes();
        let status = client.ask_one(&mut site, client.put(&key, &value)).status;
        if status != Status::Ok {
            break status;
        }
        number += 1;
        assert!(number < 20_000);
    };
    assert_eq!(refused, Status::NoMemory);
    assert!(number > 1000);
}

#[test]
fn a_vector_of_operations_is_answered_in_order() {
    let (mut site, mut client) = Site::with_client(2);
    let keys: Vec<_> = (0..100u32).map(u32::to_le_bytes).collect();
    let puts: Vec<_> = keys.iter().map(|key| client.put(key, key)).collect();
    assert!(client.ask(&mut site, &puts).iter().all(|answer| answer.status == Status::Ok));
    let mut gets: Vec<_> = keys.iter().map(|key| client.get(key)).collect();
    gets.iter_mut().zip(0..).for_each(|(get, number)| get.request = number);
    gets[50] = client.get(b"not there");
    gets[51] = Operation { request: 51, ..client.operation(Opcode::Delete, &keys[51], b"") };
    let answers = client.ask(&mut site, &gets);
    assert_eq!(answers.len(), 100);
    assert_eq!(answers[50].status, Status::NotFound);
    assert_eq!(answers[51].opcode, Opcode::Delete);
    for (at, answer) in answers.iter().enumerate().filter(|(at, _)| ![50, 51].contains(at)) {
        assert_eq!(answer.request as usize, at);
        assert_eq!(answer.value, keys[at]);
    }
    assert_eq!(client.ask_one(&mut site, client.get(&keys[51])).status, Status::NotFound);
}

#[test]
fn an_operation_sees_what_the_one_before_it_has_done() {
    let (mut site, mut client) = Site::with_client(2);
    let operations = [
        client.put(b"k", b"1"),
        client.get(b"k"),
        client.operation(Opcode::Append, b"k", b"23"),
        client.get(b"k"),
        client.operation(Opcode::Delete, b"k", b""),
        client.get(b"k"),
        client.put(b"k", b"again"),
        client.get(b"k"),
    ];
    let answers = client.ask(&mut site, &operations);
    assert_eq!(answers[1].value, b"1");
    assert_eq!(answers[3].value, b"123");
    assert_eq!(answers[5].status, Status::NotFound);
    assert_eq!(answers[7].value, b"again");
}

#[test]
fn statistics_come_in_pages_of_whole_lines() {
    let (mut site, mut client) = Site::with_client(2);
    client.ask_one(&mut site, client.put(b"k", b"1"));
    let mut text = String::new();
    let (mut first, mut pages) = (0, 0);
    loop {
        let page =
            with_detail(client.operation(Opcode::Stats, b"minos", b""), |detail| detail.operand = first);
        let answer = client.ask_one(&mut site, page);
        assert_eq!(answer.status, Status::Ok);
        let lines = String::from_utf8(answer.value).unwrap();
        assert!(lines.is_empty() || lines.ends_with('\n'));
        assert_eq!(first + lines.lines().count() as u64, u64::from(answer.item_flags));
        text += &lines;
        (first, pages) = (u64::from(answer.item_flags), pages + 1);
        if first >= answer.cas {
            assert_eq!(first, answer.cas);
            break;
        }
        assert!(pages < 100);
    }
    assert!(text.contains("store_items 1\n"), "{text}");
    assert!(text.contains("store_pinned 0\n"), "{text}");
    let unknown = client.operation(Opcode::Stats, b"no such group", b"");
    assert_eq!(client.ask_one(&mut site, unknown).status, Status::BadRequest);
    let items = client.operation(Opcode::Stats, b"items", b"");
    assert!(!client.ask_one(&mut site, items).value.is_empty());
    let flood = client.ask(&mut site, &[items; 100]);
    assert!(flood.iter().filter(|answer| answer.status == Status::Ok).count() < 10);
    assert!(flood[20..].iter().all(|answer| answer.status == Status::Busy));
}
