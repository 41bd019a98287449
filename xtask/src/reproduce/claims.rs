//! A paper's claims beside the numbers of CSV files, and the rule that decides which of them hold.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::query;

/// A number holds if it differs from the paper's by at most this part of it.
const TOLERANCE: f64 = 0.1;
/// The evidence that rows leave out.
const USUAL_EVIDENCE: &str = "simulated";
const HEADER: &str = "|claim|paper|here|off|holds|why|\n|---|---|---|---|---|---|\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claim: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    /// The paper's statement, and its place.
    claim: String,
    /// Its number, or `in words`.
    paper: String,
    /// Text with `{}` for each number in turn; by default the numbers alone.
    here: Option<String>,
    /// A cost was fitted to it, so it is no evidence.
    #[serde(default)]
    fitted: bool,
    /// The paper omits a parameter that would decide it.
    #[serde(default)]
    open: bool,
    /// The paper has no such number: ours only explains another one.
    #[serde(default)]
    control: bool,
    /// The reason why it does not hold, or another remark.
    #[serde(default)]
    why: String,
    number: Vec<Number>,
}

/// A number of ours, and the condition under which the claim holds.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Number {
    /// A query (see `query.rs`).
    value: String,
    /// Another query, by whose number the first is divided.
    over: Option<String>,
    /// The paper's number: holds within 10 %.
    paper: Option<f64>,
    /// Bounds for a statement in words, both included.
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// The rows of a file of claims, with a header; files are found below the folder `docs`.
pub(super) fn table(docs: &Path, file: &str) -> Result<String> {
    let path = docs.join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let claims: Claims = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let mut table = HEADER.to_owned();
    for claim in &claims.claim {
        let row = claim.row(docs).with_context(|| format!("{file}: {}", claim.claim))?;
        let _ = writeln!(table, "|{}|", row.join("|"));
    }
    Ok(table)
}

impl Claim {
    fn row(&self, docs: &Path) -> Result<[String; 6]> {
        let values = self.number.iter().map(|number| number.find(docs)).collect::<Result<Vec<_>>>()?;
        Ok([
            self.linked_claim(docs)?,
            self.paper.clone(),
            self.here(&values)?,
            self.off(&values),
            self.holds(&values)?.to_owned(),
            self.why.clone(),
        ])
    }

    fn here(&self, values: &[f64]) -> Result<String> {
        let shown = values.iter().map(|value| shown(*value));
        let Some(here) = &self.here else { return Ok(shown.collect::<Vec<_>>().join(", ")) };
        ensure!(
            here.matches("{}").count() == values.len(),
            "`here` has not as many {{}} as there are numbers"
        );
        Ok(shown.fold(here.clone(), |text, number| text.replacen("{}", &number, 1)))
    }

    fn off(&self, values: &[f64]) -> String {
        let beside =
            self.number.iter().zip(values).filter_map(|(number, value)| Some((number.paper?, value)));
        let percents: Vec<_> = beside
            .map(|(paper, value)| match (100.0 * (value / paper - 1.0)).round() {
                0.0 => "0 %".to_owned(),
                off => format!("{off:+} %"),
            })
            .collect();
        percents.join(", ")
    }

