//! Bytes that no server would send, or that belong to another client.

use minos_base::seeded;
use minos_proto::native::Kind;
use proptest::prelude::*;
use rand::RngExt;

use super::{STEPS_MAX, World, bytes_of, elsewhere, get, incr, put};
use crate::{Config, Outcome};

#[test]
fn answers_from_elsewhere_or_to_something_else_are_ignored() {
    let mut world = World::new(Config::new());
    world.server.put(b"a", b"true".to_vec());
    world.call(get("x")).unwrap();
    let id = world.submit(get("a"));
    let (to, request) = world.sent().remove(0);
    let (from, answer) = world.server.answer(to, &request).remove(0);
    world.now_ns += 1000;
    let ignored = world.core.counters().ignored;
    world.core.receive(elsewhere(), &answer, answer.len(), world.now_ns);
    let mut other_port = from;
    other_port.set_port(from.port() + 100);
    world.receive(other_port, &answer);
    // Stamp, sequence and request each by one bit; the value would otherwise be believed.
    for place in [36, 38, 40, 46, 52] {
        let mut forged = answer.clone();
        forged[place] ^= 1;
        world.receive(from, &forged);
        assert_eq!(world.core.unfinished(), 1, "a bit at {place}");
    }
    assert_eq!(world.core.counters().ignored, ignored + 7);
    world.receive(from, &answer);
    world.receive(from, &answer);
    world.take_completions();
    assert_eq!(bytes_of(&world.results[&id]), b"true");
}

#[test]
fn answers_may_come_as_a_train() {
    let mut world = World::new(Config::new());
    world.server.put(b"a", vec![5; 2_500]);
    world.call(get("x")).unwrap();
    let id = world.submit(get("a"));
    let (to, request) = world.sent().remove(0);
    let answers = world.server.answer(to, &request);
    let longest = answers.iter().map(|(_, bytes)| bytes.len()).max().unwrap();
    let mut train = Vec::new();
    for (_, bytes) in &answers {
        train.extend_from_slice(bytes);
        train.resize(train.len().next_multiple_of(longest), 0);
    }
    world.now_ns += 1000;
    world.core.receive(to, &train, longest, world.now_ns);
    world.take_completions();
    assert_eq!(bytes_of(&world.results[&id]), [5; 2_500]);
}

/// A run with random changes to answers. Numbers and stamps are kept, so that the client accepts the
/// datagrams.
fn run_with_strange_answers(seed: u64, keeps_head: bool) -> World {
    let mut world = World::new(Config::new());
    let mut random = seeded(seed);
    world.server.put(b"a", vec![1; 20_000]);
    for index in 0..10 {
        world.submit(get("a"));
        world.submit(put("b", vec![2; 9_000 + index]));
        world.submit(incr("n"));
        world.submit(get("c"));
    }
    for _ in 0..STEPS_MAX {
        world.take_completions();
        world.core.on_timer(world.now_ns);
        let coming = world.answers();
        world.now_ns += random.random_range(1..3_000_000);
        for (from, mut bytes) in coming {
            let kept = if keeps_head { 48 } else { 0 };
            let is_changed = random.random_range(0..3) == 0 && bytes[3] != Kind::Welcome as u8;
            if is_changed && bytes.len() > kept {
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(kept..bytes.len().min(kept + 40));
                    bytes[at] = random.random();
                }
            }
            world.receive(from, &bytes);
        }
        if world.core.unfinished() == 0 {
            break;
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn changed_answers_neither_panic_nor_end_anything_twice(seed: u64, keeps_head: bool) {
        let mut world = run_with_strange_answers(seed, keeps_head);
        world.take_completions();
        prop_assert_eq!(world.core.unfinished(), 0, "everything ends, one way or another");
        prop_assert_eq!(world.results.len(), 40);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), segment_bytes in 0usize..400) {
        let mut world = World::new(Config::new());
        world.submit(get("a"));
        world.core.receive(super::Server::address(0), &bytes, segment_bytes, 2000);
        world.finish();
        prop_assert_eq!(world.results.values().next(), Some(&Ok(Outcome::Missing)));
    }
}
