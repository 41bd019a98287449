//! Values that are larger than a datagram.

use minos_base::seeded;
use minos_proto::native::{Kind, Status};
use rand::RngExt;

use super::{Fate, OpId, STEPS_MAX, World, bytes_of, get, incr, put, server::FETCH_WINDOW};
use crate::{Config, Error, OnceFor, Outcome, Request, Verb, core::fetch::WINDOWS_KEPT_MAX};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + index / 251) as u8).collect()
}

/// Loses a fifth of all datagrams and duplicates a tenth.
fn lossy(seed: u64) -> impl FnMut(bool, &[u8]) -> Fate {
    let mut random = seeded(seed);
    move |_, _| match random.random_range(0..10) {
        0 | 1 => Fate::Lost,
        2 => Fate::Twice,
        _ => Fate::Arrives,
    }
}

#[test]
fn large_values_are_stored_and_fetched() {
    for bytes in [1_400, 1_500, 8_000, 8_001, 100_000, 500_000] {
        let mut world = World::new(Config::new());
        assert_eq!(world.call(put("a", pattern(bytes))), Ok(Outcome::Done { cas: 1 }), "{bytes}");
        assert!(world.server.items[&b"a"[..]].0 == pattern(bytes), "{bytes}");
        assert!(bytes_of(&world.call(get("a"))) == pattern(bytes), "{bytes}");
        assert_eq!(world.core.counters().lost, 0);
    }
}

#[test]
fn windows_follow_each_other_without_a_time_out() {
    for (defers_windows, value_bytes, busy) in
        [(false, 60_000, 0), (true, 60_000, 0), (false, 2_500, 0), (false, 4_000, 0), (false, 60_000, 5)]
    {
        let mut world = World::new(Config::new());
        (world.server.defers_windows, world.server.busy_fetches) = (defers_windows, busy);
        world.server.put(b"a", pattern(value_bytes));
        let begun_ns = world.now_ns;
        assert!(bytes_of(&world.call(get("a"))) == pattern(value_bytes));
        assert_eq!((world.core.counters().lost, world.core.counters().repairs), (0, 0));
        let steps = (world.now_ns - begun_ns) / (2 * super::TRAVEL_NS);
        // A Hello, the announcement, and the windows, some of which were refused.
        let windows = value_bytes.div_ceil(1000 * usize::from(FETCH_WINDOW)) as u64;
        assert!(steps < 4 + windows + u64::from(busy), "{steps}");
    }
}

#[test]
fn what_is_lost_of_large_values_is_sent_again() {
    for seed in 0..40 {
        let mut world = World::new(Config::new());
        world.server.put(b"a", pattern(60_000));
        let stored = world.submit(put("b", pattern(50_000)));
        let read = world.submit(get("a"));
        world.run(lossy(seed));
        assert!(
            matches!(world.results[&stored], Ok(Outcome::Done { .. })),
            "seed {seed}: {:?}",
            world.results
        );
        assert!(bytes_of(&world.results[&read]) == pattern(60_000), "seed {seed}");
        assert!(world.server.items[&b"b"[..]].0 == pattern(50_000), "seed {seed}");
    }
}

#[test]
fn in_open_loop_what_is_lost_of_a_transfer_is_sent_again() {
    for seed in 0..10 {
        let mut world = World::new(Config::new().open_loop(true));
        world.server.put(b"a", pattern(60_000));
        world.call(get("x")).unwrap();
        let (stored, read) = (world.submit(put("b", pattern(50_000))), world.submit(get("a")));
        let mut fate = lossy(seed);
        world.run(|is_answer, datagram| {
            let is_fragment = [Kind::Data as u8, Kind::Fragment as u8].contains(&datagram[3]);
            if is_fragment { fate(is_answer, datagram) } else { Fate::Arrives }
        });
        assert!(matches!(world.results[&stored], Ok(Outcome::Done { .. })), "seed {seed}");
        assert!(bytes_of(&world.results[&read]) == pattern(60_000), "seed {seed}");
    }
}

