//! Whether a request may go on. Pure.

use knative_operator_shared::api::Component;
use knative_operator_shared::label::{GROUP, ON_UNREACHABLE, VERSION};
use knative_operator_shared::rules::{self, Problem};

use serde_json::Value;

use crate::review::Request;

/// What is wrong with the request; nothing if it may go on. Only `CREATE` and `UPDATE` of our own kinds are judged, and
/// an update that leaves the spec and what decides over an installation as they are always passes, so that finalizers, labels and status
/// can never be stuck.
pub fn judge(request: &Request) -> Vec<Problem> {
    let ours = request.kind.group == GROUP && request.kind.version == VERSION && request.sub_resource.is_empty();
    let Some(component) = Component::of_kind(&request.kind.kind).filter(|_| ours) else { return Vec::new() };
    match request.operation.as_str() {
        "CREATE" => match rules::read(component, &request.object) {
            Ok(new) => rules::judge(&new, None),
            Err(problem) => vec![problem],
        },
        "UPDATE"
            if request.object.get("spec") == request.old_object.get("spec")
                && unreachable(&request.object) == unreachable(&request.old_object) =>
        {
            Vec::new()
        }
        "UPDATE" => match (rules::read(component, &request.object), rules::read(component, &request.old_object)) {
            (Ok(new), Ok(old)) => rules::judge(&new, Some(&old)),
            // The stored object is unreadable: any readable one is better.
            (Ok(new), Err(_)) => rules::judge(&new, None),
            (Err(problem), _) => vec![problem],
        },
        _ => Vec::new(),
    }
}

/// What is to become of `object` if its cluster can't be reached.
fn unreachable(object: &Value) -> &Value {
    &object["metadata"]["annotations"][ON_UNREACHABLE]
}

/// What is wrong with the request, as far as the API server itself doesn't say it better: it checks types and required
/// fields against the CRD after the mutating webhooks, and lists every fault.
pub fn judge_early(request: &Request) -> Vec<Problem> {
    let mut problems = judge(request);
    problems.retain(|p| p.rule != rules::READABLE);
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::review::Kind;

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
                (reference("a"), object(&json!({"clusterProfileRef": {"name": "a", "namespace": "fleet"}, "version": "1.22"})), true),
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
        let problems =
            judge(&request("KnativeServing", "CREATE", object(&json!({"ingress": {"kourier": {"enabled": "yes"}}})), Value::Null));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("invalid type"), "{problems:?}");
        let early = request("KnativeServing", "CREATE", object(&json!({"ingress": {"kourier": {"enabled": "yes"}}})), Value::Null);
        assert!(judge_early(&early).is_empty());
    }
}
