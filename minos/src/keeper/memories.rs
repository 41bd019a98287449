//! The memories of a keeper, by name.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use minos_base::SizeText;
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals, ftruncate, memfd_create,
};

use super::wire::Pages;

/// Memories come in whole huge pages.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The memories of a keeper. `H` is whoever has one.
#[derive(Debug)]
pub(super) struct Memories<H> {
    by_name: BTreeMap<String, Entry<H>>,
    bytes_max: u64,
    memories_max: usize,
    /// Memories that were refused for lack of room.
    refused: u64,
}

/// A name that somebody has taken, or that has memory.
#[derive(Debug)]
struct Entry<H> {
    memory: Option<Memory>,
    holder: Option<H>,
    /// When it was taken or left.
    since: Instant,
}

#[derive(Debug)]
struct Memory {
    fd: OwnedFd,
    bytes: u64,
    pages: Pages,
    /// It outlives its holder.
    is_published: bool,
}

/// Whoever may have a memory.
pub(super) trait Hold: PartialEq {
    /// Number of its process.
    fn pid(&self) -> u32;

    /// False once its process is gone.
    fn is_there(&self) -> bool;
}

/// A refusal: a sentence for the user.
pub(super) type Refusal = String;

impl<H: Hold> Memories<H> {
    pub(super) fn new(bytes_max: u64, memories_max: usize) -> Self {
        Self { by_name: BTreeMap::new(), bytes_max, memories_max, refused: 0 }
    }

    /// Gives a name to `holder` alone. Returns the memory of that name, if there is any.
    ///
    /// # Errors
    /// Another process has it.
    pub(super) fn take(&mut self, name: &str, holder: H) -> Result<Option<(BorrowedFd<'_>, Pages)>, Refusal> {
        // It may have ended a moment ago.
        if let Some(other) = self.holder(name).filter(|&other| *other != holder) {
            if other.is_there() {
                return Err(format!("process {} has it", other.pid()));
            }
            self.leave(name);
        }
        let since = Instant::now();
        let entry = self.by_name.entry(name.to_owned());
        let entry = entry.or_insert(Entry { memory: None, holder: None, since });
        (entry.holder, entry.since) = (Some(holder), since);
        Ok(entry.memory.as_ref().map(|memory| (memory.fd.as_fd(), memory.pages)))
    }

