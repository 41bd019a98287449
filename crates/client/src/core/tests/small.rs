//! Small operations: direction, vectors, retries, sessions.

use std::time::Duration;

use minos_proto::native::{Access, Kind, Opcode, Reason, Status, VERSION, WelcomeFlags};

use super::{DAISY, Fate, World, bytes_of, get, incr, put, sealed_server, server::refuse};
use crate::{Config, Error, OnceFor, Outcome, QueueBy, Request, Verb, core::Full};

fn is(kind: Kind, datagram: &[u8]) -> bool {
    datagram[3] == kind as u8
}

#[test]
fn values_are_stored_and_read() {
    let mut world = World::new(Config::new());
    assert_eq!(world.call(get("a")), Ok(Outcome::Missing));
    assert_eq!(world.call(put("a", "1")), Ok(Outcome::Done { cas: 1 }));
    assert_eq!(bytes_of(&world.call(get("a"))), b"1");
    assert_eq!(world.call(Request::new(Verb::Delete, "a")), Ok(Outcome::Done { cas: 0 }));
    assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 1, cas: 2 }));
    assert_eq!(world.call(Request::new(Verb::Ping, "")), Ok(Outcome::Done { cas: 0 }));
    assert_eq!(world.core.counters().hellos, 2, "one for the cookie, one for the session");
}

#[test]
fn the_access_mode_decides_about_the_queue() {
    let ports = |access, queue_by, request: fn(&str) -> Request| {
        let mut world = World::new(Config::new().queue_by(queue_by));
        world.server.welcome.access = access;
        for index in 0..40 {
            let _ = world.call(request(&format!("key{index}")));
        }
        let right = world.server.executed.iter().zip(0..).filter(|((port, _), index)| {
            let hash = minos_base::hash_key(format!("key{index}").as_bytes(), 5);
            *port == world.server.welcome.key_queue(hash)
        });
        right.count()
    };
    let store = |key: &str| put(key, "x");
    assert_eq!(ports(Access::Erew, QueueBy::Access, get), 40);
    assert_eq!(ports(Access::Erew, QueueBy::Access, store), 40);
    assert_eq!(ports(Access::Erew, QueueBy::Wrong, store), 0);
    assert_eq!(ports(Access::Crew, QueueBy::Access, store), 40);
    assert!((5..35).contains(&ports(Access::Crew, QueueBy::Access, get)));
    assert_eq!(ports(Access::Crcw, QueueBy::Access, store), 40);
    assert!((5..35).contains(&ports(Access::Crcw, QueueBy::Access, get)));
    assert!((5..35).contains(&ports(Access::Crcw, QueueBy::Random, store)));
    assert!((5..35).contains(&ports(Access::Erew, QueueBy::Random, store)));
    assert_eq!(ports(Access::Crcw, QueueBy::Key, get), 40);
}

#[test]
fn one_port_is_enough() {
    let mut world = World::new(Config::new());
    world.server.welcome.flags = WelcomeFlags::SINGLE_PORT;
    world.server.welcome.access = Access::Erew;
    for index in 0..10 {
        assert!(world.call(put(&format!("key{index}"), "x")).is_ok());
    }
    assert!(world.server.executed.iter().all(|(port, _)| *port == 0));
}

#[test]
fn a_vector_travels_in_as_few_datagrams_as_hold_it() {
    let mut world = World::new(Config::new());
    world.call(put("first", "x")).unwrap();
    world.server.requests.clear();
    let keys: Vec<String> = (0..100).map(|index| format!("key{index:04}")).collect();
    let ids: Vec<_> = keys.iter().map(|key| world.submit(get(key))).collect();
    world.finish();
    // A record has 16 bytes and a key of 7, padded to 24: 58 fit 1448 - 48.
    assert_eq!(world.server.requests, [58, 42]);
    assert!(ids.iter().all(|id| world.results[id] == Ok(Outcome::Missing)));
}

