//! State of a component, from its resource.

use jiff::Timestamp;
use knative_operator_shared::api::{Component, Condition};
use knative_operator_shared::condition::{
    DEPENDENTS, DEPLOYMENTS_AVAILABLE, INSTALL_SUCCEEDED, READY, TARGET_CLUSTER_RESOLVED,
};
use knative_operator_shared::label::INSTALLED_IN;
use serde_json::Value;

use super::events::Events;
use super::model::{ComponentView, Problem, State};
use super::names::Names;
use super::remedy;
use knative_operator_objects::text;

/// The conditions in the status of `object`.
pub fn conditions(object: &Value) -> Vec<Condition> {
    let stored = object.pointer("/status/conditions").cloned().unwrap_or_default();
    serde_json::from_value(stored).unwrap_or_default()
}

/// The view of `resource`, with this `note`.
pub fn view(
    component: Component,
    resource: &Value,
    note: Option<&str>,
    events: &Events<'_>,
    now: Timestamp,
) -> ComponentView {
    let (namespace, name) = (text(resource, "/metadata/namespace"), text(resource, "/metadata/name"));
    let conditions = conditions(resource);
    let ready = conditions.iter().find(|condition| condition.type_ == READY);
    let profile = text(resource, "/spec/clusterProfileRef/name");
    let of = |path: &str, key: &str| resource.pointer(path).and_then(|all| all[key].as_str());
    let on_spoke = || of("/status/annotations", INSTALLED_IN).unwrap_or(component.canonical());
    let names = Names {
        kind: component.plural(),
        name,
        namespace,
        profile,
        profile_namespace: text(resource, "/spec/clusterProfileRef/namespace"),
        pod_namespace: if profile.is_empty() { namespace } else { on_spoke() },
        fleet: owning_fleet(resource),
    };
    let problem = problem(&conditions, &names);
    let state = state(resource, ready, problem.as_ref(), now);
    let version = text(resource, "/status/version");
    let wanted = text(resource, "/spec/version");
    let has_version = version == wanted || version.starts_with(&format!("{wanted}.")) || wanted == "latest";
    let installed = Some(version.to_owned()).filter(|version| !version.is_empty());
    let changed = problem.as_ref().and_then(|problem| conditions.iter().find(|c| c.type_ == problem.condition));
    ComponentView {
        kind: component.kind(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        state,
        target_version: (!wanted.is_empty() && (installed.is_none() || !has_version)).then(|| wanted.to_owned()),
        version: installed,
        since: changed.or(ready).and_then(|condition| condition.last_transition_time.clone()),
        problem: problem.filter(|_| state != State::Ready),
        notes: note.map(str::to_owned).into_iter().collect(),
        events: events.about((component.kind(), namespace, name)),
        conditions,
    }
}

/// The first condition that is not True, in the order in which a reconcile reaches them, of the
/// resource with `names`.
pub fn problem(conditions: &[Condition], names: &Names<'_>) -> Option<Problem> {
    let find = |type_: &&str| conditions.iter().find(|c| c.type_ == **type_ && c.status != "True");
    let is_known = |c: &&Condition| c.reason.is_some() || c.message.is_some() || c.status == "False";
    let first = DEPENDENTS.iter().filter_map(find).find(is_known);
    let condition = first.or_else(|| DEPENDENTS.iter().find_map(find))?;
    let texts = |c: &Condition| (c.reason.clone().unwrap_or_default(), c.message.clone().unwrap_or_default());
    // What waits for Deployments waits for what keeps these.
    let is_cause = |c: &&Condition| {
        let (reason, message) = texts(c);
        c.status == "False" && remedy::find(&c.type_, &reason, &message).is_some()
    };
    let waits = condition.type_ == INSTALL_SUCCEEDED && condition.status == "Unknown";
    let cause = find(&DEPLOYMENTS_AVAILABLE).filter(|_| waits).filter(is_cause);
    let condition = cause.unwrap_or(condition);
    let (reason, message) = texts(condition);
    Some(Problem {
        condition: condition.type_.clone(),
        remedy: remedy::find(&condition.type_, &reason, &message).map(|remedy| remedy.advice(names)),
        until: deadline(&message),
        reason,
        message,
    })
}

/// The deadline that `message` names.
fn deadline(message: &str) -> Option<String> {
    // "context deadline exceeded" is none.
    message.split("deadline ").skip(1).find_map(|rest| {
        let time: String = rest.chars().take_while(|c| c.is_ascii_digit() || "-:TZ.".contains(*c)).collect();
        time.parse::<Timestamp>().ok().map(|_| time)
    })
}

fn state(resource: &Value, ready: Option<&Condition>, problem: Option<&Problem>, now: Timestamp) -> State {
    if resource.pointer("/metadata/deletionTimestamp").is_some() {
        return State::Terminating;
    }
    let Some(ready) = ready else { return State::Pending };
    let is_current = resource.pointer("/status/observedGeneration") == resource.pointer("/metadata/generation");
    if ready.status == "True" {
        return if is_current { State::Ready } else { State::Progressing };
    }
    let Some(Problem { condition, reason, until, .. }) = problem else { return State::Progressing };
    match condition.as_str() {
        TARGET_CLUSTER_RESOLVED if reason.is_empty() => State::Pending,
        TARGET_CLUSTER_RESOLVED => State::Unreachable,
        INSTALL_SUCCEEDED if reason == "Installing" || reason.is_empty() => State::Progressing,
        DEPLOYMENTS_AVAILABLE if reason.is_empty() => State::Progressing,
        DEPLOYMENTS_AVAILABLE => {
            let deadline = until.as_deref().and_then(|until| until.parse::<Timestamp>().ok());
            if deadline.is_some_and(|deadline| deadline > now) { State::Progressing } else { State::Degraded }
        }
        _ if reason.is_empty() => State::Progressing,
        _ => State::Failed,
    }
}

/// The name of the fleet that owns `resource`: the label may be shortened.
fn owning_fleet(resource: &Value) -> &str {
    let owners = resource.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let fleet = owners.into_iter().flatten().find(|owner| owner["kind"] == "KnativeFleet");
    fleet.and_then(|owner| owner["name"].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshot::Snapshot;
    use super::*;

    fn with(conditions: &[(&str, &str, &str, &str)], version: &str, wanted: &str) -> ComponentView {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status, reason, message)| {
                json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": format!("at {type_}")})
            })
            .collect();
        let resource = json!({"metadata": {"namespace": "n", "name": "s", "generation": 2}, "spec": {"version": wanted},
            "status": {"observedGeneration": 2, "version": version, "conditions": conditions}});
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        view(Component::Serving, &resource, None, &Events::of(&Snapshot::default(), now), now)
    }

    #[test]
    fn state_follows_the_first_condition_that_is_not_true() {
        let ready = ("Ready", "False", "r", "m");
        for (condition, expected) in [
            (("TargetClusterResolved", "False", "RemoteClusterUnauthorized", "no"), State::Unreachable),
            (("InstallSucceeded", "Unknown", "Installing", "Waiting for Job j"), State::Progressing),
            (("InstallSucceeded", "False", "Error", "no"), State::Failed),
            (("VersionMigrationEligible", "False", "Error", "no"), State::Failed),
            (
                ("DeploymentsAvailable", "False", "NotReady", "a (why, deadline 2026-01-01T00:10:00Z)"),
                State::Progressing,
            ),
            (("DeploymentsAvailable", "False", "NotReady", "a (why, deadline 2025-12-31T00:10:00Z)"), State::Degraded),
            (("DeploymentsAvailable", "False", "NotReady", "a (why)"), State::Degraded),
            (
                (
                    "DeploymentsAvailable",
                    "False",
                    "NotReady",
                    "a (cannot start container \"a\": context deadline exceeded, deadline 2026-01-01T00:10:00Z)",
                ),
                State::Progressing,
            ),
        ] {
            let view = with(&[ready, condition], "1.22.0", "1.22");
            assert_eq!(view.state, expected, "{condition:?}");
            let problem = view.problem.unwrap();
            assert_eq!((problem.condition.as_str(), problem.message.as_str()), (condition.0, condition.3));
            assert_eq!(view.since.unwrap(), format!("at {}", condition.0));
        }
        let view = with(&[("Ready", "True", "", "")], "1.22.0", "1.22");
        assert_eq!((view.state, view.target_version, view.problem), (State::Ready, None, None));
        assert_eq!(with(&[], "", "").state, State::Pending);
    }

    #[test]
    fn target_version_is_the_one_that_is_not_installed() {
        for (version, wanted, expected) in [
            ("1.22.0", "1.23.1", Some("1.23.1")),
            ("1.22.0", "1.2", Some("1.2")),
            ("1.22.0", "latest", None),
            ("1.22.0", "", None),
            ("", "1.22", Some("1.22")),
        ] {
            assert_eq!(with(&[], version, wanted).target_version.as_deref(), expected, "{version} {wanted}");
        }
    }

    #[test]
    fn remedy_has_the_names_of_the_resource() {
        let profile = json!({"clusterProfileRef": {"namespace": "fleet-system", "name": "eu"}});
        let (none, owned) = (json!({}), json!([{"kind": "KnativeFleet", "name": "prod"}]));
        let missing = ("TargetClusterResolved", "ClusterProfileNotReady", "");
        let stuck = ("DeploymentsAvailable", "NotReady", "a (ProgressDeadlineExceeded)");
        let image = ("DeploymentsAvailable", "NotReady", "a (invalid image name)");
        for ((type_, reason, message), owners, spec, expected) in [
            (missing, &none, &profile, "`kubectl patch clusterprofile eu -n fleet-system --subresource=status "),
            (stuck, &none, &profile, "`kubectl describe pods -n knative-serving`"),
            (stuck, &none, &none, "`kubectl describe pods -n n`"),
            (image, &none, &none, "`kubectl edit knativeservings s -n n`"),
            // The fleet would repair its resource.
            (image, &owned, &profile, "`kubectl edit knativefleets prod -n n`"),
        ] {
            let condition =
                |type_: &str| json!({"type": type_, "status": "False", "reason": reason, "message": message});
            let resource = json!({"metadata": {"namespace": "n", "name": "s", "ownerReferences": owners}, "spec": spec,
                "status": {"conditions": [condition("Ready"), condition(type_)]}});
            let (snapshot, now) = (Snapshot::default(), Timestamp::UNIX_EPOCH);
            let view = view(Component::Serving, &resource, None, &Events::of(&snapshot, now), now);
            let text = view.problem.unwrap().remedy.unwrap().text;
            assert!(text.contains(expected), "{text}");
        }
    }
}
