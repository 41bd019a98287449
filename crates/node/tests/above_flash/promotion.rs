//! Items that are read from flash, and those that come to memory.

use std::time::Duration;

use minos_engine::TierStats;
use minos_node::config::Promote;

use super::{Client, KEYS, Rig, changed, connect, start, store, value};

/// Items that are read often.
const HOT: usize = 50;

/// Waits until flash takes no more items from memory, and workers have counted what they have read.
fn settle(rig: &Rig) {
    const LOOKS: u32 = 10;
    let items = || {
        let TierStats { cold, tickets, .. } = rig.tier.stats().engine;
        (cold, tickets)
    };
    let (mut last, mut looks) = (items(), 0);
    while looks < LOOKS {
        std::thread::sleep(Duration::from_millis(20));
        let now = items();
        looks = if now == last && now.1 == 0 { looks + 1 } else { 0 };
        last = now;
    }
}

/// Keys read from flash for the hot items, after every other item was read once.
fn read_again(promote: Promote) -> (u64, u64) {
    let rig = changed(2, &store(), |config| config.promote = promote);
    let mut client = connect(&rig);
    client.fill();
    let read_hot = |client: &mut Client| {
        settle(&rig);
        let before = client.stat("minos", ":flash_keys");
        (0..HOT).for_each(|key| assert_eq!(client.get(&format!("key{key}")), Some(value(key))));
        client.stat("minos", ":flash_keys") - before
    };
    // A busy machine may have no room for some at first.
    assert!((0..20).any(|_| read_hot(&mut client) == 0), "hot keys come to memory");
    for key in HOT..KEYS {
        assert_eq!(client.get(&format!("key{key}")), Some(value(key)));
    }
    (read_hot(&mut client), client.stat("minos", ":flash_keys_copied"))
}

#[test]
fn items_that_are_read_once_displace_none_that_are_read_often() {
    // The keeper makes room: on a busy machine it may do so after hot items have come to memory, which leave again, or too
    // late for some that are read once.
    let shows = |promote, is_so: fn(u64, u64) -> bool| {
        (0..10).any(|_| {
            let (again, copied) = read_again(promote);
            eprintln!("{promote:?}: {again} hot keys from flash, {copied} from flash alone");
            is_so(again, copied)
        })
    };
    assert!(shows(Promote::Second, |again, copied| again == 0 && copied > KEYS as u64 / 2));
    // Without the second read as condition, hot items leave.
    assert!(shows(Promote::First, |again, copied| (again, copied) == (HOT as u64, 0)));
}

#[test]
fn the_second_read_brings_an_item_to_memory() {
    let rig = start(2, &store());
    let mut client = connect(&rig);
    client.fill();
    client.chill();
    let mut is_read_from_flash = |key: usize| {
        // Else memory may have no room for the item.
        settle(&rig);
        let before = client.stat("minos", ":flash_keys");
        assert_eq!(client.get(&format!("key{key}")), Some(value(key)));
        settle(&rig);
        client.stat("minos", ":flash_keys") - before == 1
    };
    // On a busy machine it may have none all the same.
    let is_brought = |key| {
        assert!(is_read_from_flash(key) && is_read_from_flash(key), "key{key}");
        !is_read_from_flash(key) && !is_read_from_flash(key)
    };
    assert!((1..=10).any(is_brought));
}

#[test]
fn a_connection_never_reads_what_it_has_changed_since() {
    let rig = start(2, &store());
    let mut client = connect(&rig);
    client.fill();
    client.chill();
    // Behind the first `get`, all keys are fetched along with it, before the changes are made.
    for key in (10..KEYS / 4).step_by(5) {
        let [a, b, c, d, e] = [key, key + 1, key + 2, key + 3, key + 4];
        let pipeline = format!(
            "get key{a}\r\nset key{b} 7 0 3\r\nnew\r\nget key{b}\r\ndelete key{c}\r\nget key{c}\r\n\
             append key{d} 0 0 3\r\nend\r\nget key{d}\r\nget key{e}\r\n"
        );
        client.ask_nothing(pipeline.as_bytes());
        let one = |key: usize, value: Vec<u8>| vec![(format!("key{key}"), value)];
        assert_eq!(client.values(), one(a, value(a)));
        assert_eq!(client.line(), "STORED");
        assert_eq!(client.values(), one(b, b"new".to_vec()));
        assert_eq!(client.line(), "DELETED");
        assert_eq!(client.values(), []);
        assert_eq!(client.line(), "STORED");
        assert_eq!(client.values(), one(d, [&value(d)[..], b"end"].concat()));
        assert_eq!(client.values(), one(e, value(e)));
    }
}

#[test]
fn an_answer_from_flash_has_the_facts_of_the_item() {
    let rig = start(2, &store());
    let mut client = connect(&rig);
    assert_eq!(client.say("ms marked 1 T100 F5\r\nm\r\n"), "HD");
    assert_eq!(client.say("ms plain 1 T100 F6\r\np\r\n"), "HD");
    client.fill();
    client.chill();
    let copied = client.stat("minos", ":flash_keys_copied");
    let line = client.say("mg plain v f s c k Oq\r\n");
    let (head, cas) = line.split_once(" c").unwrap();
    assert_eq!((head, client.line().as_str()), ("VA 1 f6 s1", "p"));
    assert!(cas.ends_with(" kplain Oq"), "{line}");
    assert_eq!(client.stat("minos", ":flash_keys_copied") - copied, 1);
    let cas = cas.split_once(' ').unwrap().0;
    assert_eq!(client.change(format!("cas plain 7 0 1 {cas}\r\nq\r\n")), "STORED");
    assert_eq!(client.get("plain").unwrap(), b"q");
    // A mark changes with a read, so that the item is needed in memory.
    assert_eq!(client.change("md marked I T100\r\n"), "HD");
    client.chill();
    assert_eq!(client.change("mg marked f\r\n"), "HD f5 X W");
    assert_eq!(client.say("mg marked f\r\n"), "HD f5 Z X");
}

#[test]
fn a_line_whose_answers_take_several_sends_is_read_once() {
    // Replies of 4 KiB are sent at a time.
    let rig = changed(2, &store(), |config| config.slice_bytes = 4 << 10);
    let mut client = connect(&rig);
    client.fill();
    client.chill();
    let before = client.stat("minos", ":flash_keys");
    let line = (0..100).map(|key| format!(" key{key}")).collect::<String>();
    client.ask_nothing(format!("get{line}\r\n").as_bytes());
    let expected: Vec<_> = (0..100).map(|key| (format!("key{key}"), value(key))).collect();
    assert_eq!(client.values(), expected);
    assert_eq!(client.stat("minos", ":flash_keys") - before, 100);
}
