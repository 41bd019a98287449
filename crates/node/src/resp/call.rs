//! A command that is executed: its arguments, its key, and its outcome.

use std::borrow::Cow;

use minos_base::KeyHash;
use minos_engine::{Entry, ItemMeta, ItemState, Mode, Pinned};
use minos_proto::resp::{Command, Flag, Spec, find, find_subcommand, integer};

use crate::ops::{self, Cold, Context, Failed, Fetch, Lookup, Moment, Need, Next};

/// A command with what the table knows about it.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) command: Command<'a>,
    pub(super) spec: &'static Spec,
    /// The look-up of its first key.
    pub(super) lookup: Option<Lookup<'a>>,
}

/// How the execution of a command ended. The reply, if it is a result, is in the transmit buffer.
pub(super) type Done<M> = Result<(), Box<Interrupt<M>>>;

/// Another outcome than a result.
pub(super) enum Interrupt<M: Mode> {
    /// The reply is this error: a code in capitals, and words.
    Error(Cow<'static, [u8]>),
    /// The command has ended, and the connection goes on like this.
    Ended(Next<M>),
    /// The command has not ended. It is executed again, from its progress on.
    Paused(Next<M>),
}

/// An error reply.
pub(super) struct Failure(pub(super) Cow<'static, [u8]>);

impl<M: Mode> From<Failure> for Box<Interrupt<M>> {
    fn from(Failure(text): Failure) -> Self {
        Self::new(Interrupt::Error(text))
    }
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }
}

pub(super) const SYNTAX: &str = "ERR syntax error";
pub(super) const NO_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// Ends a command with an error.
pub(super) fn fail<T, M: Mode>(text: impl Into<Failure>) -> Result<T, Box<Interrupt<M>>> {
    Err(text.into().into())
}

/// Leaves a command for later.
pub(super) fn pause<T, M: Mode>(next: Next<M>) -> Result<T, Box<Interrupt<M>>> {
    Err(Box::new(Interrupt::Paused(next)))
}

/// Ends a command whose connection goes on in another way.
pub(super) fn end<T, M: Mode>(next: Next<M>) -> Result<T, Box<Interrupt<M>>> {
    Err(Box::new(Interrupt::Ended(next)))
}

impl<'a> Call<'a> {
    /// The command with its subcommand, if the table has it.
    pub(super) fn of(command: Command<'a>) -> Option<Self> {
        let spec = find(command.name())?;
        let spec = match command.argument(1) {
            Some(name) if spec.flags.has(Flag::CONTAINER) => find_subcommand(spec, name)?,
            _ => spec,
        };
        Some(Self { command, spec, lookup: None })
    }

    /// Argument `at`, which the arity promises.
    #[inline]
    pub(super) fn argument(&self, at: usize) -> &'a [u8] {
        self.command.argument(at).unwrap_or_default()
    }

    /// The number in argument `at`.
    pub(super) fn integer(&self, at: usize) -> Result<i64, Failure> {
        integer(self.argument(at)).ok_or_else(|| NO_INTEGER.into())
    }

    /// The first key and its look-up.
    #[inline]
    pub(super) fn key(&self) -> (KeyHash, &'a [u8]) {
        let hash = self.lookup.map(|lookup| lookup.hash).unwrap_or_default();
        (hash, self.argument(usize::from(self.spec.keys.first)))
    }

    /// True if argument `at` is this word, in any case.
    pub(super) fn is(&self, at: usize, word: &str) -> bool {
        self.argument(at).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// The entry of a key, which may have to come from flash first.
pub(super) fn entry<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    hash: KeyHash,
    key: &'a [u8],
) -> Result<Entry<'a, M>, Box<Interrupt<M>>> {
    entry_for(cx, hash, key, Need::Item)
}

/// The entry of a key whose item, if it is on flash, is needed in this form.
pub(super) fn entry_for<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    hash: KeyHash,
    key: &'a [u8],
    need: Need,
) -> Result<Entry<'a, M>, Box<Interrupt<M>>> {
    let mut entry = ops::entry_for(cx, hash, key, need).or_else(|found| cold(cx, found, (hash, key)))?;
    ops::bury(cx, &mut entry);
    Ok(entry)
}

/// Reads the item of a key that has not expired, without a lock if it is in memory.
pub(super) fn read<M: Mode, P, R>(
    cx: &Context<'_, M, P>,
    (hash, key): (KeyHash, &[u8]),
    read: impl Fn(&ItemState) -> R,
) -> Result<Option<R>, Box<Interrupt<M>>> {
    let read = |item: &ItemState| (!Moment::from(item).has_just_passed(cx.clock)).then(|| read(item));
    match cx.store.read(hash, key, cx.now, |item| read(item)) {
        None if M::HAS_FLASH => Ok(entry(cx, hash, key)?.item().and_then(|item| read(&item))),
        found => Ok(found.flatten()),
    }
}

/// The item of a key that has not expired. It stays as it is while it is used.
pub(super) fn pin<M: Mode, P>(
    cx: &Context<'_, M, P>,
    (hash, key): (KeyHash, &[u8]),
) -> Result<Option<Pinned<M>>, Box<Interrupt<M>>> {
    let item = match cx.store.pin(hash, key, cx.now) {
        None if M::HAS_FLASH => entry(cx, hash, key)?.pin(cx.store),
        item => item,
    };
    Ok(item.filter(|item| !Moment::from(&**item).has_just_passed(cx.clock)))
}

/// The properties of a new value in the place of that of `item`, which keeps its flags and its expiry.
pub(super) fn kept(item: &ItemState) -> ItemMeta {
    let Moment { expiry, early_ms } = Moment::from(item);
    ItemMeta { flags: item.flags(), expiry, early_ms, ..ItemMeta::default() }
}

/// The outcome of a command whose item is not in memory.
#[cold]
pub(super) fn cold<T, M: Mode, P>(
    _cx: &Context<'_, M, P>,
    cold: Cold,
    (hash, key): (KeyHash, &[u8]),
) -> Result<T, Box<Interrupt<M>>> {
    match cold {
        Cold::Unknown(class, need) => pause(Next::Fetch(Box::new(Fetch::of(hash, key, class, need)))),
        Cold::Failed(failed) => fail(failed_text(failed)),
    }
}

/// The error for an item that could not be fetched.
pub(super) fn failed_text(failed: Failed) -> &'static str {
    match failed {
        Failed::Unreadable => "ERR flash unreadable",
        Failed::NoMemory => "OOM no memory for an item on flash",
    }
}

/// The outcome of a command that finds no memory: it waits for flash to take items, or fails.
#[cold]
pub(super) fn no_memory<T, M: Mode, P>(cx: &Context<'_, M, P>) -> Result<T, Box<Interrupt<M>>> {
    if ops::may_wait(cx) {
        return pause(Next::Fetch(Box::new(Fetch::of_room(cx))));
    }
    cx.counters.store_no_memory.count();
    fail(NO_MEMORY)
}
