//! The asynchronous client against the played server, over a real socket.

use std::time::{Duration, Instant};

use tokio::{runtime::Handle, task::JoinSet, time::sleep};

use super::Client;
use crate::{
    Config, Error, Request, StoreOptions, Verb,
    played::{Played, patient},
};

#[tokio::test]
async fn tasks_share_a_client_and_its_datagrams() {
    let server = Played::start(|count| count % 7 == 5);
    let client = Client::connect(&server.address.to_string(), patient()).await.unwrap();
    let mut tasks = JoinSet::new();
    for index in 0..200u64 {
        let client = client.clone();
        tasks.spawn(async move {
            let key = format!("key{index}");
            client.put(&key, key.clone()).await.unwrap();
            assert_eq!(client.get(&key).await.unwrap().unwrap().bytes, key.as_bytes());
            client.incr("n", 1).await.unwrap();
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(client.incr("n", 1).await, Ok(Some(201)), "each was counted once");
    let requests = server.end().requests;
    assert!(requests.iter().any(|&count| count > 4), "operations share datagrams: {requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_keep_their_order_and_large_values_come_through() {
    let server = Played::start(|count| count % 11 == 6);
    let config = patient().operations_max(16);
    let client = Client::connect(&server.address.to_string(), config).await.unwrap();
    let items = (0..100).map(|index| (format!("{index}"), vec![index; 100 * usize::from(index)]));
    let stored = client.put_many(items, StoreOptions::new()).await;
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    let found = client.get_many((0..100).map(|index: u8| index.to_string())).await;
    for (result, index) in found.into_iter().zip(0..) {
        assert!(result.unwrap().unwrap().bytes == vec![index; 100 * usize::from(index)]);
    }
    assert!(client.call_many([]).await.is_empty());
}

#[tokio::test]
async fn a_call_that_is_given_up_harms_no_other() {
    // The server answers nothing for a while, so that calls are cancelled halfway.
    let server = Played::start(|count| (4..30).contains(&count));
    let client = Client::connect(&server.address.to_string(), patient()).await.unwrap();
    client.put("a", "1").await.unwrap();
    for _ in 0..20 {
        let given_up = tokio::time::timeout(Duration::from_millis(1), client.get("a")).await;
        assert!(given_up.is_err() || given_up == Ok(client.get("a").await));
    }
    assert_eq!(client.get("a").await.unwrap().unwrap().bytes, b"1");
}

#[tokio::test]
async fn the_task_ends_with_the_last_handle() {
    let server = Played::start(|_| false);
    let client = Client::connect(&server.address.to_string(), patient()).await.unwrap();
    let other = client.clone();
    let alive = || Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive(), 1);
    drop(client);
    other.ping().await.unwrap();
    drop(other);
    for _ in 0..1000 {
        if alive() == 0 {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("the task goes on");
}

#[tokio::test]
async fn what_waits_for_room_beside_what_has_no_answer_waits_no_longer_than_that() {
    let server = Played::start_honest(|_| true);
    let client = Client::connect(&server.address.to_string(), patient().operations_max(4)).await.unwrap();
    server.begin_losses();
    let get = |index: u64| Request::new(Verb::Get, index.to_string()).timeout(Duration::from_secs(1));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for index in 0..100u64 {
        let client = client.clone();
        tasks.spawn(async move { client.call(get(index)).await.err() });
    }
    let results = client.call_many((0..100).map(get)).await;
    assert!(results.iter().all(|result| matches!(result, Err(Error::TimedOut { .. }))), "{results:?}");
    let results = tasks.join_all().await;
    assert!(results.iter().all(|result| matches!(result, Some(Error::TimedOut { .. }))), "{results:?}");
    // Fifty times as long before the fix.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Before the fix, it ended after those that it waited behind.
#[tokio::test]
async fn what_waits_for_room_behind_patient_calls_ends_in_time() {
    let server = Played::start_honest(|_| true);
    let client = Client::connect(&server.address.to_string(), patient().operations_max(1)).await.unwrap();
    server.begin_losses();
    let get = |timeout_ms| Request::new(Verb::Get, "a").timeout(Duration::from_millis(timeout_ms));
    let mut patient = JoinSet::new();
    for _ in 0..3 {
        let (client, request) = (client.clone(), get(20_000));
        patient.spawn(async move { client.call(request).await });
    }
    // They have come before.
    client.state().await.unwrap();
    let begun = Instant::now();
    assert_eq!(client.call(get(100)).await, Err(Error::TimedOut { was_sent: false }));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_has_no_answer_ends_in_time() {
    let server = Played::start(|_| true);
    let config = Config::new().timeout(Duration::from_millis(50));
    let client = Client::connect(&server.address.to_string(), config).await;
    assert_eq!(client.err(), Some(Error::TimedOut { was_sent: false }));
}
