//! The classic commands.

use super::Session;

/// Sends the lines one by one and compares each reply. Lines are joined by CRLF.
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
fn values_come_back_as_they_were() {
    dialogue(
        &mut session(),
        &[
            ("get k", "END|"),
            ("set k 5 0 3\r\na\nc", "STORED|"),
            ("get k", "VALUE k 5 3|a\nc|END|"),
            ("get x k y k", "VALUE k 5 3|a\nc|VALUE k 5 3|a\nc|END|"),
            ("set k 4294967295 0 0\r\n", "STORED|"),
            ("get k", "VALUE k 4294967295 0||END|"),
            ("gat 0", "CLIENT_ERROR bad command line format|"),
        ],
    );
}

#[test]
fn conditions_are_checked() {
    dialogue(
        &mut session(),
        &[
            ("replace k 0 0 1\r\na", "NOT_STORED|"),
            ("append k 0 0 1\r\na", "NOT_STORED|"),
            ("prepend k 0 0 1\r\na", "NOT_STORED|"),
            ("cas k 0 0 1 1\r\na", "NOT_FOUND|"),
            ("add k 3 0 1\r\nm", "STORED|"),
            ("add k 0 0 1\r\na", "NOT_STORED|"),
            ("append k 9 9 2\r\nyz", "STORED|"),
            ("prepend k 9 9 2\r\nab", "STORED|"),
            ("get k", "VALUE k 3 5|abmyz|END|"),
            ("replace k 1 0 1\r\nr", "STORED|"),
            ("get k", "VALUE k 1 1|r|END|"),
        ],
    );
}

/// Returns the CAS unique of the stored key `k`.
fn unique(session: &mut Session) -> u64 {
    let reply = session.say("gets k\r\n");
    let head = reply.split("\r\n").next().expect("a first line");
    head.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a unique")
}

#[test]
fn a_comparison_holds_for_the_item_that_was_seen() {
    let mut session = session();
    session.say("set k 0 0 1\r\na\r\n");
    let seen = unique(&mut session);
    dialogue(
        &mut session,
        &[
            (&format!("cas k 0 0 1 {}\r\nx", seen + 1), "EXISTS|"),
            (&format!("cas k 0 0 1 {seen}\r\nb"), "STORED|"),
            (&format!("cas k 0 0 1 {seen}\r\nc"), "EXISTS|"),
            ("cas k 0 0 1 0\r\nc", "EXISTS|"),
            ("get k", "VALUE k 0 1|b|END|"),
        ],
    );
    let totals = session.totals();
    assert_eq!((totals.cas_hits, totals.cas_badval, totals.cas_misses), (1, 3, 0));
}

#[test]
fn counting_pads_wraps_and_stops() {
    dialogue(
        &mut session(),
        &[
            ("incr k 1", "NOT_FOUND|"),
            ("decr k 1", "NOT_FOUND|"),
            ("set k 7 0 2\r\n10", "STORED|"),
            ("decr k 1", "9|"),
            ("get k", "VALUE k 7 2|9 |END|"),
            ("incr k 1", "10|"),
            ("incr k 90", "100|"),
            ("get k", "VALUE k 7 3|100|END|"),
            ("decr k 1000", "0|"),
            ("get k", "VALUE k 7 3|0  |END|"),
            ("set k 0 0 20\r\n18446744073709551615", "STORED|"),
            ("incr k 3", "2|"),
            ("get k", "VALUE k 0 20|2                   |END|"),
            ("set k 0 0 1\r\nx", "STORED|"),
            ("incr k 1", "CLIENT_ERROR cannot increment or decrement non-numeric value|"),
            ("set k 0 0 0\r\n", "STORED|"),
            ("incr k 1", "CLIENT_ERROR cannot increment or decrement non-numeric value|"),
            ("set k 0 0 21\r\n184467440737095516150", "STORED|"),
            ("incr k 1", "CLIENT_ERROR cannot increment or decrement non-numeric value|"),
            ("set k 0 0 5\r\n 12 z", "STORED|"),
            ("incr k 1", "13|"),
            ("get k", "VALUE k 0 5|13   |END|"),
        ],
    );
}

