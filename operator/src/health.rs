//! Whether an object works, out of its own status. Pure.

use std::borrow::Cow;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::Deserialize;
use serde_json::Value;

use crate::object::text;

/// Whether an object works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ready,
    /// Not yet.
    Waiting(Wait),
    /// No, and it won't by itself, because.
    Broken(String),
}

/// What an object waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Why.
    pub why: String,
    /// Since when (RFC 3339), where it says so.
    pub since: Option<String>,
    /// When it is given up (RFC 3339), where it ever is.
    pub deadline: Option<String>,
}

impl From<&str> for Wait {
    fn from(why: &str) -> Self {
        Self { why: why.to_owned(), ..Self::default() }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        for (word, time) in [("since", &self.since), ("deadline", &self.deadline)] {
            if let Some(time) = time {
                write!(f, ", {word} {time}")?;
            }
        }
        Ok(())
    }
}

/// How long a definition may take to be established.
const ESTABLISHED: i64 = 60;
/// `spec.progressDeadlineSeconds` of a Deployment that has none.
const PROGRESS: i64 = 600;
/// `spec.backoffLimit` of a Job that has none.
const BACKOFF: i64 = 6;

/// What is read of an object whose status says whether it works: everything else is passed over.
#[derive(Clone, Debug, Deserialize)]
pub struct Watched {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default)]
    spec: Spec,
    /// Its status.
    #[serde(default)]
    status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    replicas: Option<i64>,
    progress_deadline_seconds: Option<i64>,
    active_deadline_seconds: Option<i64>,
    backoff_limit: Option<i64>,
}

impl Resource for Watched {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.api_version)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Kinds whose status says whether they work: that is watched, too.
pub fn has_health(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("apps", "Deployment" | "StatefulSet")
            | ("batch", "Job")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// What is waited for of a definition or namespace that somebody has deleted: it takes its objects along.
pub const GOING: &str = "it is being deleted";

/// Whether `object` of `kind` works; none for kinds that don't say.
pub fn of(kind: &str, object: &Watched) -> Option<Health> {
    match kind {
        "Deployment" => Some(deployment(object)),
        "StatefulSet" => Some(stateful_set(object)),
        "Job" => Some(job(object)),
        "CustomResourceDefinition" => Some(definition(object)),
        _ => None,
    }
}

/// Whether `object` of `kind` works, as far as its metadata tells.
pub fn of_metadata(kind: &str, object: &Watched) -> Option<Health> {
    (kind == "Namespace").then(|| {
        if object.metadata.deletion_timestamp.is_some() { Health::Waiting(GOING.into()) } else { Health::Ready }
    })
}

impl Watched {
    fn number(&self, key: &str) -> i64 {
        self.status.get(key).and_then(Value::as_i64).unwrap_or_default()
    }

    fn condition(&self, type_: &str) -> Option<&Value> {
        self.status.get("conditions")?.as_array()?.iter().find(|c| text(c, "/type") == type_)
    }

    fn is(&self, type_: &str, status: &str) -> Option<&Value> {
        self.condition(type_).filter(|c| text(c, "/status") == status)
    }

    fn unobserved(&self) -> Option<Health> {
        let newest = self.metadata.generation.unwrap_or_default();
        (self.number("observedGeneration") < newest)
            .then(|| Health::Waiting("its newest generation is not observed yet".into()))
    }
}

/// A condition's reason and message, for people.
fn why(condition: &Value) -> String {
    match (text(condition, "/reason"), text(condition, "/message")) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {}", unnamed(message.trim_end_matches('.'))),
    }
}

/// `message` without the generated name of the Pod that it is about: it differs for each Deployment, and nobody knows it.
fn unnamed(message: &str) -> Cow<'_, str> {
    let rest = message.strip_prefix("pods \"").and_then(|rest| rest.split_once("\" is forbidden: "));
    rest.map_or(Cow::Borrowed(message), |(_, cause)| Cow::Owned(format!("its Pods are forbidden: {cause}")))
}

fn since(condition: &Value) -> Wait {
    let since = Some(text(condition, "/lastTransitionTime").to_owned()).filter(|t| !t.is_empty());
    Wait { why: why(condition), since, deadline: None }
}

/// `seconds` after `time` (RFC 3339).
fn after(time: &str, seconds: i64) -> Option<String> {
    let time: Timestamp = time.parse().ok()?;
    time.checked_add(SignedDuration::from_secs(seconds)).ok().map(|t| t.to_string())
}

/// Available, and all replicas of the newest generation: a rolling update under way is not done.
fn deployment(object: &Watched) -> Health {
    if let Some(unobserved) = object.unobserved() {
        return unobserved;
    }
    if let Some(failed) = object.is("ReplicaFailure", "True") {
        return Health::Waiting(since(failed));
    }
    let progressing = object.condition("Progressing");
    if let Some(stuck) = progressing.filter(|c| text(c, "/reason") == "ProgressDeadlineExceeded") {
        return Health::Waiting(since(stuck));
    }
    // A Deployment is given up that long after it came forward last; one that was there once is not.
    let limit = object.spec.progress_deadline_seconds.unwrap_or(PROGRESS);
    let on_the_way = progressing.filter(|c| text(c, "/reason") != "NewReplicaSetAvailable");
    let deadline = on_the_way.and_then(|c| after(text(c, "/lastUpdateTime"), limit));
    if object.is("Available", "True").is_none() {
        let wait = object.condition("Available").map_or_else(|| "it has no condition Available yet".into(), since);
        return Health::Waiting(Wait { deadline, ..wait });
    }
    let wanted = object.spec.replicas.unwrap_or(1);
    let (updated, all) = (object.number("updatedReplicas"), object.number("replicas"));
    if updated < wanted || all > updated {
        let why = format!("{updated} of {wanted} replicas are updated, {} old ones remain", (all - updated).max(0));
        return Health::Waiting(Wait { why, since: None, deadline });
    }
    Health::Ready
}

