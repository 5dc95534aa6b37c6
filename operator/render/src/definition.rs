//! CustomResourceDefinitions that need no transform.

use super::context::Context;
use knative_operator_objects::CompactObject;

/// Whether no transform would change the definition `object`: they affect its label and the
/// namespace of its conversion webhook only. Most released definitions are correct, and copying
/// them would take half of the render time.
pub fn is_unchanged(object: &CompactObject, cx: &Context<'_>) -> bool {
    object.definition().is_some_and(|definition| {
        definition.part_of == cx.resource.component().canonical()
            && definition.conversion_namespace.as_ref().is_none_or(|namespace| namespace == cx.namespace)
    })
}