#[test]
fn bytes_are_counted_without_being_kept() {
    for bytes in [0, 900, 60_000] {
        let mut world = World::new(Config::new());
        let cas = world.server.put(b"a", pattern(bytes));
        let size = world.call(Request::new(Verb::Size, "a"));
        assert_eq!(size, Ok(Outcome::Number { number: bytes as u64, cas }));
    }
    assert_eq!(World::new(Config::new()).call(Request::new(Verb::Size, "a")), Ok(Outcome::Missing));
}

#[test]
fn a_path_that_turns_out_to_be_narrow_ends_nothing_that_was_begun() {
    let mut world = World::new(Config::new());
    world.call(get("x")).unwrap();
    let hellos = world.core.counters().hellos;
    let id = world.submit(put("a", pattern(50_000)));
    let answers = world.answers();
    world.receive_all(answers);
    world.core.limit_datagrams(600);
    world.finish();
    assert!(matches!(world.results[&id], Ok(Outcome::Done { .. })), "{:?}", world.results[&id]);
    assert!(world.server.items[&b"a"[..]].0 == pattern(50_000));
    assert!(world.core.counters().hellos > hellos, "the server was not told");
}

#[test]
fn a_large_store_that_a_bound_hinders_at_its_end_begins_again() {
    let mut world = World::new(Config::new());
    world.server.ends_store = Some(Status::Busy);
    assert!(matches!(world.call(put("a", pattern(50_000))), Ok(Outcome::Done { .. })));
    assert!(world.server.items[&b"a"[..]].0 == pattern(50_000));
}

/// Before the fix, it rested for seconds, and ended with [`Error::Busy`].
#[test]
fn a_large_store_that_gets_on_in_line_keeps_its_place_and_its_time() {
    let mut world = World::new(Config::new());
    world.call(get("x")).unwrap();
    let begun_ns = world.now_ns;
    world.server.line = 60;
    assert!(matches!(world.call(put("a", pattern(50_000))), Ok(Outcome::Done { .. })));
    // Each time it asks within a tenth of a second.
    assert!((4..7).contains(&((world.now_ns - begun_ns) / 1_000_000_000)));
}

#[test]
fn a_large_store_that_waits_in_line_when_its_server_ends_is_begun_by_the_next() {
    for drains in [false, true] {
        let mut world = World::new(Config::new());
        world.call(incr("n")).unwrap();
        world.server.line = u64::MAX;
        let id = world.submit(put("a", pattern(50_000)));
        for step in 0..400 {
            world.server.is_draining = drains && step > 300;
            world.core.on_timer(world.now_ns);
            let answers = world.answers();
            world.now_ns += 1_000_000;
            world.receive_all(answers);
        }
        world.server.restart();
        (world.server.line, world.server.is_draining) = (0, false);
        world.finish();
        assert!(matches!(world.results[&id], Ok(Outcome::Done { .. })), "{:?}", world.results[&id]);
    }
}

#[test]
fn a_large_store_without_a_place_in_line_ends_in_time() {
    let mut world = World::new(Config::new());
    world.call(get("x")).unwrap();
    let begun_ns = world.now_ns;
    world.server.statuses = vec![Status::Busy; 1000];
    assert_eq!(world.call(put("a", pattern(50_000))), Err(Error::Busy));
    assert!(world.now_ns - begun_ns < 2_200_000_000);
}

#[test]
fn a_large_store_begins_when_it_is_granted_though_it_rests() {
    let mut world = World::new(Config::new());
    world.call(put("x", "1")).unwrap();
    let id = world.submit(put("a", pattern(50_000)));
    let (to, first) = world.sent().remove(0);
    world.server.line = 1;
    let waits = world.server.answer(to, &first);
    world.receive_all(waits);
    assert!(world.sent().is_empty());
    world.now_ns += 1_000_000_000;
    let granted = world.server.answer(to, &first);
    world.receive_all(granted);
    let wait_ns = world.core.round_trip.wait_ns(1, &mut world.core.dice);
    assert!(wait_ns < 10_000_000, "the time in line was taken for a round trip");
    assert!(world.sent().iter().all(|(_, datagram)| datagram[3] == Kind::Fragment as u8));
    world.finish();
    assert!(matches!(world.results[&id], Ok(Outcome::Done { .. })));
}

