//! LCS: the longest common subsequence of two values.

use minos_engine::Mode;
use minos_proto::resp::{Version, compose, integer};

use super::{
    call::{Call, Done, Failure, NO_INTEGER, SYNTAX, fail},
    session::RespSession,
    strings::with_value,
};
use crate::ops::{Context, Placement};

/// Cells of the table for two values, at most. A worker fills them in a few milliseconds.
const CELLS_MAX: usize = 1 << 20;

#[derive(Default)]
struct Options {
    only_length: bool,
    matches: bool,
    match_bytes_min: usize,
    match_lengths: bool,
}

/// A piece of both values, as ranges of their bytes, last bytes included.
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

/// LCS.
pub(super) fn lcs<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let options = options(call)?;
    let copy = |at| {
        let key = call.argument(at);
        with_value(cx, (cx.store.hash(key), key), |value| {
            value.map(|value| if value.len() > CELLS_MAX { None } else { Some(value.to_vec()) })
        })
    };
    let (Some(a), Some(b)) = (copy(1)?.unwrap_or(Some(Vec::new())), copy(2)?.unwrap_or(Some(Vec::new())))
    else {
        return fail(TOO_LARGE);
    };
    if (a.len() + 1).saturating_mul(b.len() + 1) > CELLS_MAX {
        return fail(TOO_LARGE);
    }
    let table = table(&a, &b);
    let length = table[(a.len() + 1) * (b.len() + 1) - 1];
    if options.only_length {
        compose::integer(tx, i64::from(length));
        return Ok(());
    }
    let (text, matches) = trace(&table, &a, &b);
    if options.matches {
        tell_matches(&matches, length, &options, session.version, tx);
    } else {
        compose::bulk(tx, &text);
    }
    Ok(())
}

const TOO_LARGE: &str = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";

fn options(call: &Call<'_>) -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut arguments = call.command.arguments(3);
    while let Some(word) = arguments.next() {
        match word.to_ascii_lowercase().as_slice() {
            b"idx" => options.matches = true,
            b"len" => options.only_length = true,
            b"withmatchlen" => options.match_lengths = true,
            b"minmatchlen" => {
                let bytes = integer(arguments.next().ok_or(SYNTAX)?).ok_or(NO_INTEGER)?;
                options.match_bytes_min = usize::try_from(bytes).unwrap_or(0);
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    if options.matches && options.only_length {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    Ok(options)
}

/// The lengths for all fronts of both values, a row for each of `a`.
fn table(a: &[u8], b: &[u8]) -> Vec<u32> {
    let width = b.len() + 1;
    let mut table = vec![0; (a.len() + 1) * width];
    for (i, byte) in a.iter().enumerate() {
        for (j, other) in b.iter().enumerate() {
            let at = (i + 1) * width + j + 1;
            table[at] =
                if byte == other { table[at - width - 1] + 1 } else { table[at - width].max(table[at - 1]) };
        }
    }
    table
}

/// The subsequence and its pieces, the last one first, by the same choices as Redis'.
fn trace(table: &[u32], a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Match>) {
    let width = b.len() + 1;
    let (mut i, mut j) = (a.len(), b.len());
    let (mut text, mut matches): (Vec<u8>, Vec<Match>) = (Vec::new(), Vec::new());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            text.push(a[i - 1]);
            match matches.last_mut() {
                Some(piece) if piece.a.0 == i && piece.b.0 == j => (piece.a.0, piece.b.0) = (i - 1, j - 1),
                _ => matches.push(Match { a: (i - 1, i - 1), b: (j - 1, j - 1) }),
            }
            (i, j) = (i - 1, j - 1);
        } else if table[(i - 1) * width + j] > table[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    text.reverse();
    (text, matches)
}

fn tell_matches(matches: &[Match], length: u32, options: &Options, version: Version, tx: &mut Vec<u8>) {
    let bytes = |piece: &Match| piece.a.1 - piece.a.0 + 1;
    let told = || matches.iter().filter(|piece| bytes(piece) >= options.match_bytes_min);
    compose::map(tx, 2, version);
    compose::bulk(tx, b"matches");
    compose::array(tx, told().count());
    for piece in told() {
        compose::array(tx, if options.match_lengths { 3 } else { 2 });
        for (first, last) in [piece.a, piece.b] {
            compose::array(tx, 2);
            compose::integer(tx, first as i64);
            compose::integer(tx, last as i64);
        }
        if options.match_lengths {
            compose::integer(tx, bytes(piece) as i64);
        }
    }
    compose::bulk(tx, b"len");
    compose::integer(tx, i64::from(length));
}
