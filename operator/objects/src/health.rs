//! Health of an object, computed from its status. Pure.

use std::borrow::Cow;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::text::{MAX_MESSAGE, shown};
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::Deserialize;
use serde_json::Value;

use super::identity::text;

/// Health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Works.
    Ready,
    /// Does not work yet.
    Waiting(Wait),
    /// Failed, and does not recover by itself; with the reason.
    Failed(String),
}

/// What an object waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The reason.
    pub reason: String,
    /// Start of the wait (RFC 3339), if the object tells.
    pub since: Option<String>,
    /// When Kubernetes gives up (RFC 3339), if it ever does.
    pub deadline: Option<String>,
    /// Whether it is for a change, during which the former replicas of a Deployment are available.
    pub is_rolling: bool,
}

impl From<&str> for Wait {
    fn from(reason: &str) -> Self {
        Self { reason: reason.to_owned(), ..Self::default() }
    }
}

impl Wait {
    /// Whether it is that of a Job with a Pod that runs, and none that failed.
    pub fn is_of_running_job(&self) -> bool {
        self.reason.split_once(" of its Pods are running, 0 failed").is_some_and(|(running, _)| running != "0")
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        for (word, time) in [("since", &self.since), ("deadline", &self.deadline)] {
            if let Some(time) = time {
                write!(f, ", {word} {time}")?;
            }
        }
        Ok(())
    }
}

/// Replicas of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// How many are wanted.
    pub wanted: i64,
    /// How many are available.
    pub available: i64,
    /// Whether a rolling update replaces some, or it failed.
    pub is_rolling: bool,
}

/// Seconds within which a definition is expected to be established.
const ESTABLISH_DEADLINE: i64 = 60;
/// Default of `spec.progressDeadlineSeconds` of a Deployment.
const DEFAULT_PROGRESS_DEADLINE: i64 = 600;
/// Default of `spec.backoffLimit` of a Job.
const DEFAULT_BACKOFF_LIMIT: i64 = 6;

/// Maximum length of a time (RFC 3339), in bytes: with nanoseconds and an offset.
const MAX_TIME: usize = 35;

/// The part of a watched object that health is computed from; other fields are not read.
#[derive(Clone, Debug, Deserialize)]
pub struct WatchedObject {
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

impl Resource for WatchedObject {
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

/// Kinds whose status tells their health; the operator watches it, too.
pub fn has_health(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("apps", "Deployment" | "StatefulSet")
            | ("batch", "Job")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Message for a definition or namespace that is being deleted, together with its objects.
pub const TERMINATING: &str = "it is being deleted";
/// Reason of a definition that the API server doesn't serve yet.
pub const NOT_ESTABLISHED: &str = "it is not Established yet";

/// Health of `object`; `None` for kinds whose status doesn't tell.
pub fn of(kind: &str, object: &WatchedObject) -> Option<Health> {
    match kind {
        "Deployment" => Some(deployment(object)),
        "StatefulSet" => Some(stateful_set(object)),
        // A complete Job that is being deleted counts no longer.
        "Job" if object.metadata.deletion_timestamp.is_some() => Some(Health::Waiting(TERMINATING.into())),
        "Job" => Some(job(object)),
        "CustomResourceDefinition" => Some(definition(object)),
        _ => None,
    }
}

/// Health of `object` as far as its metadata tells.
pub fn of_metadata(kind: &str, object: &WatchedObject) -> Option<Health> {
    (kind == "Namespace").then(|| {
        if object.metadata.deletion_timestamp.is_some() { Health::Waiting(TERMINATING.into()) } else { Health::Ready }
    })
}

impl WatchedObject {
    /// The replicas of a Deployment; `None` for other kinds.
    pub fn replicas(&self, kind: &str) -> Option<Replicas> {
        (kind == "Deployment").then(|| Replicas {
            wanted: self.spec.replicas.unwrap_or(1),
            available: self.number("availableReplicas"),
            is_rolling: self.number("updatedReplicas") < self.number("replicas")
                || self.is("ReplicaFailure", "True").is_some()
                || self.condition("Progressing").is_some_and(|c| text(c, "/reason") == "ProgressDeadlineExceeded"),
        })
    }

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
        let is_rolling = self.is("Available", "True").is_some();
        (self.number("observedGeneration") < newest)
            .then(|| Health::Waiting(Wait { is_rolling, ..Wait::from("its newest generation is not observed yet") }))
    }
}

/// Reason and message of a condition, as text. A cluster may give any.
fn describe(condition: &Value) -> String {
    let part = |path: &str| shown(text(condition, path), MAX_MESSAGE);
    match (part("/reason").as_str(), part("/message").as_str()) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {}", without_pod_name(message.trim_end_matches('.'))),
    }
}

/// `message` without the generated Pod name: it differs between Deployments and has no use.
fn without_pod_name(message: &str) -> Cow<'_, str> {
    let rest = message.strip_prefix("pods \"").and_then(|rest| rest.split_once("\" is forbidden: "));
    rest.map_or(Cow::Borrowed(message), |(_, cause)| Cow::Owned(format!("its Pods are forbidden: {cause}")))
}

