//! Moves objects and their references to the namespace of the installation.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::add_metadata;
use knative_operator_objects::kinds::is_cluster_scoped;
use knative_operator_objects::{gvk, text};

/// Sets the namespace of `object` and of its references: subjects of bindings, Services of
/// webhooks, CRD conversion and APIServices. All Namespaces become the one of the installation.
pub fn set_namespace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let namespace = json!(cx.namespace);
    match text(object, "/kind") {
        "Namespace" => object["metadata"]["name"] = namespace.clone(),
        "ClusterRoleBinding" | "RoleBinding" => {
            for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
                replace(subject, "/namespace", &namespace);
            }
        }
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
                replace(webhook, "/clientConfig/service/namespace", &namespace);
            }
        }
        "CustomResourceDefinition" => {
            replace(object, "/spec/conversion/webhook/clientConfig/service/namespace", &namespace);
        }
        "APIService" => replace(object, "/spec/service/namespace", &namespace),
        _ => {}
    }
    if !is_cluster_scoped(&gvk(object), cx.kinds) {
        object["metadata"]["namespace"] = namespace;
    }
    Ok(())
}

fn replace(object: &mut Value, pointer: &str, with: &Value) {
    if let Some(found) = object.pointer_mut(pointer) {
        *found = with.clone();
    }
}

/// `spec.namespaceConfiguration`: labels and annotations of the Namespace.
pub fn configure_namespace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if text(object, "/kind") == "Namespace" {
        apply_namespace_settings(object, cx.resource);
    }
    Ok(())
}

/// Sets the labels and annotations of the spec in `namespace`.
pub fn apply_namespace_settings(namespace: &mut Value, resource: &Knative) {
    let Some(settings) = resource.common().namespace_settings() else { return };
    add_metadata(namespace, "labels", &settings.labels);
    add_metadata(namespace, "annotations", &settings.annotations);
}
