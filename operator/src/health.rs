//! Whether an object works, out of its own status. Pure.

use serde_json::Value;

use crate::object::text;

/// Whether an object works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ready,
    /// Not yet, because.
    Waiting(String),
    /// No, and it won't by itself, because.
    Broken(String),
}

/// Kinds whose status says whether they work: they are watched whole, all others by their metadata.
pub fn has_health(group: &str, kind: &str) -> bool {
    matches!((group, kind), ("apps", "Deployment" | "StatefulSet") | ("batch", "Job"))
}

/// Whether `object` works; none for kinds that don't say.
pub fn of(object: &Value) -> Option<Health> {
    match text(object, "/kind") {
        "Deployment" => Some(deployment(object)),
        "StatefulSet" => Some(stateful_set(object)),
        "Job" => Some(job(object)),
        "CustomResourceDefinition" => Some(definition(object)),
        _ => None,
    }
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|c| text(c, "/type") == type_)
}

fn holds(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|c| text(c, "/status") == "True")
}

/// A condition's reason and message, for people.
fn why(condition: &Value) -> String {
    match (text(condition, "/reason"), text(condition, "/message")) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// Available, and all replicas of the newest generation: a rolling update under way is not done.
fn deployment(object: &Value) -> Health {
    if number(object, "/status/observedGeneration") < number(object, "/metadata/generation") {
        return Health::Waiting("its newest generation is not observed yet".to_owned());
    }
    if let Some(failed) = condition(object, "ReplicaFailure").filter(|c| text(c, "/status") == "True") {
        return Health::Waiting(why(failed));
    }
    if let Some(stuck) = condition(object, "Progressing").filter(|c| text(c, "/reason") == "ProgressDeadlineExceeded") {
        return Health::Waiting(why(stuck));
    }
    if !holds(object, "Available") {
        let reason = condition(object, "Available").map_or_else(|| "it has no condition Available yet".to_owned(), why);
        return Health::Waiting(reason);
    }
    let wanted = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let (updated, all) = (number(object, "/status/updatedReplicas"), number(object, "/status/replicas"));
    if updated < wanted || all > updated {
        return Health::Waiting(format!("{updated} of {wanted} replicas are updated, {} old ones remain", (all - updated).max(0)));
    }
    Health::Ready
}

fn stateful_set(object: &Value) -> Health {
    if number(object, "/status/observedGeneration") < number(object, "/metadata/generation") {
        return Health::Waiting("its newest generation is not observed yet".to_owned());
    }
    let wanted = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let ready = number(object, "/status/readyReplicas");
    if ready < wanted { Health::Waiting(format!("{ready} of {wanted} replicas are ready")) } else { Health::Ready }
}

fn job(object: &Value) -> Health {
    if holds(object, "Complete") {
        return Health::Ready;
    }
    match condition(object, "Failed").filter(|c| text(c, "/status") == "True") {
        Some(failed) => Health::Broken(why(failed)),
        None => Health::Waiting(format!(
            "{} of its pods are running, {} have failed",
            number(object, "/status/active"),
            number(object, "/status/failed")
        )),
    }
}

fn definition(object: &Value) -> Health {
    if holds(object, "Established") {
        return Health::Ready;
    }
    match condition(object, "NamesAccepted").filter(|c| text(c, "/status") == "False") {
        Some(refused) => Health::Broken(why(refused)),
        None => Health::Waiting("it is not Established yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn available(status: &str, generation: i64, observed: i64, replicas: i64, updated: i64) -> Value {
        json!({"kind": "Deployment", "metadata": {"generation": generation}, "spec": {"replicas": 1},
            "status": {"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated,
            "conditions": [{"type": "Available", "status": status, "reason": "MinimumReplicasUnavailable", "message": "does not have minimum availability"}]}})
    }

    #[test]
    fn a_deployment_is_ready_when_its_newest_generation_is() {
        assert_eq!(of(&available("True", 2, 2, 1, 1)), Some(Health::Ready));
        for (object, part) in [
            (available("True", 2, 1, 1, 1), "not observed"),
            (available("False", 2, 2, 1, 1), "MinimumReplicasUnavailable: does not have"),
            (available("True", 2, 2, 2, 1), "1 old ones remain"),
            (json!({"kind": "Deployment", "metadata": {}}), "no condition Available"),
        ] {
            assert!(matches!(of(&object), Some(Health::Waiting(why)) if why.contains(part)), "{object}");
        }
    }

    #[test]
    fn a_job_completes_or_fails() {
        let job = |type_: &str| json!({"kind": "Job", "status": {"conditions": [{"type": type_, "status": "True", "reason": "BackoffLimitExceeded"}]}});
        assert_eq!(of(&job("Complete")), Some(Health::Ready));
        assert_eq!(of(&job("Failed")), Some(Health::Broken("BackoffLimitExceeded".into())));
        assert!(matches!(of(&json!({"kind": "Job"})), Some(Health::Waiting(_))));
    }
}
