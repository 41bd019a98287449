//! Parser of the meta commands.

use minos_base::{Exptime, StoreKind};

use super::flags::{MetaFlags, MetaOptions};
use super::{
    Arithmetic, Delete, Get, Key, Parsed, Reply, Request, Source, Store, Tokens, Value, Vivify, base64,
    is_too_long, text, value_bytes,
};

/// Words of a meta command, its name included, that memcached accepts.
const WORDS_MAX: usize = 20;

/// Reads the meta command whose name is `m` and `letter`.
pub(super) fn parse<'a>(letter: u8, mut rest: Tokens<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    if letter == b'n' {
        return source.line.accepted(Request::NoOp, Reply::LOUD);
    }
    let Some(key) = rest.next() else { return source.line.refused(text::BAD_FORMAT) };
    match letter {
        b's' => store(key, rest, source),
        b'a' => arithmetic(key, rest, source),
        _ if is_too_long(key) => source.line.refused(text::BAD_FORMAT),
        b'g' => get(key, rest, source),
        b'd' => delete(key, rest, source),
        _ => debug(key, rest, source),
    }
}

/// `key` as the flags say it is written.
fn encoded<'a>(key: &'a [u8], options: &MetaOptions) -> Key<'a> {
    if options.key_is_base64 { Key::Base64(key) } else { Key::Plain(key) }
}

/// True if `rest` has more words than may follow name and key.
fn has_too_many(rest: Tokens<'_>) -> bool {
    rest.take(WORDS_MAX).count() > WORDS_MAX - 2
}

/// `mg`.
fn get<'a>(key: &'a [u8], rest: Tokens<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    if has_too_many(rest) {
        return source.line.refused(text::META_TOO_MANY_FLAGS);
    }
    let flags = MetaFlags::new(rest);
    let options = match MetaOptions::read(flags, key) {
        Ok(options) => options,
        Err(reply) => return source.line.refused(reply),
    };
    let get = Get {
        key: encoded(key, &options),
        touch: options.touch,
        vivify: options.vivify,
        recache: options.recache,
        unseen: options.unseen,
    };
    source.line.accepted(Request::Get(get), Reply::Meta { flags, quiet: options.quiet })
}

/// `ms`.
fn store<'a>(key: &'a [u8], mut rest: Tokens<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    let all = rest;
    let Some(length) = rest.next() else { return source.line.refused(text::BAD_FORMAT) };
    let Some(bytes) = value_bytes(length) else { return source.line.refused(text::BAD_FORMAT) };
    if is_too_long(key) {
        return source.line.refused_with_value(text::BAD_FORMAT, bytes + 2);
    }
    if has_too_many(all) {
        return source.line.refused_with_value(text::META_TOO_MANY_FLAGS, bytes + 2);
    }
    let flags = MetaFlags::new(rest);
    let (store, quiet) = match store_head(key, flags) {
        Ok(head) => head,
        Err(reply) => return source.line.refused_with_value(reply, bytes + 2),
    };
    match source.value(bytes) {
        // Errors of meta commands are never kept quiet.
        None => source.bad_chunk(bytes, text::BAD_CHUNK),
        Some((value, consumed)) => {
            let request = Request::Store(Store { value, ..store });
            source.line.accepted_with(request, Reply::Meta { flags, quiet }, consumed)
        }
    }
}

/// The store that the flags of an `ms` request, and true if it is quiet.
fn store_head<'a>(key: &'a [u8], flags: MetaFlags<'a>) -> Result<(Store<'a>, bool), &'static [u8]> {
    let options = MetaOptions::read(flags, key)?;
    let kind = store_kind(&options)?;
    if options.opaque_is_too_long {
        return Err(text::META_OPAQUE_TOO_LONG);
    }
    let store = Store {
        kind,
        key: encoded(key, &options),
        flags: options.client_flags,
        exptime: options.touch.unwrap_or_default(),
        unique: options.unique.unwrap_or(0),
        invalidate: options.invalidate && kind == StoreKind::Compare,
        value: Value::Pending { bytes: 0 },
    };
    Ok((store, options.quiet))
}

/// The kind of an `ms`; a CAS unique makes a set or a replace a comparison.
fn store_kind(options: &MetaOptions) -> Result<StoreKind, &'static [u8]> {
    let compares = options.unique.is_some();
    match options.mode {
        None | Some(b'S' | b'R') if compares => Ok(StoreKind::Compare),
        None | Some(b'S') => Ok(StoreKind::Set),
        Some(b'R') => Ok(StoreKind::Replace),
        Some(b'E') => Ok(StoreKind::Add),
        Some(b'A') => Ok(StoreKind::Append),
        Some(b'P') => Ok(StoreKind::Prepend),
        Some(_) => Err(text::META_STORE_BAD_MODE),
    }
}

/// `md`.
fn delete<'a>(key: &'a [u8], rest: Tokens<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    if has_too_many(rest) {
        return source.line.refused(text::META_TOO_MANY_FLAGS);
    }
    let flags = MetaFlags::new(rest);
    let options = match MetaOptions::read(flags, key) {
        Ok(options) => options,
        Err(reply) => return source.line.refused(reply),
    };
    if options.opaque_is_too_long {
        return source.line.refused(text::META_OPAQUE_TOO_LONG);
    }
    let delete = Delete {
        key: encoded(key, &options),
        unique: options.unique,
        invalidate: options.invalidate,
        touch: options.touch,
    };
    source.line.accepted(Request::Delete(delete), Reply::Meta { flags, quiet: options.quiet })
}

/// `ma`.
fn arithmetic<'a>(key: &'a [u8], rest: Tokens<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    if is_too_long(key) || has_too_many(rest) {
        return source.line.refused(text::META_INVALID_OR_DUPLICATE_FLAG);
    }
    let flags = MetaFlags::new(rest);
    let Ok(options) = MetaOptions::read(flags, key) else {
        return source.line.refused(text::META_INVALID_OR_DUPLICATE_FLAG);
    };
    let decrement = match options.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return source.line.refused(text::META_ARITHMETIC_BAD_MODE),
    };
    let vivify = |exptime: Exptime| Vivify { initial: options.initial, exptime };
    let arithmetic = Arithmetic {
        key: encoded(key, &options),
        decrement,
        delta: options.delta.unwrap_or(1),
        unique: options.unique.unwrap_or(0),
        vivify: options.vivify.map(vivify),
        touch: options.touch,
    };
    source.line.accepted(Request::Arithmetic(arithmetic), Reply::Meta { flags, quiet: options.quiet })
}

/// `me`.
fn debug<'a>(key: &'a [u8], mut rest: Tokens<'a>, source: Source<'a, '_>) -> Parsed<'a> {
    if rest.next() != Some(b"b") {
        return source.line.accepted(Request::Debug { key: Key::Plain(key) }, Reply::LOUD);
    }
    let mut decoded = [0; minos_base::limits::KEY_BYTES_MAX];
    match base64::decode(key, &mut decoded) {
        None => source.line.refused(text::BAD_FORMAT),
        Some(_) => source.line.accepted(Request::Debug { key: Key::Base64(key) }, Reply::LOUD),
    }
}