    fn holds(&self, values: &[f64]) -> Result<&'static str> {
        let verdicts: Vec<_> =
            self.number.iter().zip(values).filter_map(|(number, value)| number.holds(*value)).collect();
        if self.control {
            return Ok("control");
        }
        ensure!(!verdicts.is_empty(), "nothing says when it holds");
        let some = verdicts.contains(&true);
        Ok(match verdicts.contains(&false) {
            _ if self.fitted => "fitted",
            _ if self.open => "open",
            false => "yes",
            true if some => "partly",
            true => "no",
        })
    }

    /// The claim with links to the files of its numbers, and their evidence unless it is the usual one.
    fn linked_claim(&self, docs: &Path) -> Result<String> {
        let queries = self.number.iter().flat_map(|number| [Some(&number.value), number.over.as_ref()]);
        let files = queries.flatten().map(|query| query::file(query)).collect::<Result<BTreeSet<_>>>()?;
        let evidence =
            files.iter().map(|file| query::evidence(docs, file)).collect::<Result<BTreeSet<_>>>()?;
        let evidence: Vec<_> = evidence.into_iter().filter(|evidence| evidence != USUAL_EVIDENCE).collect();
        let mut text = self.claim.clone();
        for (index, file) in files.iter().enumerate() {
            text = if index == 0 {
                format!("[{text}]({file})")
            } else {
                format!("{text} [{}]({file})", index + 1)
            };
        }
        Ok(if evidence.is_empty() { text } else { format!("{text}: {}", evidence.join(", ")) })
    }
}

impl Number {
    fn find(&self, docs: &Path) -> Result<f64> {
        let value = query::number(docs, &self.value)?;
        Ok(match &self.over {
            Some(over) => value / query::number(docs, over)?,
            None => value,
        })
    }

    /// `None` if the number is only shown.
    fn holds(&self, value: f64) -> Option<bool> {
        let near = self.paper.map(|paper| (value - paper).abs() <= TOLERANCE * paper.abs());
        let above = self.at_least.map(|least| value >= least);
        let below = self.at_most.map(|most| value <= most);
        [near, above, below].into_iter().flatten().reduce(|all, one| all && one)
    }
}

/// Rounded to three significant digits.
pub(super) fn shown(value: f64) -> String {
    if value == 0.0 || value.abs() >= 100.0 {
        return value.round().to_string();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(paper: f64) -> Number {
        Number { paper: Some(paper), ..Number::default() }
    }

    fn claim(fitted: bool, number: Vec<Number>) -> Claim {
        let (claim, paper, why) = (String::new(), String::new(), String::new());
        Claim { claim, paper, here: None, fitted, open: false, control: false, why, number }
    }

    #[test]
    fn a_number_holds_within_a_tenth() {
        let holds = |value, paper| near(paper).holds(value);
        assert_eq!([110.0, 90.0, 110.1, 89.9].map(|v| holds(v, 100.0)), [true, true, false, false].map(Some));
        assert_eq!(holds(1.1, 1.0), Some((1.1_f64 - 1.0).abs() <= 0.1));
        let between = Number { at_least: Some(2.0), at_most: Some(3.0), ..Number::default() };
        assert_eq!([1.9, 2.0, 3.0, 3.1].map(|v| between.holds(v)), [false, true, true, false].map(Some));
        assert_eq!(Number::default().holds(1.0), None);
    }

    #[test]
    fn a_claim_holds_if_all_its_numbers_do() {
        let verdict = |values: [f64; 2]| claim(false, vec![near(1.0), near(20.0)]).holds(&values).unwrap();
        assert_eq!(verdict([1.0, 21.0]), "yes");
        assert_eq!(verdict([1.0, 75.0]), "partly");
        assert_eq!(verdict([2.0, 400.0]), "no");
        assert_eq!(claim(true, vec![near(1.0)]).holds(&[5.0]).unwrap(), "fitted");
        assert!(claim(false, vec![Number::default()]).holds(&[1.0]).is_err());
    }

    #[test]
    fn numbers_are_shown_where_the_text_says() {
        let mut shows = claim(false, vec![near(1.0), near(20.0)]);
        assert_eq!(shows.here(&[1.0, 21.26]).unwrap(), "1, 21.3");
        assert_eq!(shows.off(&[1.004, 21.0]), "0 %, +5 %");
        shows.here = Some("{} of {} us".to_owned());
        assert_eq!(shows.here(&[0.12345, 1234.5]).unwrap(), "0.123 of 1235 us");
        assert!(shows.here(&[1.0]).is_err());
    }
}
