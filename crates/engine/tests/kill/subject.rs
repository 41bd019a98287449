//! The stores that are killed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::script::{Action, Step, is_appended, key_bytes, record};

/// The result of opening a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// There was no data.
    New,
    /// The previous process closed it.
    Clean,
    /// It was not closed; its contents have been checked.
    Repaired,
    /// There was data, which was discarded.
    Emptied { reason: String },
}

/// A store that keeps values in a file for the next process.
pub(crate) trait Subject: Send + Sync + Sized {
    /// The subject's name in the child's orders.
    const NAME: &'static str;
    /// True if values may be missing without having been deleted.
    const EVICTS: bool;

    fn open(path: &Path) -> Result<(Self, Restart), String>;
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    fn set(&self, key: &[u8], value: &[u8]);
    fn set_reserved(&self, key: &[u8], value: &[u8]) {
        self.set(key, value);
    }
    /// Overwrites the whole value in place.
    fn overwrite(&self, key: &[u8], value: &[u8]) {
        self.set(key, value);
    }
    fn append(&self, key: &[u8], extra: &[u8]) {
        let value = self.get(key).unwrap_or_default();
        self.set(key, &[&value, extra].concat());
    }
    fn delete(&self, key: &[u8]);
    /// Checks all contents for inconsistencies.
    fn check(&self) -> Result<(), String>;
    fn close(self);

    /// Executes a step, as [`crate::script::apply`] defines it.
    fn execute(&self, round: u64, step: &Step) {
        let key = key_bytes(step.key);
        match step.action {
            Action::Set { len } => self.set(&key, &record(round, step, len)),
            Action::SetReserved { len } => self.set_reserved(&key, &record(round, step, len)),
            Action::Delete => self.delete(&key),
            Action::Overwrite => {
                if let Some(value) = self.get(&key) {
                    self.overwrite(&key, &record(round, step, value.len()));
                }
            }
            Action::Append { len } => {
                if self.get(&key).is_some_and(|value| is_appended(value.len(), len)) {
                    self.append(&key, &record(round, step, len));
                }
            }
        }
    }
}

/// The controls: a file for each key. They detect that they were not closed, but not incomplete writes. This
/// is correct if each write is atomic (a new file replaces the old one), and wrong otherwise.
pub(crate) struct Files<const ARE_WHOLE: bool>(PathBuf);

impl<const ARE_WHOLE: bool> Files<ARE_WHOLE> {
    fn mark(&self) -> PathBuf {
        self.0.join("closed")
    }

    fn file(&self, key: &[u8]) -> PathBuf {
        self.0.join(String::from_utf8_lossy(key).as_ref())
    }
}

impl<const ARE_WHOLE: bool> Subject for Files<ARE_WHOLE> {
    const NAME: &'static str = if ARE_WHOLE { "whole-files" } else { "files" };
    const EVICTS: bool = false;

    fn open(path: &Path) -> Result<(Self, Restart), String> {
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(|error| error.to_string())?;
        let files = Self(path.to_owned());
        let was_closed = fs::remove_file(files.mark()).is_ok();
        Ok((
            files,
            if is_new {
                Restart::New
            } else if was_closed {
                Restart::Clean
            } else {
                Restart::Repaired
            },
        ))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        fs::read(self.file(key)).ok()
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        let file = self.file(key);
        let new = if ARE_WHOLE { file.with_extension("new") } else { file.clone() };
        fs::write(&new, value).unwrap();
        fs::rename(new, file).unwrap();
    }

    fn delete(&self, key: &[u8]) {
        drop(fs::remove_file(self.file(key)));
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn close(self) {
        fs::write(self.mark(), b"").unwrap();
    }
}
