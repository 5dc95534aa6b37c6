//! What is parsed of an object, once for each change of it: an overview is made again whenever
//! another object changes. Pure.

use std::sync::Arc;

use knative_operator_rules::{parse, parse_fleet, unused_ingress};
use knative_operator_shared::api::{Component, KnativeFleet};
use serde_json::Value;

use super::watched::Watched;

/// What is parsed of an object.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// What works in a resource of a component, but probably not as its author expects.
    pub note: Option<Arc<str>>,
    /// The fleet; `None` if it can't be read.
    pub fleet: Option<Arc<KnativeFleet>>,
}

impl Parsed {
    /// Parses `object` of `kind`.
    pub fn of(kind: Watched, object: &Value) -> Self {
        match kind {
            Watched::Servings => Self { note: note(Component::Serving, object), fleet: None },
            Watched::Eventings => Self { note: note(Component::Eventing, object), fleet: None },
            Watched::Fleets => Self { note: None, fleet: parse_fleet(object).ok().map(Arc::new) },
            Watched::Profiles | Watched::Decisions | Watched::Events => Self::default(),
        }
    }
}

fn note(component: Component, resource: &Value) -> Option<Arc<str>> {
    // Few resources have an ingress without a class; the others need not be parsed.
    resource.pointer("/spec/ingress")?;
    let parsed = parse(component, resource).ok()?;
    unused_ingress(&parsed).map(|unused| unused.to_string().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ingress_that_no_service_uses_is_noted() {
        let note = |kind, spec: Value| {
            Parsed::of(kind, &json!({"metadata": {"namespace": "n", "name": "s"}, "spec": spec})).note
        };
        let kourier = json!({"ingress": {"kourier": {"enabled": true}}});
        let found = note(Watched::Servings, kourier.clone()).unwrap();
        assert!(found.contains("no Service uses kourier"), "{found}");
        assert!(note(Watched::Servings, json!({})).is_none());
        // Neither does a spec that can't be read keep the rest from being shown.
        for (kind, spec) in [(Watched::Eventings, kourier), (Watched::Servings, json!({"ingress": "kourier"}))] {
            assert!(note(kind, spec).is_none());
        }
    }
}
