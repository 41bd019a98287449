//! Values that are moved without being copied, and may take long to arrive or leave.

use minos_base::{SizeClass, limits::SLICE_BYTES};

use super::Session;

const LARGE: usize = 100_000;

fn value(seed: u8) -> String {
    (0..LARGE).map(|index| char::from(b'a' + ((index + usize::from(seed)) % 26) as u8)).collect()
}

fn stored(seed: u8) -> Session {
    let mut session = Session::new(1000);
    let request = format!("set k 1 0 {LARGE}\r\n{}\r\n", value(seed));
    assert_eq!(session.say(&request), "STORED\r\n");
    session
}

#[test]
fn a_large_value_arrives_and_leaves_whole() {
    let mut session = stored(1);
    assert_eq!(session.say("get k\r\n"), format!("VALUE k 1 {LARGE}\r\n{}\r\nEND\r\n", value(1)));
    assert_eq!(session.say("mg k f v\r\n"), format!("VA {LARGE} f1\r\n{}\r\n", value(1)));
    assert_eq!(session.say("gat 0 k\r\n"), format!("VALUE k 1 {LARGE}\r\n{}\r\nEND\r\n", value(1)));
    assert_eq!(session.say("mg k v T30 t\r\n"), format!("VA {LARGE} t30\r\n{}\r\n", value(1)));
    assert_eq!(session.sent_large, 4);
    // The size histogram counted the store and each get, nothing else.
    assert_eq!(session.placement.asked.len(), 5, "{:?}", session.placement.asked);
    assert!(session.placement.asked.iter().all(|&class| class == SizeClass::of(LARGE as u64)));
}

#[test]
fn a_line_of_keys_goes_on_behind_a_large_value() {
    let mut session = stored(2);
    session.say("set a 0 0 1\r\na\r\nset b 0 0 1\r\nb\r\n");
    let large = format!("VALUE k 1 {LARGE}\r\n{}\r\n", value(2));
    let small = |key: &str| format!("VALUE {key} 0 1\r\n{key}\r\n");
    let reply = session.say("get a k b k x\r\nget a\r\nget b k\r\n");
    let (a, b) = (small("a"), small("b"));
    assert_eq!(reply, format!("{a}{large}{b}{large}END\r\n{a}END\r\n{b}{large}END\r\n"));
}

#[test]
fn a_line_of_many_keys_pauses_and_goes_on() {
    let mut session = Session::new(1000);
    let value = "v".repeat(1000);
    session.say(&format!("set k 0 0 1000\r\n{value}\r\n"));
    let line = format!("get{}\r\n", " k".repeat(2000));
    let reply = session.say(&line);
    assert_eq!(reply.matches("VALUE k").count(), 2000);
    assert!(reply.ends_with("END\r\n") && reply.matches("END").count() == 1);
}

#[test]
fn a_line_pauses_after_so_many_keys_whatever_they_answer() {
    let long = "x".repeat(251);
    let bad = "CLIENT_ERROR bad command line format\r\n";
    for (line, reply) in [
        (format!("get{}\r\n", " k".repeat(2000)), "END\r\n"),
        (format!("gat 0{}\r\n", " k".repeat(2000)), "END\r\n"),
        (format!("get{} {long}\r\n", " k".repeat(2000)), bad),
        (format!("gats 0{} {long} k\r\n", " k".repeat(2000)), bad),
    ] {
        let mut session = Session::new(1000);
        session.keys_max = 64;
        assert_eq!(session.say(&line), reply);
        assert_eq!(session.pauses, 2000 / 64, "{reply}");
        let totals = session.totals();
        assert_eq!(totals.get_misses.max(totals.touch_misses), 2000);
        assert_eq!(session.say("get k\r\n"), "END\r\n");
    }
}

#[test]
fn a_line_that_fills_the_buffer_with_its_last_key_ends_there() {
    let mut session = Session::new(4000);
    session.say(&format!("set k 0 0 3000\r\n{}\r\n", "v".repeat(3000)));
    let reply = session.say(&format!("get{}\r\n", " k".repeat(32)));
    assert_eq!(reply.matches("VALUE k").count(), 32);
    assert!(reply.ends_with("END\r\n"));
    assert_eq!((session.totals().cmd_get, session.totals().get_misses), (32, 0));
}

#[test]
fn conditions_of_large_values_are_checked_when_they_have_arrived() {
    let mut session = stored(3);
    let body = value(4);
    for (head, reply) in [
        (format!("add k 0 0 {LARGE}"), "NOT_STORED\r\n"),
        (format!("cas k 0 0 {LARGE} 999999"), "EXISTS\r\n"),
        (format!("cas x 0 0 {LARGE} 1"), "NOT_FOUND\r\n"),
        (format!("replace x 0 0 {LARGE}"), "NOT_STORED\r\n"),
        (format!("ms k {LARGE} ME Oo k"), "NS Oo kk\r\n"),
        (format!("ms x {LARGE} q"), ""),
        (format!("replace k 8 0 {LARGE} noreply"), ""),
    ] {
        assert_eq!(session.say(&format!("{head}\r\n{body}\r\n")), reply, "{head}");
    }
    assert_eq!(session.say("get x\r\n"), format!("VALUE x 0 {LARGE}\r\n{body}\r\nEND\r\n"));
    assert_eq!(session.say("get k\r\n"), format!("VALUE k 8 {LARGE}\r\n{body}\r\nEND\r\n"));
}

