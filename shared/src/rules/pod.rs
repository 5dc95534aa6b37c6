//! What overrides say about pods: environment, tolerations, affinity, spread. What the API server would refuse in a Deployment is refused here.

use serde_json::Value;

use super::{Example, Problem, Rule, Severity, syntax};
use crate::api::Knative;

/// Environment variables.
pub static ENV: Rule = Rule {
    id: "environment-variable",
    severity: Severity::Error,
    says: "Environment variables have names that every Kubernetes takes, and a `value` or a `valueFrom`.",
    kept: Example::serving(
        r#"{"workloads": [{"name": "activator", "env": [{"container": "activator", "envVars": [{"name": "A", "value": "1"}]}]}]}"#,
    ),
    broken: Example::serving(
        r#"{"workloads": [{"name": "activator", "env": [{"container": "activator", "envVars": [{"name": "A=1"}]}]}]}"#,
    ),
};

/// Tolerations.
pub static TOLERATION: Rule = Rule {
    id: "toleration",
    severity: Severity::Error,
    says: "Tolerations are well-formed.",
    kept: Example::serving(
        r#"{"workloads": [{"name": "activator", "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]}]}"#,
    ),
    broken: Example::serving(
        r#"{"workloads": [{"name": "activator", "tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}]}"#,
    ),
};

/// Affinity.
pub static AFFINITY: Rule = Rule {
    id: "affinity",
    severity: Severity::Error,
    says: "Affinity is well-formed: operators fit their values, weights are 1 to 100, and pod terms have a topology key.",
    kept: Example::serving(
        r#"{"workloads": [{"name": "activator", "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}}]}"#,
    ),
    broken: Example::serving(
        r#"{"workloads": [{"name": "activator", "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}}]}"#,
    ),
};

/// Spread.
pub static SPREAD: Rule = Rule {
    id: "topology-spread",
    severity: Severity::Error,
    says: "Topology spread constraints have a skew of 1 or more, a topology key, and what to do if they can't be met.",
    kept: Example::serving(
        r#"{"workloads": [{"name": "activator", "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}]}"#,
    ),
    broken: Example::serving(
        r#"{"workloads": [{"name": "activator", "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}]}"#,
    ),
};

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    for (path, workload) in resource.common().overrides() {
        for (container, env) in workload.env.iter().enumerate() {
            for (index, variable) in env.env_vars.iter().enumerate() {
                environment(&format!("{path}.env[{container}].envVars[{index}]"), variable, found);
            }
        }
        for (index, given) in workload.tolerations.iter().enumerate() {
            toleration(&format!("{path}.tolerations[{index}]"), given, found);
        }
        for (index, given) in workload.topology_spread_constraints.iter().enumerate() {
            spread(&format!("{path}.topologySpreadConstraints[{index}]"), given, found);
        }
        if let Some(affinity) = &workload.affinity {
            affinities(&format!("{path}.affinity"), affinity, found);
        }
    }
}

fn word<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = (usize, &'v Value)> {
    value[field].as_array().into_iter().flatten().enumerate()
}

fn environment(path: &str, variable: &Value, found: &mut Vec<Problem>) {
    let name = word(variable, "name");
    if let Some(wrong) = syntax::variable(name) {
        found.push(ENV.at(format!("{path}.name"), format!("\"{name}\" {wrong}"), "rename it"));
    }
    if !word(variable, "value").is_empty() && variable["valueFrom"].as_object().is_some_and(|from| !from.is_empty()) {
        found.push(ENV.at(path, format!("\"{name}\" has both value and valueFrom"), "keep one of them"));
    }
}

