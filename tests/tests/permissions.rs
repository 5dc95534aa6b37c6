//! The permissions that the chart grants on the hub: those that releases need are granted. Compared
//! with the audit logs of the end-to-end tests, each one is used, or listed here with the reason.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // these are tests

use std::collections::BTreeSet;
use std::process::Command;

use knative_operator_tests::{releases, texts, tools};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// The ServiceAccount of the operator.
const OPERATOR: &str = "knative-operator";
/// Values that grant everything.
const EVERYTHING: [&str; 6] = [
    "--set",
    "knative_operator.multicluster.enabled=true,knative_operator.fleet.enabled=true,metrics.secure=true",
    "--set-json",
    r#"knative_operator.multicluster.accessProvidersConfig={"providers":[{"name":"secretreader","builtin":"secretreader"}]}"#,
    "--set",
    "knative_operator.operator_webhook.certificates.source=self",
];

/// Permissions of the operator that the tests don't use: resources, verbs (empty for all), reason.
const UNUSED: [(&[&str], &[&str], &str); 10] = [
    (
        &[
            "bundles.trust.cert-manager.io",
            "certificates.cert-manager.io",
            "clusterissuers.cert-manager.io",
            "issuers.cert-manager.io",
        ],
        &[],
        "the hubs of the tests have neither cert-manager nor trust-manager",
    ),
    (&["tlscertificatedelegations.projectcontour.io"], &[], "the hubs of the tests have no Contour"),
    (
        &[
            "*.autoscaling.internal.knative.dev",
            "*.bindings.knative.dev",
            "*.caching.internal.knative.dev",
            "*.eventing.knative.dev",
            "*.flows.knative.dev",
            "*.internal.kafka.eventing.knative.dev",
            "*.messaging.knative.dev",
            "*.networking.internal.knative.dev",
            "*.serving.knative.dev",
            "*.sinks.knative.dev",
            "*.sources.knative.dev",
        ],
        &["list"],
        "for the kinds of all releases; requests name one",
    ),
    (&["daemonsets.apps"], &[], "for DaemonSets in additionalManifests"),
    (
        &["gateways.networking.istio.io", "peerauthentications.security.istio.io", "jobs.batch"],
        &["get"],
        "for objects that the Go operator installed",
    ),
    (
        &["clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io"],
        &["bind", "escalate"],
        "the API server checks them in writes of roles and bindings",
    ),
    (
        &[
            "knativeservings/finalizers.operator.knative.dev",
            "knativeeventings/finalizers.operator.knative.dev",
            "knativefleets/finalizers.operator.knative.dev",
        ],
        &["update"],
        "for clusters with the admission plugin OwnerReferencesPermissionEnforcement",
    ),
    (&["knativeeventings.operator.knative.dev"], &["delete"], "the fleets of the tests delete KnativeServings only"),
    (&["controllerrevisions.apps"], &["delete"], "for revisions beyond the limit of the history"),
    (&["secrets"], &["get"], "for the built-in access provider"),
];

/// Account, resource with its group, and verb.
type Permission = (String, String, String);

fn resource(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// The permissions that the chart grants to the two ServiceAccounts: all, or those for all objects
/// of the cluster.
fn granted(everywhere: bool) -> BTreeSet<Permission> {
    let output = Command::new(tools::control_plane("helm").unwrap())
        .args(["template", "release", "--namespace", "knative-operator"])
        .args(tools::OFFLINE)
        .arg(tools::project().join("charts/knative-operator"))
        .args(EVERYTHING)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let objects: Vec<Value> = serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout).unwrap()).unwrap();
    let mut granted = BTreeSet::new();
    let is_binding = |object: &&Value| {
        object["kind"].as_str().is_some_and(|kind| kind == "ClusterRoleBinding" || kind == "RoleBinding" && !everywhere)
    };
    for binding in objects.iter().filter(is_binding) {
        let is_bound = |role: &&Value| {
            role["kind"] == binding["roleRef"]["kind"] && role["metadata"]["name"] == binding["roleRef"]["name"]
        };
        let role = objects.iter().find(is_bound).unwrap();
        let account = binding["subjects"][0]["name"].as_str().unwrap();
        granted.extend(permissions(role, everywhere).into_iter().map(|(name, verb)| (account.to_owned(), name, verb)));
    }
    granted
}

/// Resource with its group, and verb, of the rules of `role`, or of those for all names.
fn permissions(role: &Value, all_names: bool) -> Vec<(String, String)> {
    let mut permissions = Vec::new();
    let has_names = |rule: &&Value| rule["resourceNames"].as_array().is_some_and(|names| !names.is_empty());
    for rule in role["rules"].as_array().unwrap().iter().filter(|rule| !(all_names && has_names(rule))) {
        let all = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
        for group in all("apiGroups") {
            for name in all("resources") {
                let name = resource(group.as_str().unwrap(), name.as_str().unwrap());
                let of_verb = |verb: &Value| (name.clone(), verb.as_str().unwrap().to_owned());
                permissions.extend(all("verbs").iter().map(of_verb));
            }
        }
    }
    permissions
}

