//! Overrides of Pod specs: environment, tolerations, affinity, topology spread. Refuses what the
//! API server would refuse in a Deployment.

use std::fmt::Arguments;

use serde_json::Value;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax;

/// Environment variables.
pub static ENV: Rule = Rule {
    id: "environment-variable",
    severity: Severity::Error,
    requirement: "Environment variables have a name that every supported Kubernetes version accepts, and `value` or `valueFrom`.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "env": [{"container": "activator", "envVars": [{"name": "A", "value": "1"}]}]}]}"#,
    ),
    invalid: Example::serving(
        r#"{"workloads": [{"name": "activator", "env": [{"container": "activator", "envVars": [{"name": "A=1"}]}]}]}"#,
    ),
};

/// Tolerations.
pub static TOLERATION: Rule = Rule {
    id: "toleration",
    severity: Severity::Error,
    requirement: "Tolerations are well-formed.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]}]}"#,
    ),
    invalid: Example::serving(
        r#"{"workloads": [{"name": "activator", "tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}]}"#,
    ),
};

/// Affinity.
pub static AFFINITY: Rule = Rule {
    id: "affinity",
    severity: Severity::Error,
    requirement: "Affinity is well-formed: operators fit their values, weights are 1 to 100, and pod terms have a topology key.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}}]}"#,
    ),
    invalid: Example::serving(
        r#"{"workloads": [{"name": "activator", "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}}]}"#,
    ),
};

/// Topology spread.
pub static SPREAD: Rule = Rule {
    id: "topology-spread",
    severity: Severity::Error,
    requirement: "Topology spread constraints have a skew of 1 or more, a topology key, and a valid `whenUnsatisfiable`.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}]}"#,
    ),
    invalid: Example::serving(
        r#"{"workloads": [{"name": "activator", "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}]}"#,
    ),
};

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    for (path, workload) in resource.common().overrides() {
        for (container, env) in workload.env.iter().enumerate() {
            for (index, variable) in env.env_vars.iter().enumerate() {
                environment(format_args!("{path}.env[{container}].envVars[{index}]"), variable, violations);
            }
        }
        for (index, given) in workload.tolerations.iter().enumerate() {
            toleration(format_args!("{path}.tolerations[{index}]"), given, violations);
        }
        for (index, given) in workload.topology_spread_constraints.iter().enumerate() {
            spread(format_args!("{path}.topologySpreadConstraints[{index}]"), given, violations);
        }
        if let Some(affinity) = &workload.affinity {
            affinities(format_args!("{path}.affinity"), affinity, violations);
        }
    }
}

fn string<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = (usize, &'v Value)> {
    value[field].as_array().into_iter().flatten().enumerate()
}

fn environment(path: Arguments<'_>, variable: &Value, violations: &mut Vec<Violation>) {
    let name = string(variable, "name");
    if let Some(report) = syntax::variable(name) {
        violations.push(ENV.at(format!("{path}.name"), format!("\"{name}\" {report}"), "rename it"));
    }
    if !string(variable, "value").is_empty() && variable["valueFrom"].as_object().is_some_and(|from| !from.is_empty()) {
        violations.push(ENV.at(
            path.to_string(),
            format!("\"{name}\" has both value and valueFrom"),
            "keep one of them",
        ));
    }
}

