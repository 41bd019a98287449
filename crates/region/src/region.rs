//! One mapped range of memory, seen as words.

use crate::{
    backing::{Backing, MapError, Mapping},
    offset::{OFFSET_BITS, Offset},
    view::{Mapped, View, word_access},
};
use minos_sync::{ReadWord, words::WORD_BYTES};
use rustix::io::Errno;
use std::{
    ffi::c_void,
    fmt, io,
    ops::Deref,
    os::fd::OwnedFd,
    path::Path,
    ptr, slice,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Of the next region.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The smallest page there is, in bytes.
const PAGE_BYTES: usize = 4 << 10;

/// A mapped range of zeroed memory: a [`View`] whose words can also be stored.
///
/// Shared bytes are only touched as whole aligned words with relaxed atomics. Two exceptions:
/// [`crate::Exclusive`], by construction, and [`Region::settled_bytes`], whose caller answers for it.
pub struct Region {
    mapped: Mapped,
    mapping: Mapping,
    /// No other region of this process has it, or had.
    number: u64,
}

impl Region {
    /// The smallest region, in bytes.
    pub const BYTES_MIN: u64 = 64 << 10;

    /// The largest region, in bytes.
    pub const BYTES_MAX: u64 = (WORD_BYTES as u64) << OFFSET_BITS;

    /// Maps at least `bytes` of zeroed memory and logs its backing. Only the first word of a file is not
    /// zero: it marks the file as a region.
    pub fn map(bytes: u64, backing: &Backing) -> Result<Self, MapError> {
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes) {
            return Err(MapError::Size { bytes, min: Self::BYTES_MIN, max: Self::BYTES_MAX });
        }
        Ok(Self::of(Mapping::new(bytes, backing)?, bytes))
    }

    /// The first `bytes` of a mapping.
    pub(crate) fn of(mapping: Mapping, bytes: u64) -> Self {
        tracing::info!(bytes, backing = mapping.text, "mapped the store's memory");
        // Relaxed: only uniqueness matters.
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        // SAFETY: the mapping holds at least `bytes`, is aligned to a page, zeroed, and lives as long.
        let mapped = unsafe { Mapped::new(mapping.base.cast(), bytes as usize / WORD_BYTES) };
        Self { mapped, mapping, number }
    }

    /// A number that no other region of the process has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where the region's file is, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.mapping.path()
    }

    /// True if a keeper has it, too.
    pub(crate) fn is_kept(&self) -> bool {
        self.mapping.is_kept()
    }

    /// What its file is called in messages.
    pub(crate) fn name(&self) -> &Path {
        self.mapping.name()
    }

    /// A descriptor of the region's file or memfd, which can only be read: for [`crate::Image::from_descriptor`].
    ///
    /// # Errors
    /// There is no file, or the operating system refuses.
    pub fn descriptor_to_read(&self) -> io::Result<OwnedFd> {
        self.mapping.descriptor_to_read()
    }

    /// Gives a new file its name, if there is a file.
    pub(crate) fn publish(&mut self) -> Result<(), MapError> {
        self.mapping.publish()
    }

    /// Writes everything back to the file, if there is one; returns when it is written.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.mapping.sync(usize::MAX)
    }

    /// As [`Region::sync`], for the first page alone.
    pub(crate) fn sync_header(&self) -> Result<(), Errno> {
        self.mapping.sync(PAGE_BYTES)
    }

    /// A readable description of the memory and its page size.
    pub fn backing_text(&self) -> &str {
        &self.mapping.text
    }

    /// The mapping: where it begins, and its bytes, of which the region may use the first ones only.
    pub(crate) fn mapped_bytes(&self) -> (*const c_void, usize) {
        (self.mapping.base.as_ptr(), self.mapping.bytes)
    }

    word_access!(AtomicU64);

    /// The same words, to be loaded only.
    #[inline(always)]
    pub fn view(&self) -> &View {
        self.mapped.view()
    }

    /// The word that a reader has found through the [`View`]; `None` if it lies in another region.
    #[inline]
    pub fn writable(&self, word: &ReadWord) -> Option<&AtomicU64> {
        let bytes = ptr::from_ref(word).addr().wrapping_sub(self.all().as_ptr().addr());
        self.all().get(bytes / WORD_BYTES)
    }

    /// `len` plain bytes, beginning `at` bytes after `offset`, which no
    /// thread writes while they are borrowed.
    ///
    /// Large values are sent from here.
    ///
    /// # Safety
    /// No thread writes the bytes while they are borrowed.
    ///
    /// # Panics
    /// If they do not lie within the region.
    #[inline]
    pub unsafe fn settled_bytes(&self, offset: Offset, at: usize, len: usize) -> &[u8] {
        // A sum that came round would pass for a place within.
        let end = at.checked_add(len).expect("within the region");
        let words = self.words(offset, end.div_ceil(WORD_BYTES));
        // SAFETY: the bytes lie within `words`, which is mapped and initialised as long as `self`
        // is borrowed; nobody writes them meanwhile, as the caller promises.
        unsafe { slice::from_raw_parts(words.as_ptr().cast::<u8>().add(at), len) }
    }

    #[inline]
    pub(crate) fn all(&self) -> &[AtomicU64] {
        let words = self.view().all();
        // SAFETY: these words of the view may also be stored, because the mapping is writable.
        unsafe { slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
    }
}