#[test]
fn what_waits_for_others_waits_no_longer_than_allowed() {
    let mut world = World::new(Config::new().batch_delay(Duration::from_micros(300)));
    world.call(put("first", "x")).unwrap();
    let begun_ns = world.now_ns;
    world.submit(get("a"));
    assert_eq!(world.sent(), []);
    world.now_ns += 100_000;
    world.submit(get("b"));
    assert_eq!(world.sent(), []);
    assert_eq!(world.core.next_timer(), Some(begun_ns + 300_000));
    world.now_ns = begun_ns + 300_000;
    assert_eq!(world.sent().len(), 1);
    // A flush sends at once, and a full datagram does not wait.
    world.submit(get("c"));
    world.core.flush();
    assert_eq!(world.sent().len(), 1);
    for index in 0..70 {
        world.submit(get(&format!("key{index:04}")));
    }
    assert!(!world.sent().is_empty());
}

#[test]
fn lost_datagrams_are_sent_again_and_numbers_counted_once() {
    for lost_kind in [Kind::Request, Kind::Reply, Kind::Hello, Kind::Welcome] {
        let mut world = World::new(Config::new());
        let ids: Vec<_> = (0..20).map(|_| world.submit(incr("n"))).collect();
        let mut seen = 0;
        world.run(|_, datagram| {
            seen += u32::from(is(lost_kind, datagram));
            if is(lost_kind, datagram) && seen % 2 == 1 { Fate::Lost } else { Fate::Twice }
        });
        assert!(seen >= 2, "{lost_kind:?}");
        assert!(ids.iter().all(|id| world.results[id].is_ok()), "{:?}", world.results);
        assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 21, cas: 21 }), "{lost_kind:?}");
    }
}

#[test]
fn without_once_numbers_a_store_is_executed_again() {
    assert_eq!(Config::new().once_for, OnceFor::AllWrites);
    // The control: an operation without a once number is executed as often as it arrives.
    let puts = |once_for| {
        let mut world = World::new(Config::new().once_for(once_for));
        world.submit(put("a", "x"));
        world.run(|_, datagram| if is(Kind::Request, datagram) { Fate::Twice } else { Fate::Arrives });
        world.server.executed.len()
    };
    assert_eq!(puts(OnceFor::NotIdempotent), 2);
    assert_eq!(puts(OnceFor::AllWrites), 1);
}

#[test]
fn a_late_copy_of_a_store_does_not_hide_a_later_one() {
    let found = |config: Config| {
        let mut world = World::new(config);
        world.call(put("a", "0")).unwrap();
        let first = world.submit(put("a", "1"));
        // One copy waits somewhere, another is answered.
        let late = world.sent();
        world.finish();
        assert!(world.results[&first].is_ok());
        world.call(put("a", "2")).unwrap();
        for (to, datagram) in &late {
            assert!(!world.server.answer(*to, datagram).is_empty());
        }
        bytes_of(&world.call(get("a"))).to_vec()
    };
    assert_eq!(found(Config::new()), b"2");
    // The control: it may hide it without a once number.
    assert_eq!(found(Config::new().once_for(OnceFor::NotIdempotent)), b"1");
}

#[test]
fn in_open_loop_each_request_is_sent_once_and_at_once() {
    let answered = |config: Config| {
        let mut world = World::new(config);
        world.server.welcome.in_flight = 1;
        world.call(put("a", "x")).unwrap();
        let ids: Vec<_> = (0..3).map(|_| world.submit(get("a"))).collect();
        let mut sent = 0;
        world.run(|is_answer, datagram| {
            sent += u32::from(is(Kind::Request, datagram));
            if is_answer { Fate::Arrives } else { Fate::Lost }
        });
        (sent, ids.into_iter().map(|id| world.results.remove(&id).unwrap()).collect::<Vec<_>>())
    };
    let late = Err(Error::TimedOut { was_sent: true });
    let config = Config::new().queue_by(QueueBy::Key);
    assert_eq!(answered(config.clone().open_loop(true)), (1, vec![late.clone(), late.clone(), late]));
    // The control: whoever may send again does.
    assert!(answered(config).0 > 1);
}

#[test]
fn in_open_loop_nothing_waits_for_what_is_unanswered() {
    for (open_loop, datagrams) in [(true, 3), (false, 1)] {
        let mut world = World::new(Config::new().queue_by(QueueBy::Key).open_loop(open_loop));
        world.server.welcome.in_flight = 1;
        world.call(put("a", "x")).unwrap();
        let mut sent = 0;
        for tag in 1..=3 {
            world.submit(get("a").tag(tag));
            sent += world.sent().len();
        }
        assert_eq!(sent, datagrams);
    }
}

