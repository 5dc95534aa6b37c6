//! What came of all comparisons.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;

use serde_json::Value;

use super::compare::{Difference, differences};
use super::exceptions::{self, Kind};
use super::ours::Outcome;
use super::refusals;
use super::theirs::Rendered;

/// Number of failures that are printed in full.
const PRINTED: usize = 20;

/// Numbers of specs, and the failures.
#[derive(Default)]
pub struct Tally {
    specs: usize,
    equal: usize,
    both_fail: usize,
    both_refuse: usize,
    excepted: BTreeMap<&'static str, usize>,
    refused: BTreeMap<&'static str, usize>,
    failures: Vec<String>,
}

impl Tally {
    /// Adds a comparison of `resource`, from which the Go operator's differs by the exceptions
    /// `excepted`.
    pub fn add(
        &mut self,
        name: &str,
        resource: &Value,
        mut excepted: Vec<&'static str>,
        theirs: Rendered,
        ours: Outcome,
    ) {
        self.specs += 1;
        let mut failures = Vec::new();
        match (theirs, ours) {
            (Err(_), Outcome::Refused(_)) => self.both_refuse += 1,
            (Err(_), Outcome::Failed(_)) => self.both_fail += 1,
            (Ok(_), Outcome::Refused(violations)) => {
                for violation in violations {
                    match refusals::ALL.iter().find(|refusal| refusal.rule == violation.rule.id) {
                        Some(refusal) => *self.refused.entry(refusal.rule).or_default() += 1,
                        None => failures.push(format!("only ours refuses it: {}: {violation}", violation.rule.id)),
                    }
                }
            }
            (Err(error), Outcome::Rendered(_)) => match failure(resource, &error) {
                Some(id) => excepted.push(id),
                None => failures.push(format!("only ours renders it; theirs: {error}")),
            },
            (Ok(_), Outcome::Failed(error)) => failures.push(format!("only theirs renders it; ours: {error}")),
            (Ok(theirs), Outcome::Rendered(ours)) => {
                let found = differences(&theirs, &ours);
                for difference in &found {
                    match exception(resource, difference) {
                        Some(id) => excepted.push(id),
                        None => failures.push(difference.to_string()),
                    }
                }
                self.equal += usize::from(found.is_empty() && excepted.is_empty());
            }
        }
        excepted.sort_unstable();
        excepted.dedup();
        for id in excepted {
            *self.excepted.entry(id).or_default() += 1;
        }
        if !failures.is_empty() {
            failures.truncate(PRINTED);
            self.failures.push(format!("{name}: {resource}\n  {}", failures.join("\n  ")));
        }
    }

    /// Whether a spec has the exception `id`.
    pub fn has_exception(&self, id: &str) -> bool {
        self.excepted.contains_key(id)
    }

    /// Prints the numbers, and fails if something differs.
    pub fn finish(&self) {
        // Not `eprintln!`, whose output a passing test hides.
        let _ = writeln!(std::io::stderr(), "{self}");
        assert!(
            self.failures.is_empty(),
            "{} specs differ:\n{}",
            self.failures.len(),
            self.failures[..self.failures.len().min(PRINTED)].join("\n")
        );
    }
}

fn failure(resource: &Value, error: &str) -> Option<&'static str> {
    let matches = |kind: &Kind| matches!(kind, Kind::Failure(matches) if matches(resource, error));
    exceptions::ALL.iter().find(|exception| matches(&exception.kind)).map(|exception| exception.id)
}

fn exception(resource: &Value, difference: &Difference) -> Option<&'static str> {
    let matches = |kind: &Kind| matches!(kind, Kind::Objects(matches) if matches(resource, difference));
    exceptions::ALL.iter().find(|exception| matches(&exception.kind)).map(|exception| exception.id)
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { specs, equal, both_fail, both_refuse, failures, .. } = self;
        write!(
            f,
            "{specs} specs: {equal} equal; {both_refuse} refused by our webhook, with an error in the Go operator; {both_fail} errors in both; "
        )?;
        write!(
            f,
            "with exceptions: {:?}; refused only by our webhook: {:?}; {} differ",
            self.excepted,
            self.refused,
            failures.len()
        )
    }
}