#[test]
fn a_number_with_blanks_is_padded_to_its_end() {
    let mut session = session();
    let blanks = " ".repeat(511);
    session.say(&format!("set k 0 0 512\r\n5{blanks}\r\n"));
    let before = unique(&mut session);
    assert_eq!(session.say("incr k 2\r\n"), "7\r\n");
    assert_eq!(session.say("get k\r\n"), format!("VALUE k 0 512\r\n7{blanks}\r\nEND\r\n"));
    assert!(unique(&mut session) > before);
}

#[test]
fn a_value_that_is_longer_than_a_number_is_none() {
    let mut session = session();
    for bytes in [513, 3000, 512 << 10] {
        let value = format!("5{}", " ".repeat(bytes - 1));
        session.say(&format!("set k 0 0 {bytes}\r\n{value}\r\n"));
        for change in ["incr k 2", "decr k 2"] {
            let refusal = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
            assert_eq!(session.say(&format!("{change}\r\n")), refusal, "{bytes}");
        }
        assert_eq!(session.say("get k\r\n"), format!("VALUE k 0 {bytes}\r\n{value}\r\nEND\r\n"));
    }
}

#[test]
fn keys_before_one_that_is_too_long_are_touched() {
    let long = "x".repeat(251);
    let bad = "CLIENT_ERROR bad command line format|";
    dialogue(
        &mut session(),
        &[
            ("set k 0 0 1\r\na", "STORED|"),
            (&format!("get k {long} k"), bad),
            ("mg k h t", "HD h1 t-1|"),
            (&format!("gat 50 k {long}"), bad),
            ("mg k t", "HD t50|"),
            (&format!("get {long}"), bad),
        ],
    );
}

#[test]
fn deletes_say_what_they_found() {
    dialogue(
        &mut session(),
        &[
            ("delete k", "NOT_FOUND|"),
            ("set k 0 0 1\r\na", "STORED|"),
            ("delete k 0", "DELETED|"),
            ("get k", "END|"),
        ],
    );
}

#[test]
fn items_expire() {
    let mut session = session();
    dialogue(
        &mut session,
        &[
            ("set a 0 10 1\r\na", "STORED|"),
            ("set b 0 -1 1\r\nb", "STORED|"),
            ("set c 0 0 1\r\nc", "STORED|"),
            ("get a b c", "VALUE a 0 1|a|VALUE c 0 1|c|END|"),
            ("touch c 5", "TOUCHED|"),
            ("touch x 5", "NOT_FOUND|"),
            ("gat 20 a", "VALUE a 0 1|a|END|"),
        ],
    );
    session.now += 5;
    dialogue(&mut session, &[("get a c", "VALUE a 0 1|a|END|"), ("gat -1 a a", "VALUE a 0 1|a|END|")]);
    let totals = session.totals();
    assert_eq!((totals.touch_hits, totals.touch_misses, totals.cmd_touch), (3, 2, 5));
}

#[test]
fn flushes_happen_when_they_are_due() {
    let mut session = session();
    let set = ("set k 0 0 1\r\na", "STORED|");
    dialogue(&mut session, &[set, ("flush_all", "OK|"), ("get k", "END|"), set]);
    dialogue(&mut session, &[("flush_all 10", "OK|"), ("get k", "VALUE k 0 1|a|END|")]);
    session.now += 9;
    dialogue(
        &mut session,
        &[("get k", "END|"), set, ("flush_all 10", "OK|"), ("flush_all 1000000000", "OK|")],
    );
    session.now += 10;
    dialogue(&mut session, &[("get k", "VALUE k 0 1|a|END|"), ("flush_all -5", "OK|"), ("get k", "END|")]);
    assert_eq!(session.totals().cmd_flush, 5);
}

#[test]
fn noreply_is_quiet_even_about_errors() {
    let mut session = session();
    for request in [
        "set k 0 0 1 noreply\r\na",
        "add k 0 0 1 noreply\r\na",
        "set k x 0 1 noreply\r\na",
        "set k 0 0 1 noreply\r\nabcdef",
        "set large 0 0 2000000 noreply",
        "incr k 1 noreply",
        "incr k x noreply",
        "touch k 0 noreply",
        "delete x noreply",
        "verbosity 1 noreply",
        "flush_all noreply",
    ] {
        if request.starts_with("set large") {
            assert_eq!(session.say(&format!("{request}\r\n{}\r\n", "x".repeat(2_000_000))), "");
        } else if request.ends_with("abcdef") {
            // The rest is a command of its own.
            assert_eq!(session.say(&format!("{request}\r\n")), "ERROR\r\n");
        } else {
            assert_eq!(session.say(&format!("{request}\r\n")), "", "{request}");
        }
    }
}

