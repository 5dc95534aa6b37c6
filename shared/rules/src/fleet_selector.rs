//! Selectors of a fleet, by labels and by properties of ClusterProfiles.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::fleet::Selecting;
use knative_operator_shared::fleet::selector::selector as selector_of;

/// Selectors.
pub static SELECTOR: Rule = Rule {
    id: "fleet-selector",
    severity: Severity::Error,
    requirement: "Each `clusterSelector` and `propertySelector` of a KnativeFleet is a label selector, and each override has one of them.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {"matchExpressions": [{"key": "env", "operator": "Like", "values": ["p"]}]}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
};

/// Checks the selectors by labels and by properties of `selecting`, a part of a fleet, at `within`.
pub fn check_selectors(within: &str, selecting: &impl Selecting, violations: &mut Vec<Violation>) {
    let [labels, properties] = selecting.selectors();
    for (name, what, selector) in [("clusterSelector", "label", labels), ("propertySelector", "property", properties)] {
        if let Some(selector) = selector {
            check_selector(&format!("{within}.{name}"), what, selector, violations);
        }
    }
}

/// Checks the selector at `field`, by each `what`. Names of properties have no syntax.
fn check_selector(field: &str, what: &str, selector: &LabelSelector, violations: &mut Vec<Violation>) {
    let before = violations.len();
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        if expression.key.is_empty() {
            violations.push(SELECTOR.at(format!("{field}.key"), "is missing", format!("set it to a {what}")));
        }
        let has_values = expression.values.as_ref().is_some_and(|values| !values.is_empty());
        match (expression.operator.as_str(), has_values) {
            ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => {}
            (operator @ ("In" | "NotIn"), false) => {
                violations.push(SELECTOR.at(
                    format!("{field}.values"),
                    format!("{operator} requires values"),
                    "set them",
                ));
            }
            (operator @ ("Exists" | "DoesNotExist"), true) => {
                let message = format!("{operator} has no values");
                violations.push(SELECTOR.at(format!("{field}.values"), message, "remove them"));
            }
            (operator, _) => {
                let fix = "use In, NotIn, Exists or DoesNotExist";
                violations.push(SELECTOR.at(
                    format!("{field}.operator"),
                    format!("\"{operator}\" is not an operator"),
                    fix,
                ));
            }
        }
    }
    if violations.len() == before
        && let Err(error) = selector_of(selector.clone())
    {
        violations.push(SELECTOR.at(field, error.to_string(), "see `kubectl explain knativefleet.spec`"));
    }
}
