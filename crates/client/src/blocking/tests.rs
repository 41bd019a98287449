//! The blocking client against the played server, over a real socket.

use std::{
    collections::HashMap,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use minos_net::{Wait, wait_readable};

use super::Client;
use crate::{
    Config, Error, Outcome, Request, StoreOptions, Verb,
    core::Full,
    played::{Played, patient},
};

#[test]
fn calls_return_what_the_server_says() {
    let server = Played::start(|_| false);
    let mut client = Client::connect(&server.address.to_string(), patient()).unwrap();
    assert_eq!(client.put("a", "1"), Ok(1));
    assert_eq!(client.get("a").unwrap().unwrap().bytes, b"1");
    assert_eq!(client.get("b"), Ok(None));
    assert_eq!(client.delete("a"), Ok(true));
    assert_eq!(client.incr("n", 3), Ok(Some(3)));
    assert_eq!(client.stats("").unwrap()[4], ("name4".to_owned(), "4".to_owned()));
    assert!(client.get_many::<&str>([]).is_empty());
    // One for the ping of `connect`, one for each call, two more for pages of statistics; more on a slow
    // machine.
    let requests = server.end().requests;
    assert!(requests.len() >= 9 && requests.iter().all(|&count| count == 1), "{requests:?}");
}

#[test]
fn an_address_without_a_host_is_left_out_while_there_is_another() {
    let server = Played::start(|_| false);
    // Longer than a part of a name may be, so that no name server is asked.
    let nobody = "x".repeat(64);
    for addresses in [format!("{nobody}, {}", server.address), format!("{},{nobody}:7", server.address)] {
        let mut client = Client::connect(&addresses, patient()).unwrap();
        assert!(client.server() == server.address && client.ping().is_ok());
    }
    let none = Client::open(&format!("{nobody},{nobody}:7"), patient());
    let error = none.expect_err("there is no such host").to_string();
    assert!(error.contains(&format!("{nobody}:11311")), "the first is named: {error}");
}

#[test]
fn more_than_may_be_unfinished_takes_turns() {
    let server = Played::start(|count| count % 5 == 4);
    let config = patient().operations_max(7);
    let mut client = Client::connect(&server.address.to_string(), config).unwrap();
    let items = (0..100).map(|index| (format!("{index}"), format!("value {index}")));
    assert!(client.put_many(items, StoreOptions::new()).iter().all(Result::is_ok));
    let found = client.get_many((0..101).map(|index| index.to_string()));
    for (result, index) in found.into_iter().zip(0..) {
        let bytes = result.unwrap().map(|value| value.bytes);
        assert_eq!(bytes, (index < 100).then(|| format!("value {index}").into_bytes()));
    }
}

#[test]
fn what_waits_for_room_beside_what_has_no_answer_waits_no_longer_than_that() {
    let server = Played::start_honest(|_| true);
    let mut client = Client::connect(&server.address.to_string(), patient().operations_max(4)).unwrap();
    server.begin_losses();
    // Long enough that the first are sent before, though the process stands still for a moment.
    client.set_timeout(Some(Duration::from_secs(1)));
    let begun = Instant::now();
    let results = client.get_many((0..400).map(|index| index.to_string()));
    let late = |was_sent| Err(Error::TimedOut { was_sent });
    assert!(results[..4].iter().all(|result| *result == late(true)), "{results:?}");
    // As many got the room of these.
    assert!(results.len() == 400 && results[8..].iter().all(|result| *result == late(false)), "{results:?}");
    // A hundred times as long before the fix.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn what_waits_for_room_may_take_longer_than_one_time_out_while_there_are_answers() {
    let server = Played::start(|_| {
        thread::sleep(Duration::from_millis(15));
        false
    });
    let mut client = Client::connect(&server.address.to_string(), patient().operations_max(2)).unwrap();
    let timeout = Duration::from_secs(1);
    client.set_timeout(Some(timeout));
    // A machine that stands still as long as that times some out, but hardly in each of many tries.
    let mut tries = (0..20).map(|_| {
        let begun = Instant::now();
        let results = client.get_many((0..200).map(|index| index.to_string()));
        assert!(begun.elapsed() > timeout, "it was too fast to show anything");
        results
    });
    assert!(
        tries.any(|results| results.iter().all(|result| *result == Ok(None))),
        "some time out in each try"
    );
}

#[test]
fn a_loop_of_the_caller_drives_what_was_started() {
    let server = Played::start(|count| count % 7 == 5);
    let config = patient().operations_max(16);
    let mut client = Client::open(&server.address.to_string(), config).unwrap();
    assert_eq!(client.until_next(), None, "there is nothing to do");
    let mut requests = (0..100).map(|index| Request::new(Verb::Put, format!("{index}")).value("x"));
    let (mut names, mut results) = (HashMap::new(), Vec::new());
    let mut next = requests.next();
    while results.len() < 100 {
        while let Some(request) = next.take() {
            match client.start(request) {
                Ok(id) => assert!(names.insert(id, ()).is_none()),
                Err(Full(request)) => {
                    next = Some(request);
                    break;
                }
            }
            next = requests.next();
        }
        client.step().unwrap();
        while let Some(completion) = client.take_ended() {
            assert!(names.remove(&completion.id).is_some());
            results.push(completion.result);
        }
        if let Some(wait) = client.until_next() {
            wait_readable(&[client.as_fd()], Wait::For(wait)).unwrap();
        }
    }
    assert!(results.iter().all(|result| matches!(result, Ok(Outcome::Done { .. }))));
    // A blocking call does not affect started operations.
    let id = client.start(Request::new(Verb::Get, "5")).unwrap();
    assert_eq!(client.get("7").unwrap().unwrap().bytes, b"x");
    while client.until_next().is_some() {
        client.step().unwrap();
        if let Some(completion) = client.take_ended() {
            assert_eq!(completion.id, id);
            return;
        }
    }
    panic!("it was forgotten");
}

#[test]
fn what_is_given_up_ends_unheard() {
    let server = Played::start_honest(|count| count < 28);
    let mut client = Client::connect(&server.address.to_string(), patient()).unwrap();
    server.begin_losses();
    let mut looks = 0;
    let begun = Instant::now();
    let results = client.call_many_while([Request::new(Verb::Get, "a"), Request::new(Verb::Get, "")], || {
        looks += 1;
        looks < 2
    });
    assert_eq!(results[0], Err(Error::TimedOut { was_sent: true }));
    assert!(matches!(results[1], Err(Error::Key { .. })), "that one had ended");
    assert!(looks == 2 && begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let id = client.start(Request::new(Verb::Get, "b")).unwrap();
    while client.get("c") != Ok(None) || client.wire.core.unfinished() > 0 {
        client.step().unwrap();
    }
    assert_eq!(client.take_ended().map(|ended| ended.id), Some(id));
    assert_eq!(client.take_ended(), None);
}

#[test]
fn a_time_out_of_the_call_comes_before_that_of_the_client() {
    let server = Played::start_honest(|count| count > 1);
    let mut client = Client::connect(&server.address.to_string(), patient()).unwrap();
    server.begin_losses();
    client.set_timeout(Some(Duration::from_millis(20)));
    while client.get("a").is_ok() {}
    let own = client.call(Request::new(Verb::Get, "a").timeout(Duration::ZERO));
    assert!(matches!(own, Err(Error::Option(_))));
}

#[test]
fn large_values_survive_losses() {
    let server = Played::start(|count| count % 10 == 3);
    let mut client = Client::connect(&server.address.to_string(), patient()).unwrap();
    let value: Vec<u8> = (0..300_000).map(|index| (index / 7) as u8).collect();
    client.put("a", value.clone()).unwrap();
    assert!(client.get("a").unwrap().unwrap().bytes == value);
}

#[test]
fn what_has_no_answer_ends_in_time() {
    let server = Played::start(|_| true);
    let config = Config::new().timeout(Duration::from_millis(50));
    let client = Client::connect(&server.address.to_string(), config);
    assert_eq!(client.err(), Some(Error::TimedOut { was_sent: false }));
}