#[test]
fn a_value_that_is_too_large_takes_the_old_one_with_it() {
    let mut session = session();
    let large = "x".repeat((1 << 20) + 1);
    let too_large = "SERVER_ERROR object too large for cache|";
    for (command, left) in [("set", false), ("add", true), ("append", true), ("cas", true)] {
        session.say("set k 0 0 1\r\na\r\n");
        let unique = if command == "cas" { " 1" } else { "" };
        let request = format!("{command} k 0 0 {}{unique}\r\n{large}", large.len());
        dialogue(&mut session, &[(&request, too_large)]);
        dialogue(&mut session, &[("get k", if left { "VALUE k 0 1|a|END|" } else { "END|" })]);
    }
    assert_eq!(session.totals().store_too_large, 4);
}

#[test]
fn administration_answers() {
    let mut session = session();
    dialogue(
        &mut session,
        &[
            ("mn", "MN|"),
            ("verbosity 1", "OK|"),
            ("cache_memlimit 7", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m|"),
            ("cache_memlimit 8", "OK|"),
            ("cache_memlimit 64", "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust|"),
            ("cache_memlimit 1000000001", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes|"),
            ("shutdown", "SERVER_ERROR: shutdown not enabled|"),
            ("shutdown abruptly", "SERVER_ERROR: shutdown not enabled|"),
            ("stats sizes", "STAT sizes_status disabled|END|"),
            ("stats settings", "STAT group Settings|END|"),
            ("stats conns", "END|"),
        ],
    );
    assert!(session.say("version\r\n").starts_with("VERSION 1.6.18"));
    session.allow_shutdown();
    assert_eq!(session.say("shutdown abruptly\r\n"), "CLIENT_ERROR invalid shutdown mode\r\n");
    assert_eq!(session.say("shutdown graceful\r\n"), "");
    assert!(session.is_closed);
}

#[test]
fn quit_ends_the_connection_and_nothing_behind_it_is_executed() {
    let mut session = session();
    assert_eq!(session.say("get k\r\nquit\r\nset k 0 0 1\r\na\r\n"), "END\r\n");
    assert!(session.is_closed);
}

fn stat(session: &mut Session, group: &str, name: &str) -> Option<String> {
    let reply = session.say(&format!("stats {group}\r\n"));
    assert!(reply.ends_with("END\r\n"));
    let prefix = format!("STAT {name} ");
    reply.split("\r\n").find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
}

#[test]
fn stats_count_and_start_anew() {
    let mut session = session();
    session.say("set k 0 0 1\r\n7\r\nget k x\r\nincr k 1\r\ndelete x\r\n");
    for (name, value) in [
        ("cmd_get", "2"),
        ("get_hits", "1"),
        ("get_misses", "1"),
        ("cmd_set", "1"),
        ("incr_hits", "1"),
        ("delete_misses", "1"),
        ("curr_items", "1"),
        ("total_items", "1"),
        ("evictions", "0"),
    ] {
        assert_eq!(stat(&mut session, "", name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(session.say("stats reset\r\n"), "RESET\r\n");
    assert_eq!(stat(&mut session, "", "cmd_get").as_deref(), Some("0"));
    assert_eq!(stat(&mut session, "items", "items:1:number").as_deref(), Some("1"));
    assert_eq!(stat(&mut session, "slabs", "1:used_chunks").as_deref(), Some("1"));
    assert!(stat(&mut session, "minos", "store_bytes_per_item").is_some());
}

#[test]
fn classes_have_the_counters_that_exporters_read() {
    let mut session = session();
    session.say("set a 0 0 40\r\n");
    session.say(&format!("{}\r\nset b 0 0 40\r\n{}\r\nset b 0 0 40\r\n", "a".repeat(40), "b".repeat(40)));
    session.say(&format!("{}\r\n", "c".repeat(40)));
    for (group, name, value) in [
        ("items", "items:40:number", "2"),
        ("items", "items:40:mem_requested", "82"),
        ("items", "items:40:age", "0"),
        ("items", "items:40:evicted", "0"),
        ("items", "items:40:outofmemory", "0"),
        ("items", "items:40:reclaimed", "0"),
        ("slabs", "40:chunk_size", "40"),
        ("slabs", "40:total_chunks", "2"),
        ("slabs", "40:free_chunks", "0"),
        ("slabs", "40:cmd_set", "3"),
        ("slabs", "active_slabs", "1"),
    ] {
        assert_eq!(stat(&mut session, group, name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn counters_of_memory_move_with_it() {
    let mut session = session();
    let malloced = |session: &mut Session| stat(session, "slabs", "total_malloced").unwrap().parse::<u64>().unwrap();
    let before = malloced(&mut session);
    session.say(&format!("set k 0 10 2000\r\n{}\r\nset other 0 10 1\r\n1\r\n", "v".repeat(2000)));
    assert!(malloced(&mut session) > before);
    // Both have expired: one is found by a sweep, the other by a store over it.
    session.now += 20;
    session.say("set other 0 0 1\r\n1\r\n");
    assert_eq!(stat(&mut session, "", "reclaimed").as_deref(), Some("1"));
    for partition in 0..session.store.partitions() {
        session.store.sweep(partition, usize::MAX, session.now);
    }
    assert_eq!(stat(&mut session, "", "reclaimed").as_deref(), Some("2"));
    assert_eq!(stat(&mut session, "items", &format!("items:{}:reclaimed", class_of(2000))).as_deref(), Some("1"));
}

fn class_of(value_bytes: u64) -> usize {
    minos_base::SizeClass::of(value_bytes).index()
}

#[test]
fn stats_detail_counts_by_prefix() {
    let mut session = session();
    assert_eq!(session.say("stats detail\r\n"), "CLIENT_ERROR usage: stats detail on|off|dump\r\n");
    dialogue(
        &mut session,
        &[
            ("stats detail dump", "END|"),
            ("get foo:0", "END|"),
            ("stats detail on", "OK|"),
            ("set foo:a 0 0 1\r\n1", "STORED|"),
            ("get foo:a plain foo:b bar:a", "VALUE foo:a 0 1|1|END|"),
            ("get foo:a", "VALUE foo:a 0 1|1|END|"),
            ("mg foo:b v", "EN|"),
            ("delete foo:a", "DELETED|"),
            ("stats detail off", "OK|"),
            ("get foo:0", "END|"),
            (
                "stats detail dump",
                "PREFIX bar get 1 hit 0 set 0 del 0|PREFIX foo get 4 hit 2 set 1 del 1|END|",
            ),
            ("stats reset", "RESET|"),
            ("stats detail dump", "END|"),
            // Also if all come at once.
            (
                "stats detail on\r\nget foo:0\r\nstats detail off\r\nget bar:0\r\nstats detail dump",
                "OK|END|OK|END|PREFIX foo get 1 hit 0 set 0 del 0|END|",
            ),
        ],
    );
}

#[test]
fn all_items_are_listed() {
    let mut session = session();
    let mut wanted: Vec<_> = (0..3000).map(|number| format!("key=list-{number} ")).collect();
    for number in 0..3000 {
        assert_eq!(session.say(&format!("set list-{number} 0 0 1\r\nv\r\n")), "STORED\r\n");
    }
    session.say("ms AAEl+w== 2 b T50\r\nxx\r\n");
    session.say("mg list-7 v\r\n");
    let zero_unix_s = session.clock.zero_unix_s();
    let list = session.say("lru_crawler metadump all\r\n");
    let binary = "key=%00%01%25%FB ".to_owned();
    let line = list.lines().find(|line| line.starts_with(&binary)).unwrap();
    assert!(line.contains(&format!(" exp={} la={} cas=", zero_unix_s + 150, zero_unix_s + 100)), "{line}");
    assert!(line.ends_with(" fetch=no cls=2 size=6"), "{line}");
    let read = list.lines().find(|line| line.starts_with("key=list-7 ")).unwrap();
    assert!(read.contains(" exp=-1 ") && read.contains(" fetch=yes "), "{read}");
    wanted.push(binary);
    assert!(wanted.iter().all(|key| list.contains(key)) && list.ends_with("\nEND\r\n"));
    dialogue(
        &mut session,
        &[
            ("lru_crawler metadump 3", "BADCLASS invalid class id|"),
            ("lru_crawler metadump", "ERROR|"),
            ("lru_crawler crawl all", "CLIENT_ERROR lru crawler disabled|"),
        ],
    );
}