#[test]
fn a_large_store_whose_key_moves_meanwhile_goes_to_the_owner() {
    let mut world = World::new(Config::new());
    world.server.ends_store = Some(Status::NotOwner);
    assert_eq!(world.call(put("a", pattern(50_000))), Err(Error::NotOwner));

    let mut world = World::new(Config::new());
    world.core = world.core.in_rack();
    world.server.ends_store = Some(Status::NotOwner);
    let id = world.submit(put("a", pattern(50_000)));
    world.finish();
    let stray = world.core.poll_stray().unwrap();
    assert_eq!((stray.id, stray.owner), (id, 3));
    assert!(stray.request.value == pattern(50_000));
}

/// Before the fix, the client dropped the transfer and began again once the server had given it up.
#[test]
fn a_late_answer_to_a_request_sent_twice_does_not_end_the_transfer_it_began() {
    for (late, request) in [
        (Status::InProgress, put("a", pattern(50_000))),
        (Status::Busy, put("a", pattern(50_000))),
        (Status::Busy, get("a")),
    ] {
        let mut world = World::new(Config::new());
        world.server.put(b"a", pattern(50_000));
        world.call(put("x", "1")).unwrap();
        let id = world.submit(request);
        let (to, first) = world.sent().remove(0);
        let mut answers = world.server.answer(to, &first);
        world.server.statuses = vec![late];
        answers.extend(world.server.answer(to, &first));
        world.receive_all(answers);
        let executed = world.server.executed.len();
        world.finish();
        assert!(world.results[&id].is_ok(), "{:?}", world.results[&id]);
        assert_eq!(world.server.executed.len(), executed, "it was asked for a third time");
    }
}

/// A client whose large ADD the server has executed; its outcome was lost, and the server knows of no transfer.
fn executed_unheard() -> (World, OpId) {
    let mut world = World::new(Config::new());
    world.call(incr("n")).unwrap();
    let id = world.submit(Request::new(Verb::Add, "a").value(pattern(50_000)));
    while !world.server.items.contains_key(&b"a"[..]) {
        world.core.on_timer(world.now_ns);
        let answers = world.answers();
        world.now_ns += 1000;
        if !world.server.items.contains_key(&b"a"[..]) {
            world.receive_all(answers);
        }
    }
    world.server.forget_transfers();
    (world, id)
}

/// Before the fix, the client took the request that it sent again for the only copy.
#[test]
fn a_lost_session_leaves_the_outcome_of_a_large_store_that_was_lost_before_open() {
    let (mut world, id) = executed_unheard();
    world.server.forget_sessions();
    let executed = world.server.executed.len();
    world.finish();
    assert_eq!(world.results[&id], Err(Error::OutcomeUnknown));
    assert_eq!(world.server.executed.len(), executed, "it was begun a second time");
}

#[test]
fn a_server_that_stops_leaves_the_outcome_of_a_large_store_that_was_lost_before_open() {
    let (mut world, id) = executed_unheard();
    world.server.is_draining = true;
    world.finish();
    assert_eq!(world.results[&id], Err(Error::OutcomeUnknown));
}

