//! Resource requirements: quantities, and requests within limits.

use std::collections::BTreeMap;
use std::fmt::Arguments;

use serde_json::Value;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{ContainerResources, Knative};

/// Syntax of quantities.
pub static SYNTAX: Rule = Rule {
    id: "quantity-syntax",
    severity: Severity::Error,
    requirement: "Limits and requests are Kubernetes quantities, and not negative.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "resources": [{"container": "activator", "limits": {"cpu": "500m"}}]}]}"#,
    ),
    invalid: Example::serving(
        r#"{"workloads": [{"name": "activator", "resources": [{"container": "activator", "limits": {"cpu": "-1"}}]}]}"#,
    ),
};

/// Requests within limits.
pub static LIMIT: Rule = Rule {
    id: "request-within-limit",
    severity: Severity::Error,
    requirement: "A request does not exceed the limit of the same resource.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "resources": [{"container": "activator", "limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}]}]}"#,
    ),
    invalid: Example::serving(
        r#"{"workloads": [{"name": "activator", "resources": [{"container": "activator", "limits": {"cpu": "1"}, "requests": {"cpu": "1500m"}}]}]}"#,
    ),
};

/// Checks the syntax of limits and requests, and that each request is within its limit.
pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let common = resource.common();
    let overrides = common.overrides().map(|(path, workload)| (format!("{path}.resources"), &workload.resources));
    for (path, list) in overrides.chain([("spec.resources".to_owned(), &common.resources)]) {
        for (index, ContainerResources { limits, requests, .. }) in list.iter().enumerate() {
            for (word, entries) in [("limits", limits), ("requests", requests)] {
                check_syntax(format_args!("{path}[{index}].{word}"), entries, violations);
            }
            for (name, request) in requests {
                let Some(limit) = limits.get(name) else { continue };
                if let (Some(much), Some(most)) = (amount(request), amount(limit))
                    && much > most * (1.0 + 1e-12)
                {
                    let field = format!("{path}[{index}].requests.{name}");
                    violations.push(LIMIT.at(
                        field,
                        format!("{request} is more than the limit {limit}"),
                        "lower it, or raise the limit",
                    ));
                }
            }
        }
    }
}

fn check_syntax(path: Arguments<'_>, entries: &BTreeMap<String, Value>, violations: &mut Vec<Violation>) {
    for (name, value) in entries {
        let field = || format!("{path}.{name}");
        match amount(value) {
            None => violations.push(SYNTAX.at(
                field(),
                format!("{value} is not a quantity"),
                "set it to one such as 500m, 2, 128Mi or 1.5G",
            )),
            Some(amount) if amount < 0.0 => {
                violations.push(SYNTAX.at(field(), format!("{value} is negative"), "set it to 0 or more"));
            }
            Some(_) => {}
        }
    }
}

/// The amount of `value`, if it follows the grammar in the API reference (`resource.Quantity`): a
/// decimal number with a binary suffix, a decimal suffix or an exponent.
pub fn amount(value: &Value) -> Option<f64> {
    let Value::String(text) = value else { return value.as_f64() };
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, suffix) =
        unsigned.split_at(unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len()));
    let number: f64 = number.parse().ok()?;
    let binary = |power: i32| 1024f64.powi(power);
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    Some(sign * number * factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_follow_kubernetes_grammar() {
        for valid in [
            json!(1),
            json!(0.5),
            json!("1"),
            json!("500m"),
            json!("1.5Gi"),
            json!(".5"),
            json!("5."),
            json!("1e3"),
            json!("-1E-2"),
            json!("3E"),
            json!("+2u"),
        ] {
            assert!(amount(&valid).is_some(), "{valid}");
        }
        for wrong in [
            json!(""),
            json!("m"),
            json!("1x"),
            json!("1 Gi"),
            json!("1gi"),
            json!("1.2.3"),
            json!("half"),
            json!("1mi"),
            json!("1e"),
            json!(true),
            json!(["1"]),
        ] {
            assert!(amount(&wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn each_field_is_named() {
        let object = json!({
            "metadata": {"name": "a"},
            "spec": {
                "resources": [{"container": "a", "limits": {"cpu": "1"}}, {"container": "b", "limits": {"cpu": "x"}}],
                "workloads": [{"name": "a", "resources": [{"container": "a", "requests": {"memory": "1Gb"}}]}],
            },
        });
        let resource = Knative::Serving(
            serde_json::from_value({
                let mut object = object;
                object["apiVersion"] = json!("operator.knative.dev/v1beta1");
                object["kind"] = json!("KnativeServing");
                object
            })
            .unwrap(),
        );
        let mut violations = Vec::new();
        check(&resource, &mut violations);
        let fields: Vec<_> = violations.into_iter().map(|p| p.field).collect();
        assert_eq!(fields, ["spec.workloads[0].resources[0].requests.memory", "spec.resources[1].limits.cpu"]);
    }
}
