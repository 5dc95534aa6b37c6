//! Tests of patches of all types. The expected results of strategic merge patches are those of
//! Kubernetes (`strategicpatch` in k8s.io/apimachinery 0.36.3).

use serde_json::{Value, json};

use super::*;
use knative_operator_shared::api::{Patch, PatchType};

/// A patch of `object`.
pub fn patch(object: &Value, type_: PatchType, content: &str) -> ResourcePatch {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let target = PatchTarget {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        name: text("/metadata/name"),
        namespace: None,
    };
    ResourcePatch { target, patch: Patch { type_, content: content.to_owned() } }
}

pub fn apply(object: &Value, type_: PatchType, content: &str) -> Result<Patched, PatchError> {
    Document::parse(&patch(object, type_, content), Component::Serving)?.apply(object.clone(), &mut 0)
}

#[test]
fn what_patches_copy_is_counted() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"a": "x".repeat(1000)}});
    let operations = r#"[{"op": "copy", "from": "/data/a", "path": "/data/b"}, {"op": "remove", "path": "/data/b"}]"#;
    let mut copied = 0;
    for times in 1..=3 {
        let document = Document::parse(&patch(&object, PatchType::Json, operations), Component::Serving).unwrap();
        document.apply(object.clone(), &mut copied).unwrap();
        assert!(copied >= times * 1000 && copied < times * 1100, "{copied}");
    }
}

/// The object after a patch that changes or replaces it, or the reason of the error.
pub fn patched(object: &Value, type_: PatchType, content: &str) -> Result<Value, String> {
    match apply(object, type_, content) {
        Ok(Patched::Changed(object) | Patched::Replaced(object)) => Ok(object),
        Ok(Patched::Deleted) => Ok(Value::Null),
        Err(error) => Err(error.reason),
    }
}

/// A Deployment with this Pod spec.
pub fn deployment(pod: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n", "finalizers": ["f", "g"]}, "spec": {"template": {"spec": pod}}})
}

#[test]
fn strategic_merge_patch_merges_pod_spec() {
    let pod = json!({
        "hostNetwork": true,
        "containers": [{"name": "a", "image": "i", "args": ["1"], "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "j"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k"}],
    });
    for (patch, pointer, expected) in [
        // Lists with a merge key merge by it; new elements come first, as in Kubernetes.
        (
            "{containers: [{name: b, image: k}]}",
            "/containers",
            json!([pod["containers"][0], {"name": "b", "image": "k"}]),
        ),
        ("{containers: [{name: c}]}", "/containers/0", json!({"name": "c"})),
        (
            "{containers: [{name: a, env: [{name: Z, value: '2'}]}]}",
            "/containers/0/env",
            json!([{"name": "Z", "value": "2"}, {"name": "X", "value": "1"}]),
        ),
        // Other lists are replaced, maps merge, and null removes.
        ("{containers: [{name: a, args: ['2']}]}", "/containers/0/args", json!(["2"])),
        ("{tolerations: [{operator: Exists}]}", "/tolerations", json!([{"operator": "Exists"}])),
        ("{hostNetwork: null, priority: 1}", "/hostNetwork", Value::Null),
        // Directives.
        ("{containers: [{name: a, $patch: delete}]}", "/containers", json!([{"name": "b", "image": "j"}])),
        ("{containers: [{name: c}, {$patch: replace}]}", "/containers", json!([{"name": "c"}])),
        ("{$patch: replace, priority: 1}", "", json!({"priority": 1})),
        ("{$patch: delete}", "", json!({})),
        (
            "{volumes: [{name: v, $retainKeys: [name, hostPath], hostPath: {path: /p}}]}",
            "/volumes",
            json!([{"name": "v", "hostPath": {"path": "/p"}}]),
        ),
        (
            "{$setElementOrder/containers: [{name: b}, {name: a}], containers: [{name: b, tty: true}]}",
            "/containers",
            json!([{"name": "b", "image": "j", "tty": true}, pod["containers"][0]]),
        ),
    ] {
        let content = format!("spec: {{template: {{spec: {patch}}}}}");
        let result = patched(&deployment(&pod), PatchType::Strategic, &content).unwrap();
        let own = &result["spec"]["template"]["spec"];
        assert_eq!(own.pointer(pointer).unwrap_or(&Value::Null), &expected, "{patch}");
    }
}

