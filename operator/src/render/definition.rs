//! CustomResourceDefinitions that are as they should be already.

use knative_operator_shared::label::APP_NAME;
use serde_json::Value;

use super::Context;
use crate::object::text;

/// Whether no transform would change `object`, a definition: only its label and the namespace of its conversion could be
/// changed at all. Most definitions are right as they are released, and so large that copying them is half of all work.
pub fn is_right(object: &Value, cx: &Context<'_>) -> bool {
    let conversion = object.pointer("/spec/conversion/webhook/clientConfig/service/namespace");
    text(object, "/kind") == "CustomResourceDefinition"
        && object["metadata"]["labels"][APP_NAME] == cx.resource.component().canonical()
        && conversion.is_none_or(|namespace| namespace == cx.namespace)
}
