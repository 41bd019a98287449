use std::collections::BTreeMap;

use minos_rack::{MicroShards, UnitId};

use super::*;
use crate::{Asked, Change, Follower, Node, Progress, Pull, Standing};

const SHARD: MicroShard = MicroShard(0);
const A: ServerId = ServerId(1);
const B: ServerId = ServerId(2);

fn terms() -> Terms {
    Terms::new(1_000_000, 500, 100_000).unwrap()
}

/// Two nodes and one micro-shard, which is at A with its items.
fn directory() -> Directory {
    let node = |id| Node { id, unit: UnitId(0), standing: Standing::Member, address: String::new() };
    let directory = Directory::new(MicroShards::new(1).unwrap(), 1, vec![node(A), node(B)]).unwrap();
    placed(&directory, Place { node: A, epoch: 0, since: 1, is_serving: true })
}

fn placed(directory: &Directory, place: Place) -> Directory {
    directory.changed(Change { places: BTreeMap::from([(SHARD, place)]), ..Change::default() }).unwrap()
}

fn member(id: ServerId, word: Ownership) -> Member {
    Member::new(id, 7, &[word], terms(), Timing { report_us: 1000, ask_us: 1000, copies_us: None })
}

fn orders(directory: &Directory) -> Orders {
    Orders {
        incarnation: 7,
        lease: Some(0),
        epoch: directory.epoch(),
        directory: Some(Arc::new(directory.clone())),
        pulls: Vec::new(),
        cancelled: Vec::new(),
        weights: None,
    }
}

fn effects_of(member: &mut Member, now_us: u64, input: Input) -> Vec<Effect> {
    let mut effects = Vec::new();
    member.handle(now_us, input, &mut effects);
    member.report_if_due(now_us, &mut effects);
    effects
}

fn words(effects: &[Effect]) -> Vec<Ownership> {
    let word = |effect: &Effect| match effect {
        Effect::SetWord(_, word) => Some(*word),
        _ => None,
    };
    effects.iter().filter_map(word).collect()
}

fn report(effects: &[Effect]) -> &Report {
    let mut reports = effects.iter().filter_map(|effect| match effect {
        Effect::Report(report) => Some(report),
        _ => None,
    });
    reports.next_back().expect("a report")
}

/// The owner under the directory.
fn owner(directory: &Directory) -> Member {
    let place = directory.place(SHARD).unwrap();
    let mut member = member(A, Ownership::owned(place.since).withdrawn());
    let effects = effects_of(&mut member, 1, Input::Orders(orders(directory)));
    assert_eq!(words(&effects), [Ownership::owned(place.epoch)]);
    member
}

#[test]
fn a_new_owner_begins_without_items_and_with_the_next_epoch() {
    let directory = directory();
    let fresh = placed(&directory, Place { node: A, epoch: 0, since: 0, is_serving: true });
    let place = fresh.place(SHARD).unwrap();
    let mut member = member(A, Ownership::owned(place.since - 1).withdrawn());
    let effects = effects_of(&mut member, 1, Input::Orders(orders(&fresh)));
    assert!(effects.contains(&Effect::Empty(SHARD)) && words(&effects) == [Ownership::VOID]);
    let effects = effects_of(&mut member, 2, Input::Emptied(SHARD));
    assert_eq!(words(&effects), [Ownership::owned(place.epoch).withdrawn()]);
    assert_eq!(report(&effects).withdrawn, [SHARD]);
    let effects = effects_of(&mut member, 3, Input::Orders(orders(&placed(&fresh, place))));
    assert_eq!(words(&effects), [Ownership::owned(place.epoch + 1)]);
}

#[test]
fn an_answer_leaves_under_one_lease_only() {
    let directory = directory();
    let mut member = owner(&directory);
    assert_eq!(member.view.route(SHARD), Route::Here);
    let permit = member.view.permit(10, SHARD).unwrap();
    let end_us = terms().used_us();
    assert!(member.view.may_answer(end_us - 1, &permit) && !member.view.may_answer(end_us, &permit));
    assert_eq!(member.view.permit(end_us, SHARD), None);
    let renewed = Orders { lease: Some(end_us), directory: None, ..orders(&directory) };
    effects_of(&mut member, end_us + 1, Input::Orders(renewed));
    assert!(member.view.permit(end_us + 1, SHARD).is_some() && !member.view.may_answer(end_us + 1, &permit));
}

