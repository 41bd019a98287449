//! Parser of the classic commands.

use minos_base::{Exptime, StatsGroup, StoreKind, limits::KEY_BYTES_MAX, number};

use super::{
    Arithmetic, Command, Delete, Get, GetMany, Key, Line, Parsed, Reply, Request, ShutdownMode, Source,
    StatsDetail, Store, Tokens, Touch, Value, is_too_long, text, value_bytes,
};

/// Words that memcached takes from a line, the command's name included.
const WORDS_MAX: usize = 23;

/// Most words that a command uses, its name excluded.
const ARGUMENTS_KEPT: usize = 5;

/// Reads the classic command named `word`.
#[inline]
pub(super) fn parse<'a>(word: &'a [u8], rest: Tokens<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    match word {
        b"get" => keys(rest, source, None, false),
        b"gets" => keys(rest, source, None, true),
        b"gat" => keys_touched(rest, source, false),
        b"gats" => keys_touched(rest, source, true),
        b"set" => store(&Arguments::new(rest), source, StoreKind::Set),
        b"add" => store(&Arguments::new(rest), source, StoreKind::Add),
        b"replace" => store(&Arguments::new(rest), source, StoreKind::Replace),
        b"append" => store(&Arguments::new(rest), source, StoreKind::Append),
        b"prepend" => store(&Arguments::new(rest), source, StoreKind::Prepend),
        b"cas" => store(&Arguments::new(rest), source, StoreKind::Compare),
        b"delete" => delete(&Arguments::new(rest), source),
        b"incr" => arithmetic(&Arguments::new(rest), source, false),
        b"decr" => arithmetic(&Arguments::new(rest), source, true),
        b"touch" => touch(&Arguments::new(rest), source),
        _ => administration(word, &Arguments::new(rest), source),
    }
}

/// The words after a command's name.
struct Arguments<'a> {
    kept: [&'a [u8]; ARGUMENTS_KEPT],
    count: usize,
    last: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn new(words: Tokens<'a>) -> Self {
        let mut arguments = Self { kept: [b""; ARGUMENTS_KEPT], count: 0, last: b"" };
        for word in words.take(WORDS_MAX - 1) {
            if let Some(place) = arguments.kept.get_mut(arguments.count) {
                *place = word;
            }
            arguments.count += 1;
            arguments.last = word;
        }
        arguments
    }

    /// True if the last word is `noreply`. The same word may also be another argument.
    fn is_quiet(&self) -> bool {
        self.last == b"noreply"
    }

    fn reply(&self) -> Reply<'a> {
        Reply::Classic { quiet: self.is_quiet(), with_cas: false }
    }

    /// `reply`, unless the last word asks for silence.
    fn unless_quiet(&self, reply: &'static [u8]) -> &'static [u8] {
        if self.is_quiet() { text::NOTHING } else { reply }
    }
}

/// `get` and `gets`, and the rest of `gat` and `gats`.
#[inline]
fn keys<'a>(keys: Tokens<'a>, source: Source<'a, '_>, touch: Option<Exptime>, with_cas: bool) -> Parsed<'a> {
    let reply = Reply::Classic { quiet: false, with_cas };
    let mut unchecked = keys;
    let request = match (unchecked.next(), unchecked.next()) {
        (None, _) => return source.line.refused(text::BAD_FORMAT),
        (Some(only), None) if !is_too_long(only) => {
            Request::Get(Get { touch, ..Get::plain(Key::Plain(only)) })
        }
        _ => return many(keys, source, touch, reply),
    };
    source.line.accepted(request, reply)
}

/// Several keys, up to the first that is too long, of which memcached learns only when it gets there.
fn many<'a>(
    keys: Tokens<'a>,
    source: Source<'a, '_>,
    touch: Option<Exptime>,
    reply: Reply<'a>,
) -> Parsed<'a> {
    let text = keys.rest();
    let bad = first_too_long(text);
    let good = bad.unwrap_or(text.len());
    let request =
        Request::GetMany(GetMany { keys: Tokens::new(&text[..good]), touch, ends_badly: bad.is_some() });
    let Line { text: line, consumed } = source.line;
    let line_end_bytes = consumed - line.len() + text.len() - good;
    Parsed::Request { command: Command { request, reply, line_end_bytes }, consumed }
}

/// The start of the first word that is too long for a key.
///
/// A short enough word leaves a space in the window behind its start. The search continues at the last space
/// there, so that it skips most bytes of a long line.
fn first_too_long(words: &[u8]) -> Option<usize> {
    let mut start = 0;
    while let Some(window) = words.get(start..=start + KEY_BYTES_MAX) {
        match memchr::memrchr(b' ', window) {
            Some(space) => start += space + 1,
            None => return Some(start),
        }
    }
    None
}

