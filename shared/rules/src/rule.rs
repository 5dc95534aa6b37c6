//! Rules, their examples, and their violations.

use serde_json::{Value, json};

use knative_operator_shared::api::{Component, Kind};
use knative_operator_shared::label::GROUP;

/// Severity of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The resource can't work: it is refused.
    Error,
    /// Deprecated, without effect, or dangerous: the resource is admitted with a warning.
    Warning,
}

/// A rule for the custom resources.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Identifier, for metrics and documentation. Never changes.
    pub id: &'static str,
    /// Severity of a violation.
    pub severity: Severity,
    /// What the rule requires, as a sentence.
    pub requirement: &'static str,
    /// A resource that follows the rule.
    pub valid: Example,
    /// A resource that violates the rule.
    pub invalid: Example,
}

/// An example for a rule as JSON: a spec, or a whole resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// Kind of the resource.
    pub kind: Kind,
    /// The resource before a change; `None` if it is created.
    pub before: Option<&'static str>,
    /// The resource afterwards; `None` if it is deleted.
    pub after: Option<&'static str>,
}

impl Example {
    /// A KnativeServing that is created.
    pub const fn serving(after: &'static str) -> Self {
        Self { kind: Kind::Component(Component::Serving), before: None, after: Some(after) }
    }

    /// A KnativeEventing that is created.
    pub const fn eventing(after: &'static str) -> Self {
        Self { kind: Kind::Component(Component::Eventing), before: None, after: Some(after) }
    }

    /// A KnativeFleet that is created.
    pub const fn fleet(after: &'static str) -> Self {
        Self { kind: Kind::Fleet, before: None, after: Some(after) }
    }

    /// A KnativeFleet that is changed.
    pub const fn fleet_change(before: &'static str, after: &'static str) -> Self {
        Self { kind: Kind::Fleet, before: Some(before), after: Some(after) }
    }

    /// A KnativeServing that is changed.
    pub const fn change(before: &'static str, after: &'static str) -> Self {
        Self { kind: Kind::Component(Component::Serving), before: Some(before), after: Some(after) }
    }

    /// A KnativeServing that is deleted.
    pub const fn deletion(before: &'static str) -> Self {
        Self { kind: Kind::Component(Component::Serving), before: Some(before), after: None }
    }
}

impl Example {
    /// The object for `text` (one of the two), in namespace `rules`, with a default name.
    pub fn object(&self, text: &str) -> Value {
        // Invalid JSON would fail the test of all examples.
        let given: Value = serde_json::from_str(text).unwrap_or_default();
        let mut object = if given.get("spec").is_some() { given } else { json!({"spec": given}) };
        object["apiVersion"] = json!(format!("{GROUP}/{}", self.kind.version()));
        object["kind"] = json!(self.kind.name());
        object["metadata"]["namespace"] = json!("rules");
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!("example");
        }
        object
    }
}

impl Rule {
    /// A violation of the rule at `field`.
    pub fn at(
        &'static self,
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Violation {
        Violation { rule: self, severity: self.severity, field: field.into(), message: message.into(), fix: fix.into() }
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: &'static Rule,
    /// Its severity, which is that of the rule, unless the webhook only warns of it.
    pub severity: Severity,
    /// Path of the field, as in `kubectl explain`.
    pub field: String,
    /// The problem, with the values.
    pub message: String,
    /// The fix.
    pub fix: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.message, self.fix)
    }
}

impl Violation {
    /// Whether the webhook refuses the resource.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// What it has in common with the same violation at another index of a list.
    pub fn identity(&self) -> (&'static str, &str, &str, Vec<&str>) {
        (self.rule.id, &self.message, &self.fix, without_indices(&self.field).collect())
    }
}

/// `path` without list indices.
fn without_indices(path: &str) -> impl Iterator<Item = &str> {
    path.split('[').map(|part| {
        part.split_once(']')
            .filter(|(index, _)| index.bytes().all(|b| b.is_ascii_digit()))
            .map_or(part, |(_, rest)| rest)
    })
}