#[test]
fn a_lease_is_worth_nothing_under_an_old_directory_or_for_another_process() {
    let directory = directory();
    let mut member = member(A, Ownership::VOID);
    let without = Orders { epoch: directory.epoch() + 1, ..orders(&directory) };
    effects_of(&mut member, 1, Input::Orders(without));
    assert_eq!(member.view.permit(1, SHARD), None);
    let stranger = Orders { incarnation: 6, ..orders(&directory) };
    assert!(effects_of(&mut member, 2, Input::Orders(stranger)).is_empty());
    effects_of(&mut member, 2, Input::Orders(orders(&directory)));
    assert!(member.view.permit(2, SHARD).is_some());
}

/// Before, it would have emptied what is here, or have left it to another node.
#[test]
fn a_directory_that_is_older_than_the_memory_is_not_enacted() {
    let (older, epoch) = (directory(), directory().epoch());
    let mut member = member(A, Ownership::owned(epoch + 1).withdrawn());
    let effects = effects_of(&mut member, 1, Input::Orders(orders(&older)));
    let [Effect::Outdated(is, known), Effect::Report(report)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((*is, *known, report.epoch, report.kept), (epoch, epoch + 1, 0, epoch + 1));
    assert_eq!((member.view.permit(1, SHARD), member.view.route(SHARD)), (None, Route::Nowhere));
    // The right one.
    let newer = placed(&older, older.place(SHARD).unwrap());
    effects_of(&mut member, 2, Input::Orders(orders(&newer)));
    assert!(member.view.permit(2, SHARD).is_some());
}

#[test]
fn a_restarted_owner_waits_for_a_higher_epoch() {
    let directory = directory();
    let place = directory.place(SHARD).unwrap();
    let mut member = member(A, Ownership::owned(place.epoch).withdrawn());
    let effects = effects_of(&mut member, 1, Input::Orders(orders(&directory)));
    assert!(words(&effects).is_empty());
    assert_eq!(report(&effects).withdrawn, [SHARD]);
    let directory = placed(&directory, place);
    let effects = effects_of(&mut member, 2, Input::Orders(orders(&directory)));
    assert_eq!(words(&effects), [Ownership::owned(place.epoch + 1)]);
    assert!(!effects.contains(&Effect::Empty(SHARD)) && report(&effects).withdrawn.is_empty());
}

#[test]
fn an_owner_without_its_items_says_so() {
    let directory = directory();
    let place = directory.place(SHARD).unwrap();
    let directory = placed(&directory, place);
    let mut member = member(A, Ownership::VOID);
    let effects = effects_of(&mut member, 1, Input::Orders(orders(&directory)));
    assert!(words(&effects).is_empty());
    assert_eq!(report(&effects).lacking, [SHARD]);
}

/// Carries messages between both sides until the target has all items; returns its last effects.
fn converse(a: &mut Member, b: &mut Member, mut to_a: Vec<Effect>) -> Vec<Effect> {
    loop {
        let asked = to_a.iter().find_map(|effect| match effect {
            Effect::Send(_, message) => Some(message.clone()),
            _ => None,
        });
        let asked = asked.expect("a message");
        if matches!(asked, Message::Complete(_)) {
            return to_a;
        }
        let mut effects = effects_of(a, 10, Input::Message(B, asked));
        let answer = loop {
            let job = effects.iter().find_map(|effect| match effect {
                Effect::PassLocks(id) => Some(Input::Passed(*id)),
                Effect::TakeChanges(id) => Some(Input::Changes(*id, Some(vec![KeyHash(9)]))),
                _ => None,
            });
            match job {
                Some(input) => effects = effects_of(a, 10, input),
                None => break effects,
            }
        };
        let answer = answer.into_iter().find_map(|effect| match effect {
            Effect::Send(_, message) => Some(message),
            _ => None,
        });
        to_a = effects_of(b, 10, Input::Message(A, answer.expect("an answer")));
        let copy = to_a.iter().find_map(|effect| match effect {
            Effect::Copy(job) => Some(job.clone()),
            _ => None,
        });
        if let Some(job) = copy {
            to_a = effects_of(b, 10, Input::Copied(job.id, true));
        }
    }
}

/// Both sides after a whole copy, and what the target says then.
fn complete(directory: &Directory) -> (Member, Member, Asked) {
    let (mut a, mut b) = (owner(directory), member(B, Ownership::VOID));
    effects_of(&mut b, 1, Input::Orders(orders(directory)));
    effects_of(&mut b, 1, Input::Emptied(SHARD));
    let place = directory.place(SHARD).unwrap();
    let id = MoveId { micro_shard: SHARD, number: directory.epoch() };
    let pulls = vec![Pull { id, from: A, epoch: place.epoch, is_follow: false, base: 0 }];
    let begun = effects_of(&mut b, 2, Input::Orders(Orders { pulls, ..orders(directory) }));
    let ended = converse(&mut a, &mut b, begun);
    assert_eq!(words(&ended), [Ownership::owned(id.number).withdrawn()]);
    let [Effect::SetWord(..), Effect::Send(A, Message::Complete(asked))] = ended[..] else {
        panic!("{ended:?}")
    };
    (a, b, asked)
}

/// A directory under which a move of the micro-shard has begun.
fn begun() -> Directory {
    directory().changed(Change::default()).unwrap()
}

#[test]
fn a_whole_move() {
    let directory = begun();
    let (mut a, mut b, asked) = complete(&directory);
    let place = directory.place(SHARD).unwrap();
    let (word, id) = (Ownership::owned(place.epoch), asked.id);
    assert_eq!(a.shards[SHARD].word, word.frozen());
    // It is not said of another process, or too early.
    for other in [Asked { incarnation: 6, ..asked }, Asked { freeze: false, ..asked }] {
        assert!(words(&effects_of(&mut a, 12, Input::Message(B, Message::Complete(other)))).is_empty());
    }
    let effects = effects_of(&mut a, 12, Input::Message(B, Message::Complete(asked)));
    assert_eq!(words(&effects), [word.withdrawn()]);
    assert_eq!(report(&effects).moves, [(id, Progress::Given)]);
    // Its other micro-shards need no other epoch.
    assert!(report(&effects).withdrawn.is_empty());
    let moved = Place { node: B, epoch: 0, since: id.number, is_serving: true };
    let moved = placed(&directory, moved);
    let effects = effects_of(&mut b, 30, Input::Orders(orders(&moved)));
    assert_eq!(words(&effects), [Ownership::owned(moved.epoch())]);
    let effects = effects_of(&mut a, 30, Input::Orders(orders(&moved)));
    assert!(effects.contains(&Effect::Empty(SHARD)));
    assert_eq!(a.view.route(SHARD), Route::Unit(B));
}

#[test]
fn a_micro_shard_that_is_not_given_in_time_is_taken() {
    let directory = begun();
    let (mut a, mut b, Asked { id, .. }) = complete(&directory);
    let place = directory.place(SHARD).unwrap();
    assert_eq!(b.report(11).moves, [(id, Progress::Pulling)]);
    let late_us = 10 + b.timing.ask_us;
    effects_of(&mut b, late_us, Input::Tick);
    assert_eq!(b.report(12).moves, [(id, Progress::Drained)]);
    let taken = placed(&directory, Place { is_serving: false, ..place });
    let effects = effects_of(&mut a, 20, Input::Orders(orders(&taken)));
    // Never owned again in between.
    assert_eq!(words(&effects), [Ownership::owned(place.epoch).withdrawn()]);
    assert!(!effects.contains(&Effect::Empty(SHARD)));
    assert!(words(&effects_of(&mut b, 20, Input::Orders(orders(&taken)))).is_empty());
    let moved = placed(&taken, Place { node: B, epoch: 0, since: id.number, is_serving: true });
    let effects = effects_of(&mut b, 30, Input::Orders(orders(&moved)));
    assert_eq!(words(&effects), [Ownership::owned(moved.epoch())]);
}

#[test]
fn what_was_given_in_vain_comes_back_under_a_higher_epoch() {
    let directory = begun();
    let (mut a, _, asked) = complete(&directory);
    let place = directory.place(SHARD).unwrap();
    effects_of(&mut a, 12, Input::Message(B, Message::Complete(asked)));
    let cancelled = Orders { cancelled: vec![asked.id], ..orders(&directory) };
    let effects = effects_of(&mut a, 20, Input::Orders(cancelled));
    assert!(words(&effects).is_empty());
    assert_eq!(report(&effects).withdrawn, [SHARD]);
    let again = placed(&directory, place);
    let effects = effects_of(&mut a, 30, Input::Orders(orders(&again)));
    assert_eq!(words(&effects), [Ownership::owned(again.epoch())]);
}

#[test]
fn a_cancelled_move_leaves_the_owner_as_it_was() {
    let directory = begun();
    let (mut a, mut b, Asked { id, .. }) = complete(&directory);
    let place = directory.place(SHARD).unwrap();
    let cancelled = Orders { cancelled: vec![id], ..orders(&directory) };
    let effects = effects_of(&mut a, 20, Input::Orders(cancelled.clone()));
    assert_eq!(words(&effects), [Ownership::owned(place.epoch)]);
    let effects = effects_of(&mut b, 20, Input::Orders(cancelled));
    assert_eq!(words(&effects), [Ownership::VOID]);
    assert!(effects.contains(&Effect::Empty(SHARD)));
    // A late question is refused.
    let asked = Asked { id, incarnation: 7, epoch: place.epoch, batch: 0, freeze: false };
    let effects = effects_of(&mut a, 21, Input::Message(B, Message::Ask(asked)));
    assert!(effects.contains(&Effect::Send(B, Message::Refused(asked))));
}

#[test]
fn a_drained_copy_outlives_its_process() {
    let directory = begun();
    let (_, b, Asked { id, .. }) = complete(&directory);
    let mut again = member(B, b.shards[SHARD].word);
    let effects = effects_of(&mut again, 1, Input::Orders(orders(&directory)));
    assert_eq!(report(&effects).moves, [(id, Progress::Drained)]);
    assert!(!effects.contains(&Effect::Empty(SHARD)));
    // One that was not drained does not.
    let mut other = member(B, Ownership::VOID);
    let effects = effects_of(&mut other, 1, Input::Orders(orders(&directory)));
    assert!(report(&effects).moves.is_empty() && effects.contains(&Effect::Empty(SHARD)));
}

#[test]
fn a_drained_copy_outlives_an_older_order_to_follow() {
    let directory = begun();
    let place = directory.place(SHARD).unwrap();
    let number = directory.epoch();
    let mut member = member(B, Ownership::owned(number).withdrawn());
    let pull = |number, is_follow| {
        let id = MoveId { micro_shard: SHARD, number };
        Pull { id, from: A, epoch: place.epoch, is_follow, base: 0 }
    };
    let pulls = vec![pull(number, false), pull(number - 1, true)];
    let effects = effects_of(&mut member, 1, Input::Orders(Orders { pulls, ..orders(&directory) }));
    assert!(words(&effects).is_empty() && !effects.contains(&Effect::Empty(SHARD)));
}

#[test]
fn a_batch_that_is_tried_again_leaves_out_what_is_followed_no_more() {
    let directory = begun();
    let id = MoveId { micro_shard: SHARD, number: directory.epoch() };
    let pull = Pull { id, from: A, epoch: directory.place(SHARD).unwrap().epoch, is_follow: true, base: 0 };
    let mut follower = member(B, Ownership::VOID);
    let pulls = vec![pull];
    let mut say = |now_us, input| effects_of(&mut follower, now_us, input);
    say(1, Input::Orders(Orders { pulls, ..orders(&directory) }));
    let effects = say(2, Input::Emptied(SHARD));
    let asked = effects.iter().find_map(|effect| match effect {
        Effect::Send(_, Message::Follow(asked)) => Some(*asked),
        _ => None,
    });
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    say(3, Input::Message(A, Message::Followed(asked.expect("a question"), feed)));
    say(4, Input::Copied(id, true));
    let more = crate::More { feed, applied: 0, asked_us: 4, due: 1 };
    let (epoch, changes) = (directory.epoch(), vec![(SHARD, KeyHash(5))]);
    let applies = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Apply(..)));
    assert!(applies(&say(5, Input::Message(A, Message::Batch { more, epoch, changes }))));
    say(6, Input::Applied(A, false));
    assert!(applies(&say(5000, Input::Tick)));
    say(5001, Input::Applied(A, false));
    let cancelled = Orders { cancelled: vec![id], ..orders(&directory) };
    assert!(say(5002, Input::Orders(cancelled)).contains(&Effect::Empty(SHARD)));
    assert!(!applies(&say(10_000, Input::Tick)));
}

