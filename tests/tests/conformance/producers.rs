//! ClusterProfiles in the shape in which each producer publishes them, as the table in
//! docs/user/multicluster.md says: how the operator would connect, or why it can't. The shapes
//! follow the controllers and the documents of the producers.

use knative_operator_cluster_access::builtin::SecretContent;
use knative_operator_cluster_access::profile::{Access, CredentialSource, access};
use knative_operator_cluster_access::provider::Providers;
use knative_operator_cluster_access::{AccessError, ClusterProfile, Reason};
use knative_operator_tests::tools;
use serde_json::{Value, json};

/// Base64, of which nothing else is read here.
const AUTHORITY: &str = "QQ==";
const EXEC: &str = "client.authentication.k8s.io/exec";

/// The providers of all recipes.
fn providers() -> Providers {
    let plugin = |name: &str| json!({"name": name, "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/p", "provideClusterInfo": true}});
    let kubeconfig = json!({"name": "kubeconfig-secretreader", "builtin": "kubeconfig-secretreader",
        "secretName": "{name}-kubeconfig", "namespace": "{namespace}", "key": "value"});
    let own = json!({"name": "secretreader", "builtin": "secretreader"});
    let all = json!([plugin("open-cluster-management"), plugin("google"), plugin("eks"), kubeconfig, own]);
    serde_json::from_value(json!({"providers": all})).unwrap()
}

/// The access provider `name` with `server`, and with `config` for its plugin.
fn offered(name: &str, server: &str, config: Option<&Value>) -> Value {
    let mut cluster = json!({"server": server, "certificate-authority-data": AUTHORITY});
    if let Some(config) = config {
        cluster["extensions"] = json!([{"name": EXEC, "extension": config}]);
    }
    json!({"name": name, "cluster": cluster})
}

fn connect(version: &str, manager: &str, status: &Value) -> Result<Access, AccessError> {
    let object = json!({"apiVersion": format!("multicluster.x-k8s.io/{version}"), "kind": "ClusterProfile",
        "metadata": {"name": "east", "namespace": "fleet", "labels": {"x-k8s.io/cluster-manager": manager}},
        "spec": {"clusterManager": {"name": manager}, "displayName": "east"}, "status": status});
    let profile = ClusterProfile::read(&serde_json::from_value(object).unwrap());
    access(&profile.reference(), &profile, &providers(), false)
}

/// Where the credential is from: the configuration of the plugin, or the Secret.
fn source(access: &Access) -> String {
    match &access.source {
        CredentialSource::Plugin(plugin) => plugin.info["spec"]["cluster"]["config"].to_string(),
        CredentialSource::Secret(secret) => {
            let is_kubeconfig = matches!(secret.content, SecretContent::Kubeconfig { .. });
            let namespace = secret.namespace.as_deref().unwrap_or("-");
            format!("{namespace}/{} {} {is_kubeconfig}", secret.name, secret.key)
        }
    }
}

/// What is expected of a producer: provider, server and source; or a reason, and a part of its
/// message.
type Expected = Result<(&'static str, &'static str, &'static str), (Reason, &'static str)>;

