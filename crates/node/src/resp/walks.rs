//! Commands that walk over the keys of all nodes of the rack.

use std::sync::{Arc, OnceLock};

use minos_engine::Mode;
use minos_proto::resp::{compose, unsigned};

use super::{
    call::{Call, Done, Failure, end, fail, pause},
    elsewhere::{ask_node, command, reply_of, translated},
    relayed::{Midway, array},
    scan,
    session::RespSession,
};
use crate::{
    ops::{Context, Fetch, Next, Placement},
    rack::{Forward, RackView, Translate},
};

/// Keys that a node lists in one step of KEYS, about at most.
const KEYS_AT_ONCE: &str = "1024";
/// The reply to a step at a node that has left the rack.
const NO_KEYS: &[u8] = b"*2\r\n$1\r\n0\r\n*0\r\n";

/// SCAN: each node in turn. The cursor is that of a node, times the number of nodes, and the node.
pub(super) fn scan<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Option<Done<M>> {
    let cursor = scan::cursor_of(call.argument(1))?;
    if !cx.holes.is_empty() {
        return Some(pause(Next::Yield));
    }
    let nodes = rack.nodes() as u64;
    let (node, there) = (cursor % nodes, (cursor / nodes).to_string());
    let words = || call.command.arguments(0).enumerate();
    let words: Vec<&[u8]> = words().map(|(at, word)| if at == 1 { there.as_bytes() } else { word }).collect();
    let onward = move |reply: Vec<u8>| with_cursor(&reply, (node, nodes)).unwrap_or(reply);
    let Some(others) = rack.others_now() else { return Some(fail(scan::NO_LEASE)) };
    if !others.contains(&(node as u16)) {
        let reply = match step_here(cx, session, (rack, node), &words) {
            Ok(reply) => reply,
            Err(fetch) => return Some(pause(Next::Fetch(fetch))),
        };
        if reply.first() == Some(&b'-') {
            cx.counters.resp_failed.count(call.spec.id);
        }
        tx.extend_from_slice(&onward(reply));
        return Some(Ok(()));
    }
    let bytes = match command(session, words.into_iter()) {
        Ok(bytes) => bytes,
        Err(failure) => return Some(Err(failure.into())),
    };
    let translate = translated(session, move |said| onward(reply_of(said)));
    ask_node(cx, tx.len(), (call, node as u16), (bytes, translate));
    // What follows may add and remove keys.
    Some(end(Next::Yield))
}

/// KEYS: scans of one node after another. In between, a worker serves others, here and there.
pub(super) fn keys<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    rack: &RackView<M>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let pattern = scan::checked_pattern(call.argument(1))?;
    if !cx.holes.is_empty() {
        return pause(Next::Yield);
    }
    let nodes = rack.nodes() as u64;
    session.progress.done = 1;
    let (node, there) = (session.progress.cursor % nodes, session.progress.cursor / nodes);
    let reply = match session.progress.asked.take() {
        Some(asked) => asked.get().cloned().unwrap_or_default(),
        None => {
            let there = there.to_string();
            let words = [b"SCAN", there.as_bytes(), b"MATCH", pattern, b"COUNT", KEYS_AT_ONCE.as_bytes()];
            let Some(others) = rack.others_now() else { return fail(scan::NO_LEASE) };
            if others.contains(&(node as u16)) {
                return ask(cx, session, (node, &words), tx);
            }
            match step_here(cx, session, (rack, node), &words) {
                Ok(reply) => reply,
                Err(fetch) => return pause(Next::Fetch(fetch)),
            }
        }
    };
    let Some(scanned) = Scanned::of(&reply) else { return fail(error_in(&reply)) };
    let progress = &mut session.progress;
    progress.found.extend_from_slice(scanned.keys);
    progress.count += scanned.count;
    progress.cursor = scanned.next((node, nodes));
    if progress.found.len() > session.limits.command_bytes_max {
        return fail(scan::TOO_MANY_KEYS);
    }
    if progress.cursor != 0 {
        return pause(Next::Yield);
    }
    compose::array(tx, progress.count as usize);
    tx.extend_from_slice(&progress.found);
    Ok(())
}