fn toleration(path: &str, given: &Value, found: &mut Vec<Problem>) {
    let mut wrong =
        |field: &str, message: String, fix: &str| found.push(TOLERATION.at(format!("{path}.{field}"), message, fix));
    let (key, operator, effect) = (word(given, "key"), word(given, "operator"), word(given, "effect"));
    if !matches!(operator, "" | "Equal" | "Exists" | "Lt" | "Gt") {
        wrong("operator", format!("\"{operator}\" is no operator of a toleration"), "set it to Equal or Exists");
    }
    if key.is_empty() && operator != "Exists" {
        wrong("operator", "an empty key matches everything".to_owned(), "set the operator to Exists, or name a key");
    }
    if operator == "Exists" && !word(given, "value").is_empty() {
        wrong(
            "value",
            format!("\"{}\" is set, and the operator Exists takes none", word(given, "value")),
            "remove it, or use the operator Equal",
        );
    }
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        wrong(
            "effect",
            format!("\"{effect}\" is no effect of a taint"),
            "set it to NoSchedule, PreferNoSchedule or NoExecute",
        );
    }
    if given["tolerationSeconds"].is_number() && effect != "NoExecute" {
        wrong(
            "effect",
            format!("\"{effect}\" has no tolerationSeconds"),
            "set it to NoExecute, or remove tolerationSeconds",
        );
    }
    if !key.is_empty()
        && let Some(why) = syntax::qualified(key)
    {
        wrong("key", format!("\"{key}\" {why}"), "name the key of a taint");
    }
    let value = word(given, "value");
    if let Some(why) = syntax::label_value(value) {
        wrong("value", format!("\"{value}\" {why}"), "give the value of a taint");
    }
}

fn spread(path: &str, given: &Value, found: &mut Vec<Problem>) {
    let mut wrong =
        |field: &str, message: String, fix: &str| found.push(SPREAD.at(format!("{path}.{field}"), message, fix));
    let (skew, key, otherwise) =
        (given["maxSkew"].as_i64().unwrap_or_default(), word(given, "topologyKey"), word(given, "whenUnsatisfiable"));
    if skew < 1 {
        wrong("maxSkew", format!("{skew} is less than 1"), "set it to 1 or more");
    }
    if let Some(why) = syntax::qualified(key) {
        wrong("topologyKey", format!("\"{key}\" {why}"), "name a label of nodes, such as topology.kubernetes.io/zone");
    }
    if !matches!(otherwise, "DoNotSchedule" | "ScheduleAnyway") {
        wrong("whenUnsatisfiable", format!("\"{otherwise}\" is neither"), "set it to DoNotSchedule or ScheduleAnyway");
    }
    if given["minDomains"].as_i64().is_some_and(|least| least < 1 || otherwise != "DoNotSchedule") {
        wrong(
            "minDomains",
            format!("{} needs to be 1 or more, and DoNotSchedule", given["minDomains"]),
            "set whenUnsatisfiable to DoNotSchedule, or remove it",
        );
    }
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let policy = word(given, field);
        if !matches!(policy, "" | "Honor" | "Ignore") {
            wrong(field, format!("\"{policy}\" is neither"), "set it to Honor or Ignore");
        }
    }
    selector(&SPREAD, &format!("{path}.labelSelector"), &given["labelSelector"], found);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn affinities(path: &str, affinity: &Value, found: &mut Vec<Problem>) {
    let node = &affinity["nodeAffinity"];
    let at = format!("{path}.nodeAffinity");
    if node[REQUIRED].is_object() {
        let terms = format!("{at}.{REQUIRED}.nodeSelectorTerms");
        if items(&node[REQUIRED], "nodeSelectorTerms").next().is_none() {
            found.push(AFFINITY.at(
                &terms,
                "is empty: no node has what is required",
                "add a term, or remove the requirement",
            ));
        }
        for (index, term) in items(&node[REQUIRED], "nodeSelectorTerms") {
            node_term(&format!("{terms}[{index}]"), term, found);
        }
    }
    for (index, preferred) in items(node, PREFERRED) {
        let at = format!("{at}.{PREFERRED}[{index}]");
        weight(&at, preferred, found);
        node_term(&format!("{at}.preference"), &preferred["preference"], found);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (pods, at) = (&affinity[kind], format!("{path}.{kind}"));
        for (index, term) in items(pods, REQUIRED) {
            pod_term(&format!("{at}.{REQUIRED}[{index}]"), term, found);
        }
        for (index, preferred) in items(pods, PREFERRED) {
            let at = format!("{at}.{PREFERRED}[{index}]");
            weight(&at, preferred, found);
            pod_term(&format!("{at}.podAffinityTerm"), &preferred["podAffinityTerm"], found);
        }
    }
}

