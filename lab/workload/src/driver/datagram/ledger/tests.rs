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

fn sent(ledger: &mut Ledger<'_>, item: u64, now_ns: u64) -> u32 {
    let slot = ledger.open(&[get(item)], at(now_ns));
    ledger.await_answer(slot, now_ns);
    slot
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
        let outcome = if index == 0 { Outcome::Missed } else { Outcome::Done };
        ledger.settle(Place { slot, index }, outcome, 50, &mut recorder);
    }
    assert_eq!((recorder.completed_in_window, recorder.operations_in_window), (1, 3));
    assert_eq!((recorder.keys_missed, ledger.len()), (1, 0));
    let again = ledger.open(&[get(1)], at(60));
    assert_eq!(again, slot);
    assert_ne!(ledger.serial(again), serial, "a late answer is to another request");
}

#[test]
fn one_lost_operation_loses_its_request() {
    let workload = workload();
    let mut recorder = Recorder::new(0..1000);
    let mut ledger = Ledger::new(&workload.dataset, TERMS);
    let slot = ledger.open(&[get(1), get(2), get(3)], at(10));
    for (index, outcome) in
        [Outcome::Done, Outcome::Lost, Outcome::Failed(ErrorKind::Busy)].into_iter().enumerate()
    {
        ledger.settle(Place { slot, index: index as u32 }, outcome, 50, &mut recorder);
    }
    assert_eq!((recorder.lost, recorder.completed_in_window, ledger.len()), (1, 0, 0));
    assert!(recorder.errors.is_empty() && recorder.unstamped == 0);
}

#[test]
fn what_is_not_answered_is_lost_once() {
    let workload = workload();
    let mut recorder = Recorder::new(0..1000);
    let mut ledger = Ledger::new(&workload.dataset, TERMS);
    let slot = sent(&mut ledger, 1, 10);
    let late = sent(&mut ledger, 2, 20);
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
    let slot = sent(&mut ledger, 1, 0);
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