/// The reply of this node to a step of a walk, or for one that has left the rack, unless it has to wait for flash.
fn step_here<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    (rack, node): (&RackView<M>, u64),
    words: &[&[u8]],
) -> Result<Vec<u8>, Box<Fetch<M>>> {
    if !rack.is_node(node as u16) {
        return Ok(NO_KEYS.to_vec());
    }
    let mut body = Vec::new();
    array(words.iter().copied(), &mut body);
    let mut midway = Midway::of(session.version);
    midway.execute(cx, &body).map_or(Ok(midway.reply), Err)
}

/// Asks another node for a step of a walk, which goes on with its reply.
fn ask<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    (node, words): (u64, &[&[u8]]),
    tx: &[u8],
) -> Done<M> {
    let bytes = command(session, words.iter().copied())?;
    let asked = Arc::new(OnceLock::new());
    session.progress.asked = Some(Arc::clone(&asked));
    let note = move |said: &[u8]| {
        // There is one reply.
        let _ = asked.set(reply_of(said));
        Vec::new()
    };
    let (is_large, is_read, translate) = (true, true, Some(Box::new(note) as Translate));
    let forward = Forward { bytes, is_large, is_read, translate, ..Forward::to_node(Some(node as u16)) };
    cx.holes.push(tx.len(), None, forward);
    pause(Next::Yield)
}

/// The error in a reply of a node.
fn error_in(reply: &[u8]) -> Failure {
    let text = reply.strip_prefix(b"-").unwrap_or(b"ERR a node of the rack has sent no keys");
    Failure(text.trim_ascii_end().to_vec().into())
}

/// A reply to SCAN of one node.
struct Scanned<'a> {
    cursor: u64,
    count: i64,
    /// As bulk strings.
    keys: &'a [u8],
}

impl<'a> Scanned<'a> {
    /// `None` for an error.
    fn of(reply: &'a [u8]) -> Option<Self> {
        let mut lines = reply.splitn(5, |&byte| byte == b'\n');
        let mut line = || lines.next().map(<[u8]>::trim_ascii_end);
        let (b"*2", Some(_), Some(cursor), Some(count)) = (line()?, line(), line(), line()) else {
            return None;
        };
        let count = unsigned(count.strip_prefix(b"*")?)? as i64;
        Some(Self { cursor: unsigned(cursor)?, count, keys: lines.next()? })
    }

    /// The cursor of the rack behind a step at a node of so many.
    fn next(&self, (node, nodes): (u64, u64)) -> u64 {
        match self.cursor {
            0 => (node + 1) % nodes,
            cursor => cursor * nodes + node,
        }
    }
}

/// A reply to SCAN of a node with the cursor of the rack; `None` for an error.
fn with_cursor(reply: &[u8], (node, nodes): (u64, u64)) -> Option<Vec<u8>> {
    let scanned = Scanned::of(reply)?;
    let mut reply = Vec::new();
    compose::array(&mut reply, 2);
    compose::bulk(&mut reply, scanned.next((node, nodes)).to_string().as_bytes());
    compose::array(&mut reply, scanned.count as usize);
    reply.extend_from_slice(scanned.keys);
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_goes_through_all_nodes() {
        let reply =
            |cursor: &str| format!("*2\r\n${}\r\n{cursor}\r\n*1\r\n$1\r\nk\r\n", cursor.len()).into_bytes();
        for (cursor, node, expected) in [("5", 1, "16"), ("0", 1, "2"), ("0", 2, "0"), ("7", 0, "21")] {
            assert_eq!(with_cursor(&reply(cursor), (node, 3)), Some(reply(expected)), "{cursor} {node}");
        }
        assert_eq!(with_cursor(b"-ERR none\r\n", (0, 3)), None);
    }
}