fn toleration(path: Arguments<'_>, given: &Value, violations: &mut Vec<Violation>) {
    let mut report = |field: &str, message: String, fix: &str| {
        violations.push(TOLERATION.at(format!("{path}.{field}"), message, fix));
    };
    let (key, operator, effect) = (string(given, "key"), string(given, "operator"), string(given, "effect"));
    if !matches!(operator, "" | "Equal" | "Exists" | "Lt" | "Gt") {
        report("operator", format!("\"{operator}\" is not an operator of a toleration"), "set it to Equal or Exists");
    }
    if key.is_empty() && operator != "Exists" {
        report("operator", "an empty key matches every taint".to_owned(), "set the operator to Exists, or name a key");
    }
    if operator == "Exists" && !string(given, "value").is_empty() {
        report(
            "value",
            format!("\"{}\" is set, but the operator Exists takes no value", string(given, "value")),
            "remove it, or use the operator Equal",
        );
    }
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        report(
            "effect",
            format!("\"{effect}\" is not an effect of a taint"),
            "set it to NoSchedule, PreferNoSchedule or NoExecute",
        );
    }
    if given["tolerationSeconds"].is_number() && effect != "NoExecute" {
        report(
            "effect",
            format!("\"{effect}\" has no tolerationSeconds"),
            "set it to NoExecute, or remove tolerationSeconds",
        );
    }
    if !key.is_empty()
        && let Some(why) = syntax::qualified(key)
    {
        report("key", format!("\"{key}\" {why}"), "name the key of a taint");
    }
    let value = string(given, "value");
    if let Some(why) = syntax::label_value(value) {
        report("value", format!("\"{value}\" {why}"), "set it to the value of a taint");
    }
}

fn spread(path: Arguments<'_>, given: &Value, violations: &mut Vec<Violation>) {
    let mut report =
        |field: &str, message: String, fix: &str| violations.push(SPREAD.at(format!("{path}.{field}"), message, fix));
    let (skew, key, otherwise) = (
        given["maxSkew"].as_i64().unwrap_or_default(),
        string(given, "topologyKey"),
        string(given, "whenUnsatisfiable"),
    );
    if skew < 1 {
        report("maxSkew", format!("{skew} is less than 1"), "set it to 1 or more");
    }
    if let Some(why) = syntax::qualified(key) {
        report("topologyKey", format!("\"{key}\" {why}"), "name a label of nodes, such as topology.kubernetes.io/zone");
    }
    if !matches!(otherwise, "DoNotSchedule" | "ScheduleAnyway") {
        report("whenUnsatisfiable", format!("\"{otherwise}\" is neither"), "set it to DoNotSchedule or ScheduleAnyway");
    }
    if given["minDomains"].as_i64().is_some_and(|least| least < 1 || otherwise != "DoNotSchedule") {
        report(
            "minDomains",
            format!("{} must be 1 or more, and requires DoNotSchedule", given["minDomains"]),
            "set whenUnsatisfiable to DoNotSchedule, or remove it",
        );
    }
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let policy = string(given, field);
        if !matches!(policy, "" | "Honor" | "Ignore") {
            report(field, format!("\"{policy}\" is neither"), "set it to Honor or Ignore");
        }
    }
    selector(&SPREAD, format_args!("{path}.labelSelector"), &given["labelSelector"], violations);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn affinities(path: Arguments<'_>, affinity: &Value, violations: &mut Vec<Violation>) {
    let node = &affinity["nodeAffinity"];
    let at = format_args!("{path}.nodeAffinity");
    if node[REQUIRED].is_object() {
        let terms = format_args!("{at}.{REQUIRED}.nodeSelectorTerms");
        if items(&node[REQUIRED], "nodeSelectorTerms").next().is_none() {
            violations.push(AFFINITY.at(
                terms.to_string(),
                "is empty, so no node matches",
                "add a term, or remove the requirement",
            ));
        }
        for (index, term) in items(&node[REQUIRED], "nodeSelectorTerms") {
            node_term(format_args!("{terms}[{index}]"), term, violations);
        }
    }
    for (index, preferred) in items(node, PREFERRED) {
        let at = format_args!("{at}.{PREFERRED}[{index}]");
        weight(at, preferred, violations);
        node_term(format_args!("{at}.preference"), &preferred["preference"], violations);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = &affinity[kind];
        let at = format_args!("{path}.{kind}");
        for (index, term) in items(pods, REQUIRED) {
            pod_term(format_args!("{at}.{REQUIRED}[{index}]"), term, violations);
        }
        for (index, preferred) in items(pods, PREFERRED) {
            let at = format_args!("{at}.{PREFERRED}[{index}]");
            weight(at, preferred, violations);
            pod_term(format_args!("{at}.podAffinityTerm"), &preferred["podAffinityTerm"], violations);
        }
    }
}

