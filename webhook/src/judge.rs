//! Whether a request may go on. Pure, but for what is known.

use knative_operator_shared::api::{Component, Knative, KnativeStatus};
use knative_operator_shared::label::{GROUP, ON_UNREACHABLE, VERSION};
use knative_operator_shared::rules::{self, Problem, Profile, Surroundings};
use serde::Deserialize;
use serde_json::Value;

use crate::known::Known;
use crate::review::Request;

/// The component that `request` is about, if it is one of ours.
pub fn component(request: &Request) -> Option<Component> {
    let ours = request.kind.group == GROUP && request.kind.version == VERSION && request.sub_resource.is_empty();
    Component::of_kind(&request.kind.kind).filter(|_| ours)
}

/// What is wrong with the request, and what is to be warned of; nothing if it may go on. An update that leaves the spec and what
/// decides over an installation as they are always passes, so that finalizers, labels and status can never be stuck.
pub fn judge(request: &Request, known: &Known) -> Vec<Problem> {
    let Some(component) = component(request) else { return Vec::new() };
    match request.operation.as_str() {
        "CREATE" => match rules::read(component, &request.object) {
            Ok(new) => told(&new.with_status(None), None, known),
            Err(problem) => vec![problem],
        },
        "UPDATE" if is_untouched(request) => Vec::new(),
        "UPDATE" => match rules::read(component, &request.object) {
            Ok(new) => update(component, new, request, known),
            Err(problem) => vec![problem],
        },
        "DELETE" => {
            rules::read(component, &request.old_object).ok().and_then(|old| rules::deletion(&old)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// What is to be told of an update to `new`. What it was before is read only if that matters: most updates are fine.
fn update(component: Component, new: Knative, request: &Request, known: &Known) -> Vec<Problem> {
    /// Where it is to be installed.
    fn reference(object: &Value) -> &Value {
        &object["spec"]["clusterProfileRef"]
    }
    let old = &request.old_object;
    let new = new.with_status(KnativeStatus::deserialize(&old["status"]).ok());
    if reference(&request.object) == reference(old) {
        let problems = faults(&new, known);
        if !problems.iter().any(Problem::is_error) {
            return if new.deleting() { Vec::new() } else { problems };
        }
    }
    let Ok(old) = rules::read(component, old) else {
        // The stored object is unreadable: any readable one is better.
        return faults(&new, known);
    };
    let mut problems = told(&new, Some(&old), known);
    if new.deleting() {
        problems.retain(|p| rules::GUARDS.contains(&p.rule));
    }
    problems
}

/// What is wrong with `resource` by itself.
fn faults(resource: &Knative, known: &Known) -> Vec<Problem> {
    let (releases, profile) = (known.releases(), profile(resource, known));
    rules::faults(resource, &Surroundings { releases: releases.as_deref(), profile, rival: None })
}

fn profile(resource: &Knative, known: &Known) -> Option<Profile> {
    resource.common().cluster_profile_ref.as_ref().and_then(|reference| known.profile(reference))
}

fn told(new: &Knative, old: Option<&Knative>, known: &Known) -> Vec<Problem> {
    let (releases, reference) = (known.releases(), &new.common().cluster_profile_ref);
    let name = (new.namespace().to_owned(), new.name().to_owned());
    let rival = if old.is_none() { known.rival(new.component(), reference, &name) } else { None };
    rules::judge(
        new,
        old,
        &Surroundings { releases: releases.as_deref(), profile: profile(new, known), rival: rival.as_deref() },
    )
}

fn is_untouched(request: &Request) -> bool {
    /// What is to become of it if its cluster can't be reached.
    fn unreachable(object: &Value) -> &Value {
        &object["metadata"]["annotations"][ON_UNREACHABLE]
    }
    /// What it asks for: no spec is the same as an empty one.
    fn spec(object: &Value) -> Option<&Value> {
        object.get("spec").filter(|spec| !spec.is_null() && spec.as_object().is_none_or(|fields| !fields.is_empty()))
    }
    let (new, old) = (&request.object, &request.old_object);
    spec(new) == spec(old) && unreachable(new) == unreachable(old)
}

/// What is wrong with the request, as far as the API server itself doesn't say it better: it checks types and required
/// fields against the CRD after the mutating webhooks, and lists every fault.
pub fn judge_early(request: &Request, known: &Known) -> Vec<Problem> {
    let mut problems = judge(request, known);
    problems.retain(|p| p.rule != &rules::READABLE && p.is_error());
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{judge as judge_with, judge_early as judge_early_with, *};
    use crate::review::Kind;

    fn judge(request: &Request) -> Vec<Problem> {
        judge_with(request, &Known::default())
    }

    fn judge_early(request: &Request) -> Vec<Problem> {
        judge_early_with(request, &Known::default())
    }

    fn request(kind: &str, operation: &str, object: Value, old: Value) -> Request {
        Request {
            uid: "1".into(),
            kind: Kind { group: GROUP.into(), version: VERSION.into(), kind: kind.into() },
            operation: operation.into(),
            object,
            old_object: old,
            ..Default::default()
        }
    }

    fn object(spec: &Value) -> Value {
        json!({"apiVersion": "operator.knative.dev/v1beta1", "metadata": {"name": "x", "namespace": "y"}, "spec": spec})
    }

    fn reference(name: &str) -> Value {
        object(&json!({"clusterProfileRef": {"name": name, "namespace": "fleet"}}))
    }

    #[test]
    fn the_reference_never_changes() {
        for kind in ["KnativeServing", "KnativeEventing"] {
            for (old, new, fine) in [
                (reference("a"), reference("b"), false),
                (reference("a"), object(&json!({})), false),
                (object(&json!({})), reference("a"), false),
                (reference("a"), reference("a"), true),
                (
                    reference("a"),
                    object(&json!({"clusterProfileRef": {"name": "a", "namespace": "fleet"}, "version": "1.22"})),
                    true,
                ),
            ] {
                let problems = judge(&request(kind, "UPDATE", new.clone(), old.clone()));
                assert_eq!(problems.is_empty(), fine, "{kind}: {old} to {new}: {problems:?}");
            }
        }
    }

    #[test]
    fn what_is_not_ours_passes() {
        let mut other = request("KnativeServing", "UPDATE", reference("b"), reference("a"));
        other.sub_resource = "status".into();
        assert!(judge(&other).is_empty());
        assert!(judge(&request("ConfigMap", "UPDATE", reference("b"), reference("a"))).is_empty());
        assert!(judge(&request("KnativeServing", "DELETE", Value::Null, reference("a"))).is_empty());
    }

    #[test]
    fn an_untouched_spec_passes_however_bad() {
        let mut new = object(&json!({"version": 7}));
        let old = new.clone();
        new["metadata"]["finalizers"] = json!(["x"]);
        assert!(judge(&request("KnativeServing", "UPDATE", new, old)).is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_refused_not_dropped() {
        let problems = judge(&request(
            "KnativeServing",
            "CREATE",
            object(&json!({"ingress": {"kourier": {"enabled": "yes"}}})),
            Value::Null,
        ));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("invalid type"), "{problems:?}");
        let early = request(
            "KnativeServing",
            "CREATE",
            object(&json!({"ingress": {"kourier": {"enabled": "yes"}}})),
            Value::Null,
        );
        assert!(judge_early(&early).is_empty());
    }
}
