//! The gates of a cluster: what is measured on it once everything else about its update is done,
//! one gate after another. The results are observed in this process, like times: after a restart,
//! the gates are measured again. What is recorded is the outcome of the update.

use knative_operator_shared::api::fleet::Gate;

/// Reason of a cluster with a gate that failed.
pub const GATE_FAILED: &str = "GateFailed";
/// Reason of a cluster with a gate that can't be measured.
pub const GATE_UNKNOWN: &str = "GateUnknown";
/// Reason of a cluster whose gates are measured.
pub const GATE_PENDING: &str = "GatePending";

/// What the gates of a cluster say about its update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gates {
    /// All passed, or there are none.
    #[default]
    Passed,
    /// They are measured.
    Pending(String),
    /// One can't be measured: it neither passed nor failed.
    Unknown(String),
    /// One failed.
    Failed(String),
}

/// Result of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As expected.
    Success,
    /// Not as expected, for this reason.
    Failure(String),
    /// It could not be measured, for this reason.
    Unknown(String),
}

impl Answer {
    /// Name, as in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure(_) => "failure",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// The measurements of the gates of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Series {
    passed: usize,
    successes: i32,
    failures: i32,
    /// The last result that was no success, of the current gate.
    last: Option<Answer>,
    /// Why they failed before they were measured again. It stays until all passed.
    former: Option<String>,
    number: u32,
}

impl Series {
    /// The gate among `gates` that is measured next; `None` if all passed, or one failed.
    pub fn next<'g>(&self, gates: &'g [Gate]) -> Option<&'g Gate> {
        gates.get(self.passed).filter(|gate| self.failures <= gate.failure_limit())
    }

    /// Number of the next measurement. One that could not be made has the same again.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Records the `answer` of the next gate among `gates`.
    pub fn record(&mut self, gates: &[Gate], answer: Answer) {
        let Some(gate) = self.next(gates) else { return };
        match &answer {
            Answer::Success => self.successes += 1,
            Answer::Failure(_) => self.failures += 1,
            Answer::Unknown(_) => {}
        }
        if matches!(answer, Answer::Success) && self.successes >= gate.count() {
            let former = self.former.take();
            *self = Self { passed: self.passed + 1, number: self.number + 1, former, ..Self::default() };
            return;
        }
        self.number += u32::from(!matches!(answer, Answer::Unknown(_)));
        self.last = match answer {
            // What failed before may still count.
            Answer::Success => self.last.take().filter(|last| matches!(last, Answer::Failure(_))),
            other => Some(other),
        };
    }

    /// Measures `gates` again after a failure, which stands until all passed.
    pub fn restart(&mut self, gates: &[Gate]) {
        let former = match self.state(gates) {
            Gates::Failed(why) => Some(why),
            _ => None,
        };
        *self = Self { number: self.number, former, ..Self::default() };
    }

    /// What the measurements of `gates` say.
    pub fn state(&self, gates: &[Gate]) -> Gates {
        let Some(gate) = gates.get(self.passed) else { return Gates::Passed };
        if let Some(former) = self.former.as_ref().filter(|_| self.next(gates).is_some()) {
            return Gates::Failed(former.clone());
        }
        let start = format!("gates {}/{}: {}", self.passed, gates.len(), gate.name);
        match &self.last {
            Some(Answer::Failure(why)) if self.next(gates).is_none() => Gates::Failed(format!("{start} failed: {why}")),
            Some(Answer::Failure(why)) => Gates::Pending(format!("{start} is measured again: {why}")),
            Some(Answer::Unknown(why)) => Gates::Unknown(format!("{start} can't be measured: {why}")),
            _ => Gates::Pending(format!("{start} is measured")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gates(settings: &[(i32, i32)]) -> Vec<Gate> {
        let gate = |(number, (count, limit)): (usize, &(i32, i32))| {
            serde_json::from_value(json!({"name": format!("g{number}"), "count": count, "failureLimit": limit}))
                .unwrap()
        };
        settings.iter().enumerate().map(gate).collect()
    }

    #[test]
    fn gate_passes_after_its_successes_and_fails_beyond_its_limit() {
        let gates = gates(&[(1, 0), (2, 1)]);
        let (yes, no) = (|| Answer::Success, || Answer::Failure("HTTP 500".to_owned()));
        let unknown = || Answer::Unknown("forbidden".to_owned());
        let pending = |text: &str| Gates::Pending(text.to_owned());
        for (answers, expected, number) in [
            (vec![], pending("gates 0/2: g0 is measured"), 0),
            (vec![yes()], pending("gates 1/2: g1 is measured"), 1),
            (vec![no()], Gates::Failed("gates 0/2: g0 failed: HTTP 500".to_owned()), 1),
            (vec![unknown()], Gates::Unknown("gates 0/2: g0 can't be measured: forbidden".to_owned()), 0),
            (vec![unknown(), unknown(), yes()], pending("gates 1/2: g1 is measured"), 1),
            (vec![yes(), no()], pending("gates 1/2: g1 is measured again: HTTP 500"), 2),
            (vec![yes(), no(), yes()], pending("gates 1/2: g1 is measured again: HTTP 500"), 3),
            (vec![yes(), yes(), no(), yes()], Gates::Passed, 4),
            (vec![yes(), no(), no()], Gates::Failed("gates 1/2: g1 failed: HTTP 500".to_owned()), 3),
            // Nothing is recorded after the end.
            (vec![no(), yes(), yes()], Gates::Failed("gates 0/2: g0 failed: HTTP 500".to_owned()), 1),
        ] {
            let mut series = Series::default();
            answers.iter().cloned().for_each(|answer| series.record(&gates, answer));
            assert_eq!((series.state(&gates), series.number()), (expected, number), "{answers:?}");
            let is_over = matches!(series.state(&gates), Gates::Passed | Gates::Failed(_));
            assert_eq!(series.next(&gates).is_none(), is_over);
        }
        assert_eq!(Series::default().state(&[]), Gates::Passed);
    }

    #[test]
    fn restarted_series_repeats_no_number() {
        let gates = gates(&[(1, 0)]);
        let mut series = Series::default();
        series.record(&gates, Answer::Failure(String::new()));
        let failed = series.state(&gates);
        series.restart(&gates);
        assert_eq!((series.number(), series.next(&gates).is_some(), series.state(&gates)), (1, true, failed));
        series.record(&gates, Answer::Success);
        assert_eq!(series.state(&gates), Gates::Passed);
    }
}
