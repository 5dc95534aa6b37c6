//! The examples in Knative's documents about remote clusters are admitted, and
//! docs/user/knative-docs.md describes this operator.

use knative_operator_rules::{RuleContext, Severity, parse, validate};
use knative_operator_shared::api::Component;
use knative_operator_tests::tools::project;
use serde_json::{Value, json};

/// A resource as in the documents.
fn example(component: Component, more: &Value) -> Value {
    let mut spec = json!({"clusterProfileRef": {"name": "spoke-cluster-1", "namespace": "fleet-system"}});
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    let meta = json!({"name": component.canonical(), "namespace": component.canonical()});
    json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": meta, "spec": spec})
}

#[test]
fn examples_are_admitted() {
    let kourier = json!({"ingress": {"kourier": {"enabled": true}}});
    let mut apac = kourier.clone();
    apac["version"] = json!("1.21");
    apac["config"] = json!({"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}});
    let namespace = json!({"namespaceConfiguration": {
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        "annotations": {"example.com/owner": "platform-team"}}});
    let cases: [(Component, Value, &[&str]); 5] = [
        (Component::Serving, json!({}), &[]),
        (Component::Eventing, json!({}), &[]),
        (Component::Serving, namespace, &[]),
        (Component::Serving, apac, &[]),
        // Admitted, but no Service uses Kourier.
        (Component::Serving, kourier, &["ingress-class-missing"]),
    ];
    for (component, spec, warnings) in cases {
        let resource = parse(component, &example(component, &spec)).unwrap();
        let found = validate(&resource, &RuleContext::default());
        assert!(found.iter().all(|violation| violation.severity == Severity::Warning), "{spec}: {found:?}");
        assert_eq!(found.iter().map(|violation| violation.rule.id).collect::<Vec<_>>(), warnings, "{spec}");
    }
}

#[test]
fn page_has_the_reasons_and_paths_of_this_operator() {
    let read = |file: &str| std::fs::read_to_string(project().join(file)).unwrap();
    let (page, reasons) = (read("docs/user/knative-docs.md"), read("shared/src/reason.rs"));
    let rows = page.split("## Reasons of TargetClusterResolved").nth(1).unwrap().lines();
    let mut named = Vec::new();
    for row in rows.filter(|line| line.starts_with("| `")) {
        let cell = row.split(" | ").next().unwrap();
        named.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    assert!(named.len() >= 8, "{named:?}");
    for reason in &named {
        assert!(reasons.contains(&format!("\"{reason}\"")), "{reason}");
    }
    // The path is that of the guide, whose commands are run.
    let command = "/credential-plugin/bin/secretreader-plugin";
    assert!(page.contains(command) && read("docs/user/multicluster.md").contains(&format!("command: {command}")));
}
