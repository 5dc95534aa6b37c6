//! `spec.config`.

use super::config_values::{mismatch, type_of};
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::syntax;
use std::collections::BTreeMap;

use knative_operator_shared::api::{Component, Knative};

/// `_example` is not set.
pub static EXAMPLE: Rule = Rule {
    id: "config-example",
    severity: Severity::Error,
    requirement: "`_example` of a ConfigMap is not set: Knative's webhook refuses any other than the released one.",
    valid: Example::serving(r#"{"config": {"gc": {"min-non-active-revisions": "5"}}}"#),
    invalid: Example::serving(r#"{"config": {"gc": {"_example": "min-non-active-revisions: 5"}}}"#),
};

/// Syntax of names and keys.
pub static KEY: Rule = Rule {
    id: "config-key",
    severity: Severity::Error,
    requirement: "Keys in `spec.config` are names of ConfigMaps and keys that a ConfigMap may have.",
    valid: Example::serving(r#"{"config": {"features": {"kubernetes.podspec-affinity": "enabled"}}}"#),
    invalid: Example::serving(r#"{"config": {"features": {"kubernetes/podspec": "enabled"}}}"#),
};

/// Values have the type that Knative expects.
pub static VALUE: Rule = Rule {
    id: "config-value",
    severity: Severity::Error,
    requirement: "Values of keys that Knative reads as durations, numbers, booleans or one of a few words can be read so.",
    valid: Example::serving(r#"{"config": {"autoscaler": {"stable-window": "90s"}}}"#),
    invalid: Example::serving(r#"{"config": {"autoscaler": {"stable-window": "90"}}}"#),
};

/// One name per ConfigMap.
pub static TWICE: Rule = Rule {
    id: "config-twice",
    severity: Severity::Warning,
    requirement: "A ConfigMap has its keys under one of its names, with or without `config-`.",
    valid: Example::serving(r#"{"config": {"network": {"rollout-duration": "10"}}}"#),
    invalid: Example::serving(
        r#"{"config": {"network": {"rollout-duration": "10"}, "config-network": {"rollout-duration": "20"}}}"#,
    ),
};

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let config = &resource.common().config;
    for (map, entries) in config {
        let short = map.strip_prefix("config-").unwrap_or(map);
        if let Some(wrong) = syntax::subdomain(map) {
            violations.push(KEY.at(
                format!("spec.config.{map}"),
                format!("\"{map}\" {wrong}"),
                "name a ConfigMap of the component, such as network",
            ));
            // Its name may be long, and a violation of each of its keys would have it.
            continue;
        }
        for (key, value) in entries {
            let field = || format!("spec.config.{map}.{key}");
            if key == "_example" {
                violations.push(EXAMPLE.at(
                    field(),
                    "is documentation only, and Knative refuses a changed one",
                    "remove it, and set the keys themselves",
                ));
            } else if let Some(wrong) = syntax::config_key(key) {
                violations.push(KEY.at(field(), format!("\"{key}\" {wrong}"), "rename it"));
            } else if let Some((expected, example)) =
                type_of(resource.component(), short, key).and_then(|type_| mismatch(type_, value))
            {
                violations.push(VALUE.at(
                    field(),
                    format!("\"{value}\" is not {expected}"),
                    format!("set it to {example}"),
                ));
            }
        }
        if short != map && config.contains_key(short) {
            let message = format!("is ignored, because spec.config.{map} is the same ConfigMap");
            violations.push(TWICE.at(
                format!("spec.config.{short}"),
                message,
                format!("move its keys to spec.config.{map}"),
            ));
        }
    }
    if resource.component() == Component::Serving {
        check_domains(config, violations);
    }
}

/// `config-domain`: its keys are domains.
fn check_domains(config: &BTreeMap<String, BTreeMap<String, String>>, violations: &mut Vec<Violation>) {
    for map in ["domain", "config-domain"] {
        for key in config.get(map).into_iter().flat_map(BTreeMap::keys).filter(|key| *key != "_example") {
            if let Some(mismatch) = syntax::subdomain(key) {
                violations.push(KEY.at(
                    format!("spec.config.{map}.{key}"),
                    format!("\"{key}\" {mismatch}"),
                    "name a domain",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn domains_are_those_of_serving() {
        for (component, expected) in [(Component::Serving, 1), (Component::Eventing, 0)] {
            let config = json!({"domain": {"example.com": "", "_example": "", "not a domain": ""}});
            let resource = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"config": config}});
            let mut violations = Vec::new();
            check(&crate::parse(component, &resource).unwrap(), &mut violations);
            let of_domains = violations.iter().filter(|violation| violation.fix == "name a domain");
            assert_eq!(of_domains.count(), expected, "{component}");
        }
    }
}
