//! Items that are the files under a folder, with their real bytes.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use minos_base::{VALUE_BYTES_MAX, limits::KEY_BYTES_MAX};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

#[derive(Clone, Debug)]
pub(super) struct FileItem {
    /// Its path below the folder, or a hash of it where the path cannot be a key.
    pub(super) key: Box<[u8]>,
    /// Its length when the folder was read.
    pub(super) value_bytes: u64,
    /// XXH3-64 of its bytes.
    pub(super) digest: u64,
    path: PathBuf,
}

impl FileItem {
    /// Its bytes, as they are now.
    pub(super) fn read(&self) -> io::Result<Box<[u8]>> {
        Ok(std::fs::read(&self.path)?.into_boxed_slice())
    }
}

/// Every regular file under `folder` that can be read and is not larger than any store's largest
/// value, in the order of their paths. Links are not followed.
///
/// # Errors
/// The folder itself cannot be read.
pub(super) fn read_folder(folder: &Path) -> io::Result<Vec<FileItem>> {
    std::fs::read_dir(folder)?;
    let mut items = Vec::new();
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().flatten() {
        let is_item = entry.file_type().is_file()
            && entry.metadata().is_ok_and(|metadata| metadata.len() <= VALUE_BYTES_MAX);
        if !is_item {
            continue;
        }
        let name = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let key = key_of(name);
        // A file that may not be read, or that vanishes, is left out.
        if let Ok((value_bytes, digest)) = digest(entry.path()) {
            items.push(FileItem { key, value_bytes, digest, path: entry.into_path() });
        }
    }
    Ok(items)
}

/// Length and digest, without holding the file in memory.
fn digest(path: &Path) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let mut state = Xxh3Default::new();
    let mut buffer = vec![0u8; 64 * 1024];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((bytes, state.digest())),
            Ok(count) => {
                state.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn key_of(name: &Path) -> Box<[u8]> {
    let bytes = name.as_os_str().as_encoded_bytes();
    let fits = (1..=KEY_BYTES_MAX).contains(&bytes.len());
    // No white space and no control characters: the text protocol's rule.
    if fits && bytes.iter().all(|&byte| byte > b' ' && byte != 0x7f) {
        return bytes.into();
    }
    format!("file:{:032x}", xxh3_128(bytes)).into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_regular_file_is_an_item() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/one"), b"hello").unwrap();
        std::fs::write(folder.path().join("two words"), b"").unwrap();
        std::os::unix::fs::symlink("sub/one", folder.path().join("link")).unwrap();
        let items = read_folder(folder.path()).unwrap();
        assert_eq!(items.len(), 2);
        assert_eq!(&*items[0].key, b"sub/one");
        assert_eq!((items[0].value_bytes, &*items[0].read().unwrap()), (5, &b"hello"[..]));
        assert_eq!(items[0].digest, xxhash_rust::xxh3::xxh3_64(b"hello"));
        assert!(items[1].key.starts_with(b"file:"));
        assert!(read_folder(&folder.path().join("none")).is_err());
    }

    #[test]
    fn paths_that_cannot_be_keys_are_hashed() {
        let long = "x".repeat(251);
        for name in [long.as_str(), "a b", "a\nb", ""] {
            assert_eq!(key_of(Path::new(name)).len(), 37, "{name:?}");
        }
        assert_ne!(key_of(Path::new("a b")), key_of(Path::new("a c")));
        assert_eq!(key_of(Path::new(&long[..250])).len(), 250);
    }
}
