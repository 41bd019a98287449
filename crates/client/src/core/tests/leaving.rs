//! Servers that stop, and their successors.

use std::net::{IpAddr, SocketAddr};

use minos_proto::native::{Kind, Opcode};

use super::{
    Answer, OpId, STEPS_MAX, World, bytes_of, get, incr, put,
    server::{BASE_PORT, Server},
};
use crate::{Config, Error, Outcome};

const STEP_NS: u64 = 50_000;

/// A client of several servers, each at an address of its own.
struct Several {
    world: World,
    servers: Vec<Server>,
    /// True for servers that do not answer.
    is_dead: Vec<bool>,
}

fn ip(server: usize) -> [u8; 4] {
    [127, 0, 0, 1 + server as u8]
}

impl Several {
    fn new(count: usize) -> Self {
        let mut world = World::new(Config::new());
        world.core.add_servers((1..count).map(|server| SocketAddr::from((ip(server), BASE_PORT))));
        let servers = (0..count).map(|_| Server::new()).collect();
        Self { world, servers, is_dead: vec![false; count] }
    }

    fn used(&self) -> usize {
        self.of(self.world.core.server())
    }

    fn of(&self, address: SocketAddr) -> usize {
        (0..self.servers.len()).find(|&server| address.ip() == IpAddr::from(ip(server))).unwrap()
    }

    fn answers(&mut self, to: SocketAddr, datagram: &[u8]) -> Vec<Answer> {
        let server = self.of(to);
        if self.is_dead[server] {
            return Vec::new();
        }
        let answers = self.servers[server].answer(Server::address(to.port() - BASE_PORT), datagram);
        answers
            .into_iter()
            .map(|(from, bytes)| (SocketAddr::from((ip(server), from.port())), bytes))
            .collect()
    }

    /// One exchange of datagrams.
    fn step(&mut self) {
        self.world.core.on_timer(self.world.now_ns);
        let answers: Vec<Answer> =
            self.world.sent().into_iter().flat_map(|(to, datagram)| self.answers(to, &datagram)).collect();
        self.world.now_ns += STEP_NS;
        self.world.receive_all(answers);
        self.world.take_completions();
    }

    /// Runs until the operation has ended.
    fn result(&mut self, id: OpId) -> Result<Outcome, Error> {
        for _ in 0..STEPS_MAX {
            if let Some(result) = self.world.results.get(&id) {
                return result.clone();
            }
            self.step();
        }
        panic!("it goes on for ever");
    }

    fn call(&mut self, request: crate::Request) -> Result<Outcome, Error> {
        let id = self.world.submit(request);
        self.result(id)
    }
}

#[test]
fn a_server_that_is_stopping_is_left_for_the_next() {
    let mut several = Several::new(2);
    several.call(put("a", "1")).unwrap();
    several.servers[0].is_draining = true;
    // The answer that says that the server is stopping.
    several.call(get("a")).unwrap();
    assert_eq!(several.used(), 1);
    let before = several.servers[0].requests.len();
    assert_eq!(several.call(get("a")), Ok(Outcome::Missing), "another server has other items");
    assert_eq!(several.call(incr("n")), Ok(Outcome::Number { number: 1, cas: 1 }));
    assert_eq!(several.servers[0].requests.len(), before);
    let counters = several.world.core.counters();
    assert_eq!((counters.drains, counters.failovers), (1, 1));
}

#[test]
fn what_is_under_way_ends_where_it_began() {
    let mut several = Several::new(2);
    let value: Vec<u8> = (0..200_000).map(|index| (index / 9) as u8).collect();
    several.servers[0].put(b"large", value.clone());
    several.call(get("x")).unwrap();
    let read = several.world.submit(get("large"));
    several.step();
    several.servers[0].is_draining = true;
    several.step();
    let counted = several.world.submit(incr("n"));
    assert!(bytes_of(&several.result(read)) == value);
    assert!(several.result(counted).is_ok());
    let was_counted = |server: &Server| server.executed.iter().any(|(_, opcode)| *opcode == Opcode::Incr);
    assert_eq!([&several.servers[0], &several.servers[1]].map(was_counted), [false, true]);
}

