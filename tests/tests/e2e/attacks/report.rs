//! What became of each attack, as a table.

use std::io::Write;

use knative_operator_shared::text::{clip, one_line};
use knative_operator_tests::Result;

use super::attacker::{Attempt, is_permitted};

/// Maximum length of a reason in the table, in bytes.
const MAX_REASON: usize = 240;

/// What became of an attack.
pub enum Outcome {
    /// The attacker doesn't have it, for this reason.
    Prevented(String),
    /// The attacker has it by rights that the operator doesn't give, and an administrator sees it:
    /// how.
    Reported(String),
    /// The attacker has it: what it is.
    Succeeded(String),
}

impl Outcome {
    /// The attacker has `what` if `is_there`. Otherwise, `attempt` tells why not.
    pub fn of(is_there: bool, what: &str, attempt: &Attempt) -> Self {
        match attempt {
            _ if is_there => Self::Succeeded(what.to_owned()),
            Err(refusal) => Self::Prevented(format!("refused: {refusal}")),
            Ok(_) => Self::Prevented("admitted, without effect".to_owned()),
        }
    }
}

/// An attack with its outcome, or why it could not be tried.
type Row = (&'static str, std::result::Result<Outcome, String>);

/// The outcomes of attacks.
#[derive(Default)]
pub struct Report(Vec<Row>);

impl Report {
    /// Runs `tried`, and records its outcome as that of `attack`. A later attack is tried even if
    /// this one can't be.
    pub async fn attack(&mut self, attack: &'static str, tried: impl Future<Output = Result<Outcome>>) {
        let row = (attack, tried.await.map_err(|error| error.to_string()));
        eprintln!("{}", line(&row));
        if let (_, Err(error)) = &row {
            eprintln!("{error}");
        }
        self.0.push(row);
    }

    /// Adds the outcomes of `other`.
    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Prints the table. Fails if an attack could not be tried, or if one succeeded although
    /// permissions are enforced.
    pub fn finish(&self) -> Result<()> {
        let rows: Vec<String> = self.0.iter().map(line).collect();
        let table = rows.join("\n");
        // Not `eprintln!`, whose output a passing test hides.
        let _ = writeln!(std::io::stderr(), "{table}");
        if is_permitted() {
            let tried = self.0.iter().all(|(_, outcome)| outcome.is_ok());
            return if tried { Ok(()) } else { Err(format!("an attack could not be tried:\n{table}").into()) };
        }
        let others = self
            .0
            .iter()
            .filter(|(_, outcome)| !matches!(outcome, Ok(Outcome::Prevented(_) | Outcome::Reported(_))))
            .count();
        if others == 0 {
            return Ok(());
        }
        Err(format!("{others} of {} attacks were not prevented:\n{table}", self.0.len()).into())
    }
}

/// A line of the table.
fn line((attack, outcome): &Row) -> String {
    let (word, reason) = match outcome {
        Ok(Outcome::Prevented(why)) => ("prevented", why),
        Ok(Outcome::Reported(how)) => ("reported ", how),
        Ok(Outcome::Succeeded(what)) => ("SUCCEEDED", what),
        Err(error) => ("not tried", error),
    };
    format!("{attack:<58} {word}  {}", clip(&one_line(reason), MAX_REASON))
}
