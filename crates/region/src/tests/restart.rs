//! A region on a file is either unchanged since its closing, or known to be changed.

use crate::{
    Backing, FileError, Geometry, Image, LAYOUT_VERSION, MapError, Memory, Offset, OpenError, Opened,
    OwnerState, Ownership, sums::BLOCK_BYTES,
};
use proptest::prelude::*;
use rustix::fs::{FileType, MemfdFlags, Mode, memfd_create, mknodat};
use std::{
    fs,
    io::ErrorKind,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, symlink},
    },
    path::{Path, PathBuf},
    sync::{OnceLock, atomic::Ordering::Relaxed},
};
use tempfile::TempDir;

const GEOMETRY: Geometry = Geometry {
    memory_bytes: 3 << 20,
    partitions: 2,
    partition_words: 20,
    settled_bytes: 1 << 20,
    layout: 77,
    hash_seed: 123,
    micro_shards: 11,
};

/// The caller of `open` does not know the seed.
const EXPECTED: Geometry = Geometry { hash_seed: 0, ..GEOMETRY };

struct Place {
    _dir: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { path: dir.path().join("region"), _dir: dir }
    }

    fn backing(&self) -> Backing {
        Backing::File(self.path.clone())
    }

    fn create(&self) -> Memory {
        let mut memory = Memory::create(GEOMETRY, &self.backing()).unwrap();
        memory.publish().unwrap();
        memory
    }

    /// A new one in place of the one that is there.
    fn replace(&self, geometry: Geometry) -> Memory {
        let mut memory = Memory::replace(geometry, &self.backing()).unwrap();
        memory.publish().unwrap();
        memory
    }

    fn open(&self) -> Result<Opened, OpenError> {
        Memory::open(&self.backing(), &EXPECTED)
    }

    /// A closed region with something of each kind in it; where the small chunk is.
    fn closed(&self) -> Offset {
        let memory = self.create();
        let (mut first, mut second) = (memory.partition_heap(0), memory.partition_heap(1));
        let small = memory.allocate_shared(&mut first, 30).unwrap();
        fill(&memory, small, 30);
        let next = memory.allocate_shared(&mut first, 30).unwrap();
        memory.allocate_shared(&mut first, 30).unwrap();
        memory.free(&mut first, next);
        memory.allocate_shared(&mut second, 3_000).unwrap();
        assert!(memory.allocate_settled(20_000).is_some() && memory.allocate_forever(64).is_some());
        memory.allocate_arena().unwrap();
        memory.region().word(memory.partition_start(1)).store(42, Relaxed);
        memory.close().unwrap();
        small
    }

    fn flip(&self, word: u64, bit: u32) {
        let file = fs::File::options().read(true).write(true).open(&self.path).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, word * 8).unwrap();
        let flipped = u64::from_ne_bytes(bytes) ^ (1 << bit);
        file.write_all_at(&flipped.to_ne_bytes(), word * 8).unwrap();
    }

    fn put(&self, word: u64, value: u64) {
        let file = fs::File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(&value.to_ne_bytes(), word * 8).unwrap();
    }

    /// The name of a region while it is being made.
    fn staged(&self) -> PathBuf {
        self.path.with_file_name("region.new")
    }

    fn length(&self) -> u64 {
        fs::metadata(&self.path).unwrap().len()
    }
}

fn fill(memory: &Memory, chunk: Offset, words: usize) {
    memory.region().words(chunk, words).iter().for_each(|word| word.store(chunk.words(), Relaxed));
}

fn clean(opened: Result<Opened, OpenError>) -> Memory {
    match opened.unwrap() {
        Opened::Clean(memory) => memory,
        Opened::Unclean { .. } => panic!("it was closed"),
    }
}

fn unclean(opened: Result<Opened, OpenError>) -> (Memory, bool) {
    match opened.unwrap() {
        Opened::Clean(_) => panic!("it was not closed"),
        Opened::Unclean { memory, same_boot } => (memory, same_boot),
    }
}

