//! CustomResourceDefinitions of `KnativeFleet` and `KnativeFleetApproval`, generated from the
//! types.

use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::api::{KnativeFleet, KnativeFleetApproval};
use crate::crd::{add_type, normalize, unobserved};

/// Fields with content that the definition does not know: templates, and patches of some.
const OPAQUE: [&str; 7] = [
    "/properties/serving/properties/spec",
    "/properties/eventing/properties/spec",
    "/properties/overrides/items/properties/serving",
    "/properties/overrides/items/properties/eventing",
    "/properties/overrides/items/properties/serving/properties/spec",
    "/properties/overrides/items/properties/eventing/properties/spec",
    "/properties/rollout/properties/stages/items/properties/gates/items/properties/job/properties/spec",
];

/// The definitions, as JSON.
pub fn definitions() -> [Value; 2] {
    // A definition has string keys only, so it always serializes.
    let json = |crd| serde_json::to_value(crd).unwrap_or_default();
    let (mut fleet, mut approval) = (json(KnativeFleet::crd()), json(KnativeFleetApproval::crd()));
    finish(
        &mut fleet,
        "KnativeFleet manages a KnativeServing and a KnativeEventing on each of its clusters, and rolls changes out in stages.",
        &columns(),
    );
    finish(
        &mut approval,
        "KnativeFleetApproval allows a stage of a rollout to start, or a removal of clusters.",
        &json!([
            {"name": "Fleet", "type": "string", "jsonPath": ".spec.fleet"},
            {"name": "Revision", "type": "string", "jsonPath": ".spec.revision"},
            {"name": "Stage", "type": "string", "jsonPath": ".spec.stage"},
            {"name": "User", "type": "string", "jsonPath": ".spec.username"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]),
    );
    let spec = &mut fleet["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    for path in OPAQUE {
        if let Some(field) = spec.pointer_mut(path) {
            *field = json!({"description": field["description"], "type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
    }
    // The operator, which alone writes them, names each stage once.
    let status = &mut fleet["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    status["default"] = unobserved();
    let stages = &mut status["properties"]["stages"];
    stages["x-kubernetes-list-type"] = json!("map");
    stages["x-kubernetes-list-map-keys"] = json!(["name"]);
    stages["items"]["required"] = json!(["name"]);
    // Knative's form of a condition has no generation; Kubernetes' has one.
    status["properties"]["conditions"]["items"]["properties"]["observedGeneration"] = json!({
        "description": "Generation of the spec that it describes.", "format": "int64", "type": "integer",
    });
    let spec = &mut approval["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"] = json!([{"rule": "self == oldSelf", "message": "spec is immutable"}]);
    [fleet, approval]
}

fn finish(crd: &mut Value, description: &str, columns: &Value) {
    // `helm uninstall` must not delete the definition, which would delete every fleet.
    crd["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    let version = &mut crd["spec"]["versions"][0];
    version["additionalPrinterColumns"] = columns.clone();
    let root = &mut version["schema"]["openAPIV3Schema"];
    root["description"] = json!(description);
    if let Some(root) = root.as_object_mut() {
        root.remove("title");
    }
    add_type(root);
    for part in ["spec", "status"] {
        if let Some(schema) = root["properties"].get_mut(part) {
            normalize(schema, part, false);
        }
    }
}

fn columns() -> Value {
    let column = |name: &str, type_: &str, path: &str| json!({"name": name, "type": type_, "jsonPath": path});
    json!([
        column("Clusters", "integer", ".status.clusters"),
        column("Updated", "integer", ".status.updated"),
        column("Ready", "integer", ".status.ready"),
        column("Failed", "integer", ".status.failed"),
        column("Stage", "string", ".status.stage"),
        column("Revision", "string", ".status.updateRevision"),
        column("Status", "string", r#".status.conditions[?(@.type=="Ready")].reason"#),
        column("Age", "date", ".metadata.creationTimestamp"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::placement::MAX_NAMESPACES;

    #[test]
    fn namespaces_of_a_placement_are_limited() {
        let [fleet, _] = definitions();
        let placement =
            &fleet["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["placement"];
        assert_eq!(placement["properties"]["namespaces"]["maxItems"], json!(MAX_NAMESPACES));
    }
}
