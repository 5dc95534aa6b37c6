//! The label that selects a component's objects.

use knative_operator_shared::label::APP_NAME;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;

/// Sets `app.kubernetes.io/name`.
pub fn set(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let labels = &mut object["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[APP_NAME] = json!(cx.resource.component().canonical());
    Ok(())
}
