//! Asks the Pods of workloads that are not available for the cause: one list of Pods, then the log
//! of one container and the events about one object, if the list doesn't tell.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use knative_operator_runtime::error_text;
use kube::core::Request;
use kube::core::params::ListParams;
use kube::core::subresource::LogParams;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use knative_operator_objects::ObjectId;
use knative_operator_objects::cause::{Cause, Extra, Group, groups};
use knative_operator_objects::foreign_text::{is_same_but_numbers, last_words};
use knative_operator_objects::pod::{EventList, Pod, PodList};
use knative_operator_objects::pod_cause;

/// Permissions for these questions: resource and verb, in the core API group.
pub const PERMISSIONS: [(&str, &str); 3] = [("pods", "list"), ("pods/log", "get"), ("events", "list")];

/// Maximum number of Pods, and of events, that are read.
const MAX_PODS: u32 = 500;
const MAX_EVENTS: u32 = 100;
/// Lines at the end of a log that are read, and their size in bytes. A line may have the stack
/// trace of a process; an API server cuts the end of what is longer.
const LOG_LINES: i64 = 12;
const LOG_BYTES: i64 = 16 << 10;
/// Time limit of a request: a log comes from the kubelet of a node that may be down.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Time for which an answer from a log or from events is valid.
const VALID: Duration = Duration::from_secs(300);

/// Why workloads are not available.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What was found about each.
    pub found: Found,
    /// Answers of logs and events, for the next time.
    pub answers: Answers,
}

/// Causes of workloads, or why they are unknown.
pub type Found = BTreeMap<ObjectId, Result<Cause, MayNotList>>;

/// The credential may not list the Pods in this namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cause is unknown without the permission to list pods in {0}")]
pub struct MayNotList(String);

/// The sentences about `found`: one for all workloads that share a cause.
pub fn sentences(found: &Found) -> BTreeMap<ObjectId, Finding> {
    let causes: Vec<(&ObjectId, &Cause)> =
        found.iter().filter_map(|(id, found)| Some((id, found.as_ref().ok()?))).collect();
    let unknown =
        found.iter().filter_map(|(id, found)| Some((id.clone(), Finding::Unknown(found.as_ref().err()?.to_string()))));
    let mut sentences: BTreeMap<ObjectId, Finding> = unknown.collect();
    for group in groups(causes.iter().map(|(_, cause)| *cause)) {
        let sentence = Finding::of(&group.cause, group.sentence());
        sentences.extend(group.members.iter().map(|member| (causes[*member].0.clone(), sentence.clone())));
    }
    sentences
}

/// The sentence about a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The cause.
    Cause(String),
    /// A step on the way.
    Progress(String),
    /// The cause is unknown, for this reason.
    Unknown(String),
}

impl Finding {
    fn of(cause: &Cause, sentence: String) -> Self {
        if cause.is_progress() { Self::Progress(sentence) } else { Self::Cause(sentence) }
    }

    /// What was found, for people.
    pub fn text(&self) -> &str {
        match self {
            Self::Cause(text) | Self::Progress(text) | Self::Unknown(text) => text,
        }
    }
}

/// Answers of logs and events, by cause, each with its time.
pub type Answers = HashMap<String, (Extra, Instant)>;

/// Finds out why `workloads` are not available, from at most three requests: those in the namespace
/// of the first, which is that of the installation. Those without an answer have no entry.
/// `answers` are earlier answers.
pub async fn causes(client: &Client, workloads: &[ObjectId], answers: Answers) -> Findings {
    let mut findings = Findings { answers, found: Found::new() };
    findings.answers.retain(|_, (_, at)| at.elapsed() < VALID);
    let Some(namespace) = workloads.first().map(|first| first.namespace.clone()) else { return findings };
    let workloads: Vec<&ObjectId> = workloads.iter().filter(|id| id.namespace == namespace).collect();
    let pods = match list(client, &namespace).await {
        Ok(pods) => pods,
        Err(Unanswered::Denied) => {
            let why = MayNotList(namespace.clone());
            findings.found.extend(workloads.into_iter().map(|id| (id.clone(), Err(why.clone()))));
            return findings;
        }
        Err(Unanswered::Failed) => return findings,
    };
    let (now, mut known) = (Timestamp::now(), Vec::new());
    for id in &workloads {
        if let Some((cause, pod)) = pod_cause::of_workload(id, &pods.items, now) {
            known.push(((*id).clone(), cause, pod));
        }
    }
    let mut groups = groups(known.iter().map(|(_, cause, _)| cause));
    let mut ask = Ask { client, namespace: &namespace, answers: &mut findings.answers };
    ask.complete(&mut groups, &known).await;
    for group in &groups {
        let asked = group.members.iter().find(|member| known[**member].1.subject == group.cause.subject);
        if let Some(asked) = asked {
            known[*asked].1.extra.clone_from(&group.cause.extra);
        }
    }
    findings.found.extend(known.into_iter().map(|(id, cause, _)| (id, Ok(cause))));
    // A Deployment tells itself why it has no Pods.
    let has_pods = |id: &ObjectId| pods.items.iter().any(|pod| pod.is_of(id));
    let without_pods = workloads.iter().find(|id| id.kind != "Deployment" && !has_pods(id));
    if let Some(id) = without_pods.filter(|_| groups.is_empty() && pods.metadata.more.is_empty()) {
        let selector = format!("involvedObject.kind={},involvedObject.name={}", id.kind, id.name);
        if let Ok(events) = events(client, &namespace, &selector).await
            && let Some(cause) = pod_cause::from_events_of_workload(&events.items)
        {
            findings.found.insert((*id).clone(), Ok(cause));
        }
    }
    findings
}

