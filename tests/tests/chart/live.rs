//! Upgrades that the chart refuses because of what `lookup` finds on the cluster.

use std::collections::HashMap;

use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::pki::Authority;
use serde_json::{Value, json};

use super::{helm, output};

/// Kinds that the chart looks up: paths of their groups, and plurals.
const KINDS: [(&str, &str, &str); 7] = [
    ("/api/v1", "secrets", "Secret"),
    ("/api/v1", "namespaces", "Namespace"),
    ("/apis/apps/v1", "deployments", "Deployment"),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding"),
    ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"),
    ("/apis/operator.knative.dev/v1alpha1", "knativefleets", "KnativeFleet"),
    ("/apis/operator.knative.dev/v1beta1", "knativeservings", "KnativeServing"),
];
const CLUSTER_WIDE: [&str; 3] = ["CustomResourceDefinition", "ClusterRoleBinding", "Namespace"];
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/knativefleets.operator.knative.dev";
const FLEETS: &str = "/apis/operator.knative.dev/v1alpha1/knativefleets";
const SECRET: &str = "/api/v1/namespaces/knative-operator/secrets/operator-webhook-certs";

/// An upgrade with fleets.
const FLEETS_ENABLED: [&str; 5] = [
    "--is-upgrade",
    "--set",
    "knative_operator.fleet.enabled=true,knative_operator.multicluster.enabled=true",
    "--set-json",
    r#"knative_operator.multicluster.accessProvidersConfig={"providers":[{"name":"p","builtin":"secretreader"}]}"#,
];

/// The response of an API server with `objects`, which have their paths as keys.
fn answer(objects: &HashMap<&str, Value>, path: &str) -> Answer {
    let path = path.split('?').next().unwrap_or_default();
    let kinds: Vec<_> = KINDS.iter().filter(|(group, ..)| *group == path).collect();
    let resources = kinds.iter().map(|(_, plural, kind)| {
        json!({"name": plural, "singularName": "", "kind": kind, "namespaced": !CLUSTER_WIDE.contains(kind), "verbs": ["get", "list"]})
    });
    let resources: Vec<_> = resources.collect();
    let group = kinds.first().map(|(group, ..)| {
        let version = group.trim_start_matches("/apis/").trim_start_matches("/api/");
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
    });
    // Without its definition, there is no such kind.
    let group = group.filter(|_| !FLEETS.starts_with(path) || objects.contains_key(DEFINITION));
    let found = group.as_ref().or_else(|| objects.get(path));
    found.map_or_else(Answer::not_found, |found| Answer::json("200 OK", found))
}

/// Renders the chart with `arguments` for a cluster that has `objects`.
fn on_cluster(objects: HashMap<&'static str, Value>, arguments: &[&str]) -> Result<String, String> {
    let (authority, folder) = (Authority::new("hub").unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(&authority, move |request, _| answer(&objects, &request.path)).unwrap();
    let file = folder.path().join("kubeconfig");
    let access = kubeconfig("hub", &server.url(""), &authority.pem(), "default", &User::Token("token"));
    std::fs::write(&file, access).unwrap();
    // Helm remembers what clusters have, in the home folder.
    output(helm(arguments).arg("--dry-run=server").env("KUBECONFIG", &file).env("HOME", folder.path()))
}

/// A hub with this number of fleets.
fn fleets(number: usize) -> HashMap<&'static str, Value> {
    let fleet = |number: usize| json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": format!("f{number}"), "namespace": "n"}});
    let all: Vec<_> = (0..number).map(fleet).collect();
    HashMap::from([
        (
            DEFINITION,
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "knativefleets.operator.knative.dev"}}),
        ),
        (
            FLEETS,
            json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetList", "metadata": {}, "items": all}),
        ),
    ])
}

#[test]
fn upgrade_keeps_the_controller_while_there_are_fleets() {
    let refused = on_cluster(fleets(2), &["--is-upgrade"]).unwrap_err();
    for part in ["KnativeFleets: 2", "knative_operator.fleet.enabled=true", "kubectl get knativefleets"] {
        assert!(refused.contains(part), "{part} is missing in: {refused}");
    }
    on_cluster(fleets(2), &FLEETS_ENABLED).unwrap();
    on_cluster(fleets(0), &["--is-upgrade"]).unwrap();
    // An install is never refused, nor an upgrade on a cluster that doesn't know fleets.
    on_cluster(fleets(2), &[]).unwrap();
    on_cluster(HashMap::new(), &["--is-upgrade"]).unwrap();
}

