//! Checks that every path in a document exists.

use std::path::Path;

use super::SourceFile;

const EXTENSIONS: [&str; 9] = [".rs", ".toml", ".md", ".sh", ".json", ".txt", ".csv", ".svg", ".lock"];

/// A line for each path in `documents` that does not exist.
pub(super) fn check(root: &Path, documents: &[SourceFile]) -> Vec<String> {
    let mut faults = Vec::new();
    for document in documents {
        let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
        for path in paths(&document.text) {
            if !root.join(path).exists() && !root.join(folder).join(path).exists() {
                faults.push(format!("{}: `{path}` does not exist", document.path));
            }
        }
    }
    faults
}

/// Words in backticks that look like a path.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    // The text between fences is code.
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).filter(|word| is_path(word))
}

fn is_path(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    let is_relative = word
        .starts_with(|first: char| first.is_ascii_lowercase() || first == '.' || first.is_ascii_uppercase());
    let is_named =
        EXTENSIONS.iter().any(|extension| word.ends_with(extension) && word.len() > extension.len());
    word.bytes().all(is_plain)
        && is_relative
        && (word.contains('/') || is_named)
        && !word.starts_with("target/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_other_words() {
        let text = "`crates/base` `a b/c` `Cargo.toml` `10/2` `--x=a/b` `/proc/self` `std::fs` `.rs`\n```\n`gone/too`\n```\n`x/y.rs`";
        assert_eq!(paths(text).collect::<Vec<_>>(), ["crates/base", "Cargo.toml", "x/y.rs"]);
    }

    #[test]
    fn a_path_that_is_gone_is_found() {
        let document = |text: &str| SourceFile { path: "docs/a.md".to_owned(), text: text.to_owned() };
        let root = crate::command::root();
        assert!(check(&root, &[document("see `xtask/src/main.rs`, `Cargo.toml`")]).is_empty());
        assert_eq!(check(&root, &[document("see `xtask/src/gone.rs`")]).len(), 1);
    }
}
