//! Values that are larger than a datagram.

use minos_base::seeded;
use minos_proto::native::{Kind, Status};
use rand::RngExt;

use super::{Fate, OpId, STEPS_MAX, World, bytes_of, get, put};
use crate::{Config, Error, Outcome, Request, Verb};

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
fn a_first_window_that_does_not_come_by_itself_is_asked_for_at_once() {
    let mut world = World::new(Config::new());
    world.server.defers_windows = true;
    world.server.put(b"a", pattern(60_000));
    let begun_ns = world.now_ns;
    assert!(bytes_of(&world.call(get("a"))) == pattern(60_000));
    assert_eq!(world.core.counters().lost, 0);
    let steps = (world.now_ns - begun_ns) / (2 * super::TRAVEL_NS);
    // A Hello, the announcement and eight windows, without a time-out.
    assert!(steps < 12, "{steps}");
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
        world.call(get("x")).unwrap();
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
    for steps in 1..20 {
        let mut world = World::new(Config::new());
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
        assert!(matches!(world.results[&stored], Ok(Outcome::Done { .. })), "restart at {steps}");
        assert!(world.server.items.get(&b"b"[..]).is_none_or(|(bytes, _)| *bytes == pattern(50_000)));
    }
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
