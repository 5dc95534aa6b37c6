//! Parses custom resources, with field paths in errors.

use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{
    CommonSpec, Component, Kind, Knative, KnativeEventing, KnativeEventingSpec, KnativeServing, KnativeServingSpec,
    KnativeStatus,
};
use knative_operator_shared::strict::{self, Strict};

/// Types of fields.
pub static READABLE: Rule = Rule {
    id: "readable",
    severity: Severity::Error,
    requirement: "Every field has the type in the CustomResourceDefinition.",
    valid: Example::serving(r#"{"ingress": {"istio": {"enabled": true}}}"#),
    invalid: Example::serving(r#"{"ingress": {"istio": {"enabled": "yes"}}}"#),
};

/// Parses `object` as a custom resource of `component`. A missing `spec`, `spec: null` and `spec:
/// {}` mean the same. Null counts as omitted, as in the API server for fields that are not
/// `nullable`.
pub fn parse(component: Component, object: &Value) -> Result<Knative, Violation> {
    // The path of an error is determined only after a failure, because that is slow.
    if let Some(resource) = parse_fast(component, object) {
        return Ok(resource);
    }
    let mut object = object.clone();
    drop_nulls(&mut object);
    if let Some(resource) = parse_fast(component, &object) {
        return Ok(resource);
    }
    if object.get("spec").is_none() {
        object["spec"] = empty().clone();
    }
    // The shared part is parsed on its own: serde loses the path of an error in flattened structs,
    // and takes a list for an object there.
    let kind = Kind::from(component);
    if let Some(Err(violation)) = object.get("spec").map(|spec| parse_with_path::<CommonSpec>(spec, "spec.", kind)) {
        return Err(violation);
    }
    match component {
        Component::Serving => parse_with_path(&object, "", kind).map(Knative::Serving),
        Component::Eventing => parse_with_path(&object, "", kind).map(Knative::Eventing),
    }
}

/// Parses what is certain of an `object` that [`parse`] refuses: its metadata, its target cluster,
/// and what its status tells of the installation. `None` if the target cluster or the status is not
/// certain.
pub fn parse_partially(component: Component, object: &Value) -> Option<Knative> {
    let mut object = object.clone();
    drop_nulls(&mut object);
    let cluster_profile_ref = match object.get("spec").unwrap_or(empty()) {
        Value::Object(spec) => parse_field(&Value::Object(spec.clone()), "clusterProfileRef")?,
        _ => return None,
    };
    let common = CommonSpec { cluster_profile_ref, ..CommonSpec::default() };
    let metadata = parse_field(&object, "metadata")?;
    let status = match object.get("status") {
        Some(status) => Some(parse_status(status)?),
        None => None,
    };
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

/// The status; without its conditions, which are made again, if those can't be parsed.
fn parse_status(status: &Value) -> Option<KnativeStatus> {
    if let Ok(status) = strict::read::<KnativeStatus>(status) {
        return Some(status);
    }
    Some(KnativeStatus {
        version: parse_field(status.as_object().map(|_| status)?, "version")?,
        annotations: parse_field(status, "annotations")?,
        manifests: parse_field(status, "manifests")?,
        ..KnativeStatus::default()
    })
}

/// Removes keys with null values from `value`, recursively.
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

/// Whether [`drop_nulls`] would change `value`.
pub fn has_nulls(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().any(|value| value.is_null() || has_nulls(value)),
        Value::Array(items) => items.iter().any(has_nulls),
        _ => false,
    }
}

fn empty() -> &'static Value {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
    &EMPTY
}

/// Parses the parts of `object` separately: for a flattened struct, serde would copy everything
/// several times.
fn parse_fast(component: Component, object: &Value) -> Option<Knative> {
    let own = object.get("spec").filter(|spec| !spec.is_null()).unwrap_or(empty());
    let (metadata, common) = (parse_field(object, "metadata")?, strict::read::<CommonSpec>(own).ok()?);
    Some(match component {
        Component::Serving => {
            let (controller_custom_certs, ingress, security) = (
                parse_field(own, "controller-custom-certs")?,
                parse_field(own, "ingress")?,
                parse_field(own, "security")?,
            );
            let spec = KnativeServingSpec { common, controller_custom_certs, ingress, security };
            Knative::Serving(KnativeServing { metadata, spec, status: parse_field(object, "status")? })
        }
        Component::Eventing => {
            let (default_broker_class, sink_binding_selection_mode, source) = (
                parse_field(own, "defaultBrokerClass")?,
                parse_field(own, "sinkBindingSelectionMode")?,
                parse_field(own, "source")?,
            );
            let spec = KnativeEventingSpec { common, default_broker_class, sink_binding_selection_mode, source };
            Knative::Eventing(KnativeEventing { metadata, spec, status: parse_field(object, "status")? })
        }
    })
}

/// Parses `field` of `object`: its default if missing, `None` if invalid.
fn parse_field<T: DeserializeOwned + Default>(object: &Value, field: &str) -> Option<T> {
    object.get(field).map_or_else(|| Some(T::default()), |value| strict::read(value).ok())
}

/// Parses `object`, which a resource of `kind` has at the path `within`.
pub(super) fn parse_with_path<T: DeserializeOwned>(object: &Value, within: &str, kind: Kind) -> Result<T, Violation> {
    serde_path_to_error::deserialize(Strict(object)).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => "spec".to_owned(),
            path => format!("{within}{path}"),
        };
        let text = error.into_inner().to_string();
        let is_number = text.starts_with("invalid type: floating point") || text.starts_with("invalid type: integer");
        let fix = if is_number && text.ends_with("expected a string") {
            "write the number in quotes".to_owned()
        } else {
            format!("see `kubectl explain {}.{} --recursive`", kind.plural(), explained(&field))
        };
        READABLE.at(field, describe(&text), fix)
    })
}

