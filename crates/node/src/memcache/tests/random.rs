//! The same bytes give the same replies however they are split, and no bytes do harm.

use proptest::prelude::*;

use super::Session;

/// A dialogue with small and large values, errors and lines of keys.
fn script() -> Vec<u8> {
    let large = "0123456789".repeat(30);
    format!(
        "set a 1 0 3 noreply\r\nabc\r\nget a b\r\nset big 0 0 300\r\n{large}\r\nget a big a big\r\n\
         append big 0 0 4\r\nmore\r\nget big\r\nset a 0 0 1\r\nxyz\r\nms m 2 T9 c k Oq\r\nhi\r\n\
         mg m t s v k\r\nms m 300 S\r\n{large}\r\nms m 2000\r\n{}\r\nmg m v\r\nincr a 1\r\n\
         gat 10 a big\r\nget\r\nbogus\r\nset x 0 0 300 noreply\r\n{large}!!mn\r\nstats sizes\r\ntouch a 1\r\n\
         prepend a 0 0 300\r\n{large}\r\nget a\r\ndelete big noreply\r\nget big a\r\nquit\r\n",
        "x".repeat(2000),
    )
    .into_bytes()
}

fn replies(session: &mut Session, pieces: &[&[u8]]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| session.send(piece)).collect()
}

fn session() -> Session {
    let mut session = Session::new(100);
    session.state.limits.value_bytes_max = 1000;
    session
}

#[test]
fn splits_change_nothing() {
    let script = script();
    let expected = session().send(&script);
    assert!(expected.ends_with(b"END\r\n"));
    for at in 0..=script.len() {
        let (first, second) = script.split_at(at);
        assert!(replies(&mut session(), &[first, second]) == expected, "split at {at}");
    }
    let bytes: Vec<&[u8]> = script.chunks(1).collect();
    assert!(replies(&mut session(), &bytes) == expected, "byte by byte");
}

#[test]
fn placement_changes_nothing() {
    let script = script();
    let expected = session().send(&script);
    for here_bytes_max in [0, 3, 299, 300, 1000] {
        let mut session = Session::new(here_bytes_max);
        session.state.limits.value_bytes_max = 1000;
        assert!(session.send(&script) == expected, "up to {here_bytes_max}");
    }
}

const WORDS: &str = "get gets gat set add cas append prepend delete incr decr touch mg ms md \
    ma me noreply 0 1 -1 200 3 a b v s T30 N0 R9 O1 C1 MA I c t q \r\n \r\nabc\r\n flush_all";

fn near_commands() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(WORDS.split(' ').collect::<Vec<_>>()), 0..80).prop_map(|words| {
        format!("{}\r\n", words.join(" ").replace(" \r\n", "\r\n").replace("\r\n ", "\r\n")).into()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let mut session = session();
        session.send(&bytes);
        prop_assert!(session.store.check().is_ok());
        session.reopen();
        prop_assert_eq!(session.say("mn\r\n"), "MN\r\n");
    }

    #[test]
    fn near_commands_do_no_harm_and_split_anywhere(bytes in near_commands(), at in any::<prop::sample::Index>()) {
        let mut whole = session();
        let expected = whole.send(&bytes);
        let (first, second) = bytes.split_at(at.index(bytes.len() + 1).min(bytes.len()));
        let mut split = session();
        prop_assert_eq!(replies(&mut split, &[first, second]), expected);
        prop_assert!(whole.store.check().is_ok() && split.store.check().is_ok());
    }
}
