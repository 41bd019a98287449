//! Times to live: EXPIRE and its forms, TTL and its forms, PERSIST.

use minos_engine::{Entry, Mode};
use minos_proto::resp::{Id, compose};

use super::call::{Call, Done, Failure, entry, fail, read};
use crate::ops::{Context, Moment, Placement, now_ms};

/// The conditions of EXPIRE.
#[derive(Default)]
struct Conditions {
    is_new: bool,
    is_old: bool,
    is_later: bool,
    is_earlier: bool,
}

/// Sets an item's expiry. It gets a new CAS unique, so that EXEC of a client that watches it sees the change.
pub(super) fn change<M: Mode>(entry: &mut Entry<'_, M>, moment: Moment) {
    entry.set_expiry_early(moment.expiry, moment.early_ms);
    entry.renew_cas();
}

/// TTL, PTTL, EXPIRETIME and PEXPIRETIME.
pub(super) fn tell<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let moment = read(cx, call.key(), |item| Moment::from(item))?;
    let number = match moment.map(|moment| moment.unix_ms(cx.clock)) {
        None => -2,
        Some(None) => -1,
        Some(Some(unix_ms)) => {
            let left_ms = (unix_ms - now_ms()).max(0);
            match call.spec.id {
                Id::PTtl => left_ms,
                Id::Ttl => (left_ms + 500) / 1000,
                Id::ExpireTime => (unix_ms + 500) / 1000,
                _ => unix_ms,
            }
        }
    };
    compose::integer(tx, number);
    Ok(())
}

/// PERSIST.
pub(super) fn persist<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let (hash, key) = call.key();
    let mut entry = entry(cx, hash, key)?;
    let had_expiry = entry.item().is_some_and(|item| item.expiry() != 0);
    if had_expiry {
        change(&mut entry, Moment::default());
    }
    compose::integer(tx, i64::from(had_expiry));
    Ok(())
}

/// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
pub(super) fn expire<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let conditions = conditions(call)?;
    let Some(unix_ms) = unix_ms(call)? else {
        return fail(format!("ERR invalid expire time in '{}' command", call.spec.name));
    };
    let (hash, key) = call.key();
    let mut entry = entry(cx, hash, key)?;
    let Some(old) = entry.item().map(|item| Moment::from(&*item).unix_ms(cx.clock)) else {
        compose::integer(tx, 0);
        cx.counters.cmd_touch.count();
        cx.counters.touch_misses.count();
        return Ok(());
    };
    let is_met = !(conditions.is_new && old.is_some()
        || conditions.is_old && old.is_none()
        || conditions.is_later && old.is_none_or(|old| unix_ms <= old)
        || conditions.is_earlier && old.is_some_and(|old| unix_ms >= old));
    if is_met && unix_ms <= now_ms() {
        entry.remove();
    } else if is_met {
        change(&mut entry, Moment::at(cx.clock, unix_ms));
    }
    cx.counters.cmd_touch.count();
    cx.counters.touch_hits.count();
    compose::integer(tx, i64::from(is_met));
    Ok(())
}

/// The new expiry in milliseconds since 1970; `None` if it is none.
fn unix_ms(call: &Call<'_>) -> Result<Option<i64>, Failure> {
    let number = call.integer(2)?;
    let is_ms = matches!(call.spec.id, Id::PExpire | Id::PExpireAt);
    let base = if matches!(call.spec.id, Id::Expire | Id::PExpire) { now_ms() } else { 0 };
    let ms = if is_ms { Some(number) } else { number.checked_mul(1000) };
    Ok(ms.and_then(|ms| ms.checked_add(base)))
}

fn conditions(call: &Call<'_>) -> Result<Conditions, Failure> {
    let mut conditions = Conditions::default();
    for word in call.command.arguments(3) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => conditions.is_new = true,
            b"xx" => conditions.is_old = true,
            b"gt" => conditions.is_later = true,
            b"lt" => conditions.is_earlier = true,
            _ => return Err(Failure([b"ERR Unsupported option ", word].concat().into())),
        }
    }
    let Conditions { is_new, is_old, is_later, is_earlier } = conditions;
    if is_new && (is_old || is_later || is_earlier) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if is_later && is_earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(conditions)
}
