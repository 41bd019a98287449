//! MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! EXEC compares the watched keys, then executes the commands in one step. A watched key is the same if its item has the
//! same CAS unique, or there is none as before. Commands about all keys, as SCAN, need the table itself: a transaction with
//! one of them is executed command by command.

use minos_base::KeyHash;
use minos_engine::Mode;
use minos_proto::resp::{Id, Parsed, compose, parse};

use super::{
    call::{Call, Done, Interrupt, fail, pause, read},
    execute::{Outcome, run},
    scratch,
    serve::{CHECKED, request},
    session::{RespSession, Transaction, Unique, Watched},
};
use crate::ops::{Context, Next, Placement};

/// Keys that a connection may watch at a time.
const WATCHED_MAX: usize = 1024;

/// Keeps a command for EXEC.
pub(super) fn queue<M: Mode>(session: &mut RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    let transaction = &mut session.transaction;
    // The thread that checks passwords and reads files would be waited for in the middle of the step.
    let waits = matches!(call.spec.id, Id::Auth | Id::Hello | Id::AclLoad | Id::AclSave);
    // EXEC has announced how many replies there are.
    let mutes = call.spec.id == Id::ClientReply && (call.is(2, "off") || call.is(2, "skip"));
    if mutes || waits && session.guard.is_some() {
        transaction.is_broken = true;
        return fail("ERR Command not allowed inside a transaction");
    }
    let bytes: usize = call.command.arguments(0).map(|argument| argument.len() + 24).sum();
    if transaction.queued.len() + bytes > session.limits.command_bytes_max {
        transaction.is_broken = true;
        return fail("ERR transaction exceeds --max-buffer, which CONFIG SET max-buffer can raise");
    }
    compose::array(&mut transaction.queued, call.command.len());
    call.command.arguments(0).for_each(|argument| compose::bulk(&mut transaction.queued, argument));
    transaction.commands += 1;
    compose::simple(tx, "QUEUED");
    Ok(())
}

/// Executes a command of this group.
pub(super) fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let transaction = &mut session.transaction;
    match call.spec.id {
        Id::Exec => return exec(cx, session, requests_left, tx),
        Id::Multi if transaction.is_open => return fail("ERR MULTI calls can not be nested"),
        Id::Multi => {
            transaction.forget_failed();
            transaction.is_open = true;
        }
        Id::Discard if !transaction.is_open => return fail("ERR DISCARD without MULTI"),
        Id::Discard => session.transaction = Transaction::default(),
        Id::Watch if transaction.is_open => return fail("ERR WATCH inside MULTI is not allowed"),
        Id::Watch => watch(cx, session, call)?,
        _ => transaction.watched.clear(),
    }
    tx.extend_from_slice(compose::OK);
    Ok(())
}

fn watch<M: Mode, P>(cx: &Context<'_, M, P>, session: &mut RespSession, call: &Call<'_>) -> Done<M> {
    let watched =
        call.command.arguments(1).map(|key| watched_here(cx, key)).collect::<Result<Vec<_>, _>>()?;
    note_watched(session, watched.into_iter())
}

/// What is watched of a key of this node.
pub(super) fn watched_here<M: Mode, P>(
    cx: &Context<'_, M, P>,
    key: &[u8],
) -> Result<Watched, Box<Interrupt<M>>> {
    let hash = cx.store.hash(key);
    Ok(Watched { hash, key: key.into(), unique: Unique::Known(unique(cx, hash, key)?) })
}

/// Notes the keys of a WATCH that are not watched already.
pub(super) fn note_watched<M: Mode>(
    session: &mut RespSession,
    watched: impl Iterator<Item = Watched>,
) -> Done<M> {
    let transaction = &mut session.transaction;
    transaction.forget_failed();
    let all = &mut transaction.watched;
    transaction.watched_before = all.len();
    for watched in watched {
        if all.iter().any(|other| other.key == watched.key) {
            continue;
        }
        if all.len() == WATCHED_MAX {
            all.truncate(transaction.watched_before);
            return fail("ERR more than 1024 keys are watched");
        }
        all.push(watched);
    }
    Ok(())
}

/// The CAS unique of a key's item, if there is one.
fn unique<M: Mode, P>(
    cx: &Context<'_, M, P>,
    hash: KeyHash,
    key: &[u8],
) -> Result<Option<u64>, Box<Interrupt<M>>> {
    read(cx, (hash, key), |item| item.cas())
}

/// EXEC. It pauses where one of its commands does.
fn exec<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let is_first = !session.transaction.is_executing;
    if is_first {
        if !begin(cx, session, tx)? {
            return Ok(());
        }
        session.transaction.is_stepwise = !scratch::suits(&session.transaction.queued);
    }
    let is_stepwise = session.transaction.is_stepwise;
    // Out of the session, which its commands change.
    let queued = std::mem::take(&mut session.transaction.queued);
    if !is_stepwise {
        return exec_together(cx, session, queued, tx);
    }
    if is_first {
        compose::array(tx, session.transaction.commands);
    }
    let next = execute_from(cx, session, &queued, requests_left, tx);
    if let Some(next) = next {
        session.transaction.queued = queued;
        return pause(next);
    }
    session.transaction = Transaction::default();
    Ok(())
}

/// Executes a transaction in one step.
fn exec_together<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    queued: Vec<u8>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let watched = std::mem::take(&mut session.transaction.watched);
    let commands = session.transaction.commands;
    let ended = scratch::execute(cx, session, (&queued, commands), &watched, tx);
    if let Err(interrupt) = &ended
        && matches!(**interrupt, Interrupt::Paused(_))
    {
        (session.transaction.queued, session.transaction.watched) = (queued, watched);
        return ended.map(|_| ());
    }
    session.transaction = Transaction::default();
    if let scratch::Ended::Changed = ended? {
        compose::null_array(tx, session.version);
    }
    Ok(())
}

/// Begins with the execution; false if the transaction is over, and answered.
fn begin<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    tx: &mut Vec<u8>,
) -> Result<bool, Box<Interrupt<M>>> {
    let transaction = &mut session.transaction;
    if !transaction.is_open {
        return fail("ERR EXEC without MULTI");
    }
    if transaction.is_broken {
        *transaction = Transaction::default();
        return fail("EXECABORT Transaction discarded because of previous errors.");
    }
    for watched in &transaction.watched {
        if Some(unique(cx, watched.hash, &watched.key)?) != watched.unique.known() {
            *transaction = Transaction::default();
            compose::null_array(tx, session.version);
            return Ok(false);
        }
    }
    (transaction.is_open, transaction.is_executing) = (false, true);
    Ok(true)
}

/// Executes the commands that are left; returns how the connection goes on if some still are.
fn execute_from<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    queued: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Option<Next<M>> {
    loop {
        let at = session.transaction.executed_bytes;
        if at == queued.len() {
            return None;
        }
        if *requests_left == 0 || tx.len() >= session.replies_bytes_max {
            return Some(Next::Yield);
        }
        *requests_left -= 1;
        let Parsed::Command(command, bytes) = parse(&queued[at..], &CHECKED) else {
            unreachable!("it was queued as a whole")
        };
        let request = request(cx, command);
        match run(cx, session, &request, requests_left, tx) {
            Outcome::Done => session.transaction.executed_bytes += bytes,
            Outcome::Ended(next) => {
                session.transaction.executed_bytes += bytes;
                return Some(next);
            }
            Outcome::Paused(next) => return Some(next),
        }
    }
}