/// The follower at B of the micro-shard at A, complete, and the directory that names it.
fn follower() -> (Member, Directory, crate::FeedId) {
    let directory = begun();
    let id = MoveId { micro_shard: SHARD, number: directory.epoch() };
    let epoch = directory.place(SHARD).unwrap().epoch;
    let mut follower = member(B, Ownership::VOID);
    let pulls = vec![Pull { id, from: A, epoch, is_follow: true, base: 0 }];
    let mut now_us = 1;
    let mut say = |input| {
        now_us += 1;
        effects_of(&mut follower, now_us, input)
    };
    say(Input::Orders(Orders { pulls, ..orders(&directory) }));
    say(Input::Emptied(SHARD));
    let asked = Asked { id, incarnation: 7, epoch, batch: 0, freeze: false };
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    say(Input::Message(A, Message::Followed(asked, feed)));
    say(Input::Copied(id, true));
    let batch = |applied, epoch| {
        let more = crate::More { feed, applied, asked_us: 1, due: 1 };
        Input::Message(A, Message::Batch { more, epoch, changes: Vec::new() })
    };
    say(batch(0, directory.epoch()));
    let named = Follower { node: B, number: id.number, is_safe: false };
    let followers = BTreeMap::from([(SHARD, vec![named])]);
    let directory = directory.changed(Change { followers, ..Change::default() }).unwrap();
    say(Input::Orders(orders(&directory)));
    let effects = say(batch(1, directory.epoch()));
    assert_eq!(report(&effects).moves, [(id, Progress::Safe)]);
    (follower, directory, feed)
}

