//! Commands for keys of other nodes. Nodes speak the text protocol with each other, whose meta commands say all that a
//! packet can.

use std::io::Write as _;

use minos_base::{StoreKind, limits::KEY_BYTES_MAX, number::digits};
use minos_proto::memcache::{
    Command, Request,
    binary::{Reply, Status, compose},
    text,
};

use super::{fail, unmet};
use crate::{memcache::remote::say_key, rack::Forward};

/// A key that is no word of a line, and has too many bytes for one in base64.
const KEY_TOO_LONG: &[u8] = b"SERVER_ERROR the key is too long to be sent to its node\r\n";

/// What a reply in the text protocol answers.
#[derive(Clone, Copy)]
enum Asked {
    Value,
    Touch,
    Store(StoreKind),
    Count,
    Delete,
}

/// Gives `forward` the command in the text protocol, without the value of a store, and the translation of its reply.
///
/// # Errors
/// The key cannot be sent.
pub(super) fn translate(command: &Command<'_, Reply>, forward: &mut Forward) -> Result<(), &'static [u8]> {
    let mut words = Vec::new();
    let request = &command.request;
    let name: &[u8] = match request {
        Request::Store(_) => b"ms ",
        Request::Arithmetic(_) => b"ma ",
        Request::Delete(_) => b"md ",
        _ => b"mg ",
    };
    words.extend_from_slice(name);
    let is_encoded = request.key().is_some_and(|key| say_key(key, &mut words));
    if words.len() - name.len() > KEY_BYTES_MAX {
        return Err(KEY_TOO_LONG);
    }
    let asked = flags(request, &mut words);
    words.extend_from_slice(if is_encoded { b" b" } else { b"" });
    words.extend_from_slice(text::LINE_END);
    forward.bytes = words;
    if matches!(asked, Asked::Store(_)) {
        forward.tail = text::LINE_END;
    }
    let reply = command.reply;
    let key = request.key().filter(|_| reply.with_key).map_or_else(Box::default, |key| key.text().into());
    forward.translate = Some(Box::new(move |said| {
        let mut tx = Vec::new();
        Answered { reply, key: &key, asked }.compose(said, &mut tx);
        tx
    }));
    Ok(())
}

/// Appends all words of a meta command behind its key.
fn flags(request: &Request<'_>, words: &mut Vec<u8>) -> Asked {
    match request {
        Request::Touch(touch) => {
            say(words, format_args!(" f c T{}", touch.exptime.0));
            Asked::Touch
        }
        Request::Store(store) => {
            let mode = match store.kind {
                StoreKind::Add => 'E',
                StoreKind::Replace => 'R',
                StoreKind::Append => 'A',
                StoreKind::Prepend => 'P',
                StoreKind::Set | StoreKind::Compare => 'S',
            };
            let bytes = store.value.bytes();
            say(words, format_args!(" {bytes} M{mode} F{} T{} c", store.flags, store.exptime.0));
            compare(store.unique, words);
            Asked::Store(store.kind)
        }
        Request::Arithmetic(count) => {
            let mode = if count.decrement { 'D' } else { 'I' };
            say(words, format_args!(" M{mode} D{} c v", count.delta));
            if let Some(wanted) = count.vivify {
                say(words, format_args!(" N{} J{}", wanted.exptime.0, wanted.initial));
            }
            compare(count.unique, words);
            Asked::Count
        }
        Request::Delete(delete) => {
            compare(delete.unique.unwrap_or(0), words);
            Asked::Delete
        }
        request => {
            words.extend_from_slice(b" f c v");
            if let Request::Get(get) = request
                && let Some(exptime) = get.touch
            {
                say(words, format_args!(" T{}", exptime.0));
            }
            Asked::Value
        }
    }
}

fn compare(unique: u64, words: &mut Vec<u8>) {
    if unique != 0 {
        say(words, format_args!(" C{unique}"));
    }
}

fn say(words: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec does not fail.
    let _ = words.write_fmt(text);
}

/// A command that another node has answered.
struct Answered<'a> {
    reply: Reply,
    key: &'a [u8],
    asked: Asked,
}

impl Answered<'_> {
    /// Appends the packet for what the other node, or this one in its place, has `said`.
    fn compose(&self, said: &[u8], tx: &mut Vec<u8>) {
        let line_bytes = said.iter().position(|&byte| byte == b'\n').map_or(said.len(), |at| at + 1);
        let (line, rest) = said.split_at(line_bytes);
        let mut words = line.trim_ascii_end().split(|&byte| byte == b' ');
        let code = words.next().unwrap_or_default();
        let value = rest.strip_suffix(text::LINE_END).unwrap_or(rest);
        let number = |letter: u8| {
            let mut numbers = words.clone().filter_map(|word| word.strip_prefix(&[letter]).and_then(digits));
            numbers.next().unwrap_or(0)
        };
        let (reply, key, cas) = (self.reply, self.key, number(b'c'));
        match (code, self.asked) {
            (b"VA", Asked::Count) => match digits(value) {
                Some(count) => compose::done(tx, reply, cas, &count.to_be_bytes()),
                None => fail(reply, line, tx),
            },
            (b"VA" | b"HD", Asked::Value | Asked::Touch) => {
                compose::value_head(tx, reply, key, number(b'f') as u32, value.len() as u64, cas);
                tx.extend_from_slice(value);
            }
            (b"HD" | b"OK", _) => compose::done(tx, reply, cas, &[]),
            (b"EN", _) => compose::miss(tx, reply, key),
            (b"NF", _) => compose::error(tx, reply, Status::NotFound),
            (b"EX", _) => compose::error(tx, reply, Status::Exists),
            (b"NS", Asked::Store(kind)) => compose::error(tx, reply, unmet(kind)),
            _ if line == text::NON_NUMERIC => compose::error(tx, reply, Status::NonNumeric),
            _ => fail(reply, line, tx),
        }
    }
}
