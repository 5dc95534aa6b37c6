//! The intentional differences from the Go operator. Each has a row in
//! `docs/user/compatibility.md`. Every other difference is a defect.

use serde_json::{Value, json};

use super::compare::Difference;

/// An intentional difference.
pub struct Exception {
    /// Identifier, for the statistics.
    pub id: &'static str,
    /// First column of its row in the document.
    pub row: &'static str,
    /// What it is about.
    pub kind: Kind,
}

/// What a difference is about.
pub enum Kind {
    /// The Go operator renders the same objects from another resource: changes it, and returns
    /// whether it did.
    Resource(fn(&mut Value) -> bool),
    /// Whether a difference in objects, from this resource, is intentional.
    Objects(fn(&Value, &Difference) -> bool),
    /// Whether it is intentional that only the Go operator fails, with this error.
    Failure(fn(&Value, &str) -> bool),
}

/// All of them.
pub const ALL: &[Exception] = &[
    Exception { id: "version-prefix", row: "`spec.version: v1.22.1`", kind: Kind::Resource(without_prefix) },
    Exception {
        id: "remote-namespace",
        row: "`clusterProfileRef` with a resource outside of `knative-serving` or `knative-eventing`",
        kind: Kind::Resource(in_canonical_namespace),
    },
    Exception {
        id: "kourier-bootstrap",
        row: "Kourier's bootstrap ConfigMap, in a namespace other than `knative-serving`",
        kind: Kind::Objects(kourier_bootstrap),
    },
    Exception {
        id: "round-trip",
        row: "empty `status`, `strategy`, `creationTimestamp`, `targetPort: 0` from typed round trips",
        kind: Kind::Objects(round_trip),
    },
    Exception {
        id: "empty-string",
        row: "an empty string in an optional field of a Pod, such as `operator` of a toleration",
        kind: Kind::Objects(empty_string),
    },
    Exception {
        id: "namespaces",
        row: "several Namespaces in a release (Kourier, event sources)",
        kind: Kind::Objects(namespaces),
    },
    Exception {
        id: "crash",
        row: "a ConfigMap with a name shorter than seven letters, a binding without subjects, broker defaults without `clusterDefault`",
        kind: Kind::Failure(crash),
    },
    Exception {
        id: "duplicates",
        row: "duplicate `imagePullSecrets`, variables, volumes",
        kind: Kind::Objects(duplicates),
    },
    Exception {
        id: "selection-mode",
        row: "`valueFrom` for the variable `SINK_BINDING_SELECTION_MODE`",
        kind: Kind::Objects(selection_mode),
    },
];

fn without_prefix(resource: &mut Value) -> bool {
    let version = resource["spec"]["version"].as_str().unwrap_or_default();
    let bare = version.strip_prefix('v').filter(|bare| bare.starts_with(|c: char| c.is_ascii_digit()));
    let Some(bare) = bare.map(str::to_owned) else { return false };
    resource["spec"]["version"] = json!(bare);
    true
}

fn in_canonical_namespace(resource: &mut Value) -> bool {
    let canonical = if resource["kind"] == "KnativeServing" { "knative-serving" } else { "knative-eventing" };
    if resource["spec"]["clusterProfileRef"].is_null() || resource["metadata"]["namespace"] == canonical {
        return false;
    }
    resource["metadata"]["namespace"] = json!(canonical);
    true
}

fn kourier_bootstrap(resource: &Value, difference: &Difference) -> bool {
    let namespace = resource["metadata"]["namespace"].as_str().unwrap_or_default();
    let theirs = difference.theirs.as_str().unwrap_or_default();
    difference.object == format!("v1 ConfigMap {namespace}/kourier-bootstrap")
        && difference.path == "/data/envoy-bootstrap.yaml"
        && difference.ours == json!(theirs.replace("knative-serving", namespace))
}

fn round_trip(_: &Value, difference: &Difference) -> bool {
    let is_zero = (difference.path.ends_with("/targetPort") && difference.theirs == 0)
        || (difference.path.ends_with("/resourceFieldRef/divisor") && difference.theirs == "0n");
    is_zero && difference.ours.is_null()
}

/// A label or annotation that only an earlier one of several Namespaces has.
fn namespaces(_: &Value, difference: &Difference) -> bool {
    let is_metadata =
        ["/metadata/labels/", "/metadata/annotations/"].iter().any(|part| difference.path.starts_with(part));
    difference.object.starts_with("v1 Namespace ") && is_metadata && difference.theirs.is_null()
}

fn crash(resource: &Value, error: &str) -> bool {
    let config = &resource["spec"]["config"];
    let defaults = [&config["br-defaults"], &config["config-br-defaults"]].map(|map| &map["default-br-config"]);
    let lacks_default = |text: &str| !text.contains("clusterDefault:");
    error.contains("nil pointer dereference") && defaults.into_iter().filter_map(Value::as_str).any(lacks_default)
}

fn empty_string(_: &Value, difference: &Difference) -> bool {
    difference.path.contains("/spec/template/spec/") && difference.theirs.is_null() && difference.ours == ""
}

/// The variable has a value and a source in theirs, and one of them in ours.
fn selection_mode(resource: &Value, difference: &Difference) -> bool {
    let overrides =
        ["workloads", "deployments"].iter().filter_map(|field| resource["spec"][field].as_array()).flatten();
    let environments = overrides.filter_map(|o| o["env"].as_array()).flatten();
    let mut variables = environments.filter_map(|e| e["envVars"].as_array()).flatten();
    let has_source =
        |variable: &Value| variable["name"] == "SINK_BINDING_SELECTION_MODE" && !variable["valueFrom"].is_null();
    let is_variable = difference.object.ends_with("/eventing-webhook")
        && difference.path.contains("/env/")
        && (difference.path.ends_with("/value") || difference.path.ends_with("/valueFrom"));
    is_variable && difference.ours.is_null() && variables.any(has_source)
}

fn duplicates(_: &Value, difference: &Difference) -> bool {
    let is_map = ["/imagePullSecrets", "/env", "/volumes"].iter().any(|list| difference.path.ends_with(list));
    let mut distinct: Vec<&Value> = Vec::new();
    for item in difference.theirs.as_array().into_iter().flatten() {
        if !distinct.iter().any(|other| other["name"] == item["name"]) {
            distinct.push(item);
        }
    }
    is_map && difference.ours.as_array().is_some_and(|ours| ours.iter().eq(distinct))
}
