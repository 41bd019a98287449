//! Checks that marks of open work are explained, and that each crate declares its use of unsafe code.

use super::SourceFile;

/// Words that make a mark understandable to others.
const WORDS_MIN: usize = 3;

/// Crates that contain unsafe code (ARCHITECTURE.md).
const UNSAFE_ROOMS: [&str; 6] =
    ["crates/sync/", "crates/region/", "crates/net/", "crates/device/", "crates/fabric/", "clients/c/"];

/// The only files of other crates with unsafe code; their crates have `deny(unsafe_code)`.
const UNSAFE_FILES: [&str; 2] = ["crates/engine/src/settled.rs", "crates/node/src/rack/fabric.rs"];

/// A line for each mark without words and each crate without its declaration.
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    let marks = sources.iter().flat_map(bare_marks);
    let roots = sources.iter().filter(|file| is_crate_root(&file.path) && !may_be_unsafe(&file.path));
    let promises = roots.filter_map(|file| {
        let promise = promise(&file.path);
        let is_missing = !file.text.contains(&format!("#![{promise}]"));
        is_missing.then(|| format!("{}: {promise} is missing", file.path))
    });
    let exceptions = sources.iter().filter(|file| !may_be_unsafe(&file.path) && excepts_itself(file));
    let exceptions = exceptions.map(|file| format!("{}: no unsafe code here", file.path));
    marks.chain(promises).chain(exceptions).collect()
}

fn bare_marks(file: &SourceFile) -> Vec<String> {
    let lines = file.text.lines().enumerate().filter(|(_, line)| is_bare_mark(line));
    lines
        .map(|(at, line)| format!("{}:{}: a mark without words: {}", file.path, at + 1, line.trim()))
        .collect()
}

/// True if a comment marks open work without a description.
fn is_bare_mark(line: &str) -> bool {
    // Each split in two, so that the check does not find this file.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let behind = |mark: &str| line.split_once("//").and_then(|(_, comment)| comment.split_once(mark));
    marks
        .iter()
        .filter_map(|mark| behind(mark))
        .any(|(_, words)| words.split_whitespace().count() < WORDS_MIN)
}

fn is_crate_root(path: &str) -> bool {
    const FOLDERS: [&str; 6] = ["crates/", "lab/", "clients/", "minos/", "python/", "xtask/"];
    let is_ours = FOLDERS.iter().any(|folder| path.starts_with(folder));
    is_ours && (path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"))
}

/// The attribute on unsafe code that the crate of this root must have.
fn promise(root: &str) -> &'static str {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let has_exception = UNSAFE_FILES.iter().any(|file| file.starts_with(folder));
    if has_exception { "deny(unsafe_code)" } else { "forbid(unsafe_code)" }
}

/// True if the file allows unsafe code against its crate's attribute.
fn excepts_itself(file: &SourceFile) -> bool {
    file.text.lines().any(|line| line.trim_start().starts_with("#") && line.contains("allow(unsafe_code)"))
}

fn may_be_unsafe(path: &str) -> bool {
    UNSAFE_ROOMS.iter().any(|room| path.starts_with(room)) || UNSAFE_FILES.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn marks_without_words_are_found() {
        let mark = concat!("TO", "DO");
        assert_eq!(faults("crates/a/src/b.rs", &format!("let x = 1; // {mark}\n")), 1);
        assert_eq!(faults("crates/a/src/b.rs", &format!("// {mark}: later\n")), 1);
        assert_eq!(
            faults("crates/a/src/b.rs", &format!("// {mark}: shrink the table when half is empty\n")),
            0
        );
    }

    #[test]
    fn a_missing_promise_is_found() {
        assert_eq!(faults("crates/a/src/lib.rs", "//! A crate.\n"), 1);
        assert_eq!(faults("crates/a/src/lib.rs", "#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(faults("crates/sync/src/lib.rs", "//! A crate.\n"), 0);
        assert_eq!(faults("minos/src/main.rs", "fn main() {}\n"), 1);
        assert_eq!(faults("crates/engine/src/lib.rs", "#![forbid(unsafe_code)]\n"), 1);
        assert_eq!(faults("crates/engine/src/lib.rs", "#![deny(unsafe_code)]\n"), 0);
        assert_eq!(faults("crates/engine/src/settled.rs", "#![allow(unsafe_code)]\n"), 0);
        assert_eq!(faults("crates/engine/src/entry.rs", "#[allow(unsafe_code)]\n"), 1);
        assert_eq!(faults("minos/src/other.rs", "fn main() {}\n"), 0);
    }
}
