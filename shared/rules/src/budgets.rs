//! `spec.podDisruptionBudgets`.

use serde_json::Value;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax::MAX_INT32;

/// `minAvailable` or `maxUnavailable`.
pub static ONE_OF: Rule = Rule {
    id: "budget-one-of",
    severity: Severity::Error,
    requirement: "A PodDisruptionBudget has `minAvailable` or `maxUnavailable`, not both.",
    valid: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": "50%"}]}"#),
    invalid: Example::serving(
        r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": 1, "maxUnavailable": 1}]}"#,
    ),
};

/// Numbers and percentages.
pub static VALUE: Rule = Rule {
    id: "budget-value",
    severity: Severity::Error,
    requirement: "`minAvailable` and `maxUnavailable` are numbers of pods, or percentages up to 100%.",
    valid: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "maxUnavailable": 1}]}"#),
    invalid: Example::serving(r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": "most"}]}"#),
};

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    for (index, budget) in resource.common().pod_disruption_budgets.iter().enumerate() {
        let path = format!("spec.podDisruptionBudgets[{index}]");
        if let (Some(least), Some(most)) = (&budget.min_available, &budget.max_unavailable) {
            let both = format!("minAvailable {least} and maxUnavailable {most} are both set");
            violations.push(ONE_OF.at(&path, both, "keep one of them"));
        }
        for (field, value) in [("minAvailable", &budget.min_available), ("maxUnavailable", &budget.max_unavailable)] {
            if let Some(value) = value.as_ref().filter(|v| !is_amount(v)) {
                let fix = "set it to a number of pods such as 1, or a percentage such as 50%";
                violations.push(VALUE.at(
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_numbers_and_percentages() {
        for amount in [json!(0), json!(MAX_INT32), json!("0%"), json!("100%")] {
            assert!(is_amount(&amount), "{amount}");
        }
        for other in [json!(-1), json!(MAX_INT32 + 1), json!("101%"), json!("+5%"), json!("%"), json!("5"), json!(true)]
        {
            assert!(!is_amount(&other), "{other}");
        }
    }
}
