//! `spec.patches`: the table of merge keys, and the errors of `render` and `lint`.

use knative_operator_tests::{patch_schema, tools};
use serde_json::{Value, json};

use super::{operator, render, serving, small};

#[test]
fn table_of_merge_keys_is_up_to_date() {
    let document = patch_schema::document().unwrap();
    let text = std::fs::read_to_string(document).unwrap();
    let table = patch_schema::table(&serde_json::from_str(&text).unwrap()).unwrap();
    let file = tools::project().join("shared/patch/src/schema.json");
    let committed = std::fs::read_to_string(file).unwrap();
    assert!(committed == table, "shared/patch/src/schema.json is stale: run `make generate`");
}

/// A patch of the Deployment `name`.
fn deployment(name: &str, type_: &str, content: &str) -> Value {
    patch("apps/v1 Deployment", name, type_, content)
}

fn patch(kind: &str, name: &str, type_: &str, content: &str) -> Value {
    let (api_version, kind) = kind.split_once(' ').unwrap();
    json!({"target": {"apiVersion": api_version, "kind": kind, "name": name}, "patch": {"type": type_, "content": content}})
}

/// Output of `lint` for a KnativeServing with `spec`.
fn lint(spec: &Value) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = serving(directory.path(), &spec.to_string());
    let output = operator(&["lint", "-f", file.to_str().unwrap(), "--releases", small().to_str().unwrap()]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn invalid_patch_is_refused_with_index_target_and_reason() {
    let valid = deployment("controller", "merge", "metadata: {annotations: {a: b}}");
    let crd = "apiextensions.k8s.io/v1 CustomResourceDefinition";
    for (invalid, expected, rule) in [
        (
            deployment("controler", "merge", "{}"),
            "target: apps/v1 Deployment controler: matches no object of the installation; correct target.name: the nearest Deployment is \"controller\"",
            "patch-target-unknown",
        ),
        (
            patch("apps/v1beta1 Deployment", "controller", "merge", "{}"),
            "target: apps/v1beta1 Deployment controller: matches no object: the API version of the Deployment is apps/v1; set target.apiVersion to it",
            "patch-target-unknown",
        ),
        (
            patch("apps/v1 DaemonSet", "controller", "merge", "{}"),
            "target: apps/v1 DaemonSet controller: matches no object: the installation has no DaemonSet; correct target.kind, or remove the patch",
            "patch-target-unknown",
        ),
        (
            deployment("controller", "merge", "metadata: {name: other}"),
            "patch.content: apps/v1 Deployment controller: a patch can't change apiVersion, kind, metadata.name or metadata.namespace; remove the change",
            "patch-invalid",
        ),
        (
            deployment("controller", "json", "[{op: test, path: /spec/replicas, value: 77}]"),
            "patch.content: apps/v1 Deployment controller: cannot apply the JSON patch: operation '/0' failed at path '/spec/replicas': ",
            "patch-invalid",
        ),
        (
            deployment("controller", "strategic", "{"),
            "patch.content: apps/v1 Deployment controller: cannot parse the patch: ",
            "patch-invalid",
        ),
        (
            patch(
                "apiextensions.k8s.io/v1 CustomResourceDefinition",
                "images.caching.internal.knative.dev",
                "strategic",
                "{}",
            ),
            "patch.type: apiextensions.k8s.io/v1 CustomResourceDefinition images.caching.internal.knative.dev: strategic merge patches are not supported for this kind; use merge or json",
            "patch-invalid",
        ),
        (
            patch(crd, "images.caching.internal.knative.dev", "strategic", "$patch: delete"),
            "can't be deleted, because that would delete its custom resources; remove the patch",
            "patch-invalid",
        ),
        (
            deployment("webhook", "strategic", "$patch: delete"),
            "can't be deleted, because Knative Serving needs it during the installation; remove the patch",
            "patch-invalid",
        ),
    ] {
        let spec = json!({"patches": [valid, invalid]});
        let error = render(&spec.to_string()).unwrap_err();
        assert!(error.contains("spec.patches[1].") && error.contains(expected), "{error}");
        let lint = lint(&spec);
        let line = lint.lines().find(|line| line.contains(expected)).unwrap_or_else(|| panic!("{expected}: {lint}"));
        assert!(
            line.contains("resource.yaml: KnativeServing serving: spec.patches[1].")
                && line.ends_with(&format!("[{rule}]")),
            "{line}"
        );
        assert!(lint.ends_with("1 resource, 1 error\n"), "{lint}");
    }
}
