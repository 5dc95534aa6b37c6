//! An object has the types that its CRD says.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Example, Problem, Rule, Severity};
use crate::api::{CommonSpec, Component, Knative, KnativeEventing, KnativeEventingSpec, KnativeServing, KnativeServingSpec};

/// Types are right.
pub static READABLE: Rule = Rule {
    id: "readable",
    severity: Severity::Error,
    says: "Every field has the type that the CustomResourceDefinition says.",
    kept: Example::serving(r#"{"ingress": {"istio": {"enabled": true}}}"#),
    broken: Example::serving(r#"{"ingress": {"istio": {"enabled": "yes"}}}"#),
};

/// `object` as a custom resource of `component`.
pub fn read(component: Component, object: &Value) -> Result<Knative, Problem> {
    // Where it goes wrong is asked only if it does: that takes its time.
    if let Some(read) = quickly(component, object) {
        return Ok(read);
    }
    let read = match component {
        Component::Serving => decode(object, "").map(Knative::Serving),
        Component::Eventing => decode(object, "").map(Knative::Eventing),
    };
    // The part that both kinds share is read by itself to tell which field it is: flattened, nobody knows.
    read.map_err(|problem| match object.get("spec").map(|spec| decode::<CommonSpec>(spec, "spec.")) {
        Some(Err(closer)) => closer,
        _ => problem,
    })
}

/// The parts of `object`, each read by itself: flattened, everything would be copied first, several times.
fn quickly(component: Component, object: &Value) -> Option<Knative> {
    // A list would be read as the fields in their order.
    let own = object.get("spec").filter(|spec| spec.is_object())?;
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
        READABLE.at(field, error.into_inner().to_string(), "see `kubectl explain` for the type of the field")
    })
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
    fn what_cannot_be_read_is_told_with_its_path() {
        for (spec, field) in [
            (json!({"workloads": [{"name": "a"}, {"name": "b", "replicas": "two"}]}), "spec.workloads[1].replicas"),
            (json!({"resources": [{"limits": {}}]}), "spec.resources[0]"),
            (json!({"config": {"features": {"a": 1}}}), "spec.config.features.a"),
            (json!({"ingress": {"kourier": {"enabled": "yes"}}}), "spec.ingress.kourier.enabled"),
            (json!([]), "spec"),
        ] {
            let object =
                json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": "a"}, "spec": spec});
            assert_eq!(read(Component::Serving, &object).unwrap_err().field, field, "{spec}");
        }
    }
}
