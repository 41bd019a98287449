//! The tables of `docs/reproduction.md`, from files of claims and from the CSV files of the figures.
//!
//! A table stands between two comments, `<!-- claims: FILE -->` and `<!-- end of claims -->`. `FILE` lies below `docs`;
//! `claims.rs` says what is in it, `query.rs` how a number is named.

mod claims;
mod query;

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::command::root;

const PAGE: &str = "reproduction.md";
const BEGIN: &str = "<!-- claims: ";
const END: &str = "<!-- end of claims -->";

/// Writes the page's tables.
///
/// # Errors
/// A claim names a number that is not there, or a file cannot be read or written.
pub(crate) fn run() -> Result<()> {
    let docs = root().join("docs");
    let page = docs.join(PAGE);
    let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let written = with_tables(&docs, &text)?;
    if written != text {
        fs::write(&page, &written).with_context(|| page.display().to_string())?;
    }
    println!("{}: {} rows", page.display(), written.lines().filter(|line| line.starts_with("| ")).count());
    Ok(())
}

/// A fault if the page is not what [`run`] would write.
pub(crate) fn check(root: &Path) -> Option<String> {
    let docs = root.join("docs");
    let is_written = || -> Result<bool> {
        let text = fs::read_to_string(docs.join(PAGE))?;
        Ok(with_tables(&docs, &text)? == text)
    };
    match is_written() {
        Ok(true) => None,
        Ok(false) => Some(format!("docs/{PAGE}: `cargo xtask reproduce` writes other tables")),
        Err(error) => Some(format!("docs/{PAGE}: {error:#}")),
    }
}

fn with_tables(docs: &Path, text: &str) -> Result<String> {
    let mut parts = text.split(BEGIN);
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (file, rest) = part.split_once(" -->").context("a comment has no end")?;
        let (_, after) = rest.split_once(END).with_context(|| format!("{file}: its table has no end"))?;
        let table = claims::table(docs, file)?;
        page.push_str(&format!("{BEGIN}{file} -->\n{table}{END}{after}"));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_page_is_what_its_files_say() {
        assert_eq!(check(&root()), None);
    }

    #[test]
    fn a_table_is_written_between_its_comments() {
        let docs = root().join("xtask/src/reproduce/testdata");
        let page = "a\n<!-- claims: two.toml -->\n| old |\n<!-- end of claims -->\nb\n";
        let written = with_tables(&docs, page).unwrap();
        let rows: Vec<_> = written.lines().skip(4).collect();
        assert_eq!(
            rows,
            [
                "| §6.6: up to 20 times | 20 | 75 times | +275 % | simulated: [one](one.csv) | no |  |",
                "| §6.1: faster | in words | 1 |  | simulated: [one](one.csv) | yes | a reason |",
                "<!-- end of claims -->",
                "b"
            ]
        );
        assert_eq!(with_tables(&docs, &written).unwrap(), written);
        for broken in ["<!-- claims: two.toml -->\n", "<!-- claims: gone.toml -->\n<!-- end of claims -->"] {
            assert!(with_tables(&docs, broken).is_err(), "{broken}");
        }
    }
}
