//! SETBIT, GETBIT and BITCOUNT.

use minos_engine::{ItemMeta, Mode};
use minos_proto::resp::{compose, integer};

use super::{
    call::{Call, Done, Failure, SYNTAX, entry, fail, kept, no_memory},
    keys::exists,
    strings::{part, patch_large, with_value},
};
use crate::ops::{self, Context, Placement};

/// The byte and the place in it, from the highest bit, that argument 2 names.
fn place<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>) -> Result<(usize, u32), Failure> {
    let bits_max = (cx.store.value_bytes_max() << 3) as i64;
    let at = integer(call.argument(2)).filter(|at| (0..bits_max).contains(at));
    let at = at.ok_or("ERR bit offset is not an integer or out of range")?;
    Ok(((at >> 3) as usize, 7 - (at & 7) as u32))
}

/// SETBIT.
pub(super) fn set<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (at, bit) = place(cx, call)?;
    let Some(on @ (0 | 1)) = integer(call.argument(3)) else {
        return fail("ERR bit is not an integer or out of range");
    };
    let (hash, key) = call.key();
    let bytes = at as u64 + 1;
    // Who watches the key sees no change if the bit is the same.
    let change = |old: Option<u8>| {
        let byte = old.unwrap_or(0);
        let new = byte & !(1 << bit) | (on as u8) << bit;
        (old != Some(new)).then_some(new)
    };
    let answer = |old: Option<u8>, tx| compose::integer(tx, i64::from(old.unwrap_or(0) >> bit & 1));
    let byte_of = |value: &[u8]| value.get(at).copied();
    let patched = patch_large(cx, (hash, key), (at, bytes), |value| change(byte_of(value)).map(|new| [new]))?;
    if let Some(old) = patched {
        answer(old.and_then(|old| byte_of(old.value())), tx);
        return Ok(());
    }
    let mut entry = entry(cx, hash, key)?;
    let old = entry.item().and_then(|item| byte_of(item.value()));
    let written = match (old, change(old)) {
        (_, None) => Ok(0),
        (Some(_), Some(new)) => entry.overwrite_value(at, &[new]),
        (None, Some(new)) => {
            let (kept, meta) = match entry.item() {
                Some(item) => (item.value().to_vec(), kept(&item)),
                None => (Vec::new(), ItemMeta::default()),
            };
            let zeros = vec![0; at - kept.len()];
            entry.insert(&[&kept, &zeros, &[new]], meta)
        }
    };
    drop(entry);
    if written.is_err() {
        return no_memory(cx);
    }
    cx.counters.cmd_set.count();
    answer(old, tx);
    Ok(())
}

/// GETBIT.
pub(super) fn get<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (at, bit) = place(cx, call)?;
    let byte = with_value(cx, call.key(), |value| value.map(|value| value.get(at).copied().unwrap_or(0)))?;
    ops::count_get(cx, byte.is_some());
    compose::integer(tx, i64::from(byte.unwrap_or(0) >> bit & 1));
    Ok(())
}

/// BITCOUNT.
pub(super) fn count<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    // As Redis, which looks at the key before the other arguments.
    let (hash, key) = call.key();
    if !exists(cx, hash, key)? {
        compose::integer(tx, 0);
        ops::count_get(cx, false);
        return Ok(());
    }
    let (start, last) = match call.command.len() {
        2 => (0, -1),
        4 | 5 => (call.integer(2)?, call.integer(3)?),
        _ => return fail(SYNTAX),
    };
    let is_bits = call.command.len() == 5 && call.is(4, "bit");
    if call.command.len() == 5 && !is_bits && !call.is(4, "byte") {
        return fail(SYNTAX);
    }
    let ones = with_value(cx, call.key(), |value| {
        value.map(|value| {
            let len = if is_bits { value.len() * 8 } else { value.len() };
            part(len, start, last)
                .map_or(0, |part| if is_bits { bits(value, part) } else { bytes(&value[part]) })
        })
    })?;
    ops::count_get(cx, ones.is_some());
    compose::integer(tx, ones.unwrap_or(0) as i64);
    Ok(())
}

fn bytes(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The set bits of a part, which is not empty.
fn bits(value: &[u8], part: std::ops::Range<usize>) -> u64 {
    let (first, last) = (part.start / 8, (part.end - 1) / 8);
    let before = value[first].checked_shr(8 - (part.start % 8) as u32).unwrap_or(0).count_ones();
    let behind = (value[last] & (0x7f_u8 >> ((part.end - 1) % 8))).count_ones();
    bytes(&value[first..=last]) - u64::from(before) - u64::from(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_any_part_are_counted() {
        let value: Vec<u8> = (0..40_u8).map(|byte| byte.wrapping_mul(37)).collect();
        let is_set = |at: usize| value[at / 8] >> (7 - at % 8) & 1 == 1;
        for start in 0..70 {
            for end in start + 1..320 {
                let expected = (start..end).filter(|&at| is_set(at)).count() as u64;
                assert_eq!(bits(&value, start..end), expected, "{start}..{end}");
            }
        }
        assert_eq!(bytes(&value), bits(&value, 0..320));
    }
}
