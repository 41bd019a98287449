//! The file of a region: opened once, locked, with all its blocks reserved before it is touched.

use crate::kept::Kept;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        self, CWD, FallocateFlags, FileType, FlockOperation, MemfdFlags, Mode, OFlags, RenameFlags,
        SealFlags, Stat,
    },
    io::{self, Errno},
    process,
};
use std::{
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

/// Bytes of a huge page on every platform that Minos knows.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The first word of a region: "minos", and the byte order.
pub(crate) const MAGIC: u64 = 0x0001_0073_6f6e_696d;

/// Words kept for the header, whose fields `header.rs` names.
pub(crate) const HEADER_WORDS: u64 = 64;

/// A copy of the first words of a region, from memory or from a file.
pub(crate) type Words = [u64; HEADER_WORDS as usize];

const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
/// The `statfs` type of tmpfs, and of a memfd.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Why a file cannot hold a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is no file.
    #[error("there is no such file")]
    Missing,
    /// It is a link, a directory, a device or the like.
    #[error("it is not a regular file")]
    NotRegular,
    /// Another user may have put it there.
    #[error("it belongs to user {owner}, not to user {user}")]
    Owner {
        /// Whose file it is.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Another process has it open, or this one a second time.
    #[error("it is in use by another store")]
    Locked,
    /// The name is taken already, and a new region must not replace that file.
    #[error("there is a file already, and it is left alone")]
    Exists,
    /// It has no name, and whoever has it may take its pages away from its readers.
    #[error("it is not sealed against shrinking")]
    Unsealed,
    /// It holds something, but no region.
    #[error("it holds something else: if that is not needed, remove the file")]
    Foreign,
    /// The keeper does not give it.
    #[error("{said}")]
    Keeper {
        /// The reason.
        said: String,
    },
    /// The file system has no room for it.
    #[error("there is no room for its {bytes} bytes: {source}")]
    NoSpace {
        /// Size of the file in bytes.
        bytes: u64,
        /// The operating system's reason.
        source: Errno,
    },
    /// The operating system refused.
    #[error("cannot {action} it: {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The operating system's reason.
        source: Errno,
    },
}

/// The pages that a file system provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB where the mapping asks for them.
    Advised,
    /// 2 MiB.
    Huge,
    /// Reserved ones of that many bytes.
    Reserved(usize),
    /// None: it is the memory of the device.
    Direct,
}

/// An open file, locked as the region of this store.
#[derive(Debug)]
pub(crate) struct RegionFile {
    fd: OwnedFd,
    home: Home,
    pub(crate) pages: Pages,
}

/// Where the next process finds a file.
#[derive(Debug)]
enum Home {
    /// Nowhere: it is a memfd.
    None,
    Path {
        path: PathBuf,
        /// The name of a file that is to be at `path` once it is complete.
        staged: Option<PathBuf>,
    },
    /// At a keeper: it is a memfd of that.
    Keeper {
        kept: Kept,
        /// It is complete.
        is_published: bool,
    },
}

