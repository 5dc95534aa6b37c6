//! Keeps the fields of the operator's CustomResourceDefinitions when an older chart replaces them,
//! as `helm rollback` does: without a field in the schema, the API server would drop its value from
//! every stored resource at the next write. Pure.

use json_patch::Patch;
use serde_json::{Value, json};

use crate::definition::is_own;
use crate::request::Request;

/// Maximum depth of a schema.
const MAX_DEPTH: usize = 64;

/// The patch that restores the fields that the update in `request` removes from a definition;
/// `None` if it removes none.
pub fn restored(request: &Request) -> Option<Patch> {
    if request.operation != "UPDATE" || !is_own(request) {
        return None;
    }
    let (new, old) = (&request.object["spec"]["versions"], &request.old_object["spec"]["versions"]);
    let mut operations = Vec::new();
    for (index, version) in new.as_array().into_iter().flatten().enumerate() {
        let mut versions = old.as_array().into_iter().flatten();
        let Some(before) = versions.find(|before| before["name"] == version["name"]) else { continue };
        let path = format!("/spec/versions/{index}/schema/openAPIV3Schema");
        restore(schema(version), schema(before), &path, 0, &mut operations);
    }
    // The operations are well-formed, so the patch is.
    let patch = (!operations.is_empty()).then(|| serde_json::from_value(Value::Array(operations)).ok());
    patch.flatten()
}

fn schema(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

/// Adds operations at `path` for the properties that `old` has and `new` lacks.
fn restore(new: &Value, old: &Value, path: &str, depth: usize, operations: &mut Vec<Value>) {
    if depth > MAX_DEPTH || !new.is_object() || !old.is_object() {
        return;
    }
    for part in ["items", "additionalProperties"] {
        restore(&new[part], &old[part], &format!("{path}/{part}"), depth + 1, operations);
    }
    // What accepts any field needs none, and neither does what is no object any more.
    let Some(before) = old["properties"].as_object().filter(|_| new["type"] == "object") else { return };
    let Some(now) = new["properties"].as_object() else {
        if new["x-kubernetes-preserve-unknown-fields"] != true && new.get("additionalProperties").is_none() {
            operations.push(json!({"op": "add", "path": format!("{path}/properties"), "value": before}));
        }
        return;
    };
    for (name, property) in before {
        let path = format!("{path}/properties/{}", name.replace('~', "~0").replace('/', "~1"));
        match now.get(name) {
            Some(now) => restore(now, property, &path, depth + 1, operations),
            None => operations.push(json!({"op": "add", "path": path, "value": property})),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;

    #[allow(clippy::needless_pass_by_value)] // literals
    fn object(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    /// The schema that is stored when `new` replaces `old`.
    fn stored(name: &str, new: &Value, old: &Value) -> Value {
        let definition = |schema: &Value| {
            json!({"metadata": {"name": name}, "spec": {"versions": [
                {"name": "v0", "schema": {"openAPIV3Schema": object(json!({}))}},
                {"name": "v1beta1", "schema": {"openAPIV3Schema": schema}}]}})
        };
        let (group, kind) = ("apiextensions.k8s.io", "CustomResourceDefinition");
        let mut request = Request {
            kind: Kind { group: group.into(), version: "v1".into(), kind: kind.into() },
            operation: "UPDATE".into(),
            object: definition(new),
            old_object: definition(old),
            ..Request::default()
        };
        if let Some(patch) = restored(&request) {
            json_patch::patch(&mut request.object, &patch).unwrap();
        }
        request.object["spec"]["versions"][1]["schema"]["openAPIV3Schema"].clone()
    }

    #[test]
    fn removed_fields_are_kept_and_new_ones_added() {
        let own = "knativeservings.operator.knative.dev";
        let text = json!({"type": "string"});
        let older = object(json!({"spec": object(json!({"version": text,
            "workloads": {"type": "array", "items": object(json!({"name": text}))},
            "labels": {"type": "object", "additionalProperties": text},
            "empty": {"type": "object"}}))}));
        let mut newer = older.clone();
        let spec = &mut newer["properties"]["spec"]["properties"];
        spec["a/b"] = text.clone();
        spec["patches"] = json!({"type": "array", "items": object(json!({"patch": text}))});
        spec["workloads"]["items"]["properties"]["probe"] = object(json!({"period": {"type": "integer"}}));
        spec["empty"]["properties"] = json!({"one": text});
        assert_eq!(stored(own, &older, &newer), newer);
        assert_eq!(stored(own, &newer, &older), newer, "an upgrade");
        assert_eq!(stored("services.serving.knative.dev", &older, &newer), older, "a definition of others");
        // The newer description counts where both have a field.
        let mut described = older.clone();
        described["properties"]["spec"]["properties"]["version"]["description"] = json!("x");
        let kept = stored(own, &described, &newer);
        assert_eq!(kept["properties"]["spec"]["properties"]["version"]["description"], "x");
        // What accepts all fields keeps all values.
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(stored(own, &any, &newer), any);
    }
}
