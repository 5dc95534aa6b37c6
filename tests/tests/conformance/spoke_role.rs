//! `knative-operator spoke-role` with the project's small release.

use serde_json::Value;

use super::{command, outcome, serving, small};

/// The output for `arguments`: the role, or the error.
fn role(arguments: &[&str]) -> Result<Value, String> {
    let output = command().arg("spoke-role").args(arguments).arg("--releases").arg(small()).output().unwrap();
    outcome(&output).map(|text| serde_saphyr::from_str(&text).unwrap())
}

/// The object names in the rules for `resource`.
fn names<'r>(role: &'r Value, resource: &str) -> Vec<&'r str> {
    let rules = role["rules"].as_array().unwrap().iter();
    let of_resource = rules.filter(|rule| rule["resources"].as_array().unwrap().iter().any(|name| name == resource));
    of_resource
        .flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect()
}

#[test]
fn both_versions_of_an_upgrade_are_covered() {
    let directory = tempfile::tempdir().unwrap();
    let file = serving(directory.path(), "{version: 1.1.0, ingress: {kourier: {enabled: true}}}");
    let file = file.to_str().unwrap();
    let job = |version: &str| format!("storage-version-migration-serving-serving-{version}");
    let one = role(&["-f", file]).unwrap();
    assert_eq!(
        (one["kind"].as_str(), one["metadata"]["name"].as_str()),
        (Some("ClusterRole"), Some("knative-operator-spoke"))
    );
    assert_eq!(names(&one, "jobs"), [job("1.1.0")]);
    let both = role(&["-f", file, "--versions", "1.0,1.1"]).unwrap();
    assert_eq!(names(&both, "jobs"), [job("1.0.0"), job("1.1.0")]);
    assert!(names(&both, "configmaps").contains(&"knativeserving-serving-root-owner"), "{both:#}");
    assert_eq!(role(&["-f", file, "--versions", "1.1"]).unwrap(), one);
}

#[test]
fn both_kinds_are_covered_by_default() {
    let role = role(&[]).unwrap();
    let anchors = names(&role, "configmaps");
    for anchor in ["knativeserving-knative-serving-root-owner", "knativeeventing-knative-eventing-root-owner"] {
        assert!(anchors.contains(&anchor), "{anchors:?}");
    }
}

#[test]
fn resources_of_a_cluster_are_read_as_kubectl_prints_them() {
    // What the remedies for missing permissions do.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("knative.yaml");
    let printed = "{apiVersion: v1, kind: List, metadata: {resourceVersion: ''}, items: [\
        {apiVersion: operator.knative.dev/v1beta1, kind: KnativeServing, metadata: {name: east, namespace: n, uid: u}, \
         spec: {clusterProfileRef: {name: east, namespace: f}}, status: {version: 1.1.0}}, \
        {apiVersion: operator.knative.dev/v1beta1, kind: KnativeEventing, metadata: {name: east, namespace: n}, \
         spec: {clusterProfileRef: {name: east, namespace: f}}, status: {conditions: []}}]}";
    std::fs::write(&file, printed).unwrap();
    let role = role(&["-f", file.to_str().unwrap()]).unwrap();
    let anchors = names(&role, "configmaps");
    for anchor in ["knativeserving-east-root-owner", "knativeeventing-east-root-owner"] {
        assert!(anchors.contains(&anchor), "{anchors:?}");
    }
}

#[test]
fn missing_versions_and_files_are_errors() {
    let error = role(&["--versions", "9.9"]).unwrap_err();
    assert!(
        error.contains("KnativeServing knative-serving: the release bundle has none of the versions 9.9"),
        "{error}"
    );
    assert!(role(&["-f", "/nothing"]).unwrap_err().contains("cannot read /nothing"));
}