impl RegionFile {
    pub(crate) fn memfd() -> Result<Self, FileError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = fs::memfd_create("minos-region", flags).map_err(failed("create"))?;
        let pages = shared_memory_pages(None);
        Ok(Self { fd, home: Home::None, pages })
    }

    /// A new file for `path`, which must not exist. The file lies beside `path` until
    /// [`RegionFile::publish`], and is removed if that is never called.
    pub(crate) fn create(path: &Path) -> Result<Self, FileError> {
        refuse_existing(path)?;
        let staged = staged(path);
        let mut file = Self::open_locked(&staged, OFlags::CREATE)?;
        // A process killed during creation may have left the file.
        let is_new = file.len()? == 0 || matches!(file.pages, Pages::Reserved(_)) && file.header()?[0] == 0;
        if !is_new && !file.is_region()? {
            return Err(FileError::Foreign);
        }
        file.narrow()?;
        file.home = Home::Path { path: path.to_owned(), staged: Some(staged) };
        Ok(file)
    }

    /// New memory of a keeper for a region of `bytes`. It is removed if [`RegionFile::publish`] is never called.
    pub(crate) fn create_kept(kept: &Kept, bytes: u64) -> Result<Self, FileError> {
        let fd = kept.keeper().create(bytes.next_multiple_of(HUGE_PAGE_BYTES as u64)).map_err(keeper)?;
        Self::kept(kept, fd, false)
    }

    /// The memory that an earlier process has left at a keeper.
    pub(crate) fn open_kept(kept: &Kept) -> Result<Self, FileError> {
        let fd = kept.keeper().open().map_err(keeper)?.ok_or(FileError::Missing)?;
        Self::kept(kept, fd, true)
    }

    fn kept(kept: &Kept, fd: OwnedFd, is_published: bool) -> Result<Self, FileError> {
        let mut file = Self::of_descriptor(fd)?;
        file.home = Home::Keeper { kept: kept.clone(), is_published };
        // A lock belongs to the opened file, and the keeper has the same.
        file.fd = file.opened_again(OFlags::RDWR).map_err(failed("open"))?;
        file.lock()?;
        Ok(file)
    }

    /// Gives a new file its name; fails if the name has been taken meanwhile.
    pub(crate) fn publish(&mut self) -> Result<(), FileError> {
        let (path, staged) = match &mut self.home {
            Home::Path { path, staged } => (path, staged),
            Home::Keeper { kept, is_published } => {
                kept.keeper().publish().map_err(keeper)?;
                *is_published = true;
                return Ok(());
            }
            Home::None => return Ok(()),
        };
        let Some(name) = &*staged else { return Ok(()) };
        match fs::renameat_with(CWD, name, CWD, &*path, RenameFlags::NOREPLACE) {
            // The file system cannot do both at once.
            Err(Errno::INVAL | Errno::NOSYS) => {
                refuse_existing(path)?;
                fs::rename(name, &*path).map_err(failed("rename"))?;
            }
            Err(Errno::EXIST) => return Err(FileError::Exists),
            renamed => renamed.map_err(failed("rename"))?,
        }
        *staged = None;
        sync_folder(path)
    }

    /// Removes the region at `path`, which must not be in use. Existing mappings of it stay valid.
    pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
        if !Self::open(path)?.is_region()? {
            return Err(FileError::Foreign);
        }
        fs::unlink(path).map_err(failed("remove"))
    }

    /// Removes the memory of a keeper. Existing mappings of it are empty then.
    pub(crate) fn remove_kept(kept: &Kept) -> Result<(), FileError> {
        kept.keeper().remove().map_err(keeper)
    }

    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        Self::open_locked(path, OFlags::empty())
    }

    /// The file at `path`, which its owner may have locked, to be read only.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, FileError> {
        Self::open_with(path, OFlags::RDONLY).map(|(file, _)| file)
    }

    /// The file behind a descriptor, which its owner has passed on, to be read only.
    pub(crate) fn of_descriptor(fd: OwnedFd) -> Result<Self, FileError> {
        let (file, stat) = Self::looked_at(fd)?;
        // A file system that knows no seals keeps files only, and files have names.
        let is_sealed = fs::fcntl_get_seals(&file.fd).map_or(true, |seals| seals.contains(SealFlags::SHRINK));
        if stat.st_nlink == 0 && !is_sealed {
            return Err(FileError::Unsealed);
        }
        Ok(file)
    }

    /// Another descriptor of the same file, which can only be read.
    pub(crate) fn descriptor_to_read(&self) -> Result<OwnedFd, Errno> {
        self.opened_again(OFlags::RDONLY)
    }

    fn opened_again(&self, access: OFlags) -> Result<OwnedFd, Errno> {
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        fs::open(link, access | OFlags::CLOEXEC, Mode::empty())
    }

    fn open_locked(path: &Path, more: OFlags) -> Result<Self, FileError> {
        let (file, stat) = Self::open_with(path, OFlags::RDWR | more)?;
        file.lock()?;
        refuse_other(path, &stat)?;
        Ok(file)
    }

    fn lock(&self) -> Result<(), FileError> {
        fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive).map_err(|source| match source {
            Errno::WOULDBLOCK => FileError::Locked,
            source => failed("lock")(source),
        })
    }

    /// The file at `path`, not locked yet.
    fn open_with(path: &Path, access: OFlags) -> Result<(Self, Stat), FileError> {
        // Neither follows links nor waits for the other end of a pipe.
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | access;
        let fd = fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|source| match source {
            Errno::NOENT if !access.contains(OFlags::CREATE) => FileError::Missing,
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => FileError::NotRegular,
            source => failed("open")(source),
        })?;
        let (mut file, stat) = Self::looked_at(fd)?;
        file.home = Home::Path { path: path.to_owned(), staged: None };
        Ok((file, stat))
    }

    fn looked_at(fd: OwnedFd) -> Result<(Self, Stat), FileError> {
        let stat = fs::fstat(&fd).map_err(failed("look at"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::NotRegular);
        }
        let (owner, user) = (stat.st_uid, process::geteuid().as_raw());
        if owner != user {
            return Err(FileError::Owner { owner, user });
        }
        let pages = pages_of(fd.as_fd(), &stat)?;
        Ok((Self { fd, home: Home::None, pages }, stat))
    }

    /// Where it is; a memfd is nowhere.
    pub(crate) fn path(&self) -> Option<&Path> {
        if let Home::Path { path, .. } = &self.home { Some(path) } else { None }
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> &Path {
        match &self.home {
            Home::None => Path::new("a memfd"),
            Home::Path { path, .. } => path,
            Home::Keeper { kept, .. } => kept.keeper().name(),
        }
    }

    /// True if a keeper has it, too.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.home, Home::Keeper { .. })
    }

    /// Removes all access rights but the owner's: the file holds the values of clients in the clear.
    pub(crate) fn narrow(&self) -> Result<(), FileError> {
        let mode = fs::fstat(&self.fd).map_err(failed("look at"))?.st_mode & 0o777;
        if mode & 0o077 != 0 {
            tracing::warn!(
                path = %self.name().display(),
                mode = format!("{mode:o}"),
                "others had access to the region: it is mode 600 now"
            );
            fs::fchmod(&self.fd, Mode::RUSR | Mode::WUSR).map_err(failed("set the mode of"))?;
        }
        Ok(())
    }

    /// True if the file begins with a region's mark.
    fn is_region(&self) -> Result<bool, FileError> {
        let word = self.header()?[0];
        Ok(word == MAGIC || word == MAGIC.swap_bytes())
    }

    /// Bytes of a file that can hold a region of `bytes`.
    pub(crate) fn bytes_for(&self, bytes: u64) -> u64 {
        let page_bytes = match self.pages {
            Pages::Reserved(page_bytes) => page_bytes.max(HUGE_PAGE_BYTES),
            _ => HUGE_PAGE_BYTES,
        };
        bytes.next_multiple_of(page_bytes as u64)
    }

    pub(crate) fn len(&self) -> Result<u64, FileError> {
        let stat = fs::fstat(&self.fd).map_err(failed("look at"))?;
        Ok(stat.st_size.cast_unsigned())
    }

    /// The header that the file holds; zero where it is shorter.
    pub(crate) fn header(&self) -> Result<Words, FileError> {
        let mut bytes = [0; size_of::<Words>()];
        let mut at = 0;
        while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match io::pread(&self.fd, rest, at as u64) {
                Ok(0) => break,
                Ok(read) => at += read,
                Err(Errno::INTR) => {}
                Err(source) => return Err(failed("read")(source)),
            }
        }
        let words = bytes.as_chunks().0;
        Ok(std::array::from_fn(|at| words.get(at).map_or(0, |&bytes| u64::from_ne_bytes(bytes))))
    }

    /// Drops the contents of a file that was never complete, and makes it `bytes` of zeros. No reader has it mapped.
    pub(crate) fn clear(&self, bytes: u64) -> Result<(), FileError> {
        fs::ftruncate(&self.fd, 0).map_err(failed("empty"))?;
        // A process that ends right here must leave a file that is known as a region's. Only hugetlbfs
        // cannot be written to.
        if !matches!(self.pages, Pages::Reserved(_)) {
            io::pwrite(&self.fd, &MAGIC.to_ne_bytes(), 0).map_err(no_space(bytes))?;
        }
        fs::ftruncate(&self.fd, bytes).map_err(no_space(bytes))?;
        if self.path().is_none() {
            // A reader that has a memfd mapped would die of a page that is gone.
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            fs::fcntl_add_seals(&self.fd, seals).map_err(failed("seal"))?;
        }
        Ok(())
    }

    /// Takes all blocks from the file system, so that no access fails later. `Ok(false)` when it cannot say
    /// beforehand, or when pages would be small that are to be huge: then they must be touched.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<bool, FileError> {
        if self.pages == Pages::Advised {
            return Ok(false);
        }
        match fs::fallocate(&self.fd, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(source) => Err(no_space(bytes)(source)),
        }
    }

    /// A readable description of the file and its page size.
    pub(crate) fn text(&self) -> String {
        let kind = if self.path().is_some() { "file " } else { "" };
        let name = format!("{kind}{}", self.name().display());
        match self.pages {
            Pages::Small => format!("{name} in pages of 4 KiB"),
            Pages::Advised | Pages::Huge => format!("{name} in transparent huge pages of 2 MiB"),
            Pages::Reserved(bytes) => format!("{name} in reserved huge pages of {} MiB", bytes >> 20),
            Pages::Direct => format!("{name} in pages of the device itself (DAX)"),
        }
    }
}

