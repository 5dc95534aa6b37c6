//! What is refused and what is warned of, and what to do instead. Each rule is a pure function with an identifier; the webhook, the
//! operator and `knative-operator lint` call the same ones, so they can't disagree.

mod availability;
mod budgets;
mod certificates;
mod config;
mod config_values;
mod deprecated;
mod eventing;
mod ingress;
mod istio;
mod kourier;
mod manifests;
mod meta;
mod names;
mod namespace;
mod pod;
mod probes;
mod protected;
mod quantity;
mod readable;
mod reference;
mod registry;
mod rule;
mod surroundings;
mod syntax;
mod target;
mod unreachable;
mod version;
mod workloads;

use crate::api::Knative;

pub use names::{autoscaler_of, short};
pub use protected::deletion;
pub use readable::{READABLE, drop_nulls, read, salvage};
pub use rule::{ALL, Example, Rule, Severity};
pub use surroundings::{Container, Names, Profile, Releases, Surroundings, Workload};

/// The largest number that a field of type `int32` holds. Not every API server enforces it.
const MAX_INT32: i64 = i32::MAX as i64;

/// The rules that hold even for a resource that is being deleted.
pub static GUARDS: [&Rule; 2] = [&reference::IMMUTABLE, &unreachable::ANNOTATION];

/// The rules without which nobody knows what is meant: what breaks one of the others can at least be rendered.
pub static MEANING: [&Rule; 5] =
    [&reference::ANCHOR, &version::SYNTAX, &quantity::SYNTAX, &namespace::ONE_MEANING, &unreachable::ANNOTATION];

/// Something wrong with a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The rule that is broken.
    pub rule: &'static Rule,
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

impl Problem {
    /// Whether it is refused.
    pub fn is_error(&self) -> bool {
        self.rule.severity == Severity::Error
    }

    /// Whether it is the same fault as `other`, wherever in a list the element is now.
    fn is_same(&self, other: &Self) -> bool {
        self.rule == other.rule
            && self.message == other.message
            && self.fix == other.fix
            && unindexed(&self.field).eq(unindexed(&other.field))
    }
}

/// `path` without the places in lists.
fn unindexed(path: &str) -> impl Iterator<Item = &str> {
    path.split('[').map(|part| {
        part.split_once(']')
            .filter(|(index, _)| index.bytes().all(|b| b.is_ascii_digit()))
            .map_or(part, |(_, rest)| rest)
    })
}

/// Everything wrong with `new`, which replaces `old` if there is one, as far as `around` tells. An update is never refused for a fault that
/// `old` had already and that it leaves as it is.
pub fn judge(new: &Knative, old: Option<&Knative>, around: &Surroundings<'_>) -> Vec<Problem> {
    let mut problems = faults(new, around);
    let Some(old) = old else {
        problems.extend(target::one(new, around));
        return problems;
    };
    let mut before: Vec<Problem> = faults(old, around).into_iter().filter(Problem::is_error).collect();
    // One for one: what is there twice now and was there once is new.
    problems.retain(|problem| match before.iter().position(|b| b.is_same(problem)) {
        Some(place) => {
            before.swap_remove(place);
            false
        }
        None => true,
    });
    problems.extend(reference::immutable(new, old));
    problems
}

/// Everything wrong with `resource` by itself, as far as `around` tells.
pub fn faults(resource: &Knative, around: &Surroundings<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    reference::names(resource, &mut found);
    target::profile(resource, around, &mut found);
    version::check(resource, around, &mut found);
    manifests::check(resource, &mut found);
    registry::check(resource, &mut found);
    availability::check(resource, &mut found);
    workloads::check(resource, &mut found);
    quantity::check(resource, &mut found);
    meta::check(resource, &mut found);
    pod::check(resource, &mut found);
    probes::check(resource, &mut found);
    budgets::check(resource, &mut found);
    deprecated::check(resource, &mut found);
    ingress::check(resource, &mut found);
    istio::check(resource, &mut found);
    kourier::check(resource, &mut found);
    config::check(resource, &mut found);
    certificates::check(resource, &mut found);
    eventing::check(resource, &mut found);
    namespace::check(resource, &mut found);
    unreachable::check(resource, &mut found);
    if let Some(names) = around.names(resource) {
        found.extend(names.unmatched(resource));
    }
    found
}

#[cfg(test)]
mod tests;