fn since(condition: &Value) -> Wait {
    let since = time(text(condition, "/lastTransitionTime"));
    Wait { reason: describe(condition), since, ..Wait::default() }
}

/// `text`, if it is a time (RFC 3339).
fn time(text: &str) -> Option<String> {
    (text.len() <= MAX_TIME && text.parse::<Timestamp>().is_ok()).then(|| text.to_owned())
}

/// `seconds` after `time` (RFC 3339).
fn after(time: &str, seconds: i64) -> Option<String> {
    let time: Timestamp = time.parse().ok()?;
    time.checked_add(SignedDuration::from_secs(seconds)).ok().map(|t| t.to_string())
}

/// Ready if available and no rolling update is under way.
fn deployment(object: &WatchedObject) -> Health {
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
    // A Deployment has a deadline while it progresses; once complete, it has none.
    let limit = object.spec.progress_deadline_seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE);
    let on_the_way = progressing.filter(|c| text(c, "/reason") != "NewReplicaSetAvailable");
    let deadline = on_the_way.and_then(|c| after(text(c, "/lastUpdateTime"), limit));
    if object.is("Available", "True").is_none() {
        let wait = object.condition("Available").map_or_else(|| "it has no condition Available yet".into(), since);
        return Health::Waiting(Wait { deadline, ..wait });
    }
    let wanted = object.spec.replicas.unwrap_or(1);
    let (updated, all) = (object.number("updatedReplicas"), object.number("replicas"));
    if updated < wanted || all > updated {
        let reason = format!(
            "{updated} of {wanted} replicas are updated, {} old ones remain",
            all.saturating_sub(updated).max(0)
        );
        return Health::Waiting(Wait { reason, since: None, deadline, is_rolling: true });
    }
    Health::Ready
}

fn stateful_set(object: &WatchedObject) -> Health {
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

fn job(object: &WatchedObject) -> Health {
    if object.is("Complete", "True").is_some() {
        return Health::Ready;
    }
    if let Some(failed) = object.is("Failed", "True") {
        return Health::Failed(describe(failed));
    }
    let reason = format!(
        "{} of its Pods are running, {} failed ({} are allowed to)",
        object.number("ready"),
        object.number("failed"),
        object.spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT)
    );
    let started = object.status.get("startTime").and_then(Value::as_str);
    let deadline = started.zip(object.spec.active_deadline_seconds).and_then(|(start, limit)| after(start, limit));
    Health::Waiting(Wait { reason, since: started.and_then(time), deadline, ..Wait::default() })
}

fn definition(object: &WatchedObject) -> Health {
    if object.metadata.deletion_timestamp.is_some() {
        return Health::Waiting(TERMINATING.into());
    }
    if object.is("Established", "True").is_some() {
        return Health::Ready;
    }
    if let Some(refused) = object.is("NamesAccepted", "False") {
        return Health::Failed(describe(refused));
    }
    let created = object.metadata.creation_timestamp.as_ref().map(|t| t.0.to_string());
    let deadline = created.as_deref().and_then(|t| after(t, ESTABLISH_DEADLINE));
    Health::Waiting(Wait { since: created, deadline, ..Wait::from(NOT_ESTABLISHED) })
}

#[cfg(test)]
mod tests;