impl AsFd for RegionFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for RegionFile {
    fn drop(&mut self) {
        let removed = match &self.home {
            Home::Path { staged: Some(staged), .. } => {
                fs::unlink(staged).map_err(|error| (staged.as_path(), error.to_string()))
            }
            Home::Keeper { kept, is_published: false } => {
                kept.keeper().remove().map_err(|error| (kept.keeper().name(), error))
            }
            _ => Ok(()),
        };
        if let Err((path, error)) = removed {
            tracing::warn!(%error, path = %path.display(), "cannot remove a region that was never complete");
        }
    }
}

/// The name of a file until it is complete.
fn staged(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn refuse_existing(path: &Path) -> Result<(), FileError> {
    match fs::lstat(path) {
        Ok(_) => Err(FileError::Exists),
        Err(Errno::NOENT) => Ok(()),
        Err(source) => Err(failed("look at")(source)),
    }
}

/// Refuses a file that was replaced under its name before it was locked.
fn refuse_other(path: &Path, stat: &Stat) -> Result<(), FileError> {
    let named = fs::lstat(path).map_err(failed("look at"))?;
    if (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino) { Ok(()) } else { Err(FileError::Locked) }
}

/// Lets a new name outlive the machine.
fn sync_folder(path: &Path) -> Result<(), FileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    match fs::fsync(folder.map_err(failed("enter"))?) {
        // There are file systems that have nothing to write.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(source) => Err(failed("enter")(source)),
    }
}