/// `gat` and `gats`.
fn keys_touched<'a>(mut rest: Tokens<'a>, source: Source<'a, '_>, with_cas: bool) -> Parsed<'a> {
    let Some(exptime) = rest.next() else { return source.line.refused(text::BAD_FORMAT) };
    match number::integer_32(exptime) {
        Some(exptime) => keys(rest, source, Some(Exptime(exptime)), with_cas),
        None if rest.next().is_none() => source.line.refused(text::BAD_FORMAT),
        None => source.line.refused(text::INVALID_EXPTIME),
    }
}

/// `set`, `add`, `replace`, `append`, `prepend` and `cas`.
fn store<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>, kind: StoreKind) -> Parsed<'a> {
    // Without a length nothing can be skipped, and `noreply` is not checked.
    let Some(bytes) = value_bytes(arguments.kept[3]) else { return source.line.refused(text::BAD_FORMAT) };
    let Some(store) = store_head(arguments, kind) else {
        return source.line.refused_with_value(arguments.unless_quiet(text::BAD_FORMAT), bytes + 2);
    };
    match source.value(bytes) {
        None => source.bad_chunk(bytes, arguments.unless_quiet(text::BAD_CHUNK)),
        Some((value, consumed)) => {
            let request = Request::Store(Store { value, ..store });
            source.line.accepted_with(request, arguments.reply(), consumed)
        }
    }
}

/// The store that a line asks for, without its value.
fn store_head<'a>(arguments: &Arguments<'a>, kind: StoreKind) -> Option<Store<'a>> {
    let [key, flags, exptime, _, unique] = arguments.kept;
    if is_too_long(key) {
        return None;
    }
    Some(Store {
        kind,
        key: Key::Plain(key),
        flags: number::unsigned_32(flags)?,
        exptime: Exptime(number::signed_32(exptime)?),
        unique: if kind == StoreKind::Compare { number::digits(unique)? } else { 0 },
        invalidate: false,
        value: Value::Pending { bytes: 0 },
    })
}

/// `delete`, which takes an old hold time of zero and `noreply`. Other words are refused, as in memcached
/// 1.6.18: a client that asks for a hold time must not believe that the key is held.
fn delete<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    let [key, hold, ..] = arguments.kept;
    let (is_held_zero, is_quiet) = (hold == b"0", arguments.is_quiet());
    let is_valid = match arguments.count {
        0 => return source.line.refused(text::BAD_FORMAT),
        1 => true,
        2 => is_held_zero || is_quiet,
        3 => is_held_zero && is_quiet,
        _ => return source.line.refused(text::ERROR),
    };
    if !is_valid {
        return source.line.refused(arguments.unless_quiet(text::BAD_DELETE));
    }
    if is_too_long(key) {
        return source.line.refused(arguments.unless_quiet(text::BAD_FORMAT));
    }
    let delete = Delete { key: Key::Plain(key), unique: None, invalidate: false, touch: None };
    source.line.accepted(Request::Delete(delete), arguments.reply())
}

/// `incr` and `decr`.
fn arithmetic<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>, decrement: bool) -> Parsed<'a> {
    let [key, delta, ..] = arguments.kept;
    if arguments.count < 2 {
        return source.line.refused(text::BAD_FORMAT);
    }
    if is_too_long(key) {
        return source.line.refused(arguments.unless_quiet(text::BAD_FORMAT));
    }
    let Some(delta) = number::digits(delta) else {
        return source.line.refused(arguments.unless_quiet(text::INVALID_DELTA));
    };
    let key = Key::Plain(key);
    let arithmetic = Arithmetic { key, decrement, delta, unique: 0, vivify: None, touch: None };
    source.line.accepted(Request::Arithmetic(arithmetic), arguments.reply())
}

/// `touch`.
fn touch<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    let [key, exptime, ..] = arguments.kept;
    if arguments.count < 2 {
        return source.line.refused(text::BAD_FORMAT);
    }
    if is_too_long(key) {
        return source.line.refused(arguments.unless_quiet(text::BAD_FORMAT));
    }
    let Some(exptime) = number::integer_32(exptime) else {
        return source.line.refused(arguments.unless_quiet(text::INVALID_EXPTIME));
    };
    let touch = Touch { key: Key::Plain(key), exptime: Exptime(exptime) };
    source.line.accepted(Request::Touch(touch), arguments.reply())
}