/// The permissions that the two ServiceAccounts used; `None` if there are no audit logs.
fn used() -> Option<BTreeSet<Permission>> {
    let mut used = BTreeSet::new();
    let found = texts::lines(|line, audit| {
        let Some(request) = audit.then(|| serde_json::from_str::<Value>(line).ok()).flatten() else { return };
        let user = request["user"]["username"].as_str().unwrap_or_default();
        let Some(account) = user.strip_prefix("system:serviceaccount:knative-operator:") else { return };
        let of = |field: &str| request["objectRef"][field].as_str().unwrap_or_default();
        let name = match of("subresource") {
            "" => of("resource").to_owned(),
            subresource => format!("{}/{subresource}", of("resource")),
        };
        let verb = request["verb"].as_str().unwrap_or_default().to_owned();
        used.insert((account.to_owned(), resource(of("apiGroup"), &name), verb));
    });
    found.then_some(used)
}

#[test]
fn each_granted_permission_is_used_or_explained() {
    let Some(used) = used() else { return };
    let granted = granted(false);
    let is_used = |account: &str, resource: &str, verb: &str| {
        used.contains(&(account.to_owned(), resource.to_owned(), verb.to_owned()))
    };
    let is_explained = |(account, resource, verb): &Permission| match verb.as_str() {
        // Server-side apply creates objects.
        "create" if is_used(account, resource, "patch") => true,
        // A watch begins with the list, except for API servers before 1.34.
        "list" if is_used(account, resource, "watch") => true,
        verb => UNUSED.iter().any(|(resources, verbs, _)| {
            resources.contains(&resource.as_str()) && (verbs.is_empty() || verbs.contains(&verb))
        }),
    };
    let unused = granted.iter().filter(|(account, resource, verb)| !is_used(account, resource, verb));
    let unexplained: Vec<_> = unused.filter(|permission| !is_explained(permission)).collect();
    eprintln!("{} permissions are granted", granted.len());
    assert!(unexplained.is_empty(), "granted and never used: {unexplained:#?}");
    for (resources, verbs, reason) in UNUSED {
        let is_granted = |resource: &&str| granted.iter().any(|(_, of, _)| of == resource);
        assert!(resources.iter().all(is_granted), "not granted: {resources:?} {verbs:?} {reason}");
    }
}

/// Resources that ask for each ingress, source and plugin of a version.
const ALL: &str = "\
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: knative-serving, namespace: knative-serving}
spec:
  version: VERSION
  ingress: {contour: {enabled: true}, istio: {enabled: true}, kourier: {enabled: true}, gateway-api: {enabled: true}}
  config: {network: {ingress-class: kourier.ingress.networking.knative.dev}}
  security: {securityGuard: {enabled: true}}
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeEventing
metadata: {name: knative-eventing, namespace: knative-eventing}
spec:
  version: VERSION
  source:
    {ceph: {enabled: true}, github: {enabled: true}, gitlab: {enabled: true}, kafka: {enabled: true},
    rabbitmq: {enabled: true}, redis: {enabled: true}}
";

#[test]
fn objects_of_all_releases_may_be_applied_on_the_hub() {
    let granted = granted(true);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("knative.yaml");
    let (mut missing, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for minor in ["1.20", "1.21", "1.22", "1.23"] {
        std::fs::write(&file, ALL.replace("VERSION", &format!("'{minor}'"))).unwrap();
        let output = Command::new(tools::binary("knative-operator").unwrap())
            .args(["render", "--releases"])
            .arg(releases::best().dir)
            .arg("-f")
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rendered = std::str::from_utf8(&output.stdout).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(rendered).unwrap() {
            let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let plural = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)).plural;
            let name = resource(group, &plural);
            for verb in ["get", "list", "watch", "create", "patch", "delete"] {
                // They stay.
                let is_deleted = !["customresourcedefinitions", "namespaces"].contains(&plural.as_str());
                if (is_deleted || verb != "delete")
                    && !granted.contains(&(OPERATOR.to_owned(), name.clone(), verb.to_owned()))
                {
                    missing.insert((name.clone(), verb));
                }
            }
            kinds.insert(name);
        }
    }
    assert!(kinds.contains("tlscertificatedelegations.projectcontour.io"), "{kinds:?}");
    assert!(missing.is_empty(), "not granted: {missing:#?}");
}
