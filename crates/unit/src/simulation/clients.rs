//! Clients, whose directories may be old.

use std::sync::Arc;

use minos_rack::ServerId;
use minos_testkit::history::{self, Call, CasOutcome, NEVER};
use rand::RngExt;

use super::world::{Body, COPIES_US, Event, KEYS, Outcome, Party, Request, World};
use crate::Directory;

const ATTEMPTS_MAX: u32 = 40;

#[derive(Default)]
pub(super) struct Client {
    directory: Option<Arc<Directory>>,
    current: Option<Current>,
    /// The value that it saw last of each key.
    seen: [Option<u64>; KEYS],
    attempts: u64,
}

/// A call under way.
struct Current {
    key: usize,
    call: Call,
    called: u64,
    attempt: u64,
    attempts_left: u32,
}

impl World {
    /// The next call of a client.
    pub(super) fn begin(&mut self, client: usize) {
        let is_hot = !self.is_healed && self.random.random_bool(0.4);
        let key = if is_hot { 0 } else { self.random.random_range(0..KEYS) };
        let call = self.draw(client, key);
        let called = self.ticks.next();
        self.called.push((self.now_us, called));
        let current = Current { key, call, called, attempt: 0, attempts_left: ATTEMPTS_MAX };
        self.clients[client].current = Some(current);
        self.attempt(client);
    }

    fn draw(&mut self, client: usize, key: usize) -> Call {
        let new = self.values + 1;
        let call = match (self.random.random_range(0..100), self.clients[client].seen[key]) {
            _ if self.is_healed => Call::Get(None),
            (0..30, _) => Call::Set(new),
            (30..34, _) => Call::Delete(true),
            (34..50, Some(expected)) => Call::Cas { expected, new, outcome: CasOutcome::Stored },
            _ => Call::Get(None),
        };
        if matches!(call, Call::Set(_) | Call::Cas { .. }) {
            self.values = new;
        }
        call
    }

    /// Sends the current call to a node that may serve it, by the client's directory.
    fn attempt(&mut self, client: usize) {
        const TIME_OUT_US: u64 = 5_000;
        let ids: Vec<ServerId> = self.hosts.keys().copied().collect();
        let shard = self.clients.get(client).and_then(|it| it.current.as_ref()).map(|it| self.shard(it.key));
        let one = &mut self.clients[client];
        let (Some(current), Some(shard)) = (one.current.as_mut(), shard) else { return };
        one.attempts += 1;
        current.attempt = one.attempts;
        let owner = one.directory.as_ref().and_then(|directory| {
            let place = directory.place(shard)?;
            directory.node(place.node)
        });
        let is_read = matches!(current.call, Call::Get(_));
        // Nodes of other units may have a copy.
        let is_anywhere = self.plan.copies > 1 && is_read && self.random.random_bool(0.4);
        let readers: Vec<ServerId> = match (&one.directory, owner) {
            _ if is_anywhere => ids,
            // Those that the client knows may have left the rack.
            _ if self.is_healed && current.attempts_left.is_multiple_of(5) => ids,
            (Some(directory), Some(owner)) if is_read => {
                directory.nodes().iter().filter(|node| node.unit == owner.unit).map(|node| node.id).collect()
            }
            (_, Some(owner)) if current.attempts_left % 5 > 0 => vec![owner.id],
            _ => ids,
        };
        let (key, call, attempt) = (current.key, current.call, current.attempt);
        let request = Request { client, attempt, key, call, is_forwarded: false };
        let to = readers[self.random.random_range(0..readers.len())];
        self.send(Party::Client(client), Party::Node(to), Body::Request(request));
        self.after(TIME_OUT_US, Event::TimeOut(client, attempt));
    }

    pub(super) fn reply(
        &mut self,
        client: usize,
        attempt: u64,
        outcome: Outcome,
        directory: Option<Arc<Directory>>,
    ) {
        let one = &mut self.clients[client];
        let is_news = |it: &Arc<Directory>| one.directory.as_ref().is_none_or(|held| it.is_newer_than(held));
        if let Some(directory) = directory.filter(is_news) {
            one.directory = Some(directory);
        }
        let Some(current) = one.current.as_mut().filter(|current| current.attempt == attempt) else { return };
        if outcome == Outcome::NotHere {
            current.attempts_left -= 1;
            if current.attempts_left > 0 {
                // The next attempt; nobody answers this one any more.
                current.attempt = 0;
                let delay_us = self.random.random_range(100..1500);
                return self.after(delay_us, Event::TimeOut(client, 0));
            }
            one.current = None;
            return self.rest(client);
        }
        let call = match (current.call, outcome) {
            (Call::Get(_), Outcome::Value(value)) => Call::Get(value),
            (Call::Get(_), Outcome::Stale(value)) => {
                self.record_stale(client, value);
                return self.rest(client);
            }
            (Call::Cas { expected, new, .. }, Outcome::Cas(outcome)) => Call::Cas { expected, new, outcome },
            (Call::Delete(_), Outcome::Missing) => Call::Delete(false),
            (call, _) => call,
        };
        let key = current.key;
        if let Call::Get(value) = call {
            one.seen[key] = value.or(one.seen[key]);
        }
        let returned = self.ticks.next();
        self.record(client, call, returned);
        if self.is_healed {
            self.final_reads.insert(key);
        }
        self.rest(client);
    }

    /// Nobody answered; a write may have taken place, or may yet.
    pub(super) fn time_out(&mut self, client: usize, attempt: u64) {
        let is_current = self.clients[client].current.as_ref().is_some_and(|it| it.attempt == attempt);
        if is_current && attempt == 0 {
            self.attempt(client);
        } else if is_current {
            self.tally.note("unanswered");
            self.give_up(client);
            self.rest(client);
        }
    }

    pub(super) fn give_up(&mut self, client: usize) {
        let call = self.clients[client].current.as_ref().filter(|it| it.attempt > 0).map(|it| it.call);
        match call {
            Some(Call::Get(_)) | None => self.clients[client].current = None,
            Some(call) => self.record(client, call, NEVER),
        }
    }

    /// A copy holds what its owner held at some moment since a while before the call: the call began then.
    fn record_stale(&mut self, client: usize, value: Option<u64>) {
        let returned = self.ticks.next();
        let Some(Current { key, called, .. }) = self.clients[client].current.take() else { return };
        let began = self.called.iter().rev().find(|(_, tick)| *tick == called);
        let since_us = began.map_or(0, |(at_us, _)| at_us.saturating_sub(COPIES_US + COPIES_US / 100));
        let before = self.called.iter().rev().find(|(at_us, _)| *at_us < since_us);
        let called = before.map_or(0, |(_, tick)| *tick);
        // It overlaps with calls of the same client.
        let client = (self.clients.len() + self.history.len()) as u32;
        self.history.push(history::Event {
            client,
            key: key as u32,
            called,
            returned,
            call: Call::Get(value),
        });
    }

    fn record(&mut self, client: usize, call: Call, returned: u64) {
        let Some(Current { key, called, .. }) = self.clients[client].current.take() else { return };
        let (client, key) = (client as u32, key as u32);
        self.history.push(history::Event { client, key, called, returned, call });
    }

    fn rest(&mut self, client: usize) {
        let delay_us = self.random.random_range(0..2500);
        self.after(delay_us, Event::Begin(client));
    }
}
