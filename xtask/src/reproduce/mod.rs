//! The tables of `docs/reproduction.md` and `docs/effect.md`, from files of claims and from the CSV files of
//! the figures.
//!
//! A table stands between two comments: `<!-- claims: FILE -->` and `<!-- end of claims -->`, or `<!-- csv:
//! FILE -->` and `<!-- end of csv -->` for a CSV file. `FILE` is below `docs`; `claims.rs` describes a file
//! of claims, `query.rs` the syntax of a query.

mod claims;
mod csv;
mod query;

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::command::root;

const PAGES: [&str; 2] = ["reproduction.md", "effect.md"];
/// The begin and end marks of a kind of tables, and the function that makes them.
type Kind = (&'static str, &'static str, fn(&Path, &str) -> Result<String>);
const KINDS: [Kind; 2] = [
    ("<!-- claims: ", "<!-- end of claims -->", claims::table),
    ("<!-- csv: ", "<!-- end of csv -->", csv::table),
];

/// Writes the pages' tables.
pub(crate) fn run() -> Result<()> {
    let docs = root().join("docs");
    for page in PAGES.map(|page| docs.join(page)) {
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let written = with_tables(&docs, &text)?;
        if written != text {
            fs::write(&page, &written).with_context(|| page.display().to_string())?;
        }
        println!("{}: {}", page.display(), if written == text { "as it was" } else { "written" });
    }
    Ok(())
}

/// A fault for each page that differs from the output of [`run`].
pub(crate) fn check(root: &Path) -> Vec<String> {
    let docs = root.join("docs");
    let is_written = |page: &str| -> Result<bool> {
        let text = fs::read_to_string(docs.join(page))?;
        Ok(with_tables(&docs, &text)? == text)
    };
    let fault = |page| match is_written(page) {
        Ok(true) => None,
        Ok(false) => Some(format!("docs/{page}: `cargo xtask reproduce` writes other tables")),
        Err(error) => Some(format!("docs/{page}: {error:#}")),
    };
    PAGES.into_iter().filter_map(fault).collect()
}

fn with_tables(docs: &Path, text: &str) -> Result<String> {
    KINDS.iter().try_fold(text.to_owned(), |text, (begin, end, table)| {
        let mut parts = text.split(begin);
        let mut page = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (file, rest) = part.split_once(" -->").context("a comment has no end")?;
            let (_, after) = rest.split_once(end).with_context(|| format!("{file}: its table has no end"))?;
            let table = table(docs, file)?;
            page.push_str(&format!("{begin}{file} -->\n{table}{end}{after}"));
        }
        Ok(page)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_page_is_what_its_files_say() {
        assert_eq!(check(&root()), [""; 0]);
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
                "|[§6.6: up to 20 times](one.csv)|20|75 times|+275 %|no||",
                "|[§6.1: faster](one.csv)|in words|1||yes|a reason|",
                "<!-- end of claims -->",
                "b"
            ]
        );
        assert_eq!(with_tables(&docs, &written).unwrap(), written);
        let page = "<!-- csv: one.csv -->\n<!-- end of csv -->";
        let written = with_tables(&docs, page).unwrap();
        assert_eq!(
            written,
            "<!-- csv: one.csv -->\n|design|p99 us|\n|---|---|\n|HKH+WS|750|\n|Minos|10|\n<!-- end of csv -->"
        );
        let page = "<!-- csv: one.csv where design = Minos -->\n<!-- end of csv -->";
        assert!(
            with_tables(&docs, page)
                .unwrap()
                .ends_with("-->\n|design|p99 us|\n|---|---|\n|Minos|10|\n<!-- end of csv -->")
        );
        for broken in ["<!-- claims: two.toml -->\n", "<!-- claims: gone.toml -->\n<!-- end of claims -->"] {
            assert!(with_tables(&docs, broken).is_err(), "{broken}");
        }
    }
}