#[test]
fn a_follower_confirms_nothing_that_it_lacks_while_the_directory_names_it() {
    let (mut follower, directory, feed) = follower();
    let mut now_us = 100;
    let more = crate::More { feed, applied: 2, asked_us: 1, due: 1 };
    let changes = vec![(SHARD, KeyHash(5))];
    let batch = Message::Batch { more, epoch: directory.epoch(), changes };
    effects_of(&mut follower, now_us, Input::Message(A, batch));
    let confirms = |effects: &[Effect]| {
        let is_more = |it: &Effect| matches!(it, Effect::Send(_, Message::More(more)) if more.applied > 2);
        effects.iter().any(is_more)
    };
    let mut tries = || {
        let mut said = Vec::new();
        let until_us = now_us + terms().honoured_us();
        while now_us <= until_us {
            said.extend(effects_of(&mut follower, now_us, Input::Applied(A, false)));
            now_us += 10_000;
            said.extend(effects_of(&mut follower, now_us, Input::Tick));
        }
        assert!(!confirms(&said));
        report(&said).moves[0].1
    };
    // It is needed if its owner is dead, which is known when its lease has run out.
    assert_eq!([(); 2].map(|()| tries()), [Progress::Safe, Progress::Failed]);
    effects_of(&mut follower, now_us, Input::Applied(A, false));
    // From now on nobody waits for it, and others may follow.
    let change = Change { followers: BTreeMap::from([(SHARD, Vec::new())]), ..Change::default() };
    let unnamed = directory.changed(change).unwrap();
    effects_of(&mut follower, now_us, Input::Orders(orders(&unnamed)));
    assert!(confirms(&effects_of(&mut follower, now_us + 2000, Input::Tick)));
}

