//! Resource requirements: quantities that Kubernetes understands.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Problem;
use crate::api::{ContainerResources, Knative};

/// Every limit and request is a quantity.
pub fn syntax(resource: &Knative) -> Vec<Problem> {
    let common = resource.common();
    let mut problems = Vec::new();
    let overrides = common.overrides().map(|(path, workload)| (format!("{path}.resources"), &workload.resources));
    for (path, list) in overrides.chain([("spec.resources".to_owned(), &common.resources)]) {
        for (index, ContainerResources { limits, requests, .. }) in list.iter().enumerate() {
            for (word, entries) in [("limits", limits), ("requests", requests)] {
                problems.extend(faulty(&format!("{path}[{index}].{word}"), entries));
            }
        }
    }
    problems
}

fn faulty(path: &str, entries: &BTreeMap<String, Value>) -> impl Iterator<Item = Problem> {
    entries.iter().filter(|(_, value)| !is_quantity(value)).map(move |(name, value)| Problem {
        rule: "quantity-syntax",
        field: format!("{path}.{name}"),
        message: format!("{value} is no quantity"),
        fix: "set it to one such as 500m, 2, 128Mi or 1.5G".to_owned(),
    })
}

/// Whether `value` is a quantity, in the grammar of the API reference (`resource.Quantity`): a decimal number with a
/// binary suffix, a decimal suffix or an exponent.
fn is_quantity(value: &Value) -> bool {
    let Value::String(text) = value else { return value.is_number() };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, suffix) = unsigned.split_at(unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len()));
    let decimal = number.bytes().any(|b| b.is_ascii_digit()) && number.bytes().filter(|b| *b == b'.').count() <= 1;
    let exponent = |text: &str| text.strip_prefix(['e', 'E']).is_some_and(|digits| digits.parse::<i32>().is_ok());
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].contains(&suffix);
    decimal && (known || exponent(suffix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_grammar_is_kubernetes() {
        for fine in [
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
            assert!(is_quantity(&fine), "{fine}");
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
            assert!(!is_quantity(&wrong), "{wrong}");
        }
    }

    #[test]
    fn each_place_is_named() {
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
        let fields: Vec<_> = syntax(&resource).into_iter().map(|p| p.field).collect();
        assert_eq!(fields, ["spec.workloads[0].resources[0].requests.memory", "spec.resources[1].limits.cpu"]);
    }
}
