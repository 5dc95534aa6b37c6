//! An object has the types that its CRD says.

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Example, Problem, Rule, Severity};
use crate::api::{
    CommonSpec, Component, Knative, KnativeEventing, KnativeEventingSpec, KnativeServing, KnativeServingSpec,
};

/// Types are right.
pub static READABLE: Rule = Rule {
    id: "readable",
    severity: Severity::Error,
    says: "Every field has the type that the CustomResourceDefinition says.",
    kept: Example::serving(r#"{"ingress": {"istio": {"enabled": true}}}"#),
    broken: Example::serving(r#"{"ingress": {"istio": {"enabled": "yes"}}}"#),
};

/// `object` as a custom resource of `component`. No `spec`, `spec: null` and `spec: {}` mean the same. A null counts as left out, as it
/// does for the API server where the CustomResourceDefinition doesn't say `nullable`.
pub fn read(component: Component, object: &Value) -> Result<Knative, Problem> {
    // Where it goes wrong is asked only if it does: that takes its time.
    if let Some(read) = quickly(component, object) {
        return Ok(read);
    }
    let mut object = object.clone();
    drop_nulls(&mut object);
    if let Some(read) = quickly(component, &object) {
        return Ok(read);
    }
    if object.get("spec").is_none() {
        object["spec"] = empty().clone();
    }
    let read = match component {
        Component::Serving => decode(&object, "").map(Knative::Serving),
        Component::Eventing => decode(&object, "").map(Knative::Eventing),
    };
    // The part that both kinds share is read by itself to tell which field it is: flattened, nobody knows.
    read.map_err(|problem| match object.get("spec").map(|spec| decode::<CommonSpec>(spec, "spec.")) {
        Some(Err(closer)) => closer,
        _ => problem,
    })
}

/// What can be used of an `object` that [`read`] refuses: its metadata, the cluster that it is for, and its status if that can be read. Nothing
/// if it isn't certain which cluster that is.
pub fn salvage(component: Component, object: &Value) -> Option<Knative> {
    let mut object = object.clone();
    drop_nulls(&mut object);
    let cluster_profile_ref = match object.get("spec").unwrap_or(empty()) {
        Value::Object(spec) => part(&Value::Object(spec.clone()), "clusterProfileRef")?,
        _ => return None,
    };
    let common = CommonSpec { cluster_profile_ref, ..CommonSpec::default() };
    let (metadata, status) = (part(&object, "metadata")?, part(&object, "status").flatten());
    Some(match component {
        Component::Serving => {
            let spec = KnativeServingSpec { common, ..KnativeServingSpec::default() };
            Knative::Serving(KnativeServing { metadata, spec, status })
        }
        Component::Eventing => {
            let spec = KnativeEventingSpec { common, ..KnativeEventingSpec::default() };
            Knative::Eventing(KnativeEventing { metadata, spec, status })
        }
    })
}

/// Removes every key whose value is null from `value`.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn empty() -> &'static Value {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
    &EMPTY
}

/// The parts of `object`, each read by itself: flattened, everything would be copied first, several times.
fn quickly(component: Component, object: &Value) -> Option<Knative> {
    let own = object.get("spec").filter(|spec| !spec.is_null()).unwrap_or(empty());
    // A list would be read as the fields in their order.
    let own = Some(own).filter(|spec| spec.is_object())?;
    let (metadata, common) = (part(object, "metadata")?, CommonSpec::deserialize(own).ok()?);
    Some(match component {
        Component::Serving => {
            let (controller_custom_certs, ingress, security) =
                (part(own, "controller-custom-certs")?, part(own, "ingress")?, part(own, "security")?);
            let spec = KnativeServingSpec { common, controller_custom_certs, ingress, security };
            Knative::Serving(KnativeServing { metadata, spec, status: part(object, "status")? })
        }
        Component::Eventing => {
            let (default_broker_class, sink_binding_selection_mode, source) =
                (part(own, "defaultBrokerClass")?, part(own, "sinkBindingSelectionMode")?, part(own, "source")?);
            let spec = KnativeEventingSpec { common, default_broker_class, sink_binding_selection_mode, source };
            Knative::Eventing(KnativeEventing { metadata, spec, status: part(object, "status")? })
        }
    })
}

/// What `field` of `object` is: its default if it isn't there; nothing if it can't be read.
fn part<T: DeserializeOwned + Default>(object: &Value, field: &str) -> Option<T> {
    object.get(field).map_or_else(|| Some(T::default()), |value| T::deserialize(value).ok())
}

fn decode<T: DeserializeOwned>(object: &Value, within: &str) -> Result<T, Problem> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => "spec".to_owned(),
            path => format!("{within}{path}"),
        };
        READABLE.at(field, plain(&error.into_inner().to_string()), "see `kubectl explain` for the type of the field")
    })
}