/// Before the fix, those without a turn threw their first windows away.
#[test]
fn what_comes_unasked_for_a_value_without_a_turn_is_kept() {
    for (value_bytes, loses) in [(2_500, false), (4_000, false), (60_000, false), (4_000, true)] {
        let mut world = World::new(Config::new().transfers_max(1));
        let keys: Vec<String> = (0..10).map(|index| format!("key{index}")).collect();
        for key in &keys {
            world.server.put(key.as_bytes(), pattern(value_bytes));
        }
        world.call(get("x")).unwrap();
        let ids: Vec<OpId> = keys.iter().map(|key| world.submit(get(key))).collect();
        let (mut data, mut lost) = (0, 0);
        world.run(|_, datagram| {
            let is_data = datagram[3] == Kind::Data as u8;
            data += usize::from(is_data);
            let is_lost = is_data && loses && data % 7 == 3;
            lost += usize::from(is_lost);
            if is_lost { Fate::Lost } else { Fate::Arrives }
        });
        assert!(ids.iter().all(|id| bytes_of(&world.results[id]) == pattern(value_bytes)));
        let fragments = keys.len() * value_bytes.div_ceil(1000);
        assert_eq!(data, fragments + lost, "{value_bytes}");
    }
}

/// Of others the first windows are thrown away, so that a server cannot fill the client's memory with what nobody asked for.
#[test]
fn of_so_many_values_without_a_turn_what_comes_unasked_is_kept() {
    let (count, value_bytes) = (2 * WINDOWS_KEPT_MAX, 5_000);
    let mut world = World::new(Config::new().transfers_max(1));
    let keys: Vec<String> = (0..count).map(|index| format!("key{index}")).collect();
    for key in &keys {
        world.server.put(key.as_bytes(), pattern(value_bytes));
    }
    world.call(get("x")).unwrap();
    let ids: Vec<OpId> = keys.iter().map(|key| world.submit(get(key))).collect();
    let mut data = 0;
    world.run(|_, datagram| {
        data += usize::from(datagram[3] == Kind::Data as u8);
        Fate::Arrives
    });
    assert!(ids.iter().all(|id| bytes_of(&world.results[id]) == pattern(value_bytes)));
    let thrown_away = count - 1 - WINDOWS_KEPT_MAX;
    assert_eq!(data, count * 5 + thrown_away * usize::from(FETCH_WINDOW));
}

#[test]
fn only_what_is_lost_is_sent_again() {
    let mut world = World::new(Config::new());
    world.server.put(b"a", pattern(64_000));
    world.call(get("x")).unwrap();
    let mut data = 0;
    world.submit(get("a"));
    world.run(|_, datagram| {
        data += u32::from(datagram[3] == Kind::Data as u8);
        if datagram[3] == Kind::Data as u8 && data % 16 == 3 { Fate::Lost } else { Fate::Arrives }
    });
    assert!((64..=76).contains(&data), "{data} fragments for 64");
}

#[test]
fn a_value_that_is_replaced_is_fetched_from_the_beginning() {
    let mut world = World::new(Config::new());
    world.server.put(b"a", pattern(100_000));
    world.server.replaces_fetched = true;
    assert!(bytes_of(&world.call(get("a"))) == [9; 30_000]);
}

#[test]
fn a_value_that_changes_all_the_time_is_given_up() {
    let mut world = World::new(Config::new());
    world.server.put(b"a", pattern(100_000));
    let id = world.submit(get("a"));
    for _ in 0..200 {
        world.server.replaces_fetched = true;
        world.core.on_timer(world.now_ns);
        for (from, answer) in world.answers() {
            world.now_ns += 1000;
            world.receive(from, &answer);
        }
        world.now_ns += 1_000_000;
    }
    world.take_completions();
    assert_eq!(world.results[&id], Err(Error::Unstable));
}

/// Replaces the value of `a` at each request, and loses the grants that name the queue to ask.
fn replaced_without_grants(config: Config) -> (World, OpId) {
    let mut world = World::new(config);
    world.server.put(b"a", pattern(100_000));
    world.call(get("x")).unwrap();
    let id = world.submit(get("a"));
    for _ in 0..STEPS_MAX {
        world.core.on_timer(world.now_ns);
        for (to, datagram) in world.sent() {
            for (from, answer) in world.server.answer(to, &datagram) {
                world.now_ns += 1000;
                if answer[3] == Kind::Data as u8 {
                    world.receive(from, &answer);
                }
            }
            world.server.put(b"a", pattern(100_000));
        }
        world.now_ns += 1_000_000;
        world.take_completions();
        if world.results.contains_key(&id) {
            return (world, id);
        }
    }
    panic!("it is fetched for ever");
}

