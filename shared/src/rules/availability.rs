//! `spec.high-availability`.

use super::{Example, MAX_INT32, Problem, Rule, Severity};
use crate::api::Knative;

/// At least one replica.
pub static REPLICAS: Rule = Rule {
    id: "high-availability-replicas",
    severity: Severity::Error,
    says: "`spec.high-availability.replicas` is 1 or more.",
    kept: Example::serving(r#"{"high-availability": {"replicas": 2}}"#),
    broken: Example::serving(r#"{"high-availability": {"replicas": 0}}"#),
};

/// One replica is no high availability.
pub static ONE: Rule = Rule {
    id: "high-availability-one",
    severity: Severity::Warning,
    says: "`spec.high-availability` asks for more than one replica.",
    kept: Example::serving(r#"{"high-availability": {"replicas": 2}}"#),
    broken: Example::serving(r#"{"high-availability": {"replicas": 1}}"#),
};

const FIELD: &str = "spec.high-availability.replicas";

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    match resource.common().high_availability.as_ref().and_then(|h| h.replicas) {
        Some(replicas) if replicas < 1 => {
            found.push(REPLICAS.at(
                FIELD,
                format!("{replicas} is less than 1"),
                "set it to 2 or more, or remove spec.high-availability",
            ));
        }
        Some(replicas) if replicas > MAX_INT32 => {
            found.push(REPLICAS.at(
                FIELD,
                format!("{replicas} is more than {MAX_INT32}"),
                "set it to a smaller number",
            ));
        }
        Some(1) => {
            found.push(ONE.at(
                FIELD,
                "1 replica is not highly available: an update or a lost node interrupts it",
                "set it to 2 or more",
            ));
        }
        _ => {}
    }
}
