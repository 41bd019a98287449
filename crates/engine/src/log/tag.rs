//! The word before every entry: its length and state.
//!
//! ```text
//! copy (38) | payload words (18) | unused (3) | being copied (1) | filler (1) | owns an extent (1) | dead (1) | used (1)
//! ```
//!
//! A word of zero is no tag, so that memory never written is not mistaken for entries. A filler closes a
//! segment: its words are the rest of the segment behind it. The copy is what a lower tier keeps of the entry.

const USED: u64 = 1;
const DEAD: u64 = 1 << 1;
const EXTENT: u64 = 1 << 2;
const FILLER: u64 = 1 << 3;
const COPYING: u64 = 1 << 4;
const FLAGS: u64 = USED | DEAD | EXTENT | FILLER | COPYING;
const WORDS_SHIFT: u32 = 8;
/// More than any segment has.
const WORDS_BITS: u32 = 18;
const COPY_SHIFT: u32 = WORDS_SHIFT + WORDS_BITS;

/// What is known of an entry's copy in a lower tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// There is none.
    None,
    /// It is being made, under this number of 38 bits.
    Begun(u64),
    /// It is the same as the entry; its place in 38 bits, not 0.
    Same(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u64);

/// The meaning of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An entry follows, with this many words of payload.
    Entry(u64),
    /// Nothing follows up to the segment's end.
    Filler,
    /// No tag of ours: an entry here would be empty, or straddle the segment's end.
    Broken,
}

impl Tag {
    pub(super) fn entry(words: u64) -> Self {
        Self(words << WORDS_SHIFT | USED)
    }

    /// Closes a segment of which `room` words are left, the tag among them.
    pub(super) fn filler(room: u64) -> Self {
        Self((room - 1) << WORDS_SHIFT | USED | FILLER)
    }

    pub(super) fn dead(self) -> Self {
        Self(self.0 | DEAD)
    }

    pub(super) fn alive(self) -> Self {
        Self(self.0 & !DEAD)
    }

    pub(super) fn with_extent(self) -> Self {
        Self(self.0 | EXTENT)
    }

    #[inline]
    pub(super) fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    #[inline]
    pub(super) fn owns_extent(self) -> bool {
        self.0 & EXTENT != 0
    }

    pub(super) fn copy(self) -> Twin {
        match (self.0 >> COPY_SHIFT, self.0 & COPYING != 0) {
            (number, true) => Twin::Begun(number),
            (0, false) => Twin::None,
            (place, false) => Twin::Same(place),
        }
    }

    pub(super) fn with_copy(self, copy: Twin) -> Self {
        let rest = self.0 & ((1 << COPY_SHIFT) - 1) & !COPYING;
        Self(match copy {
            Twin::None => rest,
            Twin::Begun(number) => rest | number << COPY_SHIFT | COPYING,
            Twin::Same(place) => rest | place << COPY_SHIFT,
        })
    }

    #[inline]
    pub(super) fn words(self) -> u64 {
        self.0 >> WORDS_SHIFT & ((1 << WORDS_BITS) - 1)
    }

    /// Decodes the tag; `room` is the number of words left in the segment, including the tag.
    #[inline]
    pub(super) fn kind(self, room: u64) -> Kind {
        let flags = self.0 & ((1 << WORDS_SHIFT) - 1);
        if flags & USED == 0 || flags & !FLAGS != 0 {
            return Kind::Broken;
        }
        match flags & FILLER != 0 {
            true if flags == USED | FILLER && self.words() == room - 1 => Kind::Filler,
            false if (1..room).contains(&self.words()) => Kind::Entry(self.words()),
            _ => Kind::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_what_they_were_made_for() {
        let tag = Tag::entry(7);
        assert_eq!((tag.kind(8), tag.kind(64)), (Kind::Entry(7), Kind::Entry(7)));
        assert_eq!((tag.words(), tag.is_dead(), tag.owns_extent()), (7, false, false));
        let tag = tag.with_extent().dead();
        assert_eq!((tag.words(), tag.is_dead(), tag.owns_extent()), (7, true, true));
        assert_eq!(tag.kind(8), Kind::Entry(7));
        assert_eq!((Tag::filler(1).kind(1), Tag::filler(9).kind(9)), (Kind::Filler, Kind::Filler));
    }

    #[test]
    fn a_copy_is_kept_beside_the_rest() {
        let tag = Tag::entry(9).with_extent();
        let last = (1 << 38) - 1;
        for copy in [Twin::Begun(0), Twin::Same(last), Twin::Begun(last), Twin::Same(1), Twin::None] {
            let with = tag.with_copy(Twin::Same(77)).with_copy(copy);
            assert_eq!((with.copy(), with.kind(10), with.owns_extent()), (copy, Kind::Entry(9), true));
        }
        assert_eq!(tag.with_copy(Twin::Same(7)).with_copy(Twin::None), tag);
    }

    #[test]
    fn what_is_no_tag_is_noticed() {
        let straddling = Tag::entry(8).kind(8);
        let others = [Tag(0).kind(9), Tag::entry(0).kind(9), Tag(u64::MAX).kind(9), Tag::filler(3).kind(9)];
        assert!(others.into_iter().chain([straddling]).all(|kind| kind == Kind::Broken), "{others:?}");
    }
}
