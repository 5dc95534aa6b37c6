//! `spec.podDisruptionBudgets`.

use serde_json::Value;

use super::{Example, MAX_INT32, Problem, Rule, Severity};
use crate::api::Knative;

/// One of the two.
pub static ONE_OF: Rule = Rule {
    id: "budget-one-of",
    severity: Severity::Error,
    says: "A PodDisruptionBudget has `minAvailable` or `maxUnavailable`, not both.",
    kept: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": "50%"}]}"#),
    broken: Example::serving(
        r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": 1, "maxUnavailable": 1}]}"#,
    ),
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
            let both = format!("minAvailable {least} and maxUnavailable {most} are both set");
            found.push(ONE_OF.at(&path, both, "keep one of them"));
        }
        for (field, value) in [("minAvailable", &budget.min_available), ("maxUnavailable", &budget.max_unavailable)] {
            if let Some(value) = value.as_ref().filter(|v| !is_amount(v)) {
                let fix = "set it to a number of pods such as 1, or a percentage such as 50%";
                found.push(VALUE.at(
                    format!("{path}.{field}"),
                    format!("{value} is neither a number of pods nor a percentage"),
                    fix,
                ));
            }
        }
    }
}

fn is_amount(value: &Value) -> bool {
    let percentage = |text: &str| {
        text.strip_suffix('%')
            .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()) && n.parse::<u32>().is_ok_and(|n| n <= 100))
    };
    value.as_i64().is_some_and(|number| (0..=MAX_INT32).contains(&number)) || value.as_str().is_some_and(percentage)
}
