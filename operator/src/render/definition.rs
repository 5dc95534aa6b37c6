//! CustomResourceDefinitions that are as they should be already.

use super::Context;
use crate::packed::Packed;

/// Whether no transform would change `object`, a definition: only its label and the namespace of its conversion could be
/// changed at all. Most definitions are right as they are released, and so large that copying them is half of all work.
pub fn is_right(object: &Packed, cx: &Context<'_>) -> bool {
    object.definition().is_some_and(|definition| {
        definition.part_of == cx.resource.component().canonical()
            && definition.conversion.as_ref().is_none_or(|namespace| namespace == cx.namespace)
    })
}