#[test]
fn a_copy_is_not_read_before_something_fresh_has_come_from_its_owner() {
    const C: ServerId = ServerId(3);
    const OTHER: MicroShard = MicroShard(1);
    let node =
        |(id, unit)| Node { id, unit: UnitId(unit), standing: Standing::Member, address: String::new() };
    let nodes = [(A, 0), (B, 1), (C, 0)].map(node).to_vec();
    let directory = Directory::new(MicroShards::new(2).unwrap(), 1, nodes).unwrap();
    let owners = BTreeMap::from([(SHARD, A), (OTHER, C)]);
    let place = |(it, node): (&MicroShard, &ServerId)| {
        (*it, Place { node: *node, epoch: 0, since: 1, is_serving: true })
    };
    let places = owners.iter().map(place).collect();
    let directory = directory.changed(Change { places, ..Change::default() }).unwrap();
    let timing = Timing { report_us: 1000, ask_us: 1000, copies_us: Some(1_000_000) };
    let mut follower = Member::new(B, 7, &[Ownership::VOID; 2], terms(), timing);
    let mut now_us = 1;
    let mut say = |input| {
        now_us += 1;
        effects_of(&mut follower, now_us, input)
    };
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    let id = |micro_shard| MoveId { micro_shard, number: directory.epoch() };
    let epoch = |micro_shard| directory.place(micro_shard).unwrap().epoch;
    let pull = |(it, from)| Pull { id: id(it), from, epoch: epoch(it), is_follow: true, base: 0 };
    let pulls = owners.clone().into_iter().map(pull).collect();
    say(Input::Orders(Orders { pulls, ..orders(&directory) }));
    for (&it, &owner) in &owners {
        say(Input::Emptied(it));
        let asked = Asked { id: id(it), incarnation: 7, epoch: epoch(it), batch: 0, freeze: false };
        say(Input::Message(owner, Message::Followed(asked, feed)));
        say(Input::Copied(id(it), true));
    }
    let batch = |owner, applied, epoch| {
        let more = crate::More { feed, applied, asked_us: 1, due: 1 };
        Input::Message(owner, Message::Batch { more, epoch, changes: Vec::new() })
    };
    let of_copies = |effects: Vec<Effect>| -> Vec<Effect> {
        let is_of_copies = |it: &Effect| matches!(it, Effect::Fresh(_) | Effect::ReadCopy(_, true));
        effects.into_iter().filter(is_of_copies).collect()
    };
    // The control: what comes from C is fresh.
    let fresh = Effect::Fresh(1_000_001);
    assert!(say(batch(C, 0, directory.epoch())).contains(&fresh));
    // A goes by a directory that this node does not know yet. It may feed fewer micro-shards by then.
    assert!(of_copies(say(batch(A, 0, directory.epoch() + 1))).is_empty());
    let named =
        |it: &MicroShard| (*it, vec![Follower { node: B, number: directory.epoch(), is_safe: false }]);
    let followers = owners.keys().map(named).collect();
    let named = directory.changed(Change { followers, ..Change::default() }).unwrap();
    let read = [SHARD, OTHER].map(|it| Effect::ReadCopy(it, true));
    let [first, second] = read;
    assert_eq!(of_copies(say(Input::Orders(orders(&named)))), [Effect::Fresh(0), first, second]);
    assert_eq!(of_copies(say(batch(A, 1, named.epoch()))), [fresh]);
}