fn stateful_set(object: &Watched) -> Health {
    if let Some(unobserved) = object.unobserved() {
        return unobserved;
    }
    let (wanted, ready) = (object.spec.replicas.unwrap_or(1), object.number("readyReplicas"));
    if ready < wanted {
        Health::Waiting(format!("{ready} of {wanted} replicas are ready").as_str().into())
    } else {
        Health::Ready
    }
}

fn job(object: &Watched) -> Health {
    if object.is("Complete", "True").is_some() {
        return Health::Ready;
    }
    if let Some(failed) = object.is("Failed", "True") {
        return Health::Broken(why(failed));
    }
    let why = format!(
        "{} of its pods are running, {} have failed, {} may",
        object.number("active"),
        object.number("failed"),
        object.spec.backoff_limit.unwrap_or(BACKOFF)
    );
    let started = object.status.get("startTime").and_then(Value::as_str);
    let deadline = started.zip(object.spec.active_deadline_seconds).and_then(|(start, limit)| after(start, limit));
    Health::Waiting(Wait { why, since: started.map(str::to_owned), deadline })
}

fn definition(object: &Watched) -> Health {
    if object.metadata.deletion_timestamp.is_some() {
        return Health::Waiting(GOING.into());
    }
    if object.is("Established", "True").is_some() {
        return Health::Ready;
    }
    if let Some(refused) = object.is("NamesAccepted", "False") {
        return Health::Broken(why(refused));
    }
    let created = object.metadata.creation_timestamp.as_ref().map(|t| t.0.to_string());
    let deadline = created.as_deref().and_then(|t| after(t, ESTABLISHED));
    Health::Waiting(Wait { why: "it is not Established yet".to_owned(), since: created, deadline })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn health(kind: &str, object: Value) -> Option<Health> {
        of(kind, &serde_json::from_value(object).unwrap())
    }

    fn told(kind: &str, object: Value) -> String {
        match health(kind, object) {
            Some(Health::Waiting(wait)) => wait.to_string(),
            other => format!("{other:?}"),
        }
    }

    fn available(status: &str, generation: i64, observed: i64, replicas: i64, updated: i64) -> Value {
        json!({"metadata": {"generation": generation}, "spec": {"replicas": 1},
            "status": {"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "conditions": [
                {"type": "Available", "status": status, "reason": "MinimumReplicasUnavailable", "message": "does not have minimum availability.", "lastTransitionTime": "2026-01-01T10:00:00Z"},
                {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "lastUpdateTime": "2026-01-01T10:00:05Z"}]}})
    }

    #[test]
    fn a_deployment_is_ready_when_its_newest_generation_is() {
        assert_eq!(health("Deployment", available("True", 2, 2, 1, 1)), Some(Health::Ready));
        for (object, expected) in [
            (available("True", 2, 1, 1, 1), "its newest generation is not observed yet"),
            (
                available("False", 2, 2, 1, 1),
                "MinimumReplicasUnavailable: does not have minimum availability, since 2026-01-01T10:00:00Z, deadline 2026-01-01T10:10:05Z",
            ),
            (
                available("True", 2, 2, 2, 1),
                "1 of 1 replicas are updated, 1 old ones remain, deadline 2026-01-01T10:10:05Z",
            ),
            (json!({"metadata": {}}), "it has no condition Available yet"),
        ] {
            assert_eq!(told("Deployment", object), expected);
        }
    }

    #[test]
    fn a_job_completes_or_fails() {
        let job = |type_: &str| json!({"metadata": {}, "status": {"conditions": [{"type": type_, "status": "True", "reason": "BackoffLimitExceeded"}]}});
        assert_eq!(health("Job", job("Complete")), Some(Health::Ready));
        assert_eq!(health("Job", job("Failed")), Some(Health::Broken("BackoffLimitExceeded".into())));
        let running = json!({"metadata": {}, "spec": {"activeDeadlineSeconds": 60}, "status": {"active": 1, "failed": 2, "startTime": "2026-01-01T10:00:00Z"}});
        assert_eq!(
            told("Job", running),
            "1 of its pods are running, 2 have failed, 6 may, since 2026-01-01T10:00:00Z, deadline 2026-01-01T10:01:00Z"
        );
    }

    #[test]
    fn a_definition_is_established_or_says_why_not() {
        let kind = "CustomResourceDefinition";
        let crd = |conditions: Value| json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}, "status": {"conditions": conditions}});
        assert_eq!(health(kind, crd(json!([{"type": "Established", "status": "True"}]))), Some(Health::Ready));
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}, "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        assert_eq!(told(kind, going), GOING);
        let refused = json!([{"type": "NamesAccepted", "status": "False", "reason": "PluralConflict", "message": "\"xs\" is already in use"}]);
        assert_eq!(health(kind, crd(refused)), Some(Health::Broken("PluralConflict: \"xs\" is already in use".into())));
        assert_eq!(
            told(kind, crd(json!([]))),
            "it is not Established yet, since 2026-01-01T10:00:00Z, deadline 2026-01-01T10:01:00Z"
        );
    }
}