fn weight(path: &str, preferred: &Value, found: &mut Vec<Problem>) {
    let weight = preferred["weight"].as_i64().unwrap_or_default();
    if !(1..=100).contains(&weight) {
        found.push(AFFINITY.at(
            format!("{path}.weight"),
            format!("{weight} is not between 1 and 100"),
            "set it to a number from 1 to 100",
        ));
    }
}

fn node_term(path: &str, term: &Value, found: &mut Vec<Problem>) {
    for field in ["matchExpressions", "matchFields"] {
        for (index, requirement) in items(term, field) {
            expression(&AFFINITY, &format!("{path}.{field}[{index}]"), requirement, true, found);
        }
    }
}

fn pod_term(path: &str, term: &Value, found: &mut Vec<Problem>) {
    let key = word(term, "topologyKey");
    if let Some(why) = syntax::qualified(key) {
        found.push(AFFINITY.at(
            format!("{path}.topologyKey"),
            format!("\"{key}\" {why}"),
            "name a label of nodes, such as kubernetes.io/hostname",
        ));
    }
    for field in ["labelSelector", "namespaceSelector"] {
        selector(&AFFINITY, &format!("{path}.{field}"), &term[field], found);
    }
}

/// A selector of labels (`metav1.LabelSelector`).
fn selector(rule: &'static Rule, path: &str, selector: &Value, found: &mut Vec<Problem>) {
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let at = format!("{path}.matchLabels[{key}]");
        if let Some(why) = syntax::qualified(key) {
            found.push(rule.at(&at, format!("key \"{key}\" {why}"), "name the key of a label"));
        }
        let value = value.as_str().unwrap_or_default();
        if let Some(why) = syntax::label_value(value) {
            found.push(rule.at(&at, format!("value \"{value}\" {why}"), "give the value of a label"));
        }
    }
    for (index, requirement) in items(selector, "matchExpressions") {
        expression(rule, &format!("{path}.matchExpressions[{index}]"), requirement, false, found);
    }
}

/// One requirement of labels; those of nodes know two operators more.
fn expression(rule: &'static Rule, path: &str, requirement: &Value, node: bool, found: &mut Vec<Problem>) {
    let (key, operator) = (word(requirement, "key"), word(requirement, "operator"));
    let values: Vec<&Value> = items(requirement, "values").map(|(_, v)| v).collect();
    let fine = match operator {
        "In" | "NotIn" => !values.is_empty(),
        "Exists" | "DoesNotExist" => values.is_empty(),
        "Gt" | "Lt" if node => values.len() == 1 && values[0].as_str().is_some_and(|v| v.parse::<i64>().is_ok()),
        _ => {
            let known =
                if node { "In, NotIn, Exists, DoesNotExist, Gt or Lt" } else { "In, NotIn, Exists or DoesNotExist" };
            found.push(rule.at(
                format!("{path}.operator"),
                format!("\"{operator}\" is no operator"),
                format!("set it to {known}"),
            ));
            true
        }
    };
    if !fine {
        let message = format!("operator {operator} of \"{key}\" doesn't go with {} values", values.len());
        found.push(rule.at(
            format!("{path}.values"),
            message,
            "In and NotIn need values, Exists and DoesNotExist none, Gt and Lt one number",
        ));
    }
    if let Some(why) = syntax::qualified(key) {
        found.push(rule.at(format!("{path}.key"), format!("\"{key}\" {why}"), "name the key of a label"));
    }
}