    /// New memory under a name that was taken.
    ///
    /// # Errors
    /// There is some already, or no room.
    pub(super) fn create(&mut self, name: &str, bytes: u64, pages: Pages) -> Result<BorrowedFd<'_>, Refusal> {
        if bytes == 0 || !bytes.is_multiple_of(HUGE_PAGE_BYTES) {
            return Err(format!("{bytes} bytes are not a multiple of 2 MiB"));
        }
        let (count, sum) = self.totals();
        let is_room = count < self.memories_max && bytes <= self.bytes_max.saturating_sub(sum);
        if !is_room {
            self.refused += 1;
            let (sum, bytes, bytes_max) = (SizeText(sum), SizeText(bytes), SizeText(self.bytes_max));
            return Err(format!(
                "there is no room for {bytes}: it has {count} memories of {sum} together, and may have {} of \
                 {bytes_max} (--max-memories, --memory-max)",
                self.memories_max
            ));
        }
        let entry = self.by_name.get_mut(name).ok_or("nobody has taken that name")?;
        if entry.memory.is_some() {
            return Err("there is memory already".to_owned());
        }
        let fd = new_memory(bytes, pages).map_err(|error| format!("cannot make it: {error}"))?;
        Ok(entry.memory.insert(Memory { fd, bytes, pages, is_published: false }).fd.as_fd())
    }

    /// Lets the memory of a name outlive its holder.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn publish(&mut self, name: &str) -> Result<(), Refusal> {
        let memory = self.by_name.get_mut(name).and_then(|entry| entry.memory.as_mut());
        memory.ok_or("there is no memory")?.is_published = true;
        Ok(())
    }

    /// Empties and forgets the memory of a name that its caller has.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(memory) = self.by_name.get_mut(name).and_then(|entry| entry.memory.take()) {
            memory.empty(name);
        }
    }

    /// Empties and forgets the memory of a name that nobody has.
    ///
    /// # Errors
    /// Somebody has it, or there is none.
    pub(super) fn forget(&mut self, name: &str) -> Result<(), Refusal> {
        match self.holder(name) {
            Some(holder) if holder.is_there() => return Err(format!("process {} has it", holder.pid())),
            Some(_) => self.leave(name),
            None => {}
        }
        let entry = self.by_name.remove(name).ok_or("there is no memory of that name")?;
        entry.memory.into_iter().for_each(|memory| memory.empty(name));
        Ok(())
    }

    /// Ends the hold of `holder`, if it still has the name. Memory that was not published goes with it.
    pub(super) fn release(&mut self, name: &str, holder: &H) {
        if self.holder(name) == Some(holder) {
            self.leave(name);
        }
    }

    /// What is kept, and for whom: a line each. The last one has the sums.
    pub(super) fn list(&self, more: impl std::fmt::Display) -> String {
        let mut text = String::new();
        for (name, Entry { memory, holder, since }) in &self.by_name {
            let holder =
                holder.as_ref().map_or("free".to_owned(), |holder| format!("held by {}", holder.pid()));
            let size = memory.as_ref().map_or("no memory".to_owned(), |memory| {
                format!("{} {}", SizeText(memory.bytes), memory.pages)
            });
            let since = humantime::format_duration(Duration::from_secs(since.elapsed().as_secs()));
            text += &format!("{name} {size} {holder} for {since}\n");
        }
        let (count, sum) = self.totals();
        let (sum, bytes_max) = (SizeText(sum), SizeText(self.bytes_max));
        text + &format!("memories {count}, {sum} of {bytes_max}, refused {}, {more}\n", self.refused)
    }

    /// Empties all memory that nobody has. Returns the names of the rest.
    pub(super) fn end(&mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.by_name).into_iter();
        all.filter_map(|(name, Entry { memory, holder, .. })| {
            let memory = memory?;
            if holder.is_some_and(|holder| holder.is_there()) {
                return Some(name);
            }
            memory.empty(&name);
            None
        })
        .collect()
    }

    fn holder(&self, name: &str) -> Option<&H> {
        self.by_name.get(name)?.holder.as_ref()
    }

    fn leave(&mut self, name: &str) {
        let Some(entry) = self.by_name.get_mut(name) else { return };
        (entry.holder, entry.since) = (None, Instant::now());
        match entry.memory.take_if(|memory| !memory.is_published) {
            Some(memory) => memory.empty(name),
            None if entry.memory.is_some() => return,
            None => {}
        }
        self.by_name.remove(name);
    }

    /// Memories, and their bytes.
    fn totals(&self) -> (usize, u64) {
        let memories = self.by_name.values().filter_map(|entry| entry.memory.as_ref());
        memories.fold((0, 0), |(count, sum), memory| (count + 1, sum + memory.bytes))
    }
}

impl Memory {
    /// Gives its pages back, also if another process has it mapped: a reader then finds a table that owns nothing.
    fn empty(self, name: &str) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&self.fd, flags, 0, self.bytes) {
            tracing::warn!(%error, name, "a memory cannot be emptied: it goes when nobody has it mapped");
        }
    }
}

