//! What `lint -o sarif` prints, for code scanning: SARIF 2.1.0
//! (<https://docs.oasis-open.org/sarif/sarif/v2.1.0/>).

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// The project.
const REPOSITORY: &str = "https://github.com/knative-operator-rs/knative-operator";
/// What a path has encoded in a URI (RFC 3986).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The log with `findings` and `unreadable` files, as `lint -o json` has them. `rules` has the
/// requirement of each rule that is violated, by its identifier.
pub fn log(findings: &[Value], rules: &BTreeMap<&str, &str>, unreadable: &[Value]) -> Value {
    let rules = rules.iter().map(|(id, requirement)| {
        json!({"id": id, "shortDescription": {"text": requirement},
            "helpUri": format!("{REPOSITORY}/blob/main/docs/user/rules.md#{id}")})
    });
    let rules: Vec<Value> = rules.collect();
    let results: Vec<Value> = findings.iter().map(result).collect();
    let notifications = unreadable.iter().map(|one| json!({"level": "error", "message": {"text": one["message"]}}));
    let notifications: Vec<Value> = notifications.collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "knative-operator lint", "version": env!("CARGO_PKG_VERSION"),
                "informationUri": REPOSITORY, "rules": rules}},
            "invocations": [{"executionSuccessful": unreadable.is_empty(),
                "toolExecutionNotifications": notifications}],
            "results": results,
        }],
    })
}

fn result(finding: &Value) -> Value {
    let mut physical = json!({"artifactLocation": {"uri": uri(finding["file"].as_str().unwrap_or_default())}});
    if finding["line"].is_u64() {
        physical["region"] = json!({"startLine": finding["line"]});
    }
    let place = [&finding["resource"], &finding["field"]].map(|part| part.as_str().unwrap_or_default()).join(": ");
    let mut result = json!({
        "level": finding["severity"],
        "message": {"text": finding["message"]},
        "locations": [{"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": place}]}],
    });
    if finding["rule"].is_string() {
        result["ruleId"] = finding["rule"].clone();
    }
    result
}

/// The reference to the file `path`.
fn uri(path: &str) -> String {
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    format!("{scheme}{}", utf8_percent_encode(path.trim_start_matches("./"), ENCODED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_have_their_rule_file_and_line() {
        let findings = [
            json!({"severity": "error", "file": "./a b/ä-%_~.yaml", "resource": "KnativeServing s", "line": 7,
                "field": "spec.version", "message": "spec.version: not a version", "rule": "version-format"}),
            json!({"severity": "warning", "file": "/c.yaml", "resource": "KnativeServing s", "field": "spec.x",
                "message": "spec.x: unknown field", "rule": null, "line": null}),
        ];
        let unreadable = [json!({"file": "d.yaml", "message": "cannot read d.yaml"})];
        let log = log(&findings, &BTreeMap::from([("version-format", "The version is valid.")]), &unreadable);
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"][0]["shortDescription"]["text"], "The version is valid.");
        let [first, second] = [&run["results"][0], &run["results"][1]];
        let [place, other] = [first, second].map(|result| &result["locations"][0]["physicalLocation"]);
        assert_eq!((&first["ruleId"], &first["level"]), (&json!("version-format"), &json!("error")));
        assert_eq!(place, &json!({"artifactLocation": {"uri": "a%20b/%C3%A4-%25_~.yaml"}, "region": {"startLine": 7}}));
        assert_eq!((second.get("ruleId"), &second["level"]), (None, &json!("warning")));
        assert_eq!(other, &json!({"artifactLocation": {"uri": "file:///c.yaml"}}));
        let invocation = &run["invocations"][0];
        assert_eq!(invocation["executionSuccessful"], false);
        assert_eq!(invocation["toolExecutionNotifications"][0]["message"]["text"], "cannot read d.yaml");
    }
}
