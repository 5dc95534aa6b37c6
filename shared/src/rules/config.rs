//! `spec.config`.

use super::config_values::{kind_of, wrong};
use super::{Example, Problem, Rule, Severity, syntax};
use crate::api::{Component, Knative};

/// No examples.
pub static EXAMPLE: Rule = Rule {
    id: "config-example",
    severity: Severity::Error,
    says: "`_example` of a ConfigMap is not set: Knative's webhook refuses any other than the released one.",
    kept: Example::serving(r#"{"config": {"gc": {"min-non-active-revisions": "5"}}}"#),
    broken: Example::serving(r#"{"config": {"gc": {"_example": "min-non-active-revisions: 5"}}}"#),
};

/// Keys are keys.
pub static KEY: Rule = Rule {
    id: "config-key",
    severity: Severity::Error,
    says: "Keys in `spec.config` are names of ConfigMaps and keys that a ConfigMap may have.",
    kept: Example::serving(r#"{"config": {"features": {"kubernetes.podspec-affinity": "enabled"}}}"#),
    broken: Example::serving(r#"{"config": {"features": {"kubernetes/podspec": "enabled"}}}"#),
};

/// Values can be read.
pub static VALUE: Rule = Rule {
    id: "config-value",
    severity: Severity::Error,
    says: "Values of keys that Knative reads as durations, numbers, booleans or one of a few words can be read so.",
    kept: Example::serving(r#"{"config": {"autoscaler": {"stable-window": "90s"}}}"#),
    broken: Example::serving(r#"{"config": {"autoscaler": {"stable-window": "90"}}}"#),
};

/// One name for one ConfigMap.
pub static TWICE: Rule = Rule {
    id: "config-twice",
    severity: Severity::Warning,
    says: "A ConfigMap has its keys under one of its names, with or without `config-`.",
    kept: Example::serving(r#"{"config": {"network": {"rollout-duration": "10"}}}"#),
    broken: Example::serving(
        r#"{"config": {"network": {"rollout-duration": "10"}, "config-network": {"rollout-duration": "20"}}}"#,
    ),
};

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let config = &resource.common().config;
    for (map, entries) in config {
        let short = map.strip_prefix("config-").unwrap_or(map);
        if let Some(wrong) = syntax::subdomain(map) {
            found.push(KEY.at(
                format!("spec.config.{map}"),
                format!("\"{map}\" {wrong}"),
                "name a ConfigMap of the component, such as network",
            ));
        }
        for (key, value) in entries {
            let field = format!("spec.config.{map}.{key}");
            if key == "_example" {
                found.push(EXAMPLE.at(
                    field,
                    "is only an explanation, and Knative refuses another one",
                    "remove it, and set the keys themselves",
                ));
            } else if let Some(wrong) = syntax::config_key(key) {
                found.push(KEY.at(field, format!("\"{key}\" {wrong}"), "rename it"));
            } else if let Some((expected, example)) =
                kind_of(resource.component(), short, key).and_then(|kind| wrong(kind, value))
            {
                found.push(VALUE.at(field, format!("\"{value}\" is not {expected}"), format!("set it to {example}")));
            }
        }
        if short != map && config.contains_key(short) {
            let message = format!("is ignored, for spec.config.{map} is the same ConfigMap");
            found.push(TWICE.at(
                format!("spec.config.{short}"),
                message,
                format!("move its keys to spec.config.{map}"),
            ));
        }
    }
    if resource.component() == Component::Serving {
        super::config_values::domains(config, found);
    }
}