#[test]
fn nothing_is_acknowledged_while_the_directory_names_a_copy_that_is_told_of_no_changes() {
    let other = MicroShard(1);
    let node = |id| Node { id, unit: UnitId(id.0), standing: Standing::Member, address: String::new() };
    let nodes = vec![node(A), node(B)];
    let named = Directory::new(MicroShards::new(2).unwrap(), 1, nodes).unwrap();
    let places = [SHARD, other].map(|it| (it, Place { node: A, epoch: 0, since: 1, is_serving: true }));
    let change = Change { places: BTreeMap::from(places), ..Change::default() };
    let named = named.changed(change).unwrap();
    let words = [Ownership::owned(1).withdrawn(); 2];
    let timing = Timing { report_us: 1000, ask_us: 1000, copies_us: None };
    let mut a = Member::new(A, 7, &words, terms(), timing);
    let mut say = |input| effects_of(&mut a, 10, input);
    say(Input::Orders(orders(&named)));
    // B follows one of them, and has all. Of the other it has a copy of an earlier owner's.
    let id = MoveId { micro_shard: SHARD, number: named.epoch() };
    let asked = Asked { id, incarnation: 7, epoch: named.epoch(), batch: 0, freeze: false };
    say(Input::Message(B, Message::Follow(asked)));
    say(Input::Passed(id));
    let copy = |number| vec![Follower { node: B, number, is_safe: true }];
    let followers = |it| Change { followers: it, ..Change::default() };
    let both = BTreeMap::from([(SHARD, copy(id.number)), (other, copy(1))]);
    let kept = named.changed(followers(both)).unwrap();
    assert!(say(Input::Orders(orders(&kept))).contains(&Effect::Feed(other)));
    assert!(!say(Input::Handed(1, vec![(other, KeyHash(5))])).contains(&Effect::Confirm(1)));
    let left = kept.changed(followers(BTreeMap::from([(other, Vec::new())]))).unwrap();
    assert!(say(Input::Orders(orders(&left))).contains(&Effect::Confirm(1)));
}

#[test]
fn a_move_to_a_follower_begins_once_little_is_left_to_take_in() {
    let (directory, epoch) = (begun(), directory().epoch());
    let mut a = owner(&directory);
    let asked = |number, batch| {
        let id = MoveId { micro_shard: SHARD, number };
        Asked { id, incarnation: 7, epoch, batch, freeze: false }
    };
    let mut now_us = 10;
    let mut say = |input| {
        now_us += 1;
        effects_of(&mut a, now_us, input)
    };
    let (follow, number) = (asked(directory.epoch() - 1, 0), directory.epoch());
    say(Input::Message(B, Message::Follow(follow)));
    let followed = say(Input::Passed(follow.id));
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    assert!(followed.contains(&Effect::Send(B, Message::Followed(follow, feed))));
    say(Input::Handed(1, (0..1000).map(|hash| (SHARD, KeyHash(hash))).collect()));
    // It is too far behind for writes to wait, but not for ever; and changes of another feed are lost.
    let word = Ownership::owned(epoch);
    assert!(say(Input::Message(B, Message::Take(asked(number, 0), feed))).is_empty());
    let other = crate::FeedId { number: 2, ..feed };
    let refused = Message::Refused(asked(number, 0));
    assert_eq!(say(Input::Message(B, Message::Take(asked(number, 0), other))), [Effect::Send(B, refused)]);
    let effects = say(Input::Message(B, Message::Take(asked(number, 16), feed)));
    assert_eq!(words(&effects), [word.frozen()]);
    let more = |applied| Message::More(crate::More { feed, applied, asked_us: 1, due: 0 });
    say(Input::Message(B, more(0)));
    assert!(words(&say(Input::Passed(asked(number, 16).id))).is_empty());
    let effects = say(Input::Message(B, more(1)));
    assert_eq!(words(&effects), [word.withdrawn()]);
    assert_eq!(report(&effects).moves, [(asked(number, 16).id, Progress::Given)]);
}