#[test]
fn strategic_merge_patch_changes_list_of_scalars() {
    let object = deployment(&json!({}));
    for (content, expected) in [
        ("metadata: {finalizers: [h]}", json!(["h", "f", "g"])),
        ("metadata: {$deleteFromPrimitiveList/finalizers: [f]}", json!(["g"])),
        ("metadata: {finalizers: [h], $setElementOrder/finalizers: [g, h, f]}", json!(["g", "h", "f"])),
        ("metadata: {finalizers: null}", Value::Null),
    ] {
        let result = patched(&object, PatchType::Strategic, content).unwrap();
        assert_eq!(result["metadata"]["finalizers"], expected, "{content}");
    }
}

#[test]
fn root_directive_deletes_or_replaces() {
    let object = deployment(&json!({"hostNetwork": true}));
    assert_eq!(apply(&object, PatchType::Strategic, "$patch: delete").unwrap(), Patched::Deleted);
    let content = "{$patch: replace, metadata: {labels: {a: b}}, spec: {replicas: 1, paused: null}}";
    let expected = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n", "labels": {"a": "b"}}, "spec": {"replicas": 1}});
    assert_eq!(apply(&object, PatchType::Strategic, content).unwrap(), Patched::Replaced(expected));
}

#[test]
fn error_has_reason_and_fix() {
    use PatchType::{Json, Merge, Strategic};
    let object = deployment(&json!({"containers": [{"name": "a"}]}));
    let identity = "can't change apiVersion, kind, metadata.name or metadata.namespace; remove the change";
    for (type_, content, expected) in [
        (Strategic, "[", "write YAML or JSON"),
        (Strategic, "", "the patch is empty; write a mapping"),
        (Merge, "[]", "the patch is a list; write a mapping"),
        (Merge, "text", "the patch is a scalar; write a mapping"),
        (Json, "{}", "the patch is a mapping; write a list of operations"),
        (Json, "[{op: explode, path: /a}]", "not a JSON patch"),
        (Json, "[{op: test, path: /kind, value: Service}]", "cannot apply the JSON patch"),
        (Json, "[{op: remove, path: /spec/nothing}]", "cannot apply the JSON patch"),
        (Json, "[{op: replace, path: /metadata/name, value: b}]", identity),
        (Json, "[{op: replace, path: '', value: {}}]", identity),
        (Json, "[{op: add, path: /spec, value: {$patch: delete}}]", "$patch is a directive of strategic merge patches"),
        (Merge, "spec: {template: {$patch: delete}}", "$patch is a directive of strategic merge patches"),
        (Merge, "metadata: {name: b}", identity),
        (Merge, "metadata: {namespace: b}", identity),
        (Merge, "metadata: null", identity),
        (Merge, "kind: Service", identity),
        (Strategic, "{$patch: replace, apiVersion: v1}", identity),
        (Strategic, "{$patch: merge}", "unknown directive $patch: \"merge\"; set it to delete or replace"),
        (Strategic, "spec: {template: {$patch: explode}}", "unknown directive $patch: \"explode\""),
        (
            Strategic,
            "spec: {template: {spec: {containers: [{image: i}]}}}",
            "an element of containers has no name, the merge key",
        ),
        (Strategic, "spec: {template: {spec: {containers: [{name: a, $patch: merge}]}}}", "is the default; remove it"),
        (Strategic, "spec: {template: {spec: {containers: [a]}}}", "the elements of containers have different types"),
        (Strategic, "spec: {template: {spec: {$retainKeys: a}}}", "$retainKeys is not a list"),
        (Strategic, "spec: {template: {spec: {$retainKeys: [a], b: 1}}}", "$retainKeys does not list b"),
        (Strategic, "metadata: {$setElementOrder/labels: {}}", "$setElementOrder/labels is not a list"),
        (Strategic, "metadata: {$deleteFromPrimitiveList/finalizers: f}", "is not a list"),
    ] {
        let reason = patched(&object, type_, content).unwrap_err();
        assert!(reason.contains(expected), "{content}: {reason}");
    }
}