#[test]
fn what_was_closed_is_there_again() {
    let place = Place::new();
    let small = place.closed();
    for start in 2..5 {
        let memory = clean(place.open());
        assert_eq!((memory.starts(), *memory.geometry()), (start, GEOMETRY));
        assert_eq!(memory.region().path(), Some(place.path.as_path()));
        let (mut first, second) = (memory.partition_heap(0), memory.partition_heap(1));
        memory.check(&[&first, &second]).unwrap();
        assert!(memory.region().words(small, 30).iter().all(|word| word.load(Relaxed) == small.words()));
        assert_eq!(memory.region().word(memory.partition_start(1)).load(Relaxed), 42);
        assert_eq!(memory.log_arenas().unwrap().len(), 1);
        assert!(memory.allocate_shared(&mut first, 100).is_some_and(|chunk| chunk != small));
        memory.close().unwrap();
    }
}

#[test]
fn what_was_not_closed_is_unclean_until_it_is_repaired_or_replaced() {
    let place = Place::new();
    drop(place.create());
    let (memory, same_boot) = unclean(place.open());
    assert!(same_boot && memory.starts() == 1);
    memory.mark_repaired().unwrap();
    assert_eq!(memory.starts(), 2);
    drop(memory);
    let memory = place.replace(Geometry { hash_seed: 5, ..GEOMETRY });
    assert!(matches!(place.open(), Err(OpenError::File { reason: FileError::Locked, .. })));
    assert_eq!((memory.starts(), memory.stats().used_words, memory.geometry().hash_seed), (1, 0, 5));
    memory.close().unwrap();
    assert_eq!(clean(place.open()).geometry().hash_seed, 5);
}

#[test]
fn another_boot_is_noticed_until_everything_is_whole() {
    let place = Place::new();
    drop(place.create());
    place.flip(10, 3);
    for _ in 0..2 {
        assert!(!unclean(place.open()).1);
    }
    let (memory, _) = unclean(place.open());
    memory.mark_repaired().unwrap();
    drop(memory);
    assert!(unclean(place.open()).1);
}

#[test]
fn nobody_else_gets_a_region_in_use() {
    let place = Place::new();
    let memory = place.create();
    let length = place.length();
    assert!(matches!(place.open(), Err(OpenError::File { reason: FileError::Locked, .. })));
    let again = Memory::create(GEOMETRY, &place.backing()).unwrap_err();
    assert!(matches!(&again, MapError::File { reason: FileError::Exists, .. }), "{again}");
    let replaced = Memory::replace(GEOMETRY, &place.backing()).unwrap_err();
    assert!(matches!(&replaced, MapError::File { reason: FileError::Locked, .. }), "{replaced}");
    assert!(replaced.to_string().contains("in use by another store"), "{replaced}");
    assert_eq!(place.length(), length);
    memory.close().unwrap();
    assert!(place.open().is_ok());
}

#[test]
fn a_file_that_is_there_is_never_overwritten() {
    let place = Place::new();
    place.closed();
    let before = fs::read(&place.path).unwrap();
    let again = Memory::create(GEOMETRY, &place.backing()).unwrap_err();
    assert!(again.to_string().contains("there is a file already"), "{again}");
    assert!(fs::read(&place.path).unwrap() == before);
    clean(place.open()).close().unwrap();
    // Nor one that is made meanwhile.
    let other = Place::new();
    let mut memory = Memory::create(GEOMETRY, &Backing::File(other.path.clone())).unwrap();
    fs::write(&other.path, b"somebody's diary").unwrap();
    let late = memory.publish().unwrap_err();
    assert!(matches!(&late, MapError::File { reason: FileError::Exists, .. }), "{late}");
    drop(memory);
    assert_eq!(fs::read(&other.path).unwrap(), b"somebody's diary");
    assert!(!other.staged().exists());
}

#[test]
fn whoever_has_mapped_a_region_that_is_replaced_keeps_it() {
    let place = Place::new();
    let small = place.closed();
    // Another process that only reads: it holds no lock, and a file that became shorter would kill it.
    let reader = fs::File::open(&place.path).unwrap();
    let memory = place.replace(GEOMETRY);
    assert_eq!(memory.stats().used_words, 0);
    assert_eq!(memory.region().word(memory.partition_start(1)).load(Relaxed), 0);
    let mut word = [0; 8];
    reader.read_exact_at(&mut word, small.words() * 8).unwrap();
    assert_eq!(u64::from_ne_bytes(word), small.words());
}