#[test]
fn in_open_loop_a_busy_server_is_left_alone() {
    let mut world = World::new(Config::new().open_loop(true));
    world.call(put("a", "x")).unwrap();
    world.server.refuses = Some(Reason::Busy);
    let begun_ns = world.now_ns;
    assert_eq!(world.call(get("a")), Err(Error::Busy));
    assert!(world.now_ns - begun_ns < 1_000_000, "no second try");
}

#[test]
fn in_open_loop_what_a_busy_worker_has_not_begun_is_tried_again() {
    let mut world = World::new(Config::new().open_loop(true));
    world.server.statuses = vec![Status::Busy, Status::InProgress];
    assert_eq!(world.call(get("a")), Ok(Outcome::Missing));
    world.server.statuses = vec![Status::Busy; 10_000];
    assert_eq!(world.call(get("a")), Err(Error::Busy), "until it times out");
}

/// A copy whose answer is lost may have been executed.
#[test]
fn a_server_that_was_busy_once_may_have_executed_another_copy() {
    let mut world = World::new(Config::new());
    world.call(get("a")).unwrap();
    world.server.statuses = vec![Status::Busy];
    let id = world.submit(get("a"));
    let mut answers = 0;
    world.run(|is_answer, _| {
        answers += u32::from(is_answer);
        if is_answer && answers > 1 { Fate::Lost } else { Fate::Arrives }
    });
    assert!(answers > 1);
    assert_eq!(world.results[&id], Err(Error::TimedOut { was_sent: true }));
}

/// Before the fix, each copy of an answer counted, and the operation was said not to be executed.
#[test]
fn a_server_that_says_twice_that_it_was_busy_may_have_executed_another_copy() {
    let mut world = World::new(Config::new());
    world.call(get("a")).unwrap();
    let id = world.submit(get("a"));
    let (to, first) = world.sent().remove(0);
    world.server.statuses = vec![Status::Busy];
    let busy = world.server.answer(to, &first);
    // The answer to the second copy is lost.
    while world.sent().is_empty() {
        world.now_ns = world.core.next_timer().unwrap().max(world.now_ns + 1);
        world.core.on_timer(world.now_ns);
    }
    world.receive_all(busy.clone());
    world.receive_all(busy);
    world.server.statuses = vec![Status::Busy; 10_000];
    world.finish();
    assert_eq!(world.results[&id], Err(Error::TimedOut { was_sent: true }));
}

#[test]
fn tags_and_keys_come_back() {
    let mut world = World::new(Config::new());
    world.core.submit(get("a").tag(8), world.now_ns).unwrap();
    world.core.submit(get("").tag(9), world.now_ns).unwrap();
    let refused = world.core.poll_completion().unwrap();
    assert_eq!((refused.tag, refused.key), (9, Vec::new()));
    let mut coming = world.answers();
    world.core.submit(get("b"), world.now_ns).unwrap();
    let mut ended = Vec::new();
    while ended.len() < 2 {
        world.now_ns += 1000;
        world.receive_all(coming);
        coming = world.answers();
        ended.extend(std::iter::from_fn(|| world.core.poll_completion()));
    }
    ended.sort_by_key(|completion| completion.tag);
    let ended = ended.into_iter().map(|completion| (completion.tag, completion.key));
    assert_eq!(ended.collect::<Vec<_>>(), [(0, b"b".to_vec()), (8, b"a".to_vec())]);
}

#[test]
fn nothing_waits_for_ever() {
    let mut world = World::new(Config::new());
    let id = world.submit(get("a"));
    world.run(|_, _| Fate::Lost);
    assert_eq!(world.results[&id], Err(Error::TimedOut { was_sent: false }));
    assert!(world.core.counters().hellos > 3);
    world.call(get("a")).unwrap();
    let id = world.submit(get("a"));
    world.run(|is_answer, _| if is_answer { Fate::Lost } else { Fate::Arrives });
    assert_eq!(world.results[&id], Err(Error::TimedOut { was_sent: true }));
}