#[test]
fn a_large_value_without_its_line_end_changes_nothing() {
    let mut session = stored(5);
    let reply = session.say(&format!("set k 0 0 {LARGE}\r\n{}XYmn\r\n", value(6)));
    assert_eq!(reply, "CLIENT_ERROR bad data chunk\r\nMN\r\n");
    assert_eq!(session.say(&format!("set k 0 0 {LARGE} noreply\r\n{}XYmn\r\n", value(6))), "MN\r\n");
    assert_eq!(session.say("get k\r\n"), format!("VALUE k 1 {LARGE}\r\n{}\r\nEND\r\n", value(5)));
}

#[test]
fn parts_join_large_values() {
    let mut session = stored(7);
    let part = "p".repeat(LARGE);
    assert_eq!(session.say("append k 0 0 3\r\nend\r\n"), "STORED\r\n");
    assert_eq!(session.say(&format!("prepend k 0 0 {LARGE}\r\n{part}\r\n")), "STORED\r\n");
    let whole = format!("{part}{}end", value(7));
    assert_eq!(session.say("get k\r\n"), format!("VALUE k 1 {}\r\n{whole}\r\nEND\r\n", whole.len()));
    assert_eq!(session.say(&format!("append x 0 0 {LARGE}\r\n{part}\r\n")), "NOT_STORED\r\n");
    assert_eq!(session.say("ms k 3 MA C1\r\nend\r\n"), "EX\r\n");
}

#[test]
fn a_large_value_is_joined_in_slices() {
    for (verb, part) in [("append", "end".to_owned()), ("prepend", "p".repeat(LARGE))] {
        let mut session = stored(3);
        let bytes = part.len();
        assert_eq!(session.say(&format!("{verb} k 0 0 {bytes}\r\n{part}\r\n")), "STORED\r\n");
        // Twice, if the memory held small items before.
        let slices = (LARGE + bytes).div_ceil(SLICE_BYTES);
        assert!((slices..=2 * slices).contains(&session.slices), "{verb}: {} slices", session.slices);
        let whole = if verb == "append" { value(3) + &part } else { part + &value(3) };
        let reply = format!("VALUE k 1 {}\r\n{whole}\r\nEND\r\n", whole.len());
        assert_eq!(session.say("get k\r\n"), reply);
        session.store.check().expect("a sound store");
    }
}

#[test]
fn a_large_value_is_joined_in_one_piece_where_too_many_are() {
    let mut session = stored(3);
    let others = session.take_receiving();
    assert_eq!(session.say("append k 0 0 3\r\nend\r\n"), "STORED\r\n");
    assert_eq!(session.slices, 0);
    drop(others);
    for joins in 1..3 {
        let before = session.slices;
        assert_eq!(session.say("append k 0 0 3\r\nend\r\n"), "STORED\r\n", "{joins}");
        assert!(session.slices > before, "the permit of join {joins} was not given back");
    }
    let whole = value(3) + "endendend";
    assert_eq!(session.say("get k\r\n"), format!("VALUE k 1 {}\r\n{whole}\r\nEND\r\n", whole.len()));
}

#[test]
fn joining_beyond_the_limit_is_refused() {
    let mut session = stored(8);
    let part = "p".repeat((1 << 20) - LARGE + 1);
    assert_eq!(session.say(&format!("append k 0 0 {}\r\n{part}\r\n", part.len())), "NOT_STORED\r\n");
    assert_eq!(session.say("get k\r\n").len(), format!("VALUE k 1 {LARGE}\r\n").len() + LARGE + 7);
}

#[test]
fn a_large_value_can_be_deleted_counted_and_overwritten() {
    let mut session = stored(9);
    let number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    assert_eq!(session.say("incr k 1\r\n"), number);
    assert_eq!(session.say("set k 0 0 1\r\na\r\nget k\r\n"), "STORED\r\nVALUE k 0 1\r\na\r\nEND\r\n");
    assert_eq!(
        session.say(&format!("set k 0 0 {LARGE}\r\n{}\r\ndelete k\r\n", value(1))),
        "STORED\r\nDELETED\r\n"
    );
    session.store.check().expect("a sound store");
}

#[test]
fn a_read_waits_behind_a_change_of_its_key_that_waits_for_another_node() {
    for read in ["get key\r\nget key\r\n", "get other key\r\n", "mg key v\r\nmg key v\r\n"] {
        let mut session = Session::new(1 << 20);
        session.say("set key 0 0 1\r\nx\r\n");
        session.changing = Some(b"key");
        let waited = session.say(read);
        assert_eq!((session.pauses, waited.contains('x')), (1, true), "{read}: {waited}");
        // The control: a change of another key.
        session.changing = Some(b"another");
        assert_eq!((session.say(read), session.pauses), (waited, 1), "{read}");
    }
}