/// The Pods in `namespace`.
pub async fn list(client: &Client, namespace: &str) -> Result<PodList, Unanswered> {
    let request = Request::new(v1::Pod::url_path(&(), Some(namespace)));
    get(client, request.list(&ListParams::default().limit(MAX_PODS))).await
}

/// A workload that is not available, with a Pod that tells the cause.
type Known<'p> = (ObjectId, Cause, &'p Pod);

/// Asks for logs and events.
struct Ask<'a> {
    client: &'a Client,
    namespace: &'a str,
    answers: &'a mut Answers,
}

impl Ask<'_> {
    /// Completes the causes of `groups`: with earlier answers, and for one of them with a log and
    /// for one with events.
    async fn complete(&mut self, groups: &mut [Group], known: &[Known<'_>]) {
        let (mut asks_log, mut asks_events) = (true, true);
        for group in groups {
            let Some((_, _, pod)) = known.iter().find(|(_, cause, _)| *cause == group.cause) else { continue };
            let key = format!("{:?} {} {}", group.cause.kind, group.cause.detail, group.cause.subject);
            let answer = self.answers.get(&key).map(|(answer, _)| answer.clone());
            let is_valid = |answer: &Extra| {
                group.cause.extra.as_ref().is_none_or(|extra| is_same_but_numbers(&extra.text, &answer.text))
            };
            if let Some(answer) = answer.filter(is_valid) {
                group.cause.extra = Some(answer);
                continue;
            }
            let needs = group.cause.needs;
            if needs.events && asks_events {
                asks_events = false;
                let extra = self.events(&group.cause, pod).await;
                group.cause.extra = extra.or(group.cause.extra.take());
            }
            if needs.log && asks_log && group.cause.extra.is_none() {
                asks_log = false;
                group.cause.extra = self.log(&group.cause, pod).await;
            }
            if let Some(extra) = &group.cause.extra {
                self.answers.insert(key, (extra.clone(), Instant::now()));
            }
        }
    }

    async fn events(&self, cause: &Cause, pod: &Pod) -> Option<Extra> {
        let selector = format!("involvedObject.uid={}", pod.metadata.uid);
        match events(self.client, self.namespace, &selector).await {
            Ok(events) => pod_cause::from_events(cause, pod, &events.items),
            Err(Unanswered::Denied) if !cause.needs.log => Some(self.denied("list events")),
            Err(_) => None,
        }
    }

    async fn log(&self, cause: &Cause, pod: &Pod) -> Option<Extra> {
        let params = LogParams {
            container: Some(cause.subject.clone()),
            previous: cause.needs.previous,
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        let request = Request::new(v1::Pod::url_path(&(), Some(self.namespace))).logs(&pod.metadata.name, &params);
        let read = tokio::time::timeout(TIMEOUT, self.client.request_text(request.ok()?));
        match read.await.ok()?.map_err(Unanswered::from) {
            Ok(log) => Extra::last_words(&last_words(&log, pod)),
            Err(Unanswered::Denied) => Some(self.denied("get pods/log")),
            Err(Unanswered::Failed) => None,
        }
    }

    /// What stands in for an answer that the credential may not have.
    fn denied(&self, permission: &str) -> Extra {
        Extra {
            label: "unknown without the permission to".to_owned(),
            text: format!("{permission} in {}", self.namespace),
        }
    }
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The credential lacks the permission.
    Denied,
    /// The request failed, or took too long.
    Failed,
}

impl From<kube::Error> for Unanswered {
    fn from(error: kube::Error) -> Self {
        tracing::debug!(error = error_text(&error), "failed to ask for the cause");
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Denied,
            _ => Self::Failed,
        }
    }
}

async fn events(client: &Client, namespace: &str, selector: &str) -> Result<EventList, Unanswered> {
    let request = Request::new(v1::Event::url_path(&(), Some(namespace)));
    get(client, request.list(&ListParams::default().fields(selector).limit(MAX_EVENTS))).await
}

async fn get<T: DeserializeOwned>(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<T, Unanswered> {
    let request = request.map_err(|_| Unanswered::Failed)?;
    let answer = tokio::time::timeout(TIMEOUT, client.request(request)).await;
    answer.map_err(|_| Unanswered::Failed)?.map_err(Unanswered::from)
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
