//! The examples in Knative's documents about remote clusters are admitted, and
//! docs/user/knative-docs.md describes this operator, and has each topic of theirs.

use knative_operator_rules::{RuleContext, Severity, parse, validate};
use knative_operator_shared::api::Component;
use knative_operator_tests::tools::project;
use serde_json::{Value, json};

/// The pages about the operator on Knative's website (knative/docs, `docs/versioned/install`), with
/// the headings of their topics.
const TOPICS: [(&str, &[&str]); 7] = [
    (
        "knative-with-operators",
        &[
            "Install the Knative Operator",
            "Verify your Knative Operator installation",
            "Track the log",
            "Create the Knative Serving custom resource",
            "Install the networking layer",
            "Verify the Knative Serving deployment",
            "Configure DNS",
            "Create the Knative Eventing custom resource",
            "Installing a specific version of Eventing",
            "Installing customized Knative Eventing",
            "Installing Knative Eventing with event sources",
            "Verify the Knative Eventing deployment",
            "Removing the Knative Serving component",
            "Removing Knative Eventing component",
            "Removing the Knative Operator",
            "Supported versions",
        ],
    ),
    ("knative-with-operator-cli", &["Install by using the Knative Operator CLI Plugin"]),
    ("configuring-with-operator", &["Configuring Knative by using the Operator"]),
    (
        "configuring-serving-cr",
        &[
            "Configure the Knative Serving version",
            "Install customized Knative Serving",
            "Private repository and private secrets",
            "Connect to AWS ECR using Pod Identity",
            "SSL certificate for controller",
            "Replace the default Istio ingress gateway service",
            "Replace the ingress gateway",
            "Configuration of cluster local gateway",
            "Servers configuration for Istio gateways",
            "Configure Gateway API gateways",
            "Customize kourier-bootstrap for Kourier gateways",
            "High availability",
            "Override system deployments",
            "Override system services",
            "Override system podDisruptionBudgets",
        ],
    ),
    (
        "configuring-eventing-cr",
        &[
            "Setting a default channel",
            "Setting the default channel for the broker",
            "Private repository and private secrets",
            "Configuring the default broker class",
            "Deploy Knative Eventing to a remote cluster",
            "High availability",
            "Override system deployments",
            "Override system services",
            "Override system podDisruptionBudgets",
        ],
    ),
    (
        "upgrade-installation-with-operator",
        &[
            "Performing the upgrade",
            "Verifying an upgrade by viewing pods",
            "Verifying an upgrade by viewing custom resources",
            "Rollback to an earlier version",
        ],
    ),
    (
        "multi-cluster-deployment",
        &[
            "Before you begin",
            "Spoke RBAC requirements",
            "Enable multi-cluster on the Knative Operator",
            "Register a remote cluster as a ClusterProfile",
            "Deploy Knative Serving to a remote cluster",
            "Deploy Knative Eventing to a remote cluster",
            "Configure remote namespace settings",
            "Understand remote resource garbage collection",
            "Tune the remote readiness poll interval",
            "Upgrade and downgrade",
            "Troubleshoot multi-cluster deployments",
            "Uninstall Knative from a remote cluster",
            "Limitations",
            "FAQ",
        ],
    ),
];

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
    let rows = page.split("## Reasons of TargetClusterResolved").nth(1).unwrap().split("\n## ").next().unwrap().lines();
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

/// The anchors of the headings in `text`, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn each_topic_leads_to_a_page_here() {
    let folder = project().join("docs/user");
    let page = std::fs::read_to_string(folder.join("knative-docs.md")).unwrap();
    let table = page.split("## All topics").nth(1).unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().filter(|line| line.starts_with("| `")).map(|line| line.split(" | ").collect()).collect();
    let listed: Vec<(&str, &str)> = rows.iter().map(|row| (row[0].trim_matches(['|', ' ', '`']), row[1])).collect();
    let topics: Vec<(&str, &str)> =
        TOPICS.iter().flat_map(|(page, topics)| topics.iter().map(move |topic| (*page, *topic))).collect();
    assert_eq!(listed, topics, "left: in the table, right: in Knative's documents");
    for row in &rows {
        let links: Vec<&str> = row[2].split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        assert!(!links.is_empty(), "{row:?} has no link");
        for link in links {
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let text = std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{link}: {error}"));
            assert!(
                anchor.is_none_or(|anchor| anchors(&text).iter().any(|own| own == anchor)),
                "{link}: no such heading"
            );
        }
    }
}