/// The part of the path `field` that `kubectl explain` knows in any case: below it may be keys of
/// maps, which are no fields.
fn explained(field: &str) -> String {
    let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let parts = field.split('.').take(2).map(|part| part.chars().take_while(is_part).collect::<String>());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
}

/// Serde's message without the names of Rust types.
fn describe(text: &str) -> String {
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
    fn number_in_place_of_a_string_is_to_be_quoted() {
        for (spec, field) in [(json!({"version": 1.22}), "spec.version"), (json!({"version": 1}), "spec.version")] {
            let resource = json!({"metadata": {"name": "a"}, "spec": spec});
            let error = parse(Component::Serving, &resource).unwrap_err().to_string();
            assert!(error.starts_with(field) && error.ends_with("write the number in quotes"), "{error}");
        }
    }

    #[test]
    fn fast_and_slow_parsing_agree() {
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
            assert_eq!(parse_fast(component, &object), Some(slow));
        }
    }

    #[test]
    fn missing_null_and_empty_spec_are_equal() {
        for component in Component::ALL {
            let object = |spec: Option<Value>| {
                let mut object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"name": "a"}});
                spec.into_iter().for_each(|spec| object["spec"] = spec);
                parse(component, &object)
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
    fn invalid_object_is_parsed_partially() {
        let object = |spec: Value| json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": {"version": "1.2.3"}});
        let partial = parse_partially(
            Component::Eventing,
            &object(json!({"workloads": "x", "clusterProfileRef": {"name": "c", "namespace": "d"}})),
        );
        let partial = partial.unwrap();
        assert_eq!(partial.common().cluster_profile_ref.as_ref().map(ToString::to_string).as_deref(), Some("d/c"));
        assert_eq!(partial.status().and_then(|s| s.version.as_deref()), Some("1.2.3"));
        assert_eq!(parse_partially(Component::Eventing, &object(json!({"clusterProfileRef": "c"}))), None);
        assert_eq!(parse_partially(Component::Eventing, &object(json!([]))), None);
    }

    #[test]
    fn error_has_field_path() {
        for (spec, field) in [
            (json!({"workloads": [{"name": "a"}, {"name": "b", "replicas": "two"}]}), "spec.workloads[1].replicas"),
            (json!({"resources": [{"limits": {}}]}), "spec.resources[0]"),
            (json!({"config": {"features": {"a": 1}}}), "spec.config.features.a"),
            (json!({"ingress": {"kourier": {"enabled": "yes"}}}), "spec.ingress.kourier.enabled"),
            (json!([]), "spec"),
        ] {
            let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": "a"}, "spec": spec});
            assert_eq!(parse(Component::Serving, &object).unwrap_err().field, field, "{spec}");
        }
    }

    #[test]
    fn error_has_a_command_that_describes_the_field() {
        for (component, spec, command) in [
            (Component::Serving, json!({"clusterProfileRef": {"name": "a"}}), "knativeservings.spec.clusterProfileRef"),
            (Component::Serving, json!({"resources": [{"limits": {}}]}), "knativeservings.spec.resources"),
            (Component::Eventing, json!({"config": {"features": {"a": []}}}), "knativeeventings.spec.config"),
            (Component::Eventing, json!([]), "knativeeventings.spec"),
        ] {
            let fix = parse(component, &json!({"metadata": {"name": "a"}, "spec": spec})).unwrap_err().fix;
            assert_eq!(fix, format!("see `kubectl explain {command} --recursive`"), "{spec}");
        }
    }
}
