use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use minos_base::seeded;
use minos_proto::native::Status;
use rand::RngExt as _;

use minos_sync::SpinLock;

use super::{
    table::{LOOKS_MAX, Session},
    terms::ONCE_WINDOW,
    window::OnceWindow,
    *,
};

const FIRST: WorkerId = WorkerId(1);
const OTHER: WorkerId = WorkerId(2);

fn peer(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn outcome(number: u64) -> Outcome {
    Outcome { status: Status::Ok, item_flags: 3, cas: number + 1, number: Some(number) }
}

fn sessions(sessions_max: usize, per_address_max: usize) -> Sessions {
    Sessions::new(SessionsConfig { sessions_max, per_address_max }, &[5; 16])
}

/// A table with the session of a client.
fn opened(sessions: Sessions) -> (Sessions, u64, Instant) {
    let now = Instant::now();
    let id = sessions.open(peer("10.0.0.1:1"), 1, now).unwrap();
    (sessions, id, now)
}

fn execute(begin: Begin) -> Ticket {
    match begin {
        Begin::Execute(ticket) => ticket,
        other => panic!("not to be executed: {other:?}"),
    }
}

fn done(begin: Begin) -> Outcome {
    match begin {
        Begin::Done(outcome) => outcome,
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn an_operation_is_free_then_under_way_then_done() {
    let (sessions, id, now) = opened(sessions(1024, 64));
    let ticket = execute(sessions.begin(id, 7, FIRST, now));
    assert_eq!((ticket.session(), ticket.once()), (id, 7));
    assert!(matches!(sessions.begin(id, 7, FIRST, now), Begin::InProgress(FIRST)));
    drop(ticket);
    let ticket = execute(sessions.begin(id, 7, OTHER, now));
    assert!(matches!(sessions.begin(id, 7, FIRST, now), Begin::InProgress(OTHER)));
    ticket.finish(outcome(9));
    assert_eq!(done(sessions.begin(id, 7, FIRST, now)), outcome(9));
    assert!(matches!(sessions.begin(id ^ 1 << 40, 7, FIRST, now), Begin::Unknown));
    assert!(matches!(sessions.begin(0, 7, FIRST, now), Begin::Unknown));
    let totals = sessions.totals();
    assert_eq!((totals.open, totals.opened, totals.in_progress), (1, 1, 0));
    assert_eq!((totals.repeated, totals.repeated_early, totals.unknown), (1, 2, 2));
}

#[test]
fn a_session_takes_at_most_five_kilobytes() {
    assert!(size_of::<Session>() <= 5_000);
}

#[test]
fn a_table_that_forgets_executes_again() {
    let (sessions, now) = (sessions(1, 1), Instant::now());
    sessions.forget_outcomes();
    let id = sessions.open(peer("10.0.0.1:1"), 1, now).unwrap();
    let first = execute(sessions.begin(id, 7, FIRST, now));
    let second = execute(sessions.begin(id, 7, FIRST, now));
    first.finish(outcome(1));
    second.finish(outcome(2));
    execute(sessions.begin(id, 7, FIRST, now)).finish(outcome(3));
    assert_eq!(sessions.totals().in_progress, 0);
}

#[test]
fn what_falls_out_of_the_window_is_too_old() {
    let (sessions, id, now) = opened(sessions(1, 1));
    let slow = execute(sessions.begin(id, 0, FIRST, now));
    let last = execute(sessions.begin(id, ONCE_WINDOW - 1, FIRST, now));
    assert!(matches!(sessions.begin(id, 0, FIRST, now), Begin::InProgress(FIRST)));
    let beyond = execute(sessions.begin(id, ONCE_WINDOW, FIRST, now));
    assert!(matches!(sessions.begin(id, 0, FIRST, now), Begin::TooOld));
    // Its place is another number's now, which must not get its outcome.
    slow.finish(outcome(1));
    assert!(matches!(sessions.begin(id, ONCE_WINDOW, FIRST, now), Begin::InProgress(FIRST)));
    beyond.finish(outcome(2));
    last.finish(outcome(3));
    assert_eq!(done(sessions.begin(id, ONCE_WINDOW - 1, FIRST, now)), outcome(3));
    drop(execute(sessions.begin(id, u32::MAX, FIRST, now)));
    assert!(matches!(sessions.begin(id, ONCE_WINDOW, FIRST, now), Begin::TooOld));
    assert_eq!(sessions.totals().in_progress, 0);
}

/// Remembers every number for ever, and what the newest one was.
#[derive(Default)]
struct Model {
    /// The state that a copy of each number finds.
    known: BTreeMap<u32, Seen>,
    newest: u32,
}

impl Model {
    fn begin(&mut self, once: u32, worker: WorkerId) -> Seen {
        self.newest = self.newest.max(once);
        if self.newest - once >= ONCE_WINDOW {
            return Seen::TooOld;
        }
        let found = self.known.get(&once).copied();
        self.known.entry(once).or_insert(Seen::InProgress(worker));
        found.unwrap_or(Seen::Fresh)
    }
}

#[test]
fn a_window_agrees_with_a_memory_of_everything() {
    for seed in 0..200 {
        let mut rng = seeded(seed);
        let (mut window, mut model) = (OnceWindow::default(), Model::default());
        let mut under_way = Vec::new();
        for step in 0..1000 {
            let once = match rng.random_range(0..10) {
                0 => model.newest.saturating_add(rng.random_range(0..2 * ONCE_WINDOW)),
                1..5 => model.newest.saturating_add(1),
                _ => model.newest.saturating_sub(rng.random_range(0..ONCE_WINDOW + 20)),
            };
            let worker = WorkerId(rng.random_range(0..4));
            let seen = window.begin(once, worker);
            assert_eq!(seen, model.begin(once, worker), "seed {seed}, step {step}, number {once}");
            if seen == Seen::Fresh {
                under_way.push(once);
            }
            if !under_way.is_empty() && rng.random_bool(0.4) {
                let once = under_way.swap_remove(rng.random_range(0..under_way.len()));
                if rng.random_bool(0.8) {
                    window.end(once, Some(outcome(step)));
                    model.known.insert(once, Seen::Done(outcome(step)));
                } else {
                    window.end(once, None);
                    model.known.remove(&once);
                }
            }
        }
    }
}

#[test]
fn the_least_recently_used_idle_session_makes_room() {
    let (sessions, start) = (sessions(3, 3), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    let open = |host: u64, seconds| sessions.open(peer(&format!("10.0.0.{host}:1")), host, at(seconds));
    let ids: Vec<_> = (1..4).map(|host| open(host, host).unwrap()).collect();
    let busy = execute(sessions.begin(ids[0], 0, FIRST, at(4)));
    drop(execute(sessions.begin(ids[1], 0, FIRST, at(5))));
    // The first was idle for longer than the third, but has an operation in progress.
    let busy_too = execute(sessions.begin(ids[2], 0, FIRST, at(3)));
    let fourth = open(4, 6).unwrap();
    assert_eq!(ids.iter().map(|&id| sessions.is_known(id)).collect::<Vec<_>>(), [true, false, true]);
    let busy_last = execute(sessions.begin(fourth, 0, FIRST, at(7)));
    assert_eq!(open(5, 8), Err(SessionsBusy));
    for ticket in [busy, busy_too, busy_last] {
        ticket.finish(outcome(0));
    }
    open(5, 9).unwrap();
    assert!(!sessions.is_known(ids[2]) && sessions.is_known(ids[0]));
    let totals = sessions.totals();
    assert_eq!((totals.open, totals.opened, totals.evicted, totals.refused), (3, 5, 2, 1));
}

#[test]
fn an_address_takes_room_only_from_itself_when_it_has_its_share() {
    let (sessions, now) = (sessions(1000, 4), Instant::now());
    let other = sessions.open(peer("10.0.0.2:1"), 0, now).unwrap();
    for nonce in 0..500 {
        let port = 1 + nonce as u16 % 7;
        sessions.open(SocketAddr::from(([10, 0, 0, 1], port)), nonce, now).unwrap();
        assert!(sessions.totals().open <= 5);
    }
    assert!(sessions.is_known(other));
    // The same address, as a socket for both families shows it.
    sessions.open(peer("[::ffff:10.0.0.1]:9"), 0, now).unwrap();
    assert_eq!(sessions.totals().open, 5);
}

#[test]
fn opening_takes_no_more_steps_in_a_full_large_table_than_in_a_small_one() {
    let full = 1 << 13;
    let (sessions, start) = (sessions(full as usize, 4), Instant::now());
    let at = |step: u32| start + Duration::from_micros(u64::from(step));
    let open = |step: u32| {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + step / 4);
        sessions.open(SocketAddr::from((address, 1)), u64::from(step), at(step)).unwrap()
    };
    let ids: Vec<u64> = (0..full).map(open).collect();
    let before = sessions.totals().looks;
    for step in full..2 * full {
        open(step);
    }
    let looks = sessions.totals().looks - before;
    assert!(looks <= u64::from(full) * (LOOKS_MAX as u64 + 4), "{looks}");
    assert_eq!((sessions.totals().open, sessions.totals().evicted), (u64::from(full), u64::from(full)));
    assert!(ids.iter().all(|&id| !sessions.is_known(id)), "those that were not used for longest have gone");
}

#[test]
fn a_session_in_use_stays_in_a_full_table() {
    let (sessions, start) = (sessions(1000, 4), Instant::now());
    let at = |step: u64| start + Duration::from_millis(step);
    let kept = sessions.open(peer("10.0.0.1:1"), 0, start).unwrap();
    for step in 0..5000 {
        drop(execute(sessions.begin(kept, step as u32, FIRST, at(step))));
        let address = std::net::Ipv4Addr::from_bits(0x0a01_0000 + step as u32);
        sessions.open(SocketAddr::from((address, 1)), 0, at(step)).unwrap();
    }
    assert!(sessions.is_known(kept));
}

#[test]
fn a_repeated_wish_opens_one_session() {
    let (sessions, id, now) = opened(sessions(100, 100));
    assert_eq!(sessions.open(peer("10.0.0.1:1"), 1, now), Ok(id));
    assert_ne!(sessions.open(peer("10.0.0.1:2"), 1, now), Ok(id));
    assert_ne!(sessions.open(peer("10.0.0.1:1"), 2, now), Ok(id));
    assert_eq!(sessions.totals().open, 3);
}

#[test]
fn bounds_that_are_not_possible_are_brought_inside() {
    let (sessions, now) = (sessions(0, 0), Instant::now());
    let first = sessions.open(peer("10.0.0.1:1"), 1, now).unwrap();
    let second = sessions.open(peer("10.0.0.1:1"), 2, now).unwrap();
    assert!(!sessions.is_known(first) && sessions.is_known(second) && first != second);
}

#[test]
fn a_datagram_is_accepted_once() {
    let (sessions, id, now) = opened(sessions(10, 10));
    assert_eq!(sessions.accept(id, 5, now), Acceptance::Fresh);
    assert_eq!(sessions.accept(id, 5, now), Acceptance::Replayed);
    assert_eq!(sessions.accept(id, 4, now), Acceptance::Fresh);
    assert_eq!(sessions.accept(id + 1, 6, now), Acceptance::Unknown);
    assert_eq!((sessions.totals().replayed, sessions.totals().unknown), (1, 1));
}

const NUMBERS: u32 = 20_000;

/// Counts the executions of each number when two threads execute the same ones, never further apart than a
/// window. `run` runs an operation unless it was run before; false if the caller should ask again.
fn hammer(run: impl Fn(u32, &mut dyn FnMut()) -> bool + Sync) -> Vec<u32> {
    let executed: Vec<AtomicU32> = (0..NUMBERS).map(|_| AtomicU32::new(0)).collect();
    let progress = [AtomicU32::new(0), AtomicU32::new(0)];
    thread::scope(|scope| {
        for me in 0..2 {
            let (executed, progress, run) = (&executed, &progress, &run);
            scope.spawn(move || {
                for once in 0..NUMBERS {
                    let mut operation = || {
                        thread::yield_now();
                        executed[once as usize].fetch_add(1, Ordering::Relaxed);
                    };
                    while !run(once, &mut operation) {
                        thread::yield_now();
                    }
                    progress[me].store(once, Ordering::Relaxed);
                    while once > progress[1 - me].load(Ordering::Relaxed) + ONCE_WINDOW / 2 {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    executed.into_iter().map(AtomicU32::into_inner).collect()
}

#[test]
fn threads_execute_each_number_once() {
    let (sessions, id, now) = opened(sessions(1, 1));
    let run = |once: u32, operation: &mut dyn FnMut()| match sessions.begin(id, once, FIRST, now) {
        Begin::Execute(ticket) => {
            operation();
            ticket.finish(outcome(u64::from(once)));
            true
        }
        Begin::Done(done) => {
            assert_eq!(done, outcome(u64::from(once)));
            true
        }
        Begin::InProgress(_) => false,
        other => panic!("{other:?}"),
    };
    assert!(hammer(run).iter().all(|&times| times == 1));
    assert_eq!(sessions.totals().in_progress, 0);
}

#[test]
fn a_table_without_what_is_under_way_executes_some_twice() {
    // Remembers outcomes, but not operations in progress.
    let known = SpinLock::new(vec![false; NUMBERS as usize]);
    let run = |once: u32, operation: &mut dyn FnMut()| {
        if !known.lock()[once as usize] {
            operation();
            known.lock()[once as usize] = true;
        }
        true
    };
    assert!(hammer(run).iter().any(|&times| times > 1), "the test above can not see anything");
}

#[test]
fn threads_that_open_and_use_sessions_lose_no_ticket() {
    let sessions = sessions(8, 8);
    thread::scope(|scope| {
        for me in 0..2u16 {
            let sessions = &sessions;
            scope.spawn(move || {
                for nonce in 0..5000 {
                    let now = Instant::now();
                    let Ok(id) = sessions.open(SocketAddr::from(([10, 0, 0, 1], me)), nonce, now) else {
                        continue;
                    };
                    if let Begin::Execute(ticket) = sessions.begin(id, 0, FIRST, now) {
                        assert!(sessions.is_known(id));
                        thread::yield_now();
                        assert!(matches!(sessions.begin(id, 0, FIRST, now), Begin::InProgress(FIRST)));
                        ticket.finish(outcome(nonce));
                    }
                }
            });
        }
    });
    assert_eq!((sessions.totals().in_progress, sessions.totals().open), (0, 8));
}