#[test]
fn a_call_may_have_a_time_out_of_its_own() {
    let mut world = World::new(Config::new().timeout(Duration::from_secs(2)));
    world.call(get("x")).unwrap();
    let begun_ns = world.now_ns;
    let times = [(Some(30), 30), (None, 2000), (Some(5000), 5000)];
    let ids = times.map(|(own, _)| {
        let request = get("a");
        let timeout = own.map(Duration::from_millis);
        world.submit(Request { timeout, ..request })
    });
    let mut ended = [None; 3];
    while ended.contains(&None) {
        world.core.on_timer(world.now_ns);
        world.sent();
        world.take_completions();
        for (at, id) in ids.iter().enumerate().filter(|(_, id)| world.results.contains_key(id)) {
            assert_eq!(world.results[id], Err(Error::TimedOut { was_sent: true }));
            ended[at].get_or_insert((world.now_ns - begun_ns) / 1_000_000);
        }
        world.now_ns += 1_000_000;
    }
    assert_eq!(ended.map(Option::unwrap), times.map(|(_, millis)| millis));
    let none = get("a").timeout(Duration::ZERO);
    assert!(matches!(world.call(none), Err(Error::Option(_))));
}

#[test]
fn no_more_is_taken_than_allowed() {
    let mut world = World::new(Config::new().operations_max(2));
    world.submit(get("a"));
    world.submit(get("b"));
    assert_eq!(world.core.room(), 0);
    let Err(Full(request)) = world.core.submit(get("c"), world.now_ns) else { panic!("it was taken") };
    assert_eq!(request, get("c"));
    world.finish();
    assert!(world.core.submit(request, world.now_ns).is_ok());
}

#[test]
fn requests_in_flight_are_bounded() {
    let mut world = World::new(Config::new());
    world.server.welcome.in_flight = 3;
    world.call(put("first", "x")).unwrap();
    for index in 0..1000 {
        world.submit(get(&format!("key{index:04}")));
    }
    assert_eq!(world.sent().len(), 3);
}

#[test]
fn a_restart_is_noticed_and_nothing_is_counted_twice() {
    let mut world = World::new(Config::new());
    world.call(incr("n")).unwrap();
    let counted = world.submit(incr("n"));
    let read = world.submit(get("n"));
    // The server executes it and restarts before the answer arrives.
    let lost = world.answers();
    assert!(!lost.is_empty());
    world.server.restart();
    world.finish();
    assert_eq!(world.results[&counted], Err(Error::OutcomeUnknown));
    assert_eq!(world.results[&read], Ok(Outcome::Missing));
    assert_eq!(world.core.counters().restarts, 1);
    assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 1, cas: 3 }));
}

#[test]
fn a_restart_in_silence_leaves_no_doubt() {
    let mut world = World::new(Config::new());
    world.call(incr("n")).unwrap();
    world.server.restart();
    world.now_ns += 2_000_000_000;
    assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 1, cas: 2 }));
    world.now_ns += 2_000_000_000;
    assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 2, cas: 3 }));
    assert_eq!(world.core.counters().sessions_lost, 0);
}

#[test]
fn what_a_lost_session_did_not_begin_goes_on_in_another() {
    for mut world in [World::new(Config::new()), World::sealed()] {
        world.call(incr("n")).unwrap();
        world.server.forget_sessions();
        assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 2, cas: 2 }));
        assert_eq!(world.core.counters().sessions_lost, 1);
    }
}

#[test]
fn a_lost_session_leaves_the_outcome_of_what_was_sent_twice_open() {
    let mut world = World::new(Config::new());
    world.call(incr("n")).unwrap();
    let id = world.submit(incr("n"));
    // The server executes it, and its answer is lost.
    assert!(!world.answers().is_empty());
    world.server.forget_sessions();
    world.finish();
    assert_eq!(world.results[&id], Err(Error::OutcomeUnknown));
    assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 3, cas: 3 }));
    assert_eq!(world.core.counters().sessions_lost, 1);
}

/// Many datagrams are under way when the server is found to have forgotten the session. `lost` says which of them, or of
/// their answers, do not arrive.
fn stores_in_a_lost_session(lost: impl Fn(u32) -> bool) -> (Vec<Result<Outcome, Error>>, usize) {
    let mut world = World::new(Config::new());
    world.call(put("first", "x")).unwrap();
    world.server.forget_sessions();
    let keys: Vec<String> = (0..128).map(|index| format!("key{index:04}")).collect();
    let ids: Vec<_> = keys.iter().map(|key| world.submit(put(key, "x"))).collect();
    let mut requests = 0;
    world.run(|is_answer, datagram| {
        requests += u32::from(!is_answer && is(Kind::Request, datagram));
        if lost(requests) { Fate::Lost } else { Fate::Arrives }
    });
    assert!(requests > 4 && world.core.counters().sessions_lost == 1);
    let results = ids.iter().map(|id| world.results[id].clone()).collect();
    (results, world.server.executed.len() - 1)
}