#[test]
fn a_region_is_its_owners_alone() {
    let place = Place::new();
    place.closed();
    fs::set_permissions(&place.path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let mode = || fs::metadata(&place.path).unwrap().mode() & 0o777;
    let memory = clean(place.open());
    assert_eq!(mode(), 0o600);
    memory.close().unwrap();
    fs::set_permissions(&place.path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    place.replace(GEOMETRY);
    assert_eq!(mode(), 0o600);
}

#[test]
fn all_blocks_are_there_from_the_beginning() {
    let place = Place::new();
    let memory = place.create();
    assert!(fs::metadata(&place.path).unwrap().blocks() * 512 >= place.length());
    memory.close().unwrap();
    // A copy that has holes, as many tools make it.
    let holes = fs::read(&place.path).unwrap();
    let used = holes.iter().rposition(|&byte| byte != 0).unwrap();
    let file = fs::File::create(&place.path).unwrap();
    file.write_all_at(&holes[..=used], 0).unwrap();
    file.set_len(holes.len() as u64).unwrap();
    let memory = clean(place.open());
    assert!(fs::metadata(&place.path).unwrap().blocks() * 512 >= place.length());
    memory.close().unwrap();
}

#[test]
fn other_parameters_are_named() {
    let place = Place::new();
    place.closed();
    let cases = [
        (Geometry { layout: 78, ..GEOMETRY }, "engine layout 77, but 78"),
        (Geometry { memory_bytes: 4 << 20, ..GEOMETRY }, "memory bytes 3145728, but 4194304"),
        (Geometry { partitions: 4, ..GEOMETRY }, "partitions 2, but 4"),
        (Geometry { partition_words: 21, ..GEOMETRY }, "words per partition 20, but 21"),
        (Geometry { settled_bytes: 0, ..GEOMETRY }, "reserved for large values 1048576, but 0"),
        (Geometry { micro_shards: 12, ..GEOMETRY }, "micro-shards 11, but 12"),
    ];
    for (expected, text) in cases {
        let error = Memory::open(&place.backing(), &expected).unwrap_err();
        assert!(matches!(error, OpenError::Differs { .. }) && error.to_string().contains(text), "{error}");
    }
    assert!(place.open().is_ok());
}

/// Of an older program, whose micro-shards have other keys.
#[test]
fn other_keys_of_micro_shards_are_named() {
    let place = Place::new();
    place.closed();
    place.put(15, 0);
    let error = place.open().unwrap_err();
    assert!(error.to_string().contains("keys of micro-shards 0, but 1"), "{error}");
}

#[test]
fn another_layout_or_machine_is_named() {
    let place = Place::new();
    place.closed();
    place.put(1, LAYOUT_VERSION + 1);
    assert!(matches!(place.open(), Err(OpenError::Version { found, .. }) if found == LAYOUT_VERSION + 1));
    place.put(0, crate::file::MAGIC.swap_bytes());
    assert!(matches!(place.open(), Err(OpenError::ByteOrder)));
}

#[test]
fn another_length_is_named() {
    let place = Place::new();
    place.closed();
    let length = place.length();
    for other in [length - 4096, length + 4096, 600] {
        let file = fs::File::options().write(true).open(&place.path).unwrap();
        file.set_len(other).unwrap();
        let error = place.open().unwrap_err();
        assert!(matches!(error, OpenError::Length { found, .. } if found == other), "{error}");
    }
}

#[test]
fn what_was_never_finished_is_absent() {
    let place = Place::new();
    let is_absent = || matches!(place.open(), Err(OpenError::Absent { .. }));
    assert!(is_absent());
    let memory = Memory::create(GEOMETRY, &place.backing()).unwrap();
    assert!(is_absent() && place.staged().exists());
    let busy = Memory::create(GEOMETRY, &place.backing()).unwrap_err();
    assert!(matches!(&busy, MapError::File { reason: FileError::Locked, .. }), "{busy}");
    drop(memory);
    assert!(is_absent() && !place.staged().exists());
    // A file left by a process that was killed meanwhile.
    drop(place.create());
    fs::rename(&place.path, place.staged()).unwrap();
    assert!(is_absent());
    drop(place.create());
    assert!(!is_absent() && !place.staged().exists());
}

#[test]
fn what_was_found_to_contradict_itself_stays_damaged() {
    let place = Place::new();
    let memory = place.create();
    memory.mark_damaged().unwrap();
    drop(memory);
    for _ in 0..2 {
        assert!(matches!(place.open(), Err(OpenError::Damaged { .. })));
    }
}

#[test]
fn what_is_no_region_is_left_alone() {
    let place = Place::new();
    let refuse = |path: &Path, reason: FileError| {
        let opened = Memory::open(&Backing::File(path.to_owned()), &EXPECTED).unwrap_err();
        assert!(matches!(&opened, OpenError::File { reason: found, .. } if *found == reason), "{opened}");
        let replaced = Memory::replace(GEOMETRY, &Backing::File(path.to_owned())).unwrap_err();
        assert!(matches!(&replaced, MapError::File { reason: found, .. } if *found == reason), "{replaced}");
        let created = Memory::create(GEOMETRY, &Backing::File(path.to_owned())).unwrap_err();
        assert!(matches!(&created, MapError::File { reason: FileError::Exists, .. }), "{created}");
    };
    for text in ["somebody's diary", ""] {
        fs::write(&place.path, text).unwrap();
        fs::set_permissions(&place.path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        refuse(&place.path, FileError::Foreign);
        let mode = fs::metadata(&place.path).unwrap().mode() & 0o777;
        assert_eq!((fs::read_to_string(&place.path).unwrap().as_str(), mode), (text, 0o644));
    }
    fs::write(place.staged(), b"another's").unwrap();
    fs::remove_file(&place.path).unwrap();
    let created = Memory::create(GEOMETRY, &place.backing()).unwrap_err();
    assert!(matches!(&created, MapError::File { reason: FileError::Foreign, .. }), "{created}");
    assert_eq!(fs::read(place.staged()).unwrap(), b"another's");
    let beside = |name| place.path.with_file_name(name);
    fs::create_dir(beside("dir")).unwrap();
    refuse(&beside("dir"), FileError::NotRegular);
    symlink(&place.path, beside("link")).unwrap();
    refuse(&beside("link"), FileError::NotRegular);
    mknodat(rustix::fs::CWD, beside("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    refuse(&beside("pipe"), FileError::NotRegular);
}

#[test]
fn too_little_space_is_an_error_and_no_signal() {
    let path = Path::new("/dev/shm").join(format!("minos-region-{}", std::process::id()));
    let shared = rustix::fs::statvfs("/dev/shm").unwrap();
    // A size that can never be available is refused at once.
    let memory_bytes = shared.f_blocks * shared.f_frsize + (1 << 30);
    let geometry = Geometry { memory_bytes, ..GEOMETRY };
    let error = Memory::create(geometry, &Backing::File(path.clone())).unwrap_err();
    assert!(matches!(&error, MapError::File { reason: FileError::NoSpace { .. }, .. }), "{error}");
    let left = fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path());
    let is_left = |left: PathBuf| left.to_string_lossy().starts_with(&*path.to_string_lossy());
    assert!(!left.into_iter().any(is_left));
}

#[test]
fn every_flip_in_the_tables_is_noticed() {
    let place = Place::new();
    place.closed();
    let original = fs::read(&place.path).unwrap();
    let chunks = clean(place.open()).layout.chunks_start.words();
    // All of the header, and a sample of the rest.
    for word in (0..64).chain((64..chunks).step_by(13)) {
        fs::write(&place.path, &original).unwrap();
        place.flip(word, (word * 7 % 64) as u32);
        assert!(place.open().is_err(), "word {word}");
    }
    fs::write(&place.path, &original).unwrap();
    clean(place.open());
}

#[test]
fn every_flip_in_what_is_used_is_noticed() {
    let place = Place::new();
    let small = place.closed();
    let memory = clean(place.open());
    let words = |bytes: u64| bytes / 8;
    let end = memory.layout.end.words();
    let free = memory.stats().free_words;
    memory.close().unwrap();
    let original = fs::read(&place.path).unwrap();
    let is_noticed = |word: u64| {
        fs::write(&place.path, &original).unwrap();
        place.flip(word, (word * 7 % 64) as u32);
        match place.open() {
            Err(error) => assert!(matches!(error, OpenError::Damaged { .. }), "{error}"),
            Ok(_) => return false,
        }
        true
    };
    assert!((0..30).all(|word| is_noticed(small.words() + word)));
    // Only the middle of free memory is left out.
    let sample: Vec<_> = (small.words()..end).step_by(997).collect();
    let missed = sample.iter().filter(|&&word| !is_noticed(word)).count() as u64;
    assert!(
        missed * 997 <= free && free - missed * 997 < words(6 * BLOCK_BYTES),
        "{missed} of {}",
        sample.len()
    );
}

#[test]
fn damage_between_the_items_is_noticed() {
    let place = Place::new();
    let small = place.closed();
    // In one that is in use, whose checksums say nothing.
    drop(clean(place.open()));
    let original = fs::read(&place.path).unwrap();
    let word = |offset: Offset| offset.words();
    // The tag of a chunk in use, that of the free one behind it, its two links and its size.
    let free = small.plus(30);
    let sizes =
        [word(small) - 1, word(free), word(free) + 1, word(free) + 2, word(free) + 30].map(|at| (at, 9));
    // The flags beside its size.
    let flags = (0..7).flat_map(|bit| [(word(small) - 1, bit), (word(free), bit)]);
    for (damaged, bit) in sizes.into_iter().chain(flags) {
        fs::write(&place.path, &original).unwrap();
        place.flip(damaged, bit);
        assert!(unclean(place.open()).0.verify().is_err(), "word {damaged}, bit {bit}");
    }
    fs::write(&place.path, &original).unwrap();
    unclean(place.open()).0.verify().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The walk over the chunks ends without a panic, for any contents.
    #[test]
    fn no_damage_makes_the_walk_panic(
        writes in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..1 << 19, 0u64..256), 1..20),
    ) {
        static CLOSED: OnceLock<(Vec<u8>, Offset)> = OnceLock::new();
        let place = Place::new();
        let (closed, small) = CLOSED.get_or_init(|| {
            let small = place.closed();
            drop(clean(place.open()));
            (fs::read(&place.path).unwrap(), small)
        });
        fs::write(&place.path, closed).unwrap();
        for (at, words, flags) in writes {
            // Where tags and links are most likely.
            place.put(small.words() - 80 + at.index(400) as u64, words << 8 | flags);
        }
        let _ = unclean(place.open()).0.verify();
    }
}

#[test]
fn an_image_sees_each_write_and_holds_nobody_up() {
    let place = Place::new();
    assert!(matches!(Image::open(&place.path), Err(OpenError::Absent { .. })));
    let memory = place.create();
    let image = Image::open(&place.path).unwrap();
    assert_eq!((*image.geometry(), image.arena_words()), (GEOMETRY, memory.arena_words()));
    let word = image.partition_start(1);
    assert_eq!(word, memory.partition_start(1));
    memory.region().word(word).store(42, Relaxed);
    assert_eq!(image.view().word(word).load(Relaxed), 42);
    // The owner goes, and a new region takes the place: the image stays that of the old one.
    drop(memory);
    let memory = place.replace(GEOMETRY);
    assert_eq!(image.view().word(word).load(Relaxed), 42);
    assert_eq!(Image::open(&place.path).unwrap().view().word(word).load(Relaxed), 0);
    memory.mark_damaged().unwrap();
    assert!(matches!(Image::open(&place.path), Err(OpenError::Damaged { .. })));
    fs::write(&place.path, [7; 4096]).unwrap();
    assert!(matches!(Image::open(&place.path), Err(OpenError::File { reason: FileError::Foreign, .. })));
}

/// Micro-shards, and what their owners say while the process runs.
const OWNED: [(u32, Ownership); 3] = [
    (0, Ownership { epoch: 1, state: OwnerState::Owned }),
    (3, Ownership { epoch: u32::MAX, state: OwnerState::Frozen }),
    (10, Ownership { epoch: 8, state: OwnerState::Owned }),
];

fn ownerships(image: &Image) -> [Ownership; 3] {
    OWNED.map(|(micro_shard, _)| Ownership::from_word(image.owner_word(micro_shard).unwrap().load(Relaxed)))
}

/// The same with nobody as the owner.
fn ended() -> [Ownership; 3] {
    OWNED.map(|(_, ownership)| Ownership { state: OwnerState::None, ..ownership })
}

fn owned(place: &Place) -> (Memory, Image) {
    let memory = place.create();
    let image = Image::open(&place.path).unwrap();
    assert_eq!(ownerships(&image), [Ownership::default(); 3]);
    assert!(image.owner_word(11).is_none());
    for (micro_shard, ownership) in OWNED {
        memory.set_ownership(micro_shard, ownership);
        assert_eq!(memory.ownership(micro_shard), ownership);
    }
    assert_eq!(ownerships(&image), OWNED.map(|(_, ownership)| ownership));
    (memory, image)
}

#[test]
fn opening_ends_each_tenure_and_changes_nothing_else() {
    let place = Place::new();
    let (memory, image) = owned(&place);
    drop(memory);
    let before = fs::read(&place.path).unwrap();
    let (memory, _) = unclean(place.open());
    assert_eq!(ownerships(&image), ended());
    let after = fs::read(&place.path).unwrap();
    let is_equal = |(before, after): &(&[u8], &[u8])| before == after;
    let changed = before.chunks(8).zip(after.chunks(8)).filter(|words| !is_equal(words)).count();
    assert_eq!(changed, OWNED.len());
    memory.close().unwrap();
    assert_eq!(clean(place.open()).ownership(3), Ownership { epoch: u32::MAX, state: OwnerState::None });
}

#[test]
fn a_region_that_is_damaged_is_nobodys_and_a_closed_one_is_read_on() {
    let place = Place::new();
    let (memory, image) = owned(&place);
    memory.mark_damaged().unwrap();
    assert_eq!(ownerships(&image), ended());
    let place = Place::new();
    let (memory, image) = owned(&place);
    memory.close().unwrap();
    let frozen = OWNED.map(|(_, ownership)| Ownership { state: OwnerState::Frozen, ..ownership });
    assert_eq!(ownerships(&image), frozen);
    let _memory = clean(place.open());
    assert_eq!(ownerships(&image), ended());
}

#[test]
fn a_descriptor_is_as_good_as_a_path_and_cannot_be_written() {
    let place = Place::new();
    let memory = place.create();
    let memfd: Memory = Memory::create(GEOMETRY, &Backing::Memfd).unwrap();
    for memory in [&memory, &memfd] {
        let fd = memory.region().descriptor_to_read().unwrap();
        let image = Image::from_descriptor(fd.try_clone().unwrap()).unwrap();
        let word = image.partition_start(1);
        memory.region().word(word).store(42, Relaxed);
        assert_eq!(image.view().word(word).load(Relaxed), 42);
        let file = fs::File::from(fd);
        assert!(file.write_all_at(&[0; 8], 0).is_err() && file.set_len(0).is_err());
        memory.mark_damaged().unwrap();
        assert!(matches!(Image::from_descriptor(file.into()), Err(OpenError::Damaged { .. })));
    }
    let private: Memory = Memory::create(GEOMETRY, &Backing::Private).unwrap();
    assert_eq!(private.region().descriptor_to_read().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_memfd_can_neither_shrink_nor_be_read_if_it_might() {
    let memory: Memory = Memory::create(GEOMETRY, &Backing::Memfd).unwrap();
    let fd = memory.region().descriptor_to_read().unwrap();
    let writable =
        fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    assert_eq!(writable.set_len(4096).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let bytes = fs::read(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    let unsealed = fs::File::from(memfd_create("copy", MemfdFlags::CLOEXEC).unwrap());
    unsealed.write_all_at(&bytes, 0).unwrap();
    let error = Image::from_descriptor(unsealed.into()).unwrap_err();
    assert!(matches!(error, OpenError::File { reason: FileError::Unsealed, .. }), "{error}");
}
