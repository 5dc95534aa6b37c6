//! What came of the last update of a resource. It is recorded in the resource, so that a fault of
//! a cluster that was updated successfully is never counted as a failure of the update, and so that
//! a failure stays one until a person changes the fleet.

use std::fmt;
use std::str::FromStr;

/// What came of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in progress.
    Progressing {
        /// Whether the cluster was Ready before. If not, the update can't be what broke it.
        was_ready: bool,
    },
    /// The resource was Ready for long enough.
    Succeeded,
    /// It was not Ready in time.
    Failed {
        /// Generation of the fleet since which it rolls this out, or 0 after somebody asked for
        /// another try. In a rollout since another one, it is observed again.
        generation: i64,
        /// Reason.
        reason: String,
    },
}

impl Outcome {
    /// The reason of a failure in the rollout since `generation`; `None` if there is none, or
    /// another try was asked for. An earlier version of the operator recorded the generation of the
    /// failure itself, which is not before.
    pub fn failure_since(&self, generation: i64) -> Option<&str> {
        match self {
            Self::Failed { generation: of @ 1.., reason } if *of >= generation => Some(reason),
            _ => None,
        }
    }

    /// Whether another try was asked for after a failure.
    pub fn is_retried(&self) -> bool {
        matches!(self, Self::Failed { generation: 0, .. })
    }

    /// The outcome that lets a failure be observed again; `None` if it is none, or is observed.
    pub fn retried(&self) -> Option<Self> {
        match self {
            Self::Failed { generation: 1.., reason } => Some(Self::Failed { generation: 0, reason: reason.clone() }),
            _ => None,
        }
    }
}

/// The text is no outcome.
#[derive(Debug, thiserror::Error)]
#[error("invalid outcome of an update")]
pub struct InvalidOutcome;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Progressing { was_ready: true } => f.write_str("Progressing"),
            Self::Progressing { was_ready: false } => f.write_str("Progressing/NotReadyBefore"),
            Self::Succeeded => f.write_str("Succeeded"),
            Self::Failed { generation, reason } => write!(f, "Failed/{generation}/{reason}"),
        }
    }
}

impl FromStr for Outcome {
    type Err = InvalidOutcome;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            None if text == "Progressing" => Ok(Self::Progressing { was_ready: true }),
            None if text == "Succeeded" => Ok(Self::Succeeded),
            Some(("Progressing", "NotReadyBefore")) => Ok(Self::Progressing { was_ready: false }),
            Some(("Failed", rest)) => {
                let (generation, reason) = rest.split_once('/').ok_or(InvalidOutcome)?;
                let generation = generation.parse().map_err(|_| InvalidOutcome)?;
                Ok(Self::Failed { generation, reason: reason.to_owned() })
            }
            _ => Err(InvalidOutcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_one_of_its_rollout_until_another_try() {
        let failed = |generation| Outcome::Failed { generation, reason: "NotReady".to_owned() };
        for (of, expected) in [(2, None), (3, Some("NotReady")), (5, Some("NotReady")), (0, None)] {
            assert_eq!(failed(of).failure_since(3), expected, "{of}");
        }
        assert_eq!(Outcome::Succeeded.failure_since(1), None);
        let retried = failed(3).retried().unwrap();
        assert!(retried.is_retried() && !failed(3).is_retried() && retried.failure_since(1).is_none());
    }

    #[test]
    fn outcome_round_trips() {
        for outcome in [
            Outcome::Progressing { was_ready: true },
            Outcome::Progressing { was_ready: false },
            Outcome::Succeeded,
            Outcome::Failed { generation: 7, reason: "NotReady".to_owned() },
        ] {
            assert_eq!(outcome.to_string().parse::<Outcome>().unwrap(), outcome);
        }
        for text in ["", "Done", "Failed", "Failed/x/y", "Progressing/x"] {
            assert!(text.parse::<Outcome>().is_err(), "{text}");
        }
    }
}
