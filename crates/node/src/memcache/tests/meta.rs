//! The meta commands.

use super::Session;

#[track_caller]
fn dialogue(session: &mut Session, lines: &[(&str, &str)]) {
    for (request, reply) in lines {
        assert_eq!(session.say(&format!("{request}\r\n")), reply.replace('|', "\r\n"), "{request}");
    }
}

fn session() -> Session {
    Session::new(4096)
}

#[test]
fn flags_return_what_they_ask_for_in_their_order() {
    let mut session = session();
    dialogue(
        &mut session,
        &[
            ("mg k v", "EN|"),
            ("mg k Oabc k", "EN Oabc kk|"),
            ("ms k 2 F9 T30 k O7\r\nhi", "HD kk O7|"),
            ("mg k s v f t Ox k q", "VA 2 s2 f9 t30 Ox kk|hi|"),
            ("mg k", "HD|"),
            ("mg k t T60 t", "CLIENT_ERROR duplicate flag|"),
            ("mg k t T60", "HD t30|"),
            ("mg k T0 t", "HD t-1|"),
            ("mg x q", ""),
            ("mg x q k", ""),
            ("mn", "MN|"),
        ],
    );
}

#[test]
fn the_first_access_is_reported_once() {
    let mut session = session();
    session.say("set k 0 0 1\r\na\r\n");
    dialogue(&mut session, &[("mg k h u", "HD h0|"), ("mg k h l", "HD h0 l0|"), ("mg k h", "HD h1|")]);
    session.say("set k 0 0 1\r\na\r\nget k\r\n");
    session.now += 61;
    dialogue(&mut session, &[("mg k h l", "HD h1 l61|"), ("mg k l", "HD l0|")]);
}

#[test]
fn base64_keys_name_the_same_items() {
    dialogue(
        &mut session(),
        &[
            ("ms Zm9v 2 b k\r\nhi", "HD kZm9v b|"),
            ("get foo", "VALUE foo 0 2|hi|END|"),
            ("mg Zm9v b k v", "VA 2 kZm9v b|hi|"),
            ("mg YmFy b k", "EN kYmFy b|"),
            ("ma Zm9v b", "CLIENT_ERROR cannot increment or decrement non-numeric value|"),
            ("md Zm9v b k", "HD kZm9v b|"),
        ],
    );
}

#[test]
fn an_item_remembers_how_its_key_was_spelled() {
    let mut session = session();
    dialogue(
        &mut session,
        &[
            ("ms Zm9v 1 b\r\n5", "HD|"),
            ("mg foo k v", "VA 1 kZm9v b|5|"),
            ("mg foo T30 k", "HD kZm9v b|"),
            ("incr foo 1", "6|"),
            ("mg foo k t", "HD kZm9v b t30|"),
            ("ma foo k", "HD kfoo|"),
            ("set bar 0 0 1\r\na", "STORED|"),
            ("mg YmFy b k", "HD kbar|"),
            ("mg bmV3 b k N0", "HD knew W|"),
            ("incr foo 10", "17|"),
            ("mg foo k", "HD kfoo|"),
        ],
    );
    assert!(session.say("ms Zm9v 1 b\r\n5\r\nme foo\r\n").starts_with("HD\r\nME Zm9v exp"));
}

#[test]
fn stores_have_modes() {
    dialogue(
        &mut session(),
        &[
            ("ms k 1 MR\r\na", "NS|"),
            ("ms k 1 MA\r\na", "NS|"),
            ("ms k 1 C5\r\na", "NF|"),
            ("ms k 1 ME\r\nm", "HD|"),
            ("ms k 1 ME q\r\nx", "NS|"),
            ("ms k 1 MA\r\nz", "HD|"),
            ("ms k 1 MP q\r\na", ""),
            ("get k", "VALUE k 0 3|amz|END|"),
            ("ms k 1 C999999\r\nx", "EX|"),
            ("ms k 1 MA C999999\r\nx", "EX|"),
            ("ms k 1 c C999999\r\nx", "EX c0|"),
            ("ms k 1\r\nxyz", "CLIENT_ERROR bad data chunk|CLIENT_ERROR bad command line format|"),
        ],
    );
}

/// Returns the CAS unique of the stored key `k`.
fn unique(session: &mut Session) -> u64 {
    let reply = session.say("mg k c u\r\n");
    let word = reply.split_whitespace().nth(1).expect("a unique");
    word[1..].parse().expect("a number")
}

