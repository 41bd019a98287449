//! Tests of the ledger.

use super::*;
use crate::{Shape, Workload};

const TERMS: Terms = Terms { width: 4, contents: true, timeout: Duration::from_nanos(100), repeats: 0 };

fn workload() -> Workload {
    Workload::open("etc", &Shape { keys: Some(100), ..Shape::default() }, 1).unwrap()
}

fn get(item: u64) -> Op {
    Op { kind: OpKind::Get, item, value_bytes: None }
}

fn at(now_ns: u64) -> Moment {
    Moment { intended_ns: now_ns, now_ns }
}

#[test]
fn a_request_is_answered_when_all_its_operations_are() {
    let workload = workload();
    let mut recorder = Recorder::new(0..1000);
    let mut ledger = Ledger::new(&workload.dataset, TERMS);
    let slot = ledger.open(&[get(1), get(2), get(3)], at(10));
    let serial = ledger.serial(slot);
    for index in [2, 0, 1] {
        assert_eq!(recorder.completed_in_window, 0);
        let number = ledger.number(Place { slot, index });
        let place = ledger.find(number, serial).unwrap();
        let outcome = if index == 0 { Outcome::Missed } else { Outcome::Done };
        ledger.settle(place, outcome, 50, &mut recorder);
        assert_eq!(ledger.find(number, serial), None, "an answer counts once");
    }
    assert_eq!((recorder.completed_in_window, recorder.operations_in_window), (1, 3));
    assert_eq!((recorder.keys_missed, ledger.len()), (1, 0));
    let again = ledger.open(&[get(1)], at(60));
    assert_eq!(again, slot);
    assert_eq!(ledger.find(ledger.number(Place { slot, index: 0 }), serial), None, "a late answer");
}

#[test]
fn what_is_not_answered_is_lost_once() {
    let workload = workload();
    let mut recorder = Recorder::new(0..1000);
    let mut ledger = Ledger::new(&workload.dataset, TERMS);
    let slot = ledger.open(&[get(1)], at(10));
    let late = ledger.open(&[get(2)], at(20));
    ledger.hear(late, 50);
    assert_eq!(ledger.next_overdue(109, &mut recorder), None);
    assert_eq!((recorder.lost, ledger.len()), (0, 2));
    assert_eq!(ledger.next_overdue(130, &mut recorder), None);
    assert_eq!((recorder.lost, ledger.len()), (1, 1), "one was heard of");
    assert_eq!(ledger.serial(slot), 0);
    assert_eq!(ledger.next_overdue(150, &mut recorder), None);
    assert_eq!((recorder.lost, ledger.len()), (2, 0));
}

#[test]
fn what_may_be_repeated_is() {
    let workload = workload();
    let mut recorder = Recorder::new(0..1000);
    let mut ledger = Ledger::new(&workload.dataset, Terms { repeats: 1, ..TERMS });
    let slot = ledger.open(&[get(1)], at(0));
    assert_eq!(ledger.next_overdue(100, &mut recorder), Some(slot));
    assert_eq!(ledger.next_overdue(100, &mut recorder), None);
    assert_eq!((ledger.next_overdue(200, &mut recorder), recorder.lost), (None, 1));
}

#[test]
fn a_wrong_value_fails_the_whole_request() {
    let workload = workload();
    let mut recorder = Recorder::new(0..1000);
    let mut ledger = Ledger::new(&workload.dataset, TERMS);
    let mut value = Vec::new();
    workload.dataset.body(50).unwrap().append_to(&mut value);
    assert_eq!(ledger.judge(50, &value), Outcome::Done);
    value[0] ^= 1;
    let wrong = ledger.judge(50, &value);
    assert_eq!(wrong, Outcome::Failed(ErrorKind::Mismatch));
    let slot = ledger.open(&[get(50), get(51)], at(0));
    ledger.settle(Place { slot, index: 0 }, wrong, 10, &mut recorder);
    ledger.settle(Place { slot, index: 1 }, Outcome::Done, 10, &mut recorder);
    assert_eq!((recorder.completed_in_window, recorder.errors[&ErrorKind::Mismatch]), (0, 1));
}
