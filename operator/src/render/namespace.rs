//! Everything lives in one namespace, and mentions of namespaces follow.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::Context;
use super::pod::add_metadata;
use crate::kinds::cluster_scoped;
use crate::object::{gvk, text};

/// Puts `object` into the target namespace, and what it refers to as well: subjects of bindings, Services behind
/// webhooks, CRD conversion and APIServices. All Namespace objects become the target one.
pub fn inject(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
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
    if !cluster_scoped(&gvk(object), cx.kinds) {
        object["metadata"]["namespace"] = namespace;
    }
    Ok(())
}

fn replace(object: &mut Value, pointer: &str, with: &Value) {
    if let Some(found) = object.pointer_mut(pointer) {
        *found = with.clone();
    }
}

/// `spec.namespaceConfiguration`: labels and annotations for the Namespace.
pub fn configure(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    if text(object, "/kind") == "Namespace" {
        settle(object, cx.resource);
    }
    Ok(())
}

/// Puts the settings of `resource` into `namespace`, over what it has.
pub fn settle(namespace: &mut Value, resource: &Knative) {
    let Some(settings) = resource.common().namespace_settings() else { return };
    add_metadata(namespace, "labels", &settings.labels);
    add_metadata(namespace, "annotations", &settings.annotations);
}