#[test]
fn uniques_are_returned_and_compared() {
    let mut session = session();
    let stored = session.say("ms k 1 c\r\na\r\n");
    let first = unique(&mut session);
    assert_eq!(stored, format!("HD c{first}\r\n"));
    dialogue(
        &mut session,
        &[
            (&format!("ms k 1 C{first}\r\nb"), "HD|"),
            (&format!("ms k 1 C{first}\r\nc"), "EX|"),
            (&format!("md k C{first}"), "EX|"),
            ("get k", "VALUE k 0 1|b|END|"),
        ],
    );
    let second = unique(&mut session);
    assert!(second > first);
    dialogue(&mut session, &[(&format!("md k C{second} q"), ""), ("md k q", "NF|")]);
}

#[test]
fn an_invalidated_item_is_stale_until_somebody_wins() {
    let mut session = session();
    session.say("ms k 1 T100\r\na\r\n");
    let old = unique(&mut session);
    dialogue(&mut session, &[("md k I T30", "HD|")]);
    let marked = unique(&mut session);
    assert!(marked > old);
    // The read of the unique has already won.
    dialogue(
        &mut session,
        &[
            ("md k I", "HD|"),
            ("mg k s t v", "VA 1 s1 t30 X W|a|"),
            ("mg k v", "VA 1 Z X|a|"),
            ("get k", "VALUE k 0 1|a|END|"),
            (&format!("ms k 1 I C{old}\r\nb"), "HD|"),
            ("mg k v t", "VA 1 t30 Z X|b|"),
        ],
    );
    let current = unique(&mut session);
    dialogue(&mut session, &[(&format!("ms k 1 C{current}\r\nc"), "HD|"), ("mg k v t", "VA 1 t-1|c|")]);
}

#[test]
fn a_miss_can_be_filled_by_one() {
    dialogue(
        &mut session(),
        &[
            ("mg k v N30 t", "VA 0 t30 W||"),
            ("mg k v N30 t", "VA 0 t30 Z||"),
            ("ms k 1 T100\r\na", "HD|"),
            ("mg k v N30 t", "VA 1 t100|a|"),
        ],
    );
}

#[test]
fn an_early_recache_is_won_by_one() {
    dialogue(
        &mut session(),
        &[
            ("ms k 1 T20\r\na", "HD|"),
            ("mg k R10", "HD|"),
            ("mg k R30", "HD W|"),
            ("mg k R30", "HD Z|"),
            ("ms k 1\r\na", "HD|"),
            ("mg k R30", "HD|"),
        ],
    );
}

#[test]
fn arithmetic_has_flags() {
    dialogue(
        &mut session(),
        &[
            ("ma k", "NF|"),
            ("ma k Oa k q", "NF Oa kk|"),
            ("ma k N30 J13 v t", "VA 2 t30|13|"),
            ("ma k v", "VA 2|14|"),
            ("ma k D6 v", "VA 2|20|"),
            ("ma k MD D15 v", "VA 1|5|"),
            ("ma k M- v", "VA 1|4|"),
            ("ma k M+ v", "VA 1|5|"),
            ("mg k v", "VA 2|5 |"),
            ("ma k q v", ""),
            ("ma k C999999 k", "EX kk|"),
            ("ma k t T90", "HD t30|"),
            ("ma k t", "HD t90|"),
            ("ma k O12345678901234567890123456789012", "CLIENT_ERROR opaque token too long|"),
            ("mg k v", "VA 2|9 |"),
        ],
    );
}

#[test]
fn late_errors_come_after_their_effects() {
    let long = "O12345678901234567890123456789012";
    dialogue(
        &mut session(),
        &[
            ("ms k 1 T20\r\na", "HD|"),
            (&format!("mg k T50 {long}"), "CLIENT_ERROR opaque token too long|"),
            ("mg k t", "HD t50|"),
            (&format!("mg k {long} T70"), "CLIENT_ERROR opaque token too long|"),
            ("mg k t", "HD t50|"),
            (&format!("mg x {long} q"), "CLIENT_ERROR opaque token too long|"),
            (&format!("ms k 1 {long}\r\nb"), "CLIENT_ERROR opaque token too long|"),
            ("get k", "VALUE k 0 1|a|END|"),
        ],
    );
}

#[test]
fn debug_describes_and_leaves_no_trace() {
    let mut session = session();
    dialogue(&mut session, &[("me k", "EN|"), ("ms k 2 T30\r\nhi", "HD|")]);
    let cas = unique(&mut session);
    dialogue(
        &mut session,
        &[
            ("me k", &format!("ME k exp=-30 la=0 cas={cas} fetch=no cls=2 size=40|")),
            ("me aw== b", &format!("ME k exp=-30 la=0 cas={cas} fetch=no cls=2 size=40|")),
            ("touch k 0", "TOUCHED|"),
            ("me k", &format!("ME k exp=-1 la=0 cas={cas} fetch=yes cls=2 size=40|")),
        ],
    );
    assert_eq!(session.totals().cmd_meta, 4);
}
