//! A custom resource as stored on the hub, valid or not. Pure.

use std::ops::Deref;
use std::sync::Arc;

use knative_operator_rules as rules;
use knative_operator_shared::api::{Component, Knative, KnativeEventing, KnativeServing};
use knative_operator_shared::label::INSTALLED_IN;
use kube::core::DynamicObject;
use serde_json::{Value, json};

/// A custom resource as stored on the hub.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The resource. If it is invalid: its metadata, status and target cluster, as far as they can
    /// be parsed.
    pub resource: Arc<Knative>,
    /// Why it can't be parsed, if it is invalid.
    pub unreadable: Option<Unreadable>,
}

/// A stored resource that violates the CustomResourceDefinition: an older definition admitted it,
/// or someone edited etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Field, problem and fix.
    pub message: String,
    /// Whether the target cluster is known nevertheless. Only then can the operator delete the
    /// installation.
    pub has_target: bool,
}

impl Deref for Desired {
    type Target = Knative;

    fn deref(&self) -> &Knative {
        &self.resource
    }
}

impl Desired {
    /// Parses `object`, a resource of `component`.
    pub fn parse(component: Component, object: DynamicObject) -> Self {
        let DynamicObject { metadata, data, .. } = object;
        let mut whole = data;
        // The controller decides about the namespace; users who write a status must not.
        if let Some(annotations) = whole.pointer_mut("/status/annotations").and_then(Value::as_object_mut) {
            annotations.remove(INSTALLED_IN);
        }
        // Metadata has string keys only, so it always serializes.
        whole["metadata"] = serde_json::to_value(metadata).unwrap_or_default();
        match rules::parse(component, &whole) {
            Ok(resource) => Self { resource: Arc::new(resource), unreadable: None },
            Err(violation) => Self::unreadable(component, &whole, violation.to_string()),
        }
    }

    fn unreadable(component: Component, object: &Value, message: String) -> Self {
        let partial = rules::parse_partially(component, object);
        let has_target = partial.is_some();
        // Also without its status, it keeps its name and its owners.
        let bare = || rules::parse_partially(component, &json!({"metadata": object["metadata"]}));
        // The metadata was parsed before.
        let resource = partial.or_else(bare).unwrap_or_else(|| match component {
            Component::Serving => Knative::Serving(KnativeServing::default()),
            Component::Eventing => Knative::Eventing(KnativeEventing::default()),
        });
        Self { resource: Arc::new(resource), unreadable: Some(Unreadable { message, has_target }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "a", "namespace": "b", "finalizers": ["f"]}, "spec": spec, "status": {"version": "1.2.3"},
        }))
        .unwrap()
    }

    #[test]
    fn unreadable_spec_keeps_metadata_status_and_target() {
        let profile = json!({"name": "c", "namespace": "d"});
        let desired =
            Desired::parse(Component::Serving, object(&json!({"clusterProfileRef": profile, "workloads": "all"})));
        let unreadable = desired.unreadable.clone().unwrap();
        assert!(
            unreadable.has_target && unreadable.message.starts_with("spec.workloads: invalid type"),
            "{unreadable:?}"
        );
        assert_eq!(
            (desired.name(), desired.namespace(), desired.meta().finalizers.as_ref().map(Vec::len)),
            ("a", "b", Some(1))
        );
        assert_eq!(desired.status().and_then(|s| s.version.as_deref()), Some("1.2.3"));
        assert!(desired.common().cluster_profile_ref.is_some());
        let desired = Desired::parse(Component::Serving, object(&json!({"clusterProfileRef": "c"})));
        assert_eq!((desired.unreadable.clone().map(|u| u.has_target), desired.name()), (Some(false), "a"));
    }

    #[test]
    fn stored_status_does_not_move_an_installation() {
        let mut object = object(&json!({"clusterProfileRef": {"name": "c", "namespace": "d"}}));
        object.data["status"]["annotations"] = json!({INSTALLED_IN: "victim"});
        assert_eq!(Desired::parse(Component::Serving, object).target_namespace(), "knative-serving");
    }

    #[test]
    fn missing_spec_is_readable() {
        let mut object = object(&json!({}));
        object.data.as_object_mut().unwrap().remove("spec");
        assert!(Desired::parse(Component::Serving, object).unreadable.is_none());
    }
}