#[test]
fn a_lost_session_ends_nothing_whose_only_copy_is_refused() {
    let (results, executed) = stores_in_a_lost_session(|_| false);
    assert!(executed == 128 && results.iter().all(Result::is_ok), "{executed} {results:?}");
}

#[test]
fn what_a_lost_session_leaves_without_an_answer_gets_no_other_number() {
    let (results, executed) = stores_in_a_lost_session(|request| request == 2);
    let unknown = results.iter().filter(|result| **result == Err(Error::OutcomeUnknown)).count();
    let done = results.iter().filter(|result| result.is_ok()).count();
    assert!(unknown > 0 && done > 0 && unknown + done == 128, "{results:?}");
    assert_eq!(executed, done);
}

#[test]
fn more_counters_than_the_window_take_turns() {
    let mut world = World::new(Config::new());
    world.server.welcome.once_window = 4;
    for _ in 0..50 {
        world.submit(incr("n"));
    }
    world.finish();
    assert!(world.server.requests.iter().all(|&count| count <= 4));
    assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 51, cas: 51 }));
}

#[test]
fn an_old_cookie_is_renewed() {
    let mut world = World::new(Config::new());
    world.call(get("a")).unwrap();
    world.server.welcome.cookie += 1;
    assert_eq!(world.call(get("a")), Ok(Outcome::Missing));
    assert_eq!(world.core.counters().refused, 1);
}

#[test]
fn another_geometry_is_learnt() {
    let mut world = World::new(Config::new());
    world.call(get("a")).unwrap();
    world.server.welcome.geometry += 1;
    world.server.welcome.queues = 1;
    world.call(get("a")).unwrap();
    world.call(get("a")).unwrap();
    assert_eq!(world.core.directory().unwrap().queues, 1);
}

#[test]
fn another_limit_is_learnt() {
    let mut world = World::new(Config::new());
    let limit = |world: &mut World, bytes_max| {
        world.server.welcome.geometry += 1;
        world.server.welcome.value_bytes_max = bytes_max;
    };
    limit(&mut world, 5);
    assert_eq!(world.call(put("a", [0; 6])), Err(Error::TooLarge { bytes_max: 5 }));
    // An answer to anything says that there is another.
    limit(&mut world, 10);
    world.call(get("a")).unwrap();
    world.call(get("a")).unwrap();
    assert!(world.call(put("a", [0; 6])).is_ok());
    // Without one, a request beyond an old limit asks for it.
    limit(&mut world, 20);
    assert_eq!(
        world.call(put("a", [0; 11])),
        Err(Error::TooLarge { bytes_max: 10 }),
        "the control: it is new"
    );
    world.now_ns += 2_000_000_000;
    assert!(world.call(put("a", [0; 11])).is_ok());
    world.now_ns += 2_000_000_000;
    assert_eq!(world.call(put("a", [0; 21])), Err(Error::TooLarge { bytes_max: 20 }));
}

#[test]
fn a_busy_server_is_asked_again() {
    let mut world = World::new(Config::new());
    world.server.statuses = vec![Status::Busy, Status::InProgress, Status::Busy];
    assert_eq!(world.call(get("a")), Ok(Outcome::Missing));
    world.server.statuses = vec![Status::Busy; 10_000];
    assert_eq!(world.call(get("a")), Err(Error::Busy));
    assert!(world.server.statuses.len() > 9_900, "each time it is left alone for longer");
}

#[test]
fn statistics_come_page_by_page() {
    let mut world = World::new(Config::new());
    let Ok(Outcome::Text(text)) = world.call(Request::new(Verb::Stats, "")) else { panic!("no lines") };
    assert_eq!(text, b"name0 0\nname1 1\nname2 2\nname3 3\nname4 4\n");
    world.server.lines = 0;
    assert_eq!(world.call(Request::new(Verb::Stats, "x")), Ok(Outcome::Text(Vec::new())));
}