#[test]
fn required_object_is_not_deleted() {
    let refused = |api_version: &str, kind: &str, name: &str, component| {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        Document::parse(&patch(&object, PatchType::Strategic, "$patch: delete"), component).err().map(|e| e.reason)
    };
    let (serving, eventing) = (Component::Serving, Component::Eventing);
    let crd = refused("apiextensions.k8s.io/v1", "CustomResourceDefinition", "x.y", eventing).unwrap();
    assert_eq!(crd, "can't be deleted, because that would delete its custom resources; remove the patch");
    assert!(refused("v1", "Namespace", "a", serving).is_some());
    assert!(refused("apps/v1", "Deployment", "webhook", serving).is_some());
    assert!(refused("apps/v1", "Deployment", "webhook", eventing).is_none());
    assert!(refused("apps/v1", "Deployment", "activator", serving).is_none());
    // Kinds without a schema can be deleted, too.
    assert!(refused("networking.istio.io/v1", "Gateway", "a", serving).is_none());
}

#[test]
fn kind_without_schema_has_no_strategic_merge_patch() {
    let object = json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "a"}});
    let error = apply(&object, PatchType::Strategic, "spec: {}").unwrap_err();
    assert_eq!(error.field, "patch.type");
    assert!(error.reason.ends_with("use merge or json"), "{}", error.reason);
    assert!(apply(&object, PatchType::Merge, "spec: {a: 1}").is_ok());
    let image = json!({"apiVersion": "caching.internal.knative.dev/v1alpha1", "kind": "Image", "metadata": {"name": "a"}, "spec": {"image": "i"}});
    let result = patched(&image, PatchType::Strategic, "spec: {image: j}").unwrap();
    assert_eq!(result["spec"], json!({"image": "j"}));
}

#[test]
fn content_that_kubernetes_refuses_is_found() {
    use PatchType::{Json, Merge, Strategic};
    let check = |kind: &str, type_: PatchType, content: &str| {
        let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        let patch = patch(&object, type_, content);
        Document::parse(&patch, Component::Serving)
            .and_then(|document| document.check_content(&patch.target))
            .map_err(|error| error.reason)
    };
    for (kind, type_, content, expected) in [
        (
            "Deployment",
            Strategic,
            "spec: {template: {spec: {tolerations: [{$patch: replace}]}}}",
            "$patch has no effect in tolerations",
        ),
        (
            "Deployment",
            Merge,
            "metadata: {annotations: {a/b: y}}",
            "metadata.annotations.a/b is a boolean: YAML reads y, yes",
        ),
        (
            "Deployment",
            Strategic,
            "spec: {template: {spec: {containers: [{name: a, env: [{name: A, value: 1}]}]}}}",
            "spec.template.spec.containers[0].env[0].value is a number; quote the value",
        ),
        (
            "Deployment",
            Json,
            "[{op: add, path: /spec/template/metadata/labels/a~1b, value: on}]",
            "spec.template.metadata.labels.a/b is a boolean",
        ),
        (
            "Deployment",
            Json,
            "[{op: add, path: /spec/template/spec/containers/0/env/-, value: {name: A, value: true}}]",
            "env[0].value is a boolean",
        ),
        ("ConfigMap", Merge, "data: {a: 1}", "data.a is a number"),
        ("ConfigMap", Strategic, "{$patch: replace, data: {a: {}}}", "data.a is no string"),
    ] {
        let reason = check(kind, type_, content).unwrap_err();
        assert!(reason.contains(expected), "{content}: {reason}");
    }
    for (kind, type_, content) in [
        ("Deployment", Strategic, "spec: {template: {spec: {containers: [{$patch: replace}]}}}"),
        ("Deployment", Merge, "metadata: {annotations: {a: 'y', b: null}}"),
        (
            "Deployment",
            Json,
            "[{op: remove, path: /metadata/labels/a}, {op: add, path: /metadata/labels, value: {a: b}}]",
        ),
        ("ConfigMap", Strategic, "data: {$patch: replace, a: b, c: null, $retainKeys: [a]}"),
        // Kinds of others may have any structure.
        ("Thing", Merge, "labels: {a: 1}"),
    ] {
        assert_eq!(check(kind, type_, content), Ok(()), "{content}");
    }
}