#[test]
fn lost_changes_end_a_move() {
    let directory = begun();
    let mut a = owner(&directory);
    let epoch = directory.place(SHARD).unwrap().epoch;
    let id = MoveId { micro_shard: SHARD, number: directory.epoch() };
    let ask = |batch| Asked { id, incarnation: 7, epoch, batch, freeze: batch > 0 };
    effects_of(&mut a, 3, Input::Message(B, Message::Ask(ask(0))));
    effects_of(&mut a, 3, Input::Passed(id));
    let effects = effects_of(&mut a, 4, Input::Message(B, Message::Ask(ask(1))));
    assert_eq!(words(&effects), [Ownership::owned(epoch).frozen()]);
    effects_of(&mut a, 5, Input::Passed(id));
    let effects = effects_of(&mut a, 6, Input::Changes(id, None));
    assert_eq!(words(&effects), [Ownership::owned(epoch)]);
    assert!(effects.contains(&Effect::Send(B, Message::Refused(ask(1)))));
}

#[test]
fn a_question_of_a_directory_that_the_owner_does_not_know_yet_is_left_for_later() {
    let directory = directory();
    let mut a = owner(&directory);
    let epoch = directory.epoch();
    let id = MoveId { micro_shard: SHARD, number: epoch + 2 };
    let ask = |epoch| Asked { id, incarnation: 7, epoch, batch: 0, freeze: false };
    for message in [Message::Ask(ask(epoch + 1)), Message::Follow(ask(epoch + 1))] {
        assert!(effects_of(&mut a, 3, Input::Message(B, message)).is_empty());
    }
    let effects = effects_of(&mut a, 3, Input::Message(B, Message::Ask(ask(epoch - 1))));
    assert!(effects.contains(&Effect::Send(B, Message::Refused(ask(epoch - 1)))));
}

#[test]
fn who_follows_nothing_any_more_waits_for_nothing() {
    let directory = begun();
    let id = MoveId { micro_shard: SHARD, number: directory.epoch() };
    let epoch = directory.place(SHARD).unwrap().epoch;
    let mut b = member(B, Ownership::VOID);
    let pulls = vec![Pull { id, from: A, epoch, is_follow: true, base: 0 }];
    let mut now_us = 1;
    let mut say = |b: &mut Member, input| {
        now_us += 1;
        effects_of(b, now_us, input)
    };
    say(&mut b, Input::Orders(Orders { pulls, ..orders(&directory) }));
    say(&mut b, Input::Emptied(SHARD));
    let asked = Asked { id, incarnation: 7, epoch, batch: 0, freeze: false };
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    say(&mut b, Input::Message(A, Message::Followed(asked, feed)));
    let asks = say(&mut b, Input::Copied(id, true));
    assert!(asks.iter().any(|it| matches!(it, Effect::Send(A, Message::More(_)))) && b.is_pulling());
    say(&mut b, Input::Orders(Orders { cancelled: vec![id], ..orders(&directory) }));
    assert!(!b.is_pulling());
}

/// The owner at A, which notes changes for B, and B's question.
fn feeding() -> (Member, Directory, Asked) {
    let directory = begun();
    let mut a = owner(&directory);
    let id = MoveId { micro_shard: SHARD, number: directory.epoch() };
    let epoch = directory.place(SHARD).unwrap().epoch;
    let asked = Asked { id, incarnation: 7, epoch, batch: 0, freeze: false };
    let effects = effects_of(&mut a, 2, Input::Message(B, Message::Follow(asked)));
    assert!(effects.contains(&Effect::Feed(SHARD)));
    effects_of(&mut a, 3, Input::Passed(id));
    (a, directory, asked)
}

/// The directory that names B as the follower.
fn naming(directory: &Directory, asked: Asked) -> Directory {
    let named = Follower { node: B, number: asked.id.number, is_safe: true };
    let followers = BTreeMap::from([(SHARD, vec![named])]);
    directory.changed(Change { followers, ..Change::default() }).unwrap()
}

fn stops(effects: &[Effect]) -> bool {
    effects.contains(&Effect::StopFeeding(SHARD))
}

#[test]
fn a_follower_that_was_never_named_and_is_silent_is_told_of_no_more_changes() {
    const LEASES: u64 = 10;
    let lease_us = terms().honoured_us();
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    let is_stopped = |is_named: bool, asks: bool| {
        let (mut a, directory, asked) = feeding();
        if is_named {
            effects_of(&mut a, 4, Input::Orders(orders(&naming(&directory, asked))));
        }
        (1..=LEASES).any(|lease| {
            let more = crate::More { feed, applied: 0, asked_us: lease, due: 0 };
            let more = asks.then_some(Input::Message(B, Message::More(more)));
            let inputs = more.into_iter().chain([Input::Tick]);
            inputs.into_iter().any(|it| stops(&effects_of(&mut a, lease * lease_us, it)))
        })
    };
    assert!(is_stopped(false, false));
    assert!(!is_stopped(false, true) && !is_stopped(true, false));
}

