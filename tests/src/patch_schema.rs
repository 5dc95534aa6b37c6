//! Generates the table of strategies and merge keys for strategic merge patches
//! (`shared/patch/src/schema.json`) from the OpenAPI document of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::{Result, tools};

/// Groups whose kinds support no strategic merge patches, as in the Go operator, whose scheme lacks
/// them.
const UNSUPPORTED: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The OpenAPI document of the Kubernetes version that the tests use: part of its Go module.
pub fn document() -> Result<PathBuf> {
    Ok(tools::kubernetes_module()?.join("api/openapi-spec/swagger.json"))
}

/// The table for `document`.
pub fn table(document: &Value) -> Result<String> {
    let types = document["definitions"].as_object().ok_or("the document has no definitions")?;
    let relevant = relevant(types);
    let mut kinds = BTreeMap::new();
    for (name, schema) in types {
        let metadata = schema["properties"].get("metadata").and_then(reference);
        let gvks = schema["x-kubernetes-group-version-kind"].as_array();
        for gvk in gvks.into_iter().flatten().filter(|_| metadata == Some(META)) {
            let part = |key: &str| gvk[key].as_str().unwrap_or_default();
            if !UNSUPPORTED.contains(&part("group")) {
                let group = if part("group").is_empty() { String::new() } else { format!("{}/", part("group")) };
                kinds.insert(format!("{group}{}/{}", part("version"), part("kind")), short(name));
            }
        }
    }
    // The scheme of the Go operator has this kind of Knative, too.
    kinds.insert("caching.internal.knative.dev/v1alpha1/Image".to_owned(), "Image".to_owned());
    let mut used: BTreeMap<String, Value> = BTreeMap::from([("Image".to_owned(), json!({"metadata": short(META)}))]);
    let mut queue: Vec<&str> =
        types.keys().map(String::as_str).filter(|name| kinds.values().any(|kind| *kind == short(name))).collect();
    while let Some(name) = queue.pop() {
        if !relevant.contains(name) || used.contains_key(&short(name)) {
            continue;
        }
        let fields = fields(&types[name], &relevant);
        used.insert(short(name), json!(fields));
        let properties = types[name]["properties"].as_object();
        queue.extend(properties.into_iter().flatten().filter_map(|(_, field)| element(field)));
    }
    let table = json!({"kinds": kinds, "types": used});
    let lines = ["kinds", "types"].map(|part| {
        let entries = table[part].as_object().into_iter().flatten();
        let entries: Vec<_> = entries.map(|(key, value)| format!("{}: {value}", json!(key))).collect();
        format!("\"{part}\": {{\n{}\n}}", entries.join(",\n"))
    });
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

/// The types that have a field with a strategy, directly or in a field.
fn relevant(types: &Map<String, Value>) -> BTreeSet<&str> {
    let mut relevant = BTreeSet::new();
    loop {
        let before = relevant.len();
        for (name, schema) in types {
            if !fields(schema, &relevant).is_empty() {
                relevant.insert(name.as_str());
            }
        }
        if relevant.len() == before {
            return relevant;
        }
    }
}

/// The fields of a type that the table has, as `Type strategy key`.
fn fields(schema: &Value, relevant: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let type_ = element(field).filter(|type_| relevant.contains(type_)).map(short);
        // The strategy retainKeys needs no entry: a patch says itself which keys to retain.
        let strategies = field["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        let strategy = strategies.split(',').find(|strategy| matches!(*strategy, "merge" | "replace"));
        let key = field["x-kubernetes-patch-merge-key"].as_str();
        if type_.is_some() || strategy.is_some() {
            let parts = [type_.as_deref(), strategy, key].map(|part| part.unwrap_or("-"));
            let entry = parts.join(" ");
            fields.insert(name.clone(), entry.trim_end_matches(" -").to_owned());
        }
    }
    fields
}

/// The type of a field, or of the elements of a list.
fn element(field: &Value) -> Option<&str> {
    reference(field).or_else(|| reference(&field["items"]))
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/definitions/")
}

/// The name of a type without the common prefix.
fn short(name: &str) -> String {
    name.trim_start_matches("io.k8s.")
        .trim_start_matches("api.")
        .trim_start_matches("apimachinery.pkg.apis.")
        .to_owned()
}