#[test]
fn directives_are_removed() {
    let object = deployment(&json!({}));
    // Kubernetes keeps directives of a map that the object lacks.
    let content = "spec: {strategy: {$retainKeys: [type], type: Recreate}}";
    let mut result = patched(&object, PatchType::Strategic, content).unwrap();
    assert_eq!(result["spec"]["strategy"], json!({"$retainKeys": ["type"], "type": "Recreate"}));
    remove_directives(&mut result);
    assert_eq!(result["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn target_is_the_only_match() {
    let candidate = |api_version: &'static str, namespace, name: &'static str| target::Candidate {
        api_version: api_version.into(),
        kind: "Service",
        namespace: Some(namespace),
        name: name.into(),
    };
    let candidates = [candidate("v1", "one", "a"), candidate("v1", "two", "a"), candidate("v1", "one", "gateway")];
    let find = |api_version: &str, kind: &str, name: &str, namespace: Option<&str>| {
        let target = PatchTarget {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        target::find(&target, &candidates, true).map_err(|error| error.reason)
    };
    assert_eq!(find("v1", "Service", "gateway", None), Ok(2));
    assert_eq!(find("v1", "Service", "a", Some("two")), Ok(1));
    for (api_version, kind, name, namespace, expected) in [
        (
            "v1",
            "Service",
            "a",
            None,
            "matches 2 objects, in the namespaces one, two; set target.namespace to one of them",
        ),
        (
            "v1",
            "Service",
            "gateway",
            Some("two"),
            "matches no object: its namespace is \"one\"; correct or remove target.namespace",
        ),
        (
            "v2",
            "Service",
            "a",
            None,
            "matches no object: the API version of the Service is v1; set target.apiVersion to it",
        ),
        (
            "v1",
            "Service",
            "gatevay",
            None,
            "matches no object of the installation; correct target.name: the nearest Service is \"gateway\"",
        ),
        (
            "v1",
            "Service",
            "xyz",
            None,
            "matches no object of the installation; correct target.name, or remove the patch",
        ),
        (
            "v1",
            "Route",
            "a",
            None,
            "matches no object: the installation has no Route; correct target.kind, or remove the patch",
        ),
    ] {
        assert_eq!(find(api_version, kind, name, namespace).unwrap_err(), expected);
    }
}

#[test]
fn merge_patch_drops_nulls_in_lists() {
    let content = "spec: {list: [{a: null, b: [{c: null}, null]}], new: {d: null}}";
    let result = patched(&deployment(&json!({})), PatchType::Merge, content).unwrap();
    assert_eq!((&result["spec"]["list"], &result["spec"]["new"]), (&json!([{"b": [{}, null]}]), &json!({})));
}

#[test]
fn json_patch_that_cannot_be_undone_is_an_error() {
    let content = "[{op: move, from: /spec, path: ''}, {op: move, from: /template, path: /template/spec/x}]";
    let reason = patched(&deployment(&json!({})), PatchType::Json, content).unwrap_err();
    assert!(reason.contains("cannot apply the JSON patch"), "{reason}");
}

#[test]
fn booleans_are_those_of_the_go_operator() {
    let object = deployment(&json!({}));
    let result = patched(&object, PatchType::Merge, "spec: {paused: yes, text: 'yes'}").unwrap();
    assert_eq!(result["spec"]["paused"], json!(true));
    assert_eq!(result["spec"]["text"], json!("yes"));
}
