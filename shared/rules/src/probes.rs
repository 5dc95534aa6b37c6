//! Settings of probes.

use std::fmt::Arguments;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{ContainerProbe, Knative};
use knative_operator_shared::syntax::MAX_INT32;

/// Ranges of settings.
pub static RANGE: Rule = Rule {
    id: "probe-range",
    severity: Severity::Error,
    requirement: "Seconds and thresholds of probes are not negative, a liveness probe needs one success, and only a liveness probe terminates Pods.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "readinessProbes": [{"container": "activator", "periodSeconds": 5}]}]}"#,
    ),
    invalid: Example::serving(
        r#"{"workloads": [{"name": "activator", "livenessProbes": [{"container": "activator", "successThreshold": 2}]}]}"#,
    ),
};

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    for (path, workload) in resource.common().overrides() {
        for (field, probes, liveness) in [
            ("readinessProbes", &workload.readiness_probes, false),
            ("livenessProbes", &workload.liveness_probes, true),
        ] {
            for (index, probe) in probes.iter().enumerate() {
                check_probe(format_args!("{path}.{field}[{index}]"), probe, liveness, violations);
            }
        }
    }
}

fn check_probe(path: Arguments<'_>, probe: &ContainerProbe, liveness: bool, violations: &mut Vec<Violation>) {
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
        ("terminationGracePeriodSeconds", probe.termination_grace_period_seconds),
    ];
    for (field, value) in numbers {
        let field_path = || format!("{path}.{field}");
        match value {
            Some(value) if value < 0 => {
                violations.push(RANGE.at(field_path(), format!("{value} is negative"), "set it to a positive number"));
            }
            Some(value) if value > MAX_INT32 && field != "terminationGracePeriodSeconds" => {
                violations.push(RANGE.at(
                    field_path(),
                    format!("{value} is more than {MAX_INT32}"),
                    "set it to a smaller number",
                ));
            }
            Some(value) if liveness && field == "successThreshold" && value > 1 => {
                violations.push(RANGE.at(
                    field_path(),
                    format!("{value} is more than 1, the maximum of a liveness probe"),
                    "set it to 1",
                ));
            }
            Some(value) if !liveness && field == "terminationGracePeriodSeconds" && value > 0 => {
                violations.push(RANGE.at(
                    field_path(),
                    format!("{value} is set, but a readiness probe terminates no Pod"),
                    "set it on the liveness probe",
                ));
            }
            _ => {}
        }
    }
}
