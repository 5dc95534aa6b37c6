//! The CRDs against those of the Go operator: the same field paths, types, required fields, list
//! and map kinds, patterns and rules. `patches.yaml` is its schema of `spec.patches`, which is
//! newer than its module. All definitions: descriptions, the category, and stages.

use std::collections::BTreeMap;

use knative_operator_shared::api::Component;
use knative_operator_shared::crd::definition;
use knative_operator_shared::fleet_crd;
use knative_operator_tests::tools;
use serde_json::{Value, json};

/// Ours alone: the documented name of the namespace settings, a field that Kubernetes 1.37 added to
/// its own type, and patches.
const ADDED: [&str; 4] = [
    ".spec.namespaceConfiguration",
    ".spec.deployments[].volumeMounts[].bindMountOptions",
    ".spec.workloads[].volumeMounts[].bindMountOptions",
    PATCHES,
];
const PATCHES: &str = ".spec.patches";

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

fn paths(schema: &Value, path: &str) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    flatten(schema, path, &mut out);
    out
}

fn schema(crd: &Value) -> &Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Where `ours` differs from `theirs`, except for the fields `added`.
fn differences(theirs: &BTreeMap<String, Value>, ours: &BTreeMap<String, Value>, added: &[&str]) -> Vec<String> {
    let mut differences = Vec::new();
    for (path, schema) in theirs {
        match ours.get(path) {
            None => differences.push(format!("missing {path}")),
            Some(own) if own != schema => differences.push(format!("{path}\n  theirs {schema}\n  ours   {own}")),
            Some(_) => {}
        }
    }
    let extra = ours.keys().filter(|p| !theirs.contains_key(*p) && !added.iter().any(|a| p.starts_with(a)));
    differences.extend(extra.map(|p| format!("extra {p}")));
    differences
}

#[test]
fn schema_equals_the_go_operators() {
    let folder = tools::go_operator_module().unwrap().join("config/crd/bases");
    for component in Component::ALL {
        let file = folder.join(format!("operator.knative.dev_{}.yaml", component.plural()));
        let theirs: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let (theirs, mut ours) = (paths(schema(&theirs), ""), paths(schema(&definition(component)), ""));
        assert!(theirs.contains_key(".spec.workloads[].env[].envVars[].name") && !theirs.contains_key(PATCHES));
        // A rule for resources without spec.
        assert!(ours.get_mut("").unwrap().as_object_mut().unwrap().remove("x-kubernetes-validations").is_some());
        // Until a status is written, no generation is observed.
        let default = ours.get_mut(".status").unwrap().as_object_mut().unwrap().remove("default");
        assert_eq!(default, Some(json!({"observedGeneration": -1})));
        let differences = differences(&theirs, &ours, &ADDED);
        assert!(differences.is_empty(), "{component}: {} differences\n{}", differences.len(), differences.join("\n"));
    }
}

#[test]
fn schema_of_patches_equals_the_go_operators() {
    let theirs: Value = serde_saphyr::from_str(include_str!("patches.yaml")).unwrap();
    for component in Component::ALL {
        let crd = definition(component);
        let ours = &schema(&crd)["properties"]["spec"]["properties"]["patches"];
        let differences = differences(&paths(&theirs, PATCHES), &paths(ours, PATCHES), &[]);
        assert!(differences.is_empty(), "{component}: {}", differences.join("\n"));
    }
}

/// Fields of ours with Kubernetes types, whose own fields have no descriptions.
const OPAQUE: [&str; 7] =
    ["affinity", "claims", "envVars", "selector", "tolerations", "topologySpreadConstraints", "volumeMounts"];

/// The fields of `schema`, which is at `path`, that have no description.
fn undescribed(schema: &Value, path: &str, out: &mut Vec<String>) {
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        // The API server describes it.
        if child["description"].as_str().is_none_or(str::is_empty) && path != ".metadata" {
            out.push(path.clone());
        }
        if !OPAQUE.contains(&name.as_str()) {
            undescribed(child, &path, out);
        }
    }
    for nested in ["items", "additionalProperties"].into_iter().filter_map(|nested| schema.get(nested)) {
        undescribed(nested, path, out);
    }
}

#[test]
fn fields_have_descriptions_and_all_kinds_have_the_category() {
    let mut all = Component::ALL.map(definition).to_vec();
    all.extend(fleet_crd::definitions());
    for crd in &all {
        let (names, mut found) = (&crd["spec"]["names"], Vec::new());
        undescribed(schema(crd), "", &mut found);
        assert!(found.is_empty(), "{}: {found:?}", names["kind"]);
        assert_eq!(names["categories"], json!(["knative"]), "{}", names["kind"]);
    }
    let spec = &schema(&all[0])["properties"]["spec"]["properties"];
    let affinity = &spec["workloads"]["items"]["properties"]["affinity"];
    assert_eq!(affinity["description"], "Affinity of the Pods.");
    assert!(affinity["properties"]["nodeAffinity"].get("description").is_none());
    let status = &schema(&all[2])["properties"]["status"]["properties"];
    assert_eq!(status["conditions"]["items"]["properties"]["observedGeneration"]["type"], "integer");
    let stages = &status["stages"];
    let kind = [&stages["x-kubernetes-list-type"], &stages["x-kubernetes-list-map-keys"], &stages["items"]["required"]];
    assert_eq!(kind, [&json!("map"), &json!(["name"]), &json!(["name"])]);
}
