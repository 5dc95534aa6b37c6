//! `spec.high-availability`.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax::MAX_INT32;

/// Number of replicas.
pub static REPLICAS: Rule = Rule {
    id: "high-availability-replicas",
    severity: Severity::Error,
    requirement: "`spec.high-availability.replicas` is 1 or more.",
    valid: Example::serving(r#"{"high-availability": {"replicas": 2}}"#),
    invalid: Example::serving(r#"{"high-availability": {"replicas": 0}}"#),
};

/// One replica is not highly available.
pub static ONE: Rule = Rule {
    id: "high-availability-one",
    severity: Severity::Warning,
    requirement: "`spec.high-availability` asks for more than one replica.",
    valid: Example::serving(r#"{"high-availability": {"replicas": 2}}"#),
    invalid: Example::serving(r#"{"high-availability": {"replicas": 1}}"#),
};

const FIELD: &str = "spec.high-availability.replicas";

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    match resource.common().high_availability.as_ref().and_then(|h| h.replicas) {
        Some(replicas) if replicas < 1 => {
            violations.push(REPLICAS.at(
                FIELD,
                format!("{replicas} is less than 1"),
                "set it to 2 or more, or remove spec.high-availability",
            ));
        }
        Some(replicas) if replicas > MAX_INT32 => {
            violations.push(REPLICAS.at(
                FIELD,
                format!("{replicas} is more than {MAX_INT32}"),
                "set it to a smaller number",
            ));
        }
        Some(1) => {
            violations.push(ONE.at(
                FIELD,
                "1 replica is not highly available: an update or a lost node interrupts it",
                "set it to 2 or more",
            ));
        }
        _ => {}
    }
}
