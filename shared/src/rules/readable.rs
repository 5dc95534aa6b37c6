//! An object has the types that its CRD says.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Example, Problem, Rule, Severity};
use crate::api::{CommonSpec, Component, Knative};

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

fn decode<T: DeserializeOwned>(object: &Value, within: &str) -> Result<T, Problem> {
    // Where it goes wrong is asked only if it does: that takes its time.
    if let Ok(read) = T::deserialize(object) {
        return Ok(read);
    }
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
