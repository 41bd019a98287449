//! The flags of meta commands.

use minos_base::{Exptime, number};

use super::{Tokens, base64, text};

/// Longest opaque token, in bytes, its letter included.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// The flags of a meta command in the order in which the client wrote them, each a letter and,
/// for some, an argument.
///
/// No letter stands twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    line: &'a [u8],
}

impl<'a> MetaFlags<'a> {
    pub(super) fn new(tokens: Tokens<'a>) -> Self {
        Self { line: tokens.rest() }
    }

    /// The flags of a command that was parsed before, out of [`MetaFlags::as_bytes`].
    pub fn checked(line: &'a [u8]) -> Self {
        Self { line }
    }

    /// The flags as they stand in the line.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.line
    }

    /// The flags, none of them empty.
    #[inline]
    pub fn iter(&self) -> Tokens<'a> {
        Tokens::new(self.line)
    }
}

/// The options set by a command's flags, for all commands.
#[derive(Default)]
pub(super) struct MetaOptions {
    pub(super) quiet: bool,
    pub(super) key_is_base64: bool,
    pub(super) unseen: bool,
    pub(super) invalidate: bool,
    pub(super) client_flags: u32,
    pub(super) mode: Option<u8>,
    pub(super) unique: Option<u64>,
    pub(super) touch: Option<Exptime>,
    pub(super) vivify: Option<Exptime>,
    pub(super) recache: Option<Exptime>,
    pub(super) delta: Option<u64>,
    pub(super) initial: u64,
    pub(super) opaque_is_too_long: bool,
    error: Option<&'static [u8]>,
    has_error: bool,
}

impl MetaOptions {
    /// Reads `flags`, of the command on the item with `key`.
    ///
    /// As in memcached, a flag that does not exist or stands twice ends the search, and of other errors
    /// the last one is reported; bad client flags are an error without a text of their own.
    pub(super) fn read(flags: MetaFlags<'_>, key: &[u8]) -> Result<Self, &'static [u8]> {
        let mut options = Self::default();
        let mut seen: u128 = 0;
        for flag in flags.iter() {
            let letter = flag[0];
            if !matches!(letter, b'A'..=b'z' | b'0'..=b'9') {
                return Err(text::BAD_FORMAT);
            }
            if seen & (1 << letter) != 0 {
                return Err(text::META_DUPLICATE_FLAG);
            }
            seen |= 1 << letter;
            options.read_flag(letter, &flag[1..], key)?;
        }
        match options.has_error {
            true => Err(options.error.unwrap_or(text::BAD_FORMAT)),
            false => Ok(options),
        }
    }

    fn read_flag(&mut self, letter: u8, argument: &[u8], key: &[u8]) -> Result<(), &'static [u8]> {
        match letter {
            b'b' => {
                self.key_is_base64 = true;
                let mut decoded = [0; minos_base::limits::KEY_BYTES_MAX];
                self.checked(base64::decode(key, &mut decoded), text::META_BAD_KEY);
            }
            b'q' => self.quiet = true,
            b'u' => self.unseen = true,
            b'I' => self.invalidate = true,
            b'O' => self.opaque_is_too_long = argument.len() >= OPAQUE_BYTES_MAX,
            b'N' => self.vivify = self.exptime(argument),
            b'T' => self.touch = self.exptime(argument),
            b'R' => self.recache = self.exptime(argument),
            b'C' => self.unique = self.checked(number::digits(argument), text::META_BAD_TOKEN),
            b'J' => {
                self.initial = self.checked(number::digits(argument), text::META_BAD_INITIAL).unwrap_or(0);
            }
            b'D' => self.delta = self.checked(number::digits(argument), text::META_BAD_DELTA),
            b'F' => match number::digits_32(argument) {
                Some(flags) => self.client_flags = flags,
                None => self.has_error = true,
            },
            // Only the first byte counts; zero stands for none, and is no mode.
            b'M' => self.mode = Some(argument.first().copied().unwrap_or(0)),
            b'l' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'v' | b'h' => {}
            _ => return Err(text::META_INVALID_FLAG),
        }
        Ok(())
    }

    fn exptime(&mut self, argument: &[u8]) -> Option<Exptime> {
        self.checked(number::integer_32(argument).map(Exptime), text::META_BAD_TOKEN)
    }

    /// `found`, with `error` noted if there is nothing.
    fn checked<T>(&mut self, found: Option<T>, error: &'static [u8]) -> Option<T> {
        if found.is_none() {
            self.error = Some(error);
            self.has_error = true;
        }
        found
    }
}