impl Deref for Region {
    type Target = View;

    #[inline(always)]
    fn deref(&self) -> &View {
        self.view()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len_words", &self.len_words())
            .field("backing", &self.mapping.text)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn works(backing: &Backing) -> Region {
        let mut region = Region::map(3 << 20, backing).unwrap();
        region.publish().unwrap();
        assert_eq!(region.len_words(), (3 << 20) / 8);
        let last = Offset::from_words(region.len_words() - 1);
        assert_eq!(region.word(last).swap(7, Ordering::Relaxed), 0);
        assert_eq!(region.word(last).load(Ordering::Relaxed), 7);
        // SAFETY: no other thread has the region.
        let bytes = unsafe { region.settled_bytes(last, 0, 8) };
        assert_eq!(bytes, 7u64.to_ne_bytes());
        region
    }

    #[test]
    fn every_backing_gives_zeroed_memory() {
        let dir = std::env::temp_dir().join(format!("minos-region-{}", std::process::id()));
        let private = [Backing::Auto, Backing::Private, Backing::SmallPages];
        for backing in private.into_iter().chain([Backing::Memfd, Backing::File(dir.clone())]) {
            assert!(works(&backing).backing_text().contains("pages"), "{backing}");
        }
        assert_eq!(std::fs::metadata(&dir).unwrap().len(), 4 << 20);
        std::fs::remove_file(dir).unwrap();
    }

    #[test]
    fn what_cannot_be_mapped_is_said() {
        let tiny = Region::map(100, &Backing::Auto).unwrap_err();
        assert!(matches!(tiny, MapError::Size { bytes: 100, .. }));
        let nowhere = Region::map(1 << 20, &Backing::File("/nonexistent/file".into())).unwrap_err();
        assert!(nowhere.to_string().contains("/nonexistent/file"), "{nowhere}");
    }

    #[test]
    fn a_word_that_was_seen_is_writable_in_its_own_region_only() {
        let [region, other] = [1, 2].map(|_| Region::map(1 << 20, &Backing::Private).unwrap());
        let last = Offset::from_words(region.len_words() - 1);
        region.writable(region.view().word(last)).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(region.word(last).load(Ordering::Relaxed), 7);
        assert!(region.writable(other.view().word(last)).is_none());
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn reading_outside_panics() {
        let region = Region::map(1 << 20, &Backing::Private).unwrap();
        region.words(Offset::from_words(region.len_words() - 1), 2);
    }

    #[test]
    #[should_panic(expected = "within the region")]
    fn an_end_that_comes_round_panics() {
        let region = Region::map(1 << 20, &Backing::Private).unwrap();
        // SAFETY: no other thread has the region.
        unsafe { region.settled_bytes(Offset::from_words(1), usize::MAX, 2) };
    }
}