#[test]
fn a_follower_that_has_gone_or_follows_no_more_is_told_of_no_more_changes() {
    let (mut a, directory, _) = feeding();
    let nodes = directory.nodes().iter().filter(|node| node.id != B).cloned().collect();
    let without = directory.changed(Change { nodes: Some(nodes), ..Change::default() }).unwrap();
    assert!(stops(&effects_of(&mut a, 4, Input::Orders(orders(&without)))));
    let (mut a, directory, asked) = feeding();
    let older = MoveId { number: asked.id.number - 1, ..asked.id };
    for other in [Asked { incarnation: 6, ..asked }, Asked { id: older, ..asked }] {
        assert!(!stops(&effects_of(&mut a, 4, Input::Message(B, Message::Refused(other)))));
    }
    assert!(stops(&effects_of(&mut a, 5, Input::Message(B, Message::Refused(asked)))));
    // It is waited for until the directory names it no more.
    let named = naming(&directory, asked);
    assert!(effects_of(&mut a, 6, Input::Orders(orders(&named))).contains(&Effect::Feed(SHARD)));
    let (mut a, ..) = feeding();
    effects_of(&mut a, 4, Input::Orders(orders(&named)));
    assert!(!stops(&effects_of(&mut a, 5, Input::Message(B, Message::Refused(asked)))));
}

#[test]
fn who_is_told_of_changes_that_it_does_not_follow_says_so() {
    let (mut b, directory, feed) = follower();
    let id = MoveId { micro_shard: SHARD, number: directory.epoch() - 1 };
    effects_of(&mut b, 100, Input::Orders(Orders { cancelled: vec![id], ..orders(&directory) }));
    let more = crate::More { feed, applied: 2, asked_us: 1, due: 0 };
    let changes = vec![(SHARD, KeyHash(5)), (SHARD, KeyHash(6))];
    let batch = Message::Batch { more, epoch: directory.epoch(), changes };
    let effects = effects_of(&mut b, 101, Input::Message(A, batch));
    let asked = Asked { id, incarnation: 7, epoch: 0, batch: 0, freeze: false };
    assert_eq!(effects, [Effect::Send(A, Message::Refused(asked))]);
}

#[test]
fn nobody_is_behind_who_follows_nothing() {
    let (mut a, directory, asked) = feeding();
    let named = naming(&directory, asked);
    effects_of(&mut a, 4, Input::Orders(orders(&named)));
    effects_of(&mut a, 5, Input::Handed(1, vec![(SHARD, KeyHash(5))]));
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    let more = crate::More { feed, applied: 0, asked_us: 1, due: 0 };
    effects_of(&mut a, 6, Input::Message(B, Message::More(more)));
    assert_eq!(a.followers().map(|it| (it.changes, it.since_us)).collect::<Vec<_>>(), [(1, Some(5))]);
    let change = Change { followers: BTreeMap::from([(SHARD, Vec::new())]), ..Change::default() };
    effects_of(&mut a, 7, Input::Orders(orders(&named.changed(change).unwrap())));
    assert_eq!(a.followers().next(), None);
}

#[test]
fn numbers_of_others_may_be_any() {
    let (mut a, _, follow) = feeding();
    let feed = crate::FeedId { incarnation: 7, number: 1 };
    let id = MoveId { number: follow.id.number + 1, ..follow.id };
    let asked = |batch| Asked { id, batch, ..follow };
    let effects = effects_of(&mut a, 4, Input::Message(B, Message::Take(asked(u32::MAX), feed)));
    assert!(effects.contains(&Effect::PassLocks(id)));
    assert!(effects_of(&mut a, 5, Input::Message(B, Message::Ask(asked(0)))).is_empty());
}

#[test]
fn nothing_is_fresher_than_now() {
    let (b, directory, feed) = follower();
    let mut b = Member { timing: Timing { copies_us: Some(1_000_000), ..b.timing }, ..b };
    let more = crate::More { feed, applied: 2, asked_us: u64::MAX, due: 0 };
    let batch = Message::Batch { more, epoch: directory.epoch(), changes: Vec::new() };
    let effects = effects_of(&mut b, 100, Input::Message(A, batch));
    assert!(effects.contains(&Effect::Fresh(1_000_100)), "{effects:?}");
}
