//! Popularities that were computed before, in a folder.
//!
//! A file has the magic, the four parameters, the weights, and a checksum of these, each 8 bytes,
//! little-endian.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use minos_base::hash_key;
use minos_rack::BadParameter;

use crate::{Popularity, PopularitySpec};

/// Changes with the layout of the file and with how keys are hashed.
const MAGIC: u64 = u64::from_le_bytes(*b"minos-p2");
const HEADER_WORDS: usize = 5;

/// A folder with popularities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
}

/// Why there is no popularity.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A parameter is out of bounds.
    #[error(transparent)]
    Parameter(#[from] BadParameter),
    /// The folder or file cannot be written.
    #[error("cache {0}: {1}")]
    Write(PathBuf, io::Error),
}

impl Cache {
    /// In this folder, which is made when first needed.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// In the user's cache folder; `None` if the user has no home.
    pub fn of_user() -> Option<Self> {
        let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(Self::new(caches.join("minos")))
    }

    /// Reads the popularity from the folder, or computes and stores it. A damaged file is computed anew.
    ///
    /// # Errors
    /// A parameter is out of bounds, or the folder cannot be written.
    pub fn popularity(
        &self,
        spec: PopularitySpec,
        threads: usize,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Popularity, CacheError> {
        spec.check()?;
        let path = self.path(&spec);
        if let Some(popularity) = read(&path, &spec) {
            return Ok(popularity);
        }
        let popularity = Popularity::exact(spec, threads, progress)?;
        write(&path, &popularity).map_err(|error| CacheError::Write(path, error))?;
        Ok(popularity)
    }

    fn path(&self, spec: &PopularitySpec) -> PathBuf {
        let PopularitySpec { keys, alpha, micro_shards, seed } = spec;
        self.folder.join(format!("popularity-{keys}-{alpha}-{micro_shards}-{seed}"))
    }
}

fn header(spec: &PopularitySpec) -> [u64; HEADER_WORDS] {
    [MAGIC, spec.keys, spec.alpha.to_bits(), u64::from(spec.micro_shards), spec.seed]
}

/// None if the file is missing, damaged, or of something else.
fn read(path: &Path, spec: &PopularitySpec) -> Option<Popularity> {
    let length = (HEADER_WORDS + spec.micro_shards as usize + 1) * 8;
    let right = fs::metadata(path).ok()?.len() == length as u64;
    let bytes = right.then(|| fs::read(path).ok()).flatten()?;
    let (content, checksum) = bytes.split_last_chunk::<8>()?;
    let mut words = content.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let whole = hash_key(content, MAGIC).0 == u64::from_le_bytes(*checksum);
    let matches = whole && header(spec).iter().all(|word| words.next() == Some(*word));
    matches.then(|| Popularity::from_weights(*spec, words.collect()))
}

/// Under another name first, so that no reader sees half a file.
fn write(path: &Path, popularity: &Popularity) -> io::Result<()> {
    let header = header(popularity.spec());
    let words = header.iter().chain(popularity.weights());
    let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(hash_key(&bytes, MAGIC).0.to_le_bytes());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.part", std::process::id()));
    fs::write(&unfinished, bytes)?;
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SPEC: PopularitySpec = PopularitySpec { keys: 5_000, alpha: 0.99, micro_shards: 32, seed: 1 };

    #[test]
    fn computed_once_unless_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("new"));
        let added = AtomicU64::new(0);
        let popularity = || {
            added.store(0, Ordering::Relaxed);
            let found = cache
                .popularity(SPEC, 1, |keys| {
                    let _ = added.fetch_add(keys, Ordering::Relaxed);
                })
                .unwrap();
            (found, added.load(Ordering::Relaxed))
        };
        let (first, computed) = popularity();
        assert_eq!(computed, 5_000);
        assert_eq!(popularity(), (first.clone(), 0));
        let path = cache.path(&SPEC);
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(popularity(), (first.clone(), 5_000));
        fs::write(&path, &bytes[..50]).unwrap();
        assert_eq!(popularity(), (first, 5_000));
    }

    #[test]
    fn a_folder_that_cannot_be_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Cache::new(file.path()).popularity(SPEC, 1, |_| ()).unwrap_err().to_string();
        assert!(error.starts_with("cache "), "{error}");
    }
}
