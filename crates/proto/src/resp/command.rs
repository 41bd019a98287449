//! A command: its name and arguments, as parts of the input.

use super::parse::bulk;

/// Arguments that are found without a walk, the name included: those of all common commands.
pub(super) const NEAR: usize = 4;

/// A command and its arguments. The name is the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    pub(super) near: [&'a [u8]; NEAR],
    /// Bulk strings behind the near arguments.
    pub(super) rest: &'a [u8],
    pub(super) len: usize,
}

impl<'a> Command<'a> {
    /// The number of arguments, the name included: at least one.
    #[expect(clippy::len_without_is_empty, reason = "there is always a name")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its name, in any case.
    pub fn name(&self) -> &'a [u8] {
        self.near[0]
    }

    /// Argument `at`; the name is argument 0. Walks over those before it, from the fourth on.
    pub fn argument(&self, at: usize) -> Option<&'a [u8]> {
        if at < NEAR.min(self.len) {
            return Some(self.near[at]);
        }
        self.arguments(at).next()
    }

    /// The arguments from number `from` on.
    pub fn arguments(&self, from: usize) -> Arguments<'a> {
        let mut arguments = Arguments { near: self.near, rest: self.rest, at: from.min(NEAR), len: self.len };
        for _ in NEAR..from.min(self.len) {
            arguments.next();
        }
        arguments.at = from;
        arguments
    }
}

/// The arguments of a command, in their order.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    near: [&'a [u8]; NEAR],
    rest: &'a [u8],
    at: usize,
    len: usize,
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at >= self.len {
            return None;
        }
        let at = self.at;
        self.at += 1;
        if at < NEAR {
            return Some(self.near[at]);
        }
        // The parser has seen that they are there.
        let (argument, rest) = bulk(self.rest)?;
        self.rest = rest;
        Some(argument)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.len.saturating_sub(self.at);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Arguments<'_> {}