#[test]
fn what_a_stopping_server_refuses_to_begin_is_begun_elsewhere() {
    let mut several = Several::new(2);
    several.call(get("x")).unwrap();
    several.servers[0].is_draining = true;
    let stored = several.world.submit(put("large", [7; 50_000]));
    assert!(several.result(stored).is_ok());
    assert!(several.servers[1].items[&b"large"[..]].0 == [7; 50_000]);
    assert!(several.world.now_ns < 500_000_000, "it did not wait for the time-out");
}

#[test]
fn a_server_that_stops_in_the_middle_is_not_waited_for_till_the_end() {
    let mut several = Several::new(2);
    several.servers[0].put(b"large", vec![1; 200_000]);
    several.servers[1].put(b"large", vec![2; 200_000]);
    several.call(incr("n")).unwrap();
    let read = several.world.submit(get("large"));
    several.step();
    several.servers[0].is_draining = true;
    several.step();
    several.is_dead[0] = true;
    assert!(bytes_of(&several.result(read)) == [2; 200_000]);
    assert!(several.world.now_ns < 1_500_000_000, "half the time-out, and what it takes there");
}

#[test]
fn what_was_sent_and_must_not_be_repeated_is_not() {
    let mut several = Several::new(2);
    several.call(incr("n")).unwrap();
    several.servers[0].is_draining = true;
    let counted = several.world.submit(incr("n"));
    let read = several.world.submit(get("n"));
    // The answer to the read arrives; the answer to the increment is lost.
    for (to, datagram) in several.world.sent() {
        let answers = several.answers(to, &datagram);
        several.world.now_ns += STEP_NS;
        for (from, bytes) in answers.into_iter().filter(|(_, bytes)| bytes[48] == Opcode::Get.to_byte()) {
            several.world.receive(from, &bytes);
        }
    }
    several.is_dead[0] = true;
    assert!(several.result(read).is_ok());
    assert_eq!(several.result(counted), Err(Error::OutcomeUnknown));
    assert_eq!(several.servers[1].executed.len(), 0);
}

#[test]
fn a_silent_server_is_left_for_the_next() {
    let mut several = Several::new(3);
    several.is_dead = vec![true, true, false];
    assert_eq!(several.call(get("a")), Ok(Outcome::Missing));
    assert_eq!(several.used(), 2);
    several.is_dead = vec![false, true, true];
    several.world.now_ns += 1_500_000_000;
    assert_eq!(several.call(get("a")), Ok(Outcome::Missing), "the first one is there again");
    assert_eq!(several.used(), 0);
    assert_eq!(several.world.core.counters().drains, 0);
}

#[test]
fn the_only_server_is_asked_again_until_its_successor_answers() {
    let mut world = World::new(Config::new());
    world.call(get("x")).unwrap();
    world.server.is_draining = true;
    world.call(get("x")).unwrap();
    let executed = world.server.executed.len();
    let id = world.submit(incr("n"));
    let (mut hellos, mut times) = (0, Vec::new());
    while world.now_ns < 1_000_000_000 {
        world.core.on_timer(world.now_ns);
        for (to, datagram) in world.sent() {
            assert_eq!(datagram[3], Kind::Hello as u8, "nothing new is begun");
            (hellos, _) = (hellos + 1, times.push(world.now_ns));
            for (from, answer) in world.server.answer(to, &datagram) {
                world.core.receive(from, &answer, answer.len(), world.now_ns + STEP_NS);
            }
        }
        world.now_ns += STEP_NS;
    }
    assert!((4..30).contains(&hellos), "it is asked less and less often: {times:?}");
    assert_eq!(world.server.executed.len(), executed);
    world.server.restart();
    world.server.is_draining = false;
    world.finish();
    assert_eq!(world.results[&id], Ok(Outcome::Number { number: 1, cas: 1 }));
    let counters = world.core.counters();
    assert_eq!((counters.drains, counters.failovers), (1, 0));
}

#[test]
fn the_next_servers_are_asked_in_turn() {
    let mut several = Several::new(3);
    several.servers[0].is_draining = true;
    several.servers[1].is_draining = true;
    assert_eq!(several.call(get("a")), Ok(Outcome::Missing));
    assert_eq!(several.used(), 2);
}
