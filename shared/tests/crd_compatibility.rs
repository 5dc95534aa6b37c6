//! The CRDs against those of the Go operator (`../shared/crds`, and `../shared/patches/crds` with
//! `spec.patches`): the same field paths, types, required fields, list and map kinds, patterns and
//! rules. The test says "skipped" where that material is absent.

#![allow(clippy::unwrap_used, clippy::panic)] // these are tests

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use knative_operator_shared::api::Component;
use knative_operator_shared::crd::definition;
use serde_json::Value;

/// Ours alone: the documented name of the namespace settings, and a field that Kubernetes 1.37
/// added to its own type.
const ADDED: [&str; 3] = [
    ".spec.namespaceConfiguration",
    ".spec.deployments[].volumeMounts[].bindMountOptions",
    ".spec.workloads[].volumeMounts[].bindMountOptions",
];

/// Every path of `schema` with what the API server acts on there.
fn flatten(schema: &Value, path: &str, out: &mut BTreeMap<String, Value>) {
    let mut own = schema.clone();
    let fields = own.as_object_mut().unwrap();
    for nested in ["properties", "items", "additionalProperties", "description"] {
        fields.remove(nested);
    }
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.sort_by_key(ToString::to_string);
    }
    out.insert(path.to_owned(), own);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        flatten(child, &format!("{path}.{name}"), out);
    }
    for (nested, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[nested].is_object() {
            flatten(&schema[nested], &format!("{path}{mark}"), out);
        }
    }
}

fn paths(crd: &Value) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    flatten(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut out);
    out
}

#[test]
fn schema_equals_the_go_operators() {
    // The release without spec.patches.
    compare("crds", &[ADDED.as_slice(), &[".spec.patches"]].concat());
    compare("patches/crds", &ADDED);
}

/// Compares with the CRDs in `../shared/FOLDER`, which lack the fields `added`.
fn compare(folder: &str, added: &[&str]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(folder);
    if !dir.is_dir() {
        // Not through `eprintln!`, which a passing test swallows.
        let _ = writeln!(std::io::stderr(), "skipped: {} is not there", dir.display());
        return;
    }
    for component in Component::ALL {
        let file = dir.join(format!("operator.knative.dev_{}.yaml", component.plural()));
        let theirs: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let (theirs, mut ours) = (paths(&theirs), paths(&definition(component)));
        // A rule for resources without spec.
        assert!(ours.get_mut("").unwrap().as_object_mut().unwrap().remove("x-kubernetes-validations").is_some());
        let mut differences = Vec::new();
        for (path, schema) in &theirs {
            match ours.get(path) {
                None => differences.push(format!("missing {path}")),
                Some(own) if own != schema => differences.push(format!("{path}\n  theirs {schema}\n  ours   {own}")),
                Some(_) => {}
            }
        }
        let extra = ours.keys().filter(|p| !theirs.contains_key(*p) && !added.iter().any(|a| p.starts_with(a)));
        differences.extend(extra.map(|p| format!("extra {p}")));
        assert!(
            differences.is_empty(),
            "{folder}: {component}: {} differences\n{}",
            differences.len(),
            differences.join("\n")
        );
    }
}

#[test]
fn shape_is_what_users_know() {
    for component in Component::ALL {
        let crd = definition(component);
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], "v1beta1");
        assert!(version["subresources"]["status"].is_object());
        let columns: Vec<_> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(columns, ["Target Cluster", "Version", "Ready", "Reason", "Age"]);
        let rules = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"];
        let messages: Vec<_> = rules.as_array().unwrap().iter().map(|r| r["message"].as_str().unwrap()).collect();
        assert_eq!(
            messages,
            ["spec.clusterProfileRef cannot be added or removed after creation", "spec.clusterProfileRef is immutable"]
        );
        assert!(serde_json::to_string(&crd).unwrap().len() < 200_000, "kubectl apply could not annotate it");
    }
}
