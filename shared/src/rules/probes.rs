//! Settings of probes.

use super::{Example, MAX_INT32, Problem, Rule, Severity};
use crate::api::{ContainerProbe, Knative};

/// Their numbers.
pub static RANGE: Rule = Rule {
    id: "probe-range",
    severity: Severity::Error,
    says: "Seconds and thresholds of probes are not negative, a liveness probe needs one success, and only a liveness probe ends pods.",
    kept: Example::serving(
        r#"{"workloads": [{"name": "activator", "readinessProbes": [{"container": "activator", "periodSeconds": 5}]}]}"#,
    ),
    broken: Example::serving(
        r#"{"workloads": [{"name": "activator", "livenessProbes": [{"container": "activator", "successThreshold": 2}]}]}"#,
    ),
};

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    for (path, workload) in resource.common().overrides() {
        for (field, probes, liveness) in [
            ("readinessProbes", &workload.readiness_probes, false),
            ("livenessProbes", &workload.liveness_probes, true),
        ] {
            for (index, probe) in probes.iter().enumerate() {
                one(&format!("{path}.{field}[{index}]"), probe, liveness, found);
            }
        }
    }
}

fn one(path: &str, probe: &ContainerProbe, liveness: bool, found: &mut Vec<Problem>) {
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
        ("terminationGracePeriodSeconds", probe.termination_grace_period_seconds),
    ];
    for (field, value) in numbers {
        let place = || format!("{path}.{field}");
        match value {
            Some(value) if value < 0 => {
                found.push(RANGE.at(place(), format!("{value} is negative"), "set it to a positive number"));
            }
            Some(value) if value > MAX_INT32 && field != "terminationGracePeriodSeconds" => {
                found.push(RANGE.at(
                    place(),
                    format!("{value} is more than {MAX_INT32}"),
                    "set it to a smaller number",
                ));
            }
            Some(value) if liveness && field == "successThreshold" && value > 1 => {
                found.push(RANGE.at(
                    place(),
                    format!("{value} is more than 1, all that a liveness probe may need"),
                    "set it to 1",
                ));
            }
            Some(value) if !liveness && field == "terminationGracePeriodSeconds" && value > 0 => {
                found.push(RANGE.at(
                    place(),
                    format!("{value} is set, and a readiness probe ends no pod"),
                    "set it on the liveness probe",
                ));
            }
            _ => {}
        }
    }
}
