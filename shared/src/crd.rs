//! CustomResourceDefinitions, generated from the types. Adds what `schemars` can't express:
//! transition rules for `clusterProfileRef`, list and map types, and defaults, so that the schema
//! equals that of the Go operator's CRDs.

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::api::{Component, KnativeEventing, KnativeServing};
use crate::defaults::SOURCES;

/// Fields of ours with Kubernetes types. The descriptions of what such a type has are removed: with
/// them, a CRD exceeds the size limit of the `kubectl apply` annotation.
const UNDESCRIBED: [&str; 7] =
    ["affinity", "claims", "envVars", "selector", "tolerations", "topologySpreadConstraints", "volumeMounts"];

/// Fields of Kubernetes types that are replaced as a whole.
const ATOMIC_MAPS: [&str; 11] = [
    "configMapKeyRef",
    "fieldRef",
    "fileKeyRef",
    "labelSelector",
    "namespaceSelector",
    "nodeSelectorTerms[]",
    "preference",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resourceFieldRef",
    "secretKeyRef",
    "selector",
];

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The CustomResourceDefinition of `component`, as JSON.
pub fn definition(component: Component) -> Value {
    let crd = match component {
        Component::Serving => KnativeServing::crd(),
        Component::Eventing => KnativeEventing::crd(),
    };
    // A definition has string keys only, so it always serializes.
    let mut crd = serde_json::to_value(crd).unwrap_or_default();
    // `helm uninstall` must not delete the definition, which would delete every installation.
    crd["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    // Explicit, because the Go operator's definition has a conversion webhook.
    crd["spec"]["conversion"] = json!({"strategy": "None"});
    let version = &mut crd["spec"]["versions"][0];
    version["additionalPrinterColumns"] = columns();
    let root = &mut version["schema"]["openAPIV3Schema"];
    root["description"] = json!(format!(
        "{} installs Knative {} and keeps it in the state that the spec describes.",
        component.kind(),
        component.word()
    ));
    if let Some(root) = root.as_object_mut() {
        root.remove("required");
        root.remove("title");
    }
    add_type(root);
    // The rules of the spec are not evaluated if the spec is missing before or after.
    root["x-kubernetes-validations"] = json!([{
        "rule": "has(self.spec) && has(oldSelf.spec) || (has(self.spec) && has(self.spec.clusterProfileRef)) == (has(oldSelf.spec) && has(oldSelf.spec.clusterProfileRef))",
        "message": "spec.clusterProfileRef cannot be added or removed after creation",
    }]);
    normalize(&mut root["properties"]["spec"], "spec", false);
    normalize(&mut root["properties"]["status"], "status", false);
    root["properties"]["status"]["default"] = unobserved();
    let spec = &mut root["properties"]["spec"];
    spec["x-kubernetes-validations"] = json!([
        {"rule": "has(self.clusterProfileRef) == has(oldSelf.clusterProfileRef)", "message": "spec.clusterProfileRef cannot be added or removed after creation"},
        {"rule": "!has(self.clusterProfileRef) || !has(oldSelf.clusterProfileRef) || self.clusterProfileRef == oldSelf.clusterProfileRef", "message": "spec.clusterProfileRef is immutable"},
    ]);
    add_required(spec);
    crd
}

/// The status that a resource has until the operator writes one: no generation is observed. Without
/// it, kstatus takes a new resource for one that is up to date.
pub(crate) fn unobserved() -> Value {
    json!({"observedGeneration": -1})
}

/// Adds what each object has. The API server refuses a description of `metadata`, and adds one
/// itself.
pub(crate) fn add_type(root: &mut Value) {
    root["properties"]["apiVersion"] = json!({"type": "string", "description": "API group and version of the object."});
    root["properties"]["kind"] = json!({"type": "string", "description": "Kind of the object."});
    root["properties"]["metadata"] = json!({"type": "object"});
}

/// Adds the required fields of stored blocks. Parsing accepts blocks without them, for files that
/// were never stored.
fn add_required(spec: &mut Value) {
    let blocks: [(&str, &[&str]); 5] = [
        ("/properties/source", &SOURCES),
        ("/properties/high-availability", &["replicas"]),
        ("/properties/controller-custom-certs", &["name", "type"]),
        ("/properties/security", &["securityGuard"]),
        ("/properties/security/properties/securityGuard", &["enabled"]),
    ];
    for (block, fields) in blocks {
        if let Some(block) = spec.pointer_mut(block) {
            block["required"] = json!(fields);
        }
    }
    for source in SOURCES {
        if let Some(source) = spec.pointer_mut(&format!("/properties/source/properties/{source}")) {
            source["required"] = json!(["enabled"]);
        }
    }
}

fn columns() -> Value {
    let ready = |field: &str| format!(r#".status.conditions[?(@.type=="Ready")].{field}"#);
    json!([
        {"name": "Target Cluster", "type": "string", "jsonPath": ".spec.clusterProfileRef.name"},
        {"name": "Version", "type": "string", "jsonPath": ".status.version"},
        {"name": "Ready", "type": "string", "jsonPath": ready("status")},
        {"name": "Reason", "type": "string", "jsonPath": ready("reason")},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

/// Makes the schema of field `name` equal to that of the Go operator's CRD. `kubernetes`: whether
/// the field is part of a Kubernetes type.
pub(crate) fn normalize(schema: &mut Value, name: &str, kubernetes: bool) {
    let Some(schema) = schema.as_object_mut() else { return };
    schema.remove("nullable");
    schema.remove("default");
    // One of an unsigned integer is no limit that somebody chose.
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        schema.remove("minimum");
    }
    for limit in ["minimum", "maximum"] {
        // Whole numbers as the API server stores them.
        let whole = schema.get(limit).and_then(Value::as_f64).and_then(|limit| limit.to_string().parse::<i64>().ok());
        schema.extend(whole.map(|whole| (limit.to_owned(), json!(whole))));
    }
    if schema.get("format").is_some_and(|f| f != "int32" && f != "int64" && f != "byte") {
        schema.remove("format");
    }
    if kubernetes {
        schema.remove("description");
    }
    let kubernetes = kubernetes || UNDESCRIBED.contains(&name);
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.retain(|w| !w.is_null());
    }
    let typed = |schema: &Map<String, Value>, wanted: &str| schema.get("type").is_some_and(|t| t == wanted);
    if kubernetes
        && typed(schema, "array")
        && name != "tolerations"
        && name != "topologySpreadConstraints"
        && name != "volumeMounts"
        && name != "envVars"
    {
        if name == "claims" {
            schema.insert("x-kubernetes-list-map-keys".into(), json!(["name"]));
            schema.insert("x-kubernetes-list-type".into(), json!("map"));
        } else {
            schema.insert("x-kubernetes-list-type".into(), json!("atomic"));
        }
    }
    if (name == "imagePullSecrets[]" || kubernetes && ATOMIC_MAPS.contains(&name)) && schema.contains_key("properties")
    {
        schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        schema.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
        if matches!(name, "limits{}" | "requests{}" | "divisor") {
            schema.insert("pattern".into(), json!(QUANTITY));
        }
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (property, child) in properties {
            normalize(child, property, kubernetes);
        }
    }
    if let Some(optional) =
        schema.get_mut("properties").filter(|_| name == "fileKeyRef").and_then(|p| p.get_mut("optional"))
    {
        optional["default"] = json!(false);
    }
    if name == "imagePullSecrets[]" || matches!(name, "configMapKeyRef" | "secretKeyRef") {
        if let Some(name) = schema.get_mut("properties").and_then(|p| p.get_mut("name")) {
            name["default"] = json!("");
        }
        remove_required(schema, "name");
    }
    if let Some(items) = schema.get_mut("items") {
        normalize(items, &format!("{name}[]"), kubernetes);
    }
    if let Some(values) = schema.get_mut("additionalProperties") {
        normalize(values, &format!("{name}{{}}"), kubernetes);
    }
}

fn remove_required(schema: &mut Map<String, Value>, property: &str) {
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|r| r != property);
        if required.is_empty() {
            schema.remove("required");
        }
    }
}