#[test]
fn who_shares_the_secret_is_served() {
    let mut world = World::sealed();
    assert_eq!(world.call(put("a", "1")), Ok(Outcome::Done { cas: 1 }));
    assert_eq!(world.call(incr("n")), Ok(Outcome::Number { number: 1, cas: 2 }));
    world.server.restart();
    assert_eq!(world.call(get("a")), Ok(Outcome::Missing));
    let (_, server) = sealed_server();
    let mut world = World::with_server(Config::new().secret(&DAISY.parse().unwrap()), server);
    assert_eq!(world.call(get("a")), Err(Error::Secret));
}

/// An attacker who sees the datagrams and has no secret sends many refusals.
#[test]
fn refusals_without_a_tag_end_nothing_once_there_is_a_session() {
    for reason in [Reason::Seal, Reason::Version, Reason::Session, Reason::Cookie, Reason::Malformed] {
        let mut world = World::sealed();
        world.call(put("a", "1")).unwrap();
        let id = world.submit(get("a"));
        let (sent, refused) = (world.sent(), world.core.counters().refused);
        for (to, datagram) in sent.iter().cycle().take(100) {
            let (from, forged) = refuse(*to, datagram, reason).remove(0);
            world.receive(from, &forged);
        }
        assert_eq!(world.core.counters().refused, refused, "{reason:?}");
        for (to, datagram) in &sent {
            world.coming.extend(world.server.answer(*to, datagram));
        }
        world.finish();
        assert_eq!(bytes_of(&world.results[&id]), b"1", "{reason:?}");
    }
}

/// An earlier client had the same numbers by chance: its answers have a valid tag and another session.
#[test]
fn an_answer_of_an_earlier_session_is_not_taken() {
    let (config, server) = sealed_server();
    let mut before = World::with_server(config.clone(), server);
    before.call(put("x", "1")).unwrap();
    before.call(put("a", "old")).unwrap();
    before.submit(get("a"));
    let recorded = before.answers();
    let World { server, .. } = before;
    let mut world = World::with_server(config, server);
    world.call(put("x", "1")).unwrap();
    world.call(put("b", "new")).unwrap();
    let id = world.submit(get("b"));
    assert_eq!(world.sent().len(), recorded.len());
    world.receive_all(recorded);
    world.finish();
    assert_eq!(bytes_of(&world.results[&id]), b"new");
}

#[test]
fn one_refusal_may_come_from_damage() {
    let mut world = World::sealed();
    let refuses = |world: &mut World, reason| {
        for (to, datagram) in world.sent() {
            world.coming.extend(refuse(to, &datagram, reason));
        }
    };
    let id = world.submit(get("a"));
    refuses(&mut world, Reason::Seal);
    world.finish();
    assert_eq!(world.results[&id], Ok(Outcome::Missing));
    let id = world.submit(get("a"));
    for reason in [Reason::Malformed, Reason::Version, Reason::Unknown(99), Reason::Replayed] {
        refuses(&mut world, reason);
    }
    world.finish();
    assert_eq!(world.results[&id], Ok(Outcome::Missing));
}

#[test]
fn what_is_refused_again_and_again_ends() {
    for (reason, error) in [
        (Reason::Malformed, Error::BadRequest),
        (Reason::Version, Error::Version { server: VERSION }),
        (Reason::Seal, Error::Secret),
        (Reason::Busy, Error::Busy),
        (Reason::Replayed, Error::TimedOut { was_sent: true }),
    ] {
        let mut world = World::new(Config::new());
        world.call(get("first")).unwrap();
        world.server.refuses = Some(reason);
        assert_eq!(world.call(get("a")), Err(error));
    }
}

#[test]
fn keys_and_values_that_cannot_be_are_refused() {
    let mut world = World::new(Config::new().value_bytes_max(10));
    let long = "k".repeat(251);
    assert_eq!(world.call(get(&long)), Err(Error::Key { bytes: 251, bytes_max: 250 }));
    assert_eq!(world.call(get("")), Err(Error::Key { bytes: 0, bytes_max: 250 }));
    assert_eq!(world.call(put("a", [0; 11])), Err(Error::TooLarge { bytes_max: 10 }));
    assert_eq!(world.server.executed, []);
    world.server.welcome.value_bytes_max = 5;
    assert_eq!(world.call(put("a", [0; 6])), Err(Error::TooLarge { bytes_max: 5 }));
    assert_eq!(world.server.executed.iter().filter(|(_, opcode)| *opcode == Opcode::Put).count(), 0);
}
