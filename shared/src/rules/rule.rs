//! What a rule is, and all that there are.

use serde_json::{Value, json};

use crate::api::Component;
use crate::label::{GROUP, VERSION};

use super::{
    availability, budgets, certificates, config, deprecated, eventing, ingress, istio, kourier, manifests, meta, names,
    namespace, pod, probes, protected, quantity, readable, reference, registry, target, unreachable, version,
    workloads,
};

/// How bad it is to break a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// It can never work: refused.
    Error,
    /// Deprecated, ineffective or dangerous: admitted with a warning.
    Warning,
}

/// A rule about a resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its identifier, for metrics and documentation. Never changed.
    pub id: &'static str,
    /// How bad it is to break it.
    pub severity: Severity,
    /// What must hold, as a sentence.
    pub says: &'static str,
    /// A resource that keeps it.
    pub kept: Example,
    /// A resource that breaks it.
    pub broken: Example,
}

/// A resource, as JSON, that shows a rule: its spec, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// Which kind it is.
    pub component: Component,
    /// What it was before it is changed; it is created if there is nothing.
    pub before: Option<&'static str>,
    /// What it is to be; nothing: it is deleted.
    pub after: Option<&'static str>,
}

impl Example {
    /// A KnativeServing that is created.
    pub const fn serving(after: &'static str) -> Self {
        Self { component: Component::Serving, before: None, after: Some(after) }
    }

    /// A KnativeEventing that is created.
    pub const fn eventing(after: &'static str) -> Self {
        Self { component: Component::Eventing, before: None, after: Some(after) }
    }

    /// A KnativeServing that is changed.
    pub const fn change(before: &'static str, after: &'static str) -> Self {
        Self { component: Component::Serving, before: Some(before), after: Some(after) }
    }

    /// A KnativeServing that is deleted.
    pub const fn deletion(before: &'static str) -> Self {
        Self { component: Component::Serving, before: Some(before), after: None }
    }
}

impl Example {
    /// The object that `text` (one of its two) stands for, in namespace `rules`, with a name where it has none.
    pub fn object(&self, text: &str) -> Value {
        // What is no JSON is no example: the tests of all of them would fail.
        let given: Value = serde_json::from_str(text).unwrap_or_default();
        let mut object = if given.get("spec").is_some() { given } else { json!({"spec": given}) };
        object["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
        object["kind"] = json!(self.component.kind());
        object["metadata"]["namespace"] = json!("rules");
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!("example");
        }
        object
    }
}

impl Rule {
    /// It is broken at `field`.
    pub fn at(
        &'static self,
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> super::Problem {
        super::Problem { rule: self, field: field.into(), message: message.into(), fix: fix.into() }
    }
}

/// All rules, by subject.
pub static ALL: &[&Rule] = &[
    &readable::READABLE,
    &reference::IMMUTABLE,
    &reference::NAME,
    &reference::ANCHOR,
    &target::PROFILE,
    &target::HEALTHY,
    &target::ONE,
    &version::SYNTAX,
    &version::AVAILABLE,
    &version::NEIGHBOUR,
    &version::DOWNGRADE,
    &manifests::URL,
    &manifests::VERSION,
    &manifests::AGREE,
    &registry::KEY,
    &registry::IMAGE,
    &registry::SECRET,
    &availability::REPLICAS,
    &availability::ONE,
    &workloads::NAME,
    &workloads::TWICE,
    &workloads::REPLICAS,
    &quantity::SYNTAX,
    &quantity::LIMIT,
    &meta::LABEL,
    &meta::ANNOTATION,
    &pod::ENV,
    &pod::TOLERATION,
    &pod::AFFINITY,
    &pod::SPREAD,
    &probes::RANGE,
    &budgets::ONE_OF,
    &budgets::VALUE,
    &names::WORKLOAD,
    &names::CONTAINER,
    &names::SERVICE,
    &names::BUDGET,
    &names::CONFIG_MAP,
    &names::CONFIG_KEY,
    &names::IMAGE,
    &names::NO_EFFECT,
    &deprecated::FIELD,
    &ingress::ONE,
    &ingress::CLASS,
    &ingress::CLASS_MISSING,
    &istio::SERVER,
    &kourier::SERVICE,
    &kourier::PORT,
    &config::EXAMPLE,
    &config::KEY,
    &config::VALUE,
    &config::TWICE,
    &certificates::CUSTOM,
    &eventing::SELECTION,
    &eventing::BROKER,
    &eventing::BROKER_UNKNOWN,
    &namespace::ONE_MEANING,
    &unreachable::ANNOTATION,
    &protected::DELETION,
];
