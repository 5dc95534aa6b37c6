//! `spec.registry.default` reaches each image of each release.

use knative_operator_tests::tools;
use serde_json::{Value, json};

use super::operator;

/// Registries of released images.
const RELEASED: [&str; 5] = ["gcr.io/", "docker.io/", "ghcr.io/", "quay.io/", "registry.k8s.io/"];
const MINORS: [&str; 4] = ["1.20", "1.21", "1.22", "1.23"];

#[test]
fn registry_reaches_each_image() {
    let ingress =
        ["kourier", "istio", "contour", "gateway-api"].map(|name| (name.to_owned(), json!({"enabled": true})));
    let sources = ["ceph", "github", "gitlab", "kafka", "rabbitmq", "redis"];
    let sources = sources.map(|name| (name.to_owned(), json!({"enabled": true})));
    let kinds = [
        (
            "KnativeServing",
            "serving",
            json!({"ingress": Value::from_iter(ingress), "security": {"securityGuard": {"enabled": true}},
            "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}}),
        ),
        ("KnativeEventing", "eventing", json!({"source": Value::from_iter(sources)})),
    ];
    let releases = tools::go_operator_module().unwrap().join("cmd/operator/kodata");
    let folder = tempfile::tempdir().unwrap();
    for ((kind, name, spec), minor) in kinds.iter().flat_map(|kind| MINORS.map(|minor| (kind, minor))) {
        let mut resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": kind,
            "metadata": {"name": name, "namespace": format!("knative-{name}")}, "spec": spec});
        resource["spec"]["version"] = json!(minor);
        resource["spec"]["registry"] = json!({"default": "mirror.example/${NAME}:v1"});
        let file = folder.path().join("resource.yaml");
        std::fs::write(&file, resource.to_string()).unwrap();
        let arguments = ["render", "-f", file.to_str().unwrap(), "--releases", releases.to_str().unwrap()];
        let output = operator(&arguments);
        assert!(output.status.success(), "{kind} {minor}: {}", String::from_utf8_lossy(&output.stderr));
        let objects: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
        let (mut mirrored, mut left) = (0, Vec::new());
        for object in objects.iter().filter(|object| object["kind"] != "CustomResourceDefinition") {
            strings(object, &mut |text| {
                mirrored += usize::from(text.starts_with("mirror.example/"));
                if RELEASED.iter().any(|registry| text.contains(registry)) {
                    left.push(format!("{} {}: {text}", object["kind"], object["metadata"]["name"]));
                }
            });
        }
        assert!(left.is_empty() && mirrored > 10, "{kind} {minor}: {mirrored} images of the mirror, and {left:#?}");
    }
}

/// Calls `found` with each string in `value`, but for examples in ConfigMaps.
fn strings(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(fields) => {
            fields.iter().filter(|(key, _)| *key != "_example").for_each(|(_, value)| strings(value, found));
        }
        _ => {}
    }
}