#[test]
fn a_value_that_changes_with_each_look_is_given_up() {
    let (world, id) = replaced_without_grants(Config::new().refetches_max(3));
    assert_eq!(world.results[&id], Err(Error::Unstable));
    assert_eq!(world.core.counters().refetches, 4, "the last one is not fetched");
}

#[test]
fn a_value_whose_grants_are_lost_is_given_up() {
    let (world, id) = replaced_without_grants(Config::new().refetches_max(1000));
    assert_eq!(world.results[&id], Err(Error::TimedOut { was_sent: true }));
}

#[test]
fn values_beyond_the_clients_bound_are_not_fetched() {
    let mut world = World::new(Config::new().value_bytes_max(9_999));
    world.server.put(b"a", pattern(10_000));
    assert_eq!(world.call(get("a")), Err(Error::TooLarge { bytes_max: 9_999 }));
}

#[test]
fn many_large_values_take_turns() {
    let mut world = World::new(Config::new().transfers_max(2));
    for index in 0..10 {
        world.submit(put(&format!("key{index}"), pattern(20_000 + index)));
    }
    world.run(lossy(3));
    let ids: Vec<_> = (0..10).map(|index| world.submit(get(&format!("key{index}")))).collect();
    world.run(lossy(4));
    for (id, index) in ids.iter().zip(0..) {
        assert!(bytes_of(&world.results[id]) == pattern(20_000 + index));
    }
}

#[test]
fn transfers_survive_a_restart() {
    let mut unknown = 0;
    for (steps, once_for) in
        (1..20).flat_map(|steps| [OnceFor::NotIdempotent, OnceFor::AllWrites].map(|it| (steps, it)))
    {
        let mut world = World::new(Config::new().once_for(once_for));
        let stored = world.submit(put("b", pattern(50_000)));
        let mut left = steps;
        let mut restart = false;
        for _ in 0..100 {
            world.core.on_timer(world.now_ns);
            for (to, datagram) in world.sent() {
                left -= 1;
                restart |= left == 0;
                if std::mem::take(&mut restart) {
                    world.server.restart();
                }
                for (from, answer) in world.server.answer(to, &datagram) {
                    world.now_ns += 1000;
                    world.receive(from, &answer);
                }
            }
        }
        world.finish();
        match &world.results[&stored] {
            Ok(Outcome::Done { .. }) => {}
            // The server may have stored it before, and must not do so again.
            Err(Error::OutcomeUnknown) if once_for == OnceFor::AllWrites => unknown += 1,
            result => panic!("restart at {steps}: {result:?}"),
        }
        assert!(world.server.items.get(&b"b"[..]).is_none_or(|(bytes, _)| *bytes == pattern(50_000)));
    }
    assert!((1..19).contains(&unknown), "{unknown}");
}

#[test]
fn large_values_are_sealed_as_well() {
    let mut world = World::sealed();
    world.submit(put("a", pattern(30_000)));
    world.run(lossy(5));
    assert!(bytes_of(&world.call(get("a"))) == pattern(30_000));
}

#[test]
fn a_silent_transfer_ends() {
    let mut world = World::new(Config::new());
    world.server.put(b"a", pattern(100_000));
    let read = world.submit(get("a"));
    let stored = world.submit(put("b", pattern(100_000)));
    let mut datagrams = 0;
    world.run(|_, _| {
        datagrams += 1;
        if datagrams > 30 { Fate::Lost } else { Fate::Arrives }
    });
    assert_eq!(world.results[&read], Err(Error::TimedOut { was_sent: true }));
    assert_eq!(world.results[&stored], Err(Error::TimedOut { was_sent: true }));
}
