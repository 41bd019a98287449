//! Checks that no function grows past the longest one of its file so far.
//!
//! A function that fits a screen is always allowed. Files with longer ones are in [`RECORD`] with the length
//! of the longest, which may fall but not rise.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, ensure};

use super::SourceFile;

const RECORD: &str = "xtask/longest-functions.txt";
/// Lines that fit a screen.
const SCREEN_LINES: usize = 40;
/// Most lines of a function in a file that is not recorded.
const NEW_LINES_MAX: usize = 60;

/// The longest function of each file, in lines.
type Record = BTreeMap<String, usize>;

/// A line for each function that is too long.
pub(super) fn check(root: &Path, sources: &[SourceFile]) -> anyhow::Result<Vec<String>> {
    let record = read(root)?;
    Ok(sources.iter().flat_map(|file| faults(file, record.get(&file.path).copied())).collect())
}

fn faults(file: &SourceFile, recorded: Option<usize>) -> Vec<String> {
    let lines_max = recorded.unwrap_or(NEW_LINES_MAX).max(SCREEN_LINES);
    let long = functions(&file.text).into_iter().filter(|function| function.lines > lines_max);
    long.map(|Function { name, lines }| {
        format!("{}: {name} has {lines} lines, at most {lines_max} are allowed here", file.path)
    })
    .collect()
}

/// Records shorter and new lengths; longer ones only with `raise`.
pub(super) fn bless(root: &Path, sources: &[SourceFile], raise: bool) -> anyhow::Result<()> {
    let old = read(root)?;
    let mut new = Record::new();
    for file in sources {
        let longest = functions(&file.text).iter().map(|function| function.lines).max().unwrap_or(0);
        let allowed = old.get(&file.path).copied().unwrap_or(NEW_LINES_MAX);
        ensure!(raise || longest <= allowed, "{}: {longest} lines, {allowed} are written down", file.path);
        if longest > SCREEN_LINES {
            new.insert(file.path.clone(), longest);
        }
    }
    let lines: Vec<String> = new.iter().map(|(path, lines)| format!("{lines} {path}\n")).collect();
    fs::write(root.join(RECORD), lines.concat()).context(RECORD)
}

fn read(root: &Path) -> anyhow::Result<Record> {
    let text = fs::read_to_string(root.join(RECORD)).context(RECORD)?;
    let entry = |line: &str| {
        let (lines, path) = line.split_once(' ')?;
        Some((path.to_owned(), lines.parse().ok()?))
    };
    text.lines().map(|line| entry(line).with_context(|| format!("{RECORD}: {line:?}"))).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    lines: usize,
}

/// Every function whose body has lines of its own. The text is formatted, so that a function ends with the
/// first brace at the indentation of its first line.
fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (begin, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let is_whole = line.ends_with('}') || line.ends_with(';');
        if let Some(length) = lines[begin..].iter().position(|line| *line == end).filter(|_| !is_whole) {
            functions.push(Function { name, lines: length + 1 });
        }
    }
    functions
}

/// The name of the function that the line begins, if any.
fn function_name(line: &str) -> Option<String> {
    const BEFORE: [&str; 9] = [
        "pub ",
        "pub(crate) ",
        "pub(super) ",
        "const ",
        "async ",
        "unsafe ",
        "extern \"C\" ",
        "default ",
        "impl ",
    ];
    let mut rest = line.trim_start();
    while let Some(behind) = BEFORE.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = behind;
    }
    let name = rest.strip_prefix("fn ")?;
    Some(name.split(['(', '<']).next().unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(body_lines: usize) -> SourceFile {
        let body = "        work();\n".repeat(body_lines);
        let text = format!(
            "impl A {{\n    pub(crate) fn long<T>(&self) {{\n{body}    }}\n\n    fn short() {{}}\n}}\n"
        );
        SourceFile { path: "crates/a/src/b.rs".to_owned(), text }
    }

    #[test]
    fn functions_are_measured() {
        assert_eq!(functions(&file(3).text), [Function { name: "long".to_owned(), lines: 5 }]);
    }

    #[test]
    fn growth_is_found() {
        assert!(faults(&file(30), None).is_empty());
        assert!(faults(&file(58), None).is_empty());
        assert_eq!(faults(&file(59), None).len(), 1);
        assert!(faults(&file(70), Some(72)).is_empty());
        assert_eq!(faults(&file(71), Some(72)).len(), 1);
        // A function that became shorter may not grow again.
        assert_eq!(faults(&file(50), Some(45)).len(), 1);
        assert!(faults(&file(30), Some(10)).is_empty());
    }
}
