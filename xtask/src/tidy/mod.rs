//! Checks of rules that the compiler does not know.

mod dependencies;
mod docs;
mod functions;
mod transports;
mod words;

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use walkdir::{DirEntry, WalkDir};

use crate::command::root;

/// Folders with our own Rust.
const SOURCES: [&str; 7] = ["crates", "lab", "clients", "minos", "python", "xtask", "fuzz"];

/// A file below the root, with `/` between its folders.
struct SourceFile {
    path: String,
    text: String,
}

/// Runs all checks and prints every fault.
pub(crate) fn run(bless: bool, raise: bool) -> anyhow::Result<()> {
    let root = root();
    let sources = files(&root, &SOURCES, "rs")?;
    if bless {
        functions::bless(&root, &sources, raise)?;
    }
    let mut faults = docs::check(&root, &documents(&root)?);
    faults.extend(dependencies::check(&manifests(&root)?));
    faults.extend(functions::check(&root, &sources)?);
    faults.extend(transports::check(&sources));
    faults.extend(words::check(&sources));
    faults.extend(crate::reproduce::check(&root));
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    ensure!(faults.is_empty(), "{} untidy places", faults.len());
    println!("tidy: {} source files", sources.len());
    Ok(())
}

/// README, ARCHITECTURE, and the documents in the folders of docs and clients.
fn documents(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut documents = files(root, &["docs", "clients", "python"], "md")?;
    for name in ["README.md", "ARCHITECTURE.md"] {
        if root.join(name).exists() {
            documents.push(read(root, &root.join(name))?);
        }
    }
    Ok(documents)
}

fn manifests(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let all = files(root, &["crates", "lab", "clients", "minos", "python", "xtask"], "toml")?;
    Ok(all.into_iter().filter(|file| file.path.ends_with("/Cargo.toml")).collect())
}

/// Every file below `folders` with this extension, in a fixed order.
fn files(root: &Path, folders: &[&str], extension: &str) -> anyhow::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for folder in folders.iter().map(|folder| root.join(folder)).filter(|folder| folder.exists()) {
        for entry in WalkDir::new(folder).sort_by_file_name().into_iter().filter_entry(is_ours) {
            let entry = entry?;
            if entry.file_type().is_file() && entry.path().extension().is_some_and(|it| it == extension) {
                files.push(read(root, entry.path())?);
            }
        }
    }
    Ok(files)
}

fn is_ours(entry: &DirEntry) -> bool {
    !["target", "corpus", "artifacts"].iter().any(|name| entry.file_name() == *name)
}

fn read(root: &Path, path: &Path) -> anyhow::Result<SourceFile> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let path = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    Ok(SourceFile { path, text })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_house_is_tidy() {
        super::run(false, false).unwrap();
    }
}
