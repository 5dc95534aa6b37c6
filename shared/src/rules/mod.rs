//! What is refused, and what to do instead. Each rule is a pure function with an identifier; the webhook and the
//! operator call the same ones, so they can't disagree.

mod namespace;
mod quantity;
mod readable;
mod reference;
mod unreachable;
mod version;

use crate::api::Knative;

pub use readable::{READABLE, read};

/// Something wrong with a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Identifier of the rule, for metrics and documentation.
    pub rule: &'static str,
    /// Path of the field, as `kubectl explain` spells it.
    pub field: String,
    /// What is wrong, with the values.
    pub message: String,
    /// What to do instead.
    pub fix: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.message, self.fix)
    }
}

/// Everything wrong with `new`, which replaces `old` if there is one. An update is never refused for a fault that
/// `old` had already.
pub fn judge(new: &Knative, old: Option<&Knative>) -> Vec<Problem> {
    let mut problems = faults(new);
    if let Some(old) = old {
        let before = faults(old);
        problems.retain(|p| !before.contains(p));
        problems.extend(reference::immutable(new, old));
    }
    problems
}

/// Everything wrong with `resource` by itself.
pub fn faults(resource: &Knative) -> Vec<Problem> {
    let mut problems = reference::names(resource);
    problems.extend(namespace::one_meaning(resource));
    problems.extend(version::syntax(resource));
    problems.extend(quantity::syntax(resource));
    problems.extend(unreachable::annotation(resource));
    problems
}
