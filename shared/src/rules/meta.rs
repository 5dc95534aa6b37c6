//! Labels and annotations, and the labels that select.

use std::collections::BTreeMap;

use super::{Example, Problem, Rule, Severity, syntax};
use crate::api::Knative;

/// Labels.
pub static LABEL: Rule = Rule {
    id: "label-syntax",
    severity: Severity::Error,
    says: "Labels, selectors and node selectors have the syntax of labels.",
    kept: Example::serving(r#"{"workloads": [{"name": "activator", "labels": {"example.com/team": "a"}}]}"#),
    broken: Example::serving(r#"{"workloads": [{"name": "activator", "labels": {"team": "not a label"}}]}"#),
};

/// Annotations.
pub static ANNOTATION: Rule = Rule {
    id: "annotation-syntax",
    severity: Severity::Error,
    says: "Keys of annotations have the syntax of qualified names.",
    kept: Example::serving(
        r#"{"workloads": [{"name": "activator", "annotations": {"example.com/note": "any text"}}]}"#,
    ),
    broken: Example::serving(r#"{"services": [{"name": "autoscaler", "annotations": {"/note": "x"}}]}"#),
};

type Map = BTreeMap<String, String>;

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let common = resource.common();
    for (path, workload) in common.overrides() {
        labels(&format!("{path}.labels"), &workload.labels, found);
        annotations(&format!("{path}.annotations"), &workload.annotations, found);
        labels(&format!("{path}.nodeSelector"), &workload.node_selector, found);
    }
    for (index, service) in common.services.iter().enumerate() {
        let path = format!("spec.services[{index}]");
        labels(&format!("{path}.labels"), &service.labels, found);
        annotations(&format!("{path}.annotations"), &service.annotations, found);
        labels(&format!("{path}.selector"), &service.selector, found);
    }
    if let Knative::Serving(serving) = resource
        && let Some(istio) = serving.spec.ingress.as_ref().and_then(|i| i.istio.as_ref())
    {
        for (field, gateway) in [
            ("knative-ingress-gateway", &istio.knative_ingress_gateway),
            ("knative-local-gateway", &istio.knative_local_gateway),
        ] {
            if let Some(gateway) = gateway {
                labels(&format!("spec.ingress.istio.{field}.selector"), &gateway.selector, found);
            }
        }
    }
    for (field, settings) in
        [("namespace", &common.namespace), ("namespaceConfiguration", &common.namespace_configuration)]
    {
        if let Some(settings) = settings {
            labels(&format!("spec.{field}.labels"), &settings.labels, found);
            annotations(&format!("spec.{field}.annotations"), &settings.annotations, found);
        }
    }
}

fn labels(path: &str, labels: &Map, found: &mut Vec<Problem>) {
    for (key, value) in labels {
        if let Some(wrong) = syntax::qualified(key) {
            found.push(LABEL.at(format!("{path}[{key}]"), format!("key \"{key}\" {wrong}"), "rename it"));
        }
        if let Some(wrong) = syntax::label_value(value) {
            found.push(LABEL.at(
                format!("{path}[{key}]"),
                format!("value \"{value}\" {wrong}"),
                "change it, or use an annotation",
            ));
        }
    }
}

fn annotations(path: &str, annotations: &Map, found: &mut Vec<Problem>) {
    for key in annotations.keys() {
        // The API server looks at them in lower case.
        if let Some(wrong) = syntax::qualified(&key.to_ascii_lowercase()) {
            found.push(ANNOTATION.at(format!("{path}[{key}]"), format!("key \"{key}\" {wrong}"), "rename it"));
        }
    }
}
