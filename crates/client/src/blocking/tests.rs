//! The blocking client against the played server, over a real socket.

use std::{collections::HashMap, os::fd::AsFd, time::Duration};

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
fn a_time_out_of_the_call_comes_before_that_of_the_client() {
    let server = Played::start(|count| count > 3);
    let mut client = Client::connect(&server.address.to_string(), patient()).unwrap();
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