fn keeper(said: String) -> FileError {
    FileError::Keeper { said }
}

pub(crate) fn failed(action: &'static str) -> impl Fn(Errno) -> FileError {
    move |source| FileError::System { action, source }
}

/// The error of a call that enlarges the file.
pub(crate) fn no_space(bytes: u64) -> impl Fn(Errno) -> FileError {
    move |source| match source {
        // A page fault there would have raised a signal.
        Errno::FAULT => FileError::NoSpace { bytes, source: Errno::NOSPC },
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::NOMEM => FileError::NoSpace { bytes, source },
        source => failed("enlarge")(source),
    }
}

fn pages_of(fd: BorrowedFd<'_>, stat: &Stat) -> Result<Pages, FileError> {
    let system = fs::fstatfs(fd).map_err(failed("look at"))?;
    Ok(match system.f_type.cast_unsigned() {
        HUGETLBFS_MAGIC => Pages::Reserved(system.f_bsize.cast_unsigned() as usize),
        // A memfd is of no mount.
        TMPFS_MAGIC => shared_memory_pages(Some(stat.st_dev).filter(|_| stat.st_nlink > 0)),
        _ if is_direct(fd) => Pages::Direct,
        _ => Pages::Small,
    })
}

fn is_direct(fd: BorrowedFd<'_>) -> bool {
    let statx = fs::statx(fd, c"", fs::AtFlags::EMPTY_PATH, fs::StatxFlags::empty());
    statx.is_ok_and(|statx| statx.stx_attributes.contains(fs::StatxAttributes::DAX))
}

/// The pages of tmpfs: the mount decides, or for memfds the system setting, which may override the mount.
fn shared_memory_pages(device: Option<u64>) -> Pages {
    let system = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let system = system.unwrap_or_default();
    let system = system.split(['[', ']']).nth(1).unwrap_or("never");
    let mount = device.and_then(|device| {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        mount_option(&mounts, device, "huge=").map(str::to_owned)
    });
    match (system, mount.as_deref(), device) {
        ("deny", ..) => Pages::Small,
        ("force", ..) => Pages::Huge,
        (word, _, None) | (_, Some(word), _) => pages_named(word),
        _ => Pages::Small,
    }
}

fn pages_named(word: &str) -> Pages {
    match word {
        "always" | "within_size" => Pages::Huge,
        "advise" => Pages::Advised,
        _ => Pages::Small,
    }
}

/// The value of a mount option of the file system on `device`.
fn mount_option<'a>(mounts: &'a str, device: u64, option: &str) -> Option<&'a str> {
    let device = format!("{}:{}", fs::major(device), fs::minor(device));
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(device.as_str()))?;
    // After the separator: type, source, options of the file system.
    let options = mount.split(" - ").nth(1)?.split(' ').nth(2)?;
    options.split(',').find_map(|word| word.strip_prefix(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_found() {
        let mounts = "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n\
            30 1 0:27 / /dev/shm rw shared:3 - tmpfs tmpfs rw,size=1024k,huge=advise,inode64\n";
        let device = fs::makedev(0, 27);
        assert_eq!(mount_option(mounts, device, "huge="), Some("advise"));
        assert_eq!(mount_option(mounts, device, "gid="), None);
        assert_eq!(mount_option(mounts, fs::makedev(0, 21), "huge="), None);
        assert_eq!(mount_option(mounts, fs::makedev(8, 1), "huge="), None);
    }
}
