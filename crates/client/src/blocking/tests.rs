//! The blocking client against the played server, over a real socket.

use std::time::Duration;

use super::Client;
use crate::{Config, Error, StoreOptions, played::Played};

fn patient() -> Config {
    Config::new()
        .timeout(Duration::from_secs(20))
        .retry_between(Duration::from_millis(5), Duration::from_millis(50))
}

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
    // One for the first answer, one for each call and two more pages of statistics; more if the machine is slow.
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
