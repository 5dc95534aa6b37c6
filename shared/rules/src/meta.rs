//! Syntax of labels, annotations and selectors.

use std::collections::BTreeMap;
use std::fmt::Arguments;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax;

/// Labels.
pub static LABEL: Rule = Rule {
    id: "label-syntax",
    severity: Severity::Error,
    requirement: "Labels, selectors and node selectors have valid label syntax.",
    valid: Example::serving(r#"{"workloads": [{"name": "activator", "labels": {"example.com/team": "a"}}]}"#),
    invalid: Example::serving(r#"{"workloads": [{"name": "activator", "labels": {"team": "not a label"}}]}"#),
};

/// Annotations.
pub static ANNOTATION: Rule = Rule {
    id: "annotation-syntax",
    severity: Severity::Error,
    requirement: "Keys of annotations are qualified names.",
    valid: Example::serving(
        r#"{"workloads": [{"name": "activator", "annotations": {"example.com/note": "any text"}}]}"#,
    ),
    invalid: Example::serving(r#"{"services": [{"name": "autoscaler", "annotations": {"/note": "x"}}]}"#),
};

type Map = BTreeMap<String, String>;

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let common = resource.common();
    for (path, workload) in common.overrides() {
        labels(format_args!("{path}.labels"), &workload.labels, violations);
        annotations(format_args!("{path}.annotations"), &workload.annotations, violations);
        labels(format_args!("{path}.nodeSelector"), &workload.node_selector, violations);
    }
    for (index, service) in common.services.iter().enumerate() {
        let path = format_args!("spec.services[{index}]");
        labels(format_args!("{path}.labels"), &service.labels, violations);
        annotations(format_args!("{path}.annotations"), &service.annotations, violations);
        labels(format_args!("{path}.selector"), &service.selector, violations);
    }
    if let Knative::Serving(serving) = resource
        && let Some(istio) = serving.spec.ingress.as_ref().and_then(|i| i.istio.as_ref())
    {
        for (field, gateway) in [
            ("knative-ingress-gateway", &istio.knative_ingress_gateway),
            ("knative-local-gateway", &istio.knative_local_gateway),
        ] {
            if let Some(gateway) = gateway {
                labels(format_args!("spec.ingress.istio.{field}.selector"), &gateway.selector, violations);
            }
        }
    }
    for (field, settings) in
        [("namespace", &common.namespace), ("namespaceConfiguration", &common.namespace_configuration)]
    {
        if let Some(settings) = settings {
            labels(format_args!("spec.{field}.labels"), &settings.labels, violations);
            annotations(format_args!("spec.{field}.annotations"), &settings.annotations, violations);
        }
    }
}

fn labels(path: Arguments<'_>, labels: &Map, violations: &mut Vec<Violation>) {
    for (key, value) in labels {
        if let Some(wrong) = syntax::qualified(key) {
            violations.push(LABEL.at(format!("{path}[{key}]"), format!("key \"{key}\" {wrong}"), "rename it"));
        }
        if let Some(wrong) = syntax::label_value(value) {
            violations.push(LABEL.at(
                format!("{path}[{key}]"),
                format!("value \"{value}\" {wrong}"),
                "change it, or use an annotation",
            ));
        }
    }
}

fn annotations(path: Arguments<'_>, annotations: &Map, violations: &mut Vec<Violation>) {
    for key in annotations.keys() {
        // The API server validates them in lower case.
        if let Some(wrong) = syntax::qualified(&key.to_ascii_lowercase()) {
            violations.push(ANNOTATION.at(format!("{path}[{key}]"), format!("key \"{key}\" {wrong}"), "rename it"));
        }
    }
}