/// The commands that name no key, and those that are none.
fn administration<'a>(word: &'a [u8], arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    match word {
        b"version" => source.line.accepted(Request::Version, Reply::LOUD),
        b"quit" => source.line.accepted(Request::Quit, Reply::LOUD),
        b"stats" => stats(arguments, source),
        b"flush_all" => flush_all(arguments, source),
        b"verbosity" => verbosity(arguments, source),
        b"cache_memlimit" => memory_limit(arguments, source),
        b"shutdown" => shutdown(arguments, source),
        b"watch" => source.line.refused(arguments.unless_quiet(text::WATCH_DISABLED)),
        b"lru_crawler" if arguments.count == 2 && arguments.kept[0] == b"metadump" => {
            match arguments.kept[1] {
                b"all" | b"hash" => source.line.accepted(Request::Metadump, Reply::LOUD),
                _ => source.line.refused(text::BAD_CLASS),
            }
        }
        b"lru_crawler" if arguments.count >= 2 && arguments.kept[0] == b"crawl" => {
            source.line.refused(text::CRAWLER_DISABLED)
        }
        b"slabs" if arguments.count == 3 && arguments.kept[0] == b"reassign" => {
            source.line.refused(text::REASSIGN_DISABLED)
        }
        _ => unknown(word, arguments, source),
    }
}

/// A command that does not exist. One that looks like HTTP comes from a confused proxy or from worse,
/// and is not answered at all.
fn unknown<'a>(word: &'a [u8], arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    match arguments.last {
        last if last.starts_with(b"HTTP/") => source.line.hung_up(),
        _ if word == b"noreply" => source.line.refused(text::NOTHING),
        _ => source.line.refused(arguments.unless_quiet(text::ERROR)),
    }
}

/// The number that memcached's slab classes stay below.
const SLAB_CLASSES: u32 = 64;

/// `stats`, of which each group is a command of its own.
fn stats<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    match arguments.kept[0] {
        b"detail" => stats_detail(arguments, source),
        b"cachedump" => source.line.refused(cachedump(arguments)),
        name => match StatsGroup::named(name) {
            Some(group) => source.line.accepted(Request::Stats(group), Reply::LOUD),
            None => source.line.refused(text::ERROR),
        },
    }
}

/// `stats detail`.
fn stats_detail<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    let detail = match arguments.kept[1] {
        b"on" => StatsDetail::On,
        b"off" => StatsDetail::Off,
        b"dump" => StatsDetail::Dump,
        _ => return source.line.refused(text::STATS_DETAIL_USAGE),
    };
    source.line.accepted(Request::StatsDetail(detail), Reply::LOUD)
}

/// The whole answer to `stats cachedump CLASS LIMIT`: no class ever lists a key.
fn cachedump(arguments: &Arguments<'_>) -> &'static [u8] {
    let [_, class, limit, ..] = arguments.kept;
    if arguments.count < 3 {
        return text::BAD_COMMAND_LINE;
    }
    match (number::digits_32(class), number::digits_32(limit)) {
        (Some(0..SLAB_CLASSES), Some(_)) => text::END,
        (Some(_), Some(_)) => text::ILLEGAL_SLAB,
        _ => text::BAD_FORMAT,
    }
}

/// `flush_all`, with a delay or without.
fn flush_all<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    let quiet = arguments.is_quiet();
    let has_delay = arguments.count != usize::from(quiet);
    let delay = if has_delay { number::integer_32(arguments.kept[0]) } else { Some(0) };
    match delay {
        None => source.line.refused(arguments.unless_quiet(text::INVALID_EXPTIME)),
        Some(delay) => source.line.accepted(Request::FlushAll { delay: Exptime(delay) }, arguments.reply()),
    }
}

/// `verbosity`.
fn verbosity<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    match number::digits_32(arguments.kept[0]) {
        None => source.line.refused(arguments.unless_quiet(text::BAD_FORMAT)),
        Some(level) => source.line.accepted(Request::Verbosity { level }, arguments.reply()),
    }
}

/// `cache_memlimit`.
fn memory_limit<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    match number::digits_32(arguments.kept[0]) {
        None => source.line.refused(arguments.unless_quiet(text::ERROR)),
        Some(mebibytes) => source.line.accepted(Request::MemoryLimit { mebibytes }, arguments.reply()),
    }
}

/// `shutdown`. The server checks first whether it is allowed.
fn shutdown<'a>(arguments: &Arguments<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    let mode = match (arguments.count, arguments.kept[0]) {
        (0, _) => ShutdownMode::Now,
        (1, b"graceful") => ShutdownMode::Graceful,
        _ => ShutdownMode::Unknown,
    };
    source.line.accepted(Request::Shutdown(mode), Reply::LOUD)
}