/// What serde says of a value, without the names of Rust's types.
fn plain(text: &str) -> String {
    let (found, expected) = text.split_once(", expected ").unwrap_or((text, ""));
    let expected = match expected.split(' ').next().unwrap_or_default() {
        "" => return text.to_owned(),
        "i32" | "i64" | "u32" | "u64" => "an integer",
        "struct" | "map" => "an object",
        _ if expected.starts_with("a map") => "an object",
        _ if expected.starts_with("a sequence") => "a list",
        _ => expected,
    };
    format!(
        "{}, expected {expected}",
        found.replace("type: map", "type: object").replace("type: sequence", "type: list")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_quickly_or_not_it_is_the_same() {
        for (component, spec) in [
            (
                Component::Serving,
                json!({"version": "1", "ingress": {"kourier": {"enabled": true}}, "controller-custom-certs": {"type": "Secret", "name": "a"}, "security": null}),
            ),
            (
                Component::Eventing,
                json!({"source": {"kafka": {"enabled": true}}, "defaultBrokerClass": "a", "workloads": [{"name": "b"}], "ingress": {"kourier": 1}}),
            ),
        ] {
            let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"name": "a", "labels": {"b": "c"}},
                "spec": spec, "status": {"version": "1", "conditions": [{"type": "Ready", "status": "True"}]}});
            let slow = match component {
                Component::Serving => Knative::Serving(serde_json::from_value(object.clone()).unwrap()),
                Component::Eventing => Knative::Eventing(serde_json::from_value(object.clone()).unwrap()),
            };
            assert_eq!(quickly(component, &object), Some(slow));
        }
    }

    #[test]
    fn no_spec_null_and_empty_mean_the_same() {
        for component in Component::ALL {
            let object = |spec: Option<Value>| {
                let mut object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"name": "a"}});
                spec.into_iter().for_each(|spec| object["spec"] = spec);
                read(component, &object)
            };
            let empty = object(Some(json!({})));
            assert!(empty.is_ok(), "{empty:?}");
            assert_eq!(object(None), empty);
            assert_eq!(object(Some(Value::Null)), empty);
            let nulls = json!({"workloads": null, "config": {"a": null}, "registry": {"override": null}, "clusterProfileRef": null});
            assert_eq!(object(Some(nulls)), object(Some(json!({"config": {}, "registry": {}}))));
        }
    }

    #[test]
    fn what_is_certain_of_an_unreadable_object_is_salvaged() {
        let object = |spec: Value| json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": {"version": "1.2.3"}});
        let salvaged = salvage(
            Component::Eventing,
            &object(json!({"workloads": "x", "clusterProfileRef": {"name": "c", "namespace": "d"}})),
        );
        let salvaged = salvaged.unwrap();
        assert_eq!(salvaged.common().cluster_profile_ref.as_ref().map(ToString::to_string).as_deref(), Some("d/c"));
        assert_eq!(salvaged.status().and_then(|s| s.version.as_deref()), Some("1.2.3"));
        assert_eq!(salvage(Component::Eventing, &object(json!({"clusterProfileRef": "c"}))), None);
        assert_eq!(salvage(Component::Eventing, &object(json!([]))), None);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_path() {
        for (spec, field) in [
            (json!({"workloads": [{"name": "a"}, {"name": "b", "replicas": "two"}]}), "spec.workloads[1].replicas"),
            (json!({"resources": [{"limits": {}}]}), "spec.resources[0]"),
            (json!({"config": {"features": {"a": 1}}}), "spec.config.features.a"),
            (json!({"ingress": {"kourier": {"enabled": "yes"}}}), "spec.ingress.kourier.enabled"),
            (json!([]), "spec"),
        ] {
            let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": "a"}, "spec": spec});
            assert_eq!(read(Component::Serving, &object).unwrap_err().field, field, "{spec}");
        }
    }
}