/// A memfd that keeps its size: a process that has it mapped would die of a page that is gone.
fn new_memory(bytes: u64, pages: Pages) -> io::Result<OwnedFd> {
    let huge = match pages {
        Pages::Usual => MemfdFlags::empty(),
        Pages::Huge => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
    };
    let fd = memfd_create("minos-kept", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge)?;
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&fd, bytes)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs::File, os::unix::fs::FileExt, rc::Rc};

    use super::*;

    const BYTES: u64 = HUGE_PAGE_BYTES;

    #[derive(Clone, Debug)]
    struct Process(u32, Rc<Cell<bool>>);

    impl Process {
        fn new(pid: u32) -> Self {
            Self(pid, Rc::new(Cell::new(true)))
        }
    }

    impl PartialEq for Process {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl Hold for Process {
        fn pid(&self) -> u32 {
            self.0
        }

        fn is_there(&self) -> bool {
            self.1.get()
        }
    }

    fn file(fd: BorrowedFd<'_>) -> File {
        fd.try_clone_to_owned().unwrap().into()
    }

    /// Memories in which the process has published one, and its file.
    fn published(process: &Process) -> (Memories<Process>, File) {
        let mut memories = Memories::new(4 * BYTES, 3);
        assert!(memories.take("a", process.clone()).unwrap().is_none());
        let file = file(memories.create("a", BYTES, Pages::Usual).unwrap());
        memories.publish("a").unwrap();
        file.write_at(b"item", 0).unwrap();
        (memories, file)
    }

    fn begins_with(file: &File) -> [u8; 4] {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn memory_outlives_its_holder_and_has_one_at_a_time() {
        let [first, second] = [1, 2].map(Process::new);
        let (mut memories, _) = published(&first);
        assert!(memories.take("a", second.clone()).unwrap_err().contains("process 1"));
        assert!(memories.forget("a").unwrap_err().contains("process 1"));
        memories.release("a", &second);
        assert!(memories.take("a", second.clone()).is_err(), "it was not the second's to release");
        memories.release("a", &first);
        let (fd, pages) = memories.take("a", second).unwrap().unwrap();
        assert_eq!((begins_with(&file(fd)), pages), (*b"item", Pages::Usual));
    }

    #[test]
    fn a_holder_that_is_gone_counts_no_more_and_cannot_release_what_others_have() {
        let [first, second, third] = [1, 2, 3].map(Process::new);
        let (mut memories, _) = published(&first);
        first.1.set(false);
        assert!(memories.take("a", second.clone()).unwrap().is_some());
        memories.release("a", &first);
        assert!(memories.take("a", third).is_err(), "the second has lost it");
    }

    #[test]
    fn memory_that_is_not_complete_goes_with_its_holder() {
        let process = Process::new(1);
        let mut memories = Memories::new(BYTES, 1);
        memories.take("a", process.clone()).unwrap();
        let file = file(memories.create("a", BYTES, Pages::Usual).unwrap());
        file.write_at(b"item", 0).unwrap();
        memories.release("a", &process);
        assert_eq!(begins_with(&file), [0; 4]);
        assert!(memories.take("a", process).unwrap().is_none());
        assert!(memories.create("a", BYTES, Pages::Usual).is_ok(), "its room is free again");
    }

    #[test]
    fn memory_that_is_removed_or_dropped_is_empty_for_whoever_has_it_mapped() {
        let process = Process::new(1);
        let (mut memories, file) = published(&process);
        memories.remove("a");
        assert_eq!(begins_with(&file), [0; 4]);
        assert!(memories.publish("a").is_err());
        let (mut memories, file) = published(&process);
        memories.release("a", &process);
        memories.forget("a").unwrap();
        assert_eq!(begins_with(&file), [0; 4]);
        assert!(memories.forget("a").unwrap_err().contains("no memory"));
        let (mut memories, file) = published(&process);
        assert_eq!(memories.end(), ["a"], "a running process has it");
        assert_eq!(begins_with(&file), *b"item");
    }

    #[test]
    fn memory_is_bounded_and_has_a_size_of_its_own() {
        let process = Process::new(1);
        let (mut memories, file) = published(&process);
        assert!(file.set_len(0).is_err() && file.set_len(2 * BYTES).is_err(), "it is not sealed");
        assert!(memories.create("a", BYTES, Pages::Usual).unwrap_err().contains("already"));
        for name in ["b", "c", "d"] {
            memories.take(name, process.clone()).unwrap();
        }
        for bytes in [0, 1, BYTES + 1, 4 * BYTES, u64::MAX - (BYTES - 1)] {
            assert!(memories.create("b", bytes, Pages::Usual).is_err(), "{bytes}");
        }
        assert!(memories.create("b", 2 * BYTES, Pages::Usual).is_ok());
        assert!(memories.create("c", 2 * BYTES, Pages::Usual).unwrap_err().contains("no room"));
        assert!(memories.create("c", BYTES, Pages::Usual).is_ok());
        let error = memories.create("d", BYTES, Pages::Usual).unwrap_err();
        assert!(error.contains("--max-memories"), "{error}");
        let list = memories.list("");
        assert!(list.contains("a 2m memfd held by 1 for ") && list.contains("refused 4"), "{list}");
    }
}