/// The first cell of the producer's row, the name of the manager, the status, and what follows.
fn producers() -> Vec<(&'static str, &'static str, Value, Expected)> {
    let healthy = json!({"type": "ControlPlaneHealthy", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let joined = json!({"type": "Joined", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions = json!([healthy, joined]);
    let token = json!({"clusterName": "east"});
    let of_ocm = offered(
        "open-cluster-management",
        "https://cluster-proxy-addon-user.open-cluster-management-addon:9092/east",
        Some(&token),
    );
    let of_google = offered("google", "https://203.0.113.7", None);
    let by_hand = offered("secretreader", "https://h:6443", Some(&token));
    let no_server = json!({"name": "KubeFleet", "cluster": {"certificate-authority-data": AUTHORITY}});
    let eks = json!({"clusterId": "east", "region": "eu-central-1"});
    vec![
        (
            "by hand",
            "by-hand",
            json!({"conditions": [healthy], "accessProviders": [by_hand]}),
            Ok(("secretreader", "https://h:6443/", "-/east token false")),
        ),
        (
            "Open Cluster Management",
            "open-cluster-management",
            json!({"conditions": conditions, "version": {"kubernetes": "v1.36.1"}, "accessProviders": [of_ocm],
                "properties": [{"name": "region.open-cluster-management.io", "value": "eu", "lastObservedTime": "2026-01-01T00:00:00Z"}]}),
            Ok((
                "open-cluster-management",
                "https://cluster-proxy-addon-user.open-cluster-management-addon:9092/east",
                r#"{"clusterName":"east"}"#,
            )),
        ),
        (
            "KubeFleet",
            "KubeFleet",
            json!({"conditions": [healthy], "version": {"kubernetes": "v1.36.1"}, "accessProviders": [no_server]}),
            Err((Reason::ClusterProfileUnavailable, "offers the access providers KubeFleet")),
        ),
        (
            "GKE fleet",
            "gke-fleet",
            json!({"accessProviders": [of_google]}),
            Ok(("google", "https://203.0.113.7/", "null")),
        ),
        // The profiles of their guides, which their users write.
        (
            "Argo CD",
            "kind",
            json!({"accessProviders": [offered("secretreader", "https://spoke-control-plane:6443", Some(&token))]}),
            Ok(("secretreader", "https://spoke-control-plane:6443/", "-/east token false")),
        ),
        (
            "Kueue",
            "google",
            json!({"credentialProviders": [of_google]}),
            Ok(("google", "https://203.0.113.7/", "null")),
        ),
        (
            "Cluster API",
            "by-hand",
            json!({"accessProviders": [offered("kubeconfig-secretreader", "https://h:6443", None)]}),
            Ok(("kubeconfig-secretreader", "https://h:6443/", "fleet/east-kubeconfig value true")),
        ),
        // Of the plugin for EKS in cluster-inventory-api, which is no producer.
        (
            "",
            "EKS-Fleet",
            json!({"accessProviders": [offered("eks", "https://x.gr7.eu-central-1.eks.amazonaws.com", Some(&eks))]}),
            Ok((
                "eks",
                "https://x.gr7.eu-central-1.eks.amazonaws.com/",
                r#"{"clusterId":"east","region":"eu-central-1"}"#,
            )),
        ),
    ]
}

#[test]
fn shape_of_each_producer_is_used_as_the_page_says() {
    for (producer, manager, status, expected) in producers() {
        for version in ["v1alpha1", "v1alpha2"] {
            let found = connect(version, manager, &status);
            match (&found, &expected) {
                (Ok(access), Ok((provider, server, from))) => {
                    let found = (access.source.provider(), access.server.to_string(), source(access));
                    assert_eq!(found, (*provider, (*server).to_owned(), (*from).to_owned()), "{producer}");
                }
                (Err(error), Err((reason, part))) => {
                    assert!(error.reason == *reason && error.message.contains(part), "{producer}: {error}");
                }
                _ => panic!("{producer}: {found:?}"),
            }
        }
    }
}

#[test]
fn profile_of_kubefleet_lacks_a_server_also_with_its_provider() {
    let (_, manager, status, _) = producers().into_iter().find(|(name, ..)| *name == "KubeFleet").unwrap();
    let mut providers = providers();
    providers.providers[0].name = "KubeFleet".to_owned();
    let object = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": "east", "namespace": "fleet"}, "spec": {"clusterManager": {"name": manager}}, "status": status});
    let profile = ClusterProfile::read(&serde_json::from_value(object).unwrap());
    let error = access(&profile.reference(), &profile, &providers, false).unwrap_err();
    assert!(error.message.contains("access provider KubeFleet has no server"), "{error}");
}

#[test]
fn table_has_a_row_for_each_producer() {
    let page = std::fs::read_to_string(tools::project().join("docs/user/multicluster.md")).unwrap();
    let (_, table) = page.split_once("| producer | what it publishes |").unwrap();
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let shapes: Vec<&str> = producers().iter().map(|(name, ..)| *name).filter(|name| !name.is_empty()).collect();
    assert_eq!(rows.len(), shapes.len(), "{rows:#?}");
    for (row, name) in rows.iter().zip(shapes) {
        assert!(row.split('|').nth(1).is_some_and(|cell| cell.contains(name)), "{name}: {row}");
    }
}
