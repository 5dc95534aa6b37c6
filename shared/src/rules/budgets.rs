//! `spec.podDisruptionBudgets`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Example, Problem, Rule, Severity};
use crate::api::Knative;

/// One of the two.
pub static ONE_OF: Rule = Rule {
    id: "budget-one-of",
    severity: Severity::Error,
    says: "A PodDisruptionBudget has `minAvailable` or `maxUnavailable`, not both.",
    kept: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": "50%"}]}"#),
    broken: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": 1, "maxUnavailable": 1}]}"#),
};

/// A number or a percentage.
pub static VALUE: Rule = Rule {
    id: "budget-value",
    severity: Severity::Error,
    says: "`minAvailable` and `maxUnavailable` are numbers of pods, or percentages up to 100%.",
    kept: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "maxUnavailable": 1}]}"#),
    broken: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": "most"}]}"#),
};

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    for (index, budget) in resource.common().pod_disruption_budgets.iter().enumerate() {
        let path = format!("spec.podDisruptionBudgets[{index}]");
        if let (Some(least), Some(most)) = (&budget.min_available, &budget.max_unavailable) {
            let both = format!("minAvailable {} and maxUnavailable {} are both set", shown(least), shown(most));
            found.push(ONE_OF.at(&path, both, "keep one of them"));
        }
        for (field, value) in [("minAvailable", &budget.min_available), ("maxUnavailable", &budget.max_unavailable)] {
            if let Some(value) = value.as_ref().filter(|v| !is_amount(v)) {
                let fix = "set it to a number of pods such as 1, or a percentage such as 50%";
                found.push(VALUE.at(
                    format!("{path}.{field}"),
                    format!("{} is neither a number of pods nor a percentage", shown(value)),
                    fix,
                ));
            }
        }
    }
}

fn is_amount(value: &IntOrString) -> bool {
    match value {
        IntOrString::Int(number) => *number >= 0,
        IntOrString::String(text) => {
            text.strip_suffix('%').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()) && n.parse::<u32>().is_ok_and(|n| n <= 100))
        }
    }
}

fn shown(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("\"{text}\""),
    }
}