#[test]
fn upgrade_names_the_fleets_that_roll_out_newer_versions() {
    let serving = |name: &str, version: &str, owners: &[&Value]| {
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": name, "namespace": "n", "ownerReferences": owners}, "spec": {}, "status": {"version": version}})
    };
    let owner = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "name": "f", "uid": "1"});
    let change = |version: &str| json!({"clusterSelector": {}, "serving": {"spec": {"version": version}}});
    let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": "f", "namespace": "n", "uid": "1"},
        "spec": {"serving": {"spec": {"version": "1.21"}}, "overrides": [change("1.22.0"), change("latest")]}});
    let items =
        [serving("f-a", "1.21.1", &[&owner]), serving("f-b", "1.22.0", &[&owner]), serving("own", "1.22.0", &[])];
    let mut cluster = fleets(0);
    cluster.insert(FLEETS, json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetList", "metadata": {}, "items": [fleet]}));
    cluster.insert(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/knativeservings.operator.knative.dev",
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "knativeservings.operator.knative.dev"}}),
    );
    cluster.insert(
        "/apis/operator.knative.dev/v1beta1/knativeservings",
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServingList", "metadata": {}, "items": items}),
    );
    let object = r#"extraObjects=[{"kind":"Lines","lines":"{{ include \"knative-operator.versions\" . | toJson }}"}]"#;
    let lines = |extra: &[&str]| {
        let arguments = [&FLEETS_ENABLED[..], &["--set-json", object], extra].concat();
        let objects = super::parsed(&on_cluster(cluster.clone(), &arguments).unwrap());
        let found = objects.into_iter().find(|o| o["kind"] == "Lines").unwrap();
        let text: String = serde_json::from_str(found["lines"].as_str().unwrap()).unwrap();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = [
        "upgrades KnativeServing n/own: 1.22.0 to 1.23.0",
        "rollouts KnativeFleet n/f: spec.serving 1.21.1 to 1.21.3, in stages",
        "rollouts KnativeFleet n/f: spec.serving 1.22.0 to 1.23.0, in stages",
    ];
    assert_eq!(lines(&[]), expected);
    assert_eq!(lines(&["--set", "knative_operator.releases.keepInstalled=true"]), Vec::<String>::new());
}

#[test]
fn second_release_is_refused_but_not_the_same_again() {
    let bindings = |name: &str, namespace: &str| {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "knative-operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "knative-operator", "namespace": namespace}]});
        let other = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "a"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
        HashMap::from([
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBindingList", "metadata": {}, "items": [other, binding]}),
            ),
            (
                "/api/v1/namespaces/first",
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "first"}}),
            ),
        ])
    };
    // Of the last release, and of this one.
    for name in ["knative-operator", "knative-operator-first"] {
        let refused = on_cluster(bindings(name, "first"), &[]).unwrap_err();
        for part in ["is installed in namespace \"first\"", &format!("kubectl delete clusterrolebinding {name}\n")] {
            assert!(format!("{refused}\n").contains(part), "{part} is missing in: {refused}");
        }
        on_cluster(bindings(name, "first"), &["--is-upgrade"]).unwrap();
        // Its namespace is gone.
        on_cluster(bindings(name, "gone"), &[]).unwrap();
    }
    on_cluster(bindings("knative-operator-knative-operator", "knative-operator"), &[]).unwrap();
}

#[test]
fn own_secret_of_the_webhook_is_not_the_users() {
    let cluster = |release: &str| {
        let metadata = json!({"name": "operator-webhook-certs", "namespace": "knative-operator", "annotations": {"meta.helm.sh/release-name": release}});
        HashMap::from([(SECRET, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}))])
    };
    let values = |name: &str| {
        let certificates = "knative_operator.operator_webhook.certificates";
        format!("{certificates}.source=secret,{certificates}.secretName={name}")
    };
    let (own, other) = (values("operator-webhook-certs"), values("other"));
    let refused = on_cluster(cluster("release"), &["--is-upgrade", "--set", &own]).unwrap_err();
    assert!(refused.contains("give your Secret another name"), "{refused}");
    on_cluster(cluster("release"), &["--is-upgrade", "--set", &other]).unwrap();
    // A Secret that this release doesn't have stays.
    on_cluster(cluster("another"), &["--is-upgrade", "--set", &own]).unwrap();
    on_cluster(HashMap::new(), &["--is-upgrade", "--set", &own]).unwrap();
}