fn weight(path: Arguments<'_>, preferred: &Value, violations: &mut Vec<Violation>) {
    let weight = preferred["weight"].as_i64().unwrap_or_default();
    if !(1..=100).contains(&weight) {
        violations.push(AFFINITY.at(
            format!("{path}.weight"),
            format!("{weight} is not between 1 and 100"),
            "set it to a number from 1 to 100",
        ));
    }
}

fn node_term(path: Arguments<'_>, term: &Value, violations: &mut Vec<Violation>) {
    for field in ["matchExpressions", "matchFields"] {
        for (index, requirement) in items(term, field) {
            expression(&AFFINITY, format_args!("{path}.{field}[{index}]"), requirement, true, violations);
        }
    }
}

fn pod_term(path: Arguments<'_>, term: &Value, violations: &mut Vec<Violation>) {
    let key = string(term, "topologyKey");
    if let Some(why) = syntax::qualified(key) {
        violations.push(AFFINITY.at(
            format!("{path}.topologyKey"),
            format!("\"{key}\" {why}"),
            "name a label of nodes, such as kubernetes.io/hostname",
        ));
    }
    for field in ["labelSelector", "namespaceSelector"] {
        selector(&AFFINITY, format_args!("{path}.{field}"), &term[field], violations);
    }
}

/// A label selector (`metav1.LabelSelector`).
fn selector(rule: &'static Rule, path: Arguments<'_>, selector: &Value, violations: &mut Vec<Violation>) {
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let at = format_args!("{path}.matchLabels[{key}]");
        if let Some(why) = syntax::qualified(key) {
            violations.push(rule.at(at.to_string(), format!("key \"{key}\" {why}"), "name the key of a label"));
        }
        let value = value.as_str().unwrap_or_default();
        if let Some(why) = syntax::label_value(value) {
            violations.push(rule.at(
                at.to_string(),
                format!("value \"{value}\" {why}"),
                "set it to the value of a label",
            ));
        }
    }
    for (index, requirement) in items(selector, "matchExpressions") {
        expression(rule, format_args!("{path}.matchExpressions[{index}]"), requirement, false, violations);
    }
}

/// A requirement of a selector; node selectors have two more operators.
fn expression(
    rule: &'static Rule,
    path: Arguments<'_>,
    requirement: &Value,
    node: bool,
    violations: &mut Vec<Violation>,
) {
    let (key, operator) = (string(requirement, "key"), string(requirement, "operator"));
    let values: Vec<&Value> = items(requirement, "values").map(|(_, v)| v).collect();
    let is_valid = match operator {
        "In" | "NotIn" => !values.is_empty(),
        "Exists" | "DoesNotExist" => values.is_empty(),
        "Gt" | "Lt" if node => values.len() == 1 && values[0].as_str().is_some_and(|v| v.parse::<i64>().is_ok()),
        _ => {
            let known =
                if node { "In, NotIn, Exists, DoesNotExist, Gt or Lt" } else { "In, NotIn, Exists or DoesNotExist" };
            violations.push(rule.at(
                format!("{path}.operator"),
                format!("\"{operator}\" is not an operator"),
                format!("set it to {known}"),
            ));
            true
        }
    };
    if !is_valid {
        let message = format!("operator {operator} of \"{key}\" does not accept {} values", values.len());
        violations.push(rule.at(
            format!("{path}.values"),
            message,
            "In and NotIn need values, Exists and DoesNotExist none, Gt and Lt one number",
        ));
    }
    if let Some(why) = syntax::qualified(key) {
        violations.push(rule.at(format!("{path}.key"), format!("\"{key}\" {why}"), "name the key of a label"));
    }
}
