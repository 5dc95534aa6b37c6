//! A Job on a cluster: it succeeds if it completes, and fails with its last words.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod as V1Pod;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::post_as;
use knative_operator_shared::api::fleet::{Gate, JobGate};
use knative_operator_shared::label::FLEET_FIELD_MANAGER;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, Request};
use kube::{Api, Client, Resource};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::job_manifest::{manifest, name};
use super::subject::Subject;
use knative_operator_fleet::gates::Answer;
use knative_operator_objects::foreign_text::last_words;
use knative_operator_objects::pod::{Pod, PodList, Terminated};

/// Interval of the requests for the state of a Job: first, and at most.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Time for which the cluster may need to end a Job after its deadline.
const GRACE: Duration = Duration::from_secs(30);
/// Why a Job failed that isn't there any more: another one of its name would prove nothing.
const REPLACED: &str = "somebody deleted or replaced it before its end";
/// Limits the requests about Jobs at the same time.
static PERMITS: Semaphore = Semaphore::const_new(16);
/// Maximum number of Pods of a Job that are read.
const MAX_PODS: u32 = 20;

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It completed.
    Completed,
    /// It failed, for this reason.
    Failed(String),
}

/// Why it is not known how a Job ended.
#[derive(Debug, thiserror::Error)]
enum JobError {
    /// Its manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] serde_json::Error),
    /// The API server refused a request, or did not answer.
    #[error("{}", error_text(.0))]
    Request(kube::Error),
}

/// Measures `gate` once with the Job of `job`: starts it, unless another replica did.
pub async fn measure(client: &Client, subject: &Subject, gate: &Gate, job: &JobGate, timeout: Duration) -> Answer {
    let resource = ApiResource::erase::<Job>(&());
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &job.namespace, &resource);
    let name = name(subject, gate);
    let called = format!("Job {}/{name}", job.namespace);
    match run(&api, &name, manifest(subject, gate, job, timeout), timeout).await {
        Ok(Some(End::Completed)) => Answer::Success,
        Ok(Some(End::Failed(message))) => {
            let words = last_words_of(client, &job.namespace, &name).await.unwrap_or(message);
            Answer::Failure(format!("{called} failed: {words}"))
        }
        Ok(None) => Answer::Unknown(format!("{called} did not end")),
        Err(why) => Answer::Unknown(format!("{called}: {why}")),
    }
}

/// Permits a request about a Job.
async fn permit() -> Option<SemaphorePermit<'static>> {
    // Nothing closes it.
    PERMITS.acquire().await.ok()
}

/// Runs the Job `name` with this manifest; whether it completed, or why not; `None` if it did not
/// end.
async fn run(
    api: &Api<DynamicObject>,
    name: &str,
    manifest: serde_json::Value,
    timeout: Duration,
) -> Result<Option<End>, JobError> {
    let manifest: DynamicObject = serde_json::from_value(manifest)?;
    let (started, mut pause, mut known) = (Instant::now(), INTERVAL.0, None);
    loop {
        let found = {
            let _permit = permit().await;
            match api.get_opt(name).await.map_err(JobError::Request)? {
                None if known.is_some() => return Ok(Some(End::Failed(REPLACED.to_owned()))),
                None => create(api, &manifest).await?,
                found => found,
            }
        };
        let uid = found.as_ref().and_then(|job| job.metadata.uid.clone());
        if known.is_some() && uid != known {
            return Ok(Some(End::Failed(REPLACED.to_owned())));
        }
        known = known.or(uid);
        if let Some(end) = found.as_ref().and_then(end) {
            return Ok(Some(end));
        }
        if started.elapsed() > timeout + GRACE {
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(INTERVAL.1);
    }
}

/// Creates the Job, unless another replica does at the same time.
async fn create(api: &Api<DynamicObject>, manifest: &DynamicObject) -> Result<Option<DynamicObject>, JobError> {
    match api.create(&post_as(FLEET_FIELD_MANAGER), manifest).await {
        Ok(created) => Ok(Some(created)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(JobError::Request(error)),
    }
}

/// How `job` ended, if it did: completed, or failed for this reason.
fn end(job: &DynamicObject) -> Option<End> {
    let conditions = job.data["status"]["conditions"].as_array().into_iter().flatten();
    let text = |condition: &serde_json::Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    conditions.filter(|condition| condition["status"] == "True").find_map(|condition| {
        match condition["type"].as_str()? {
            "Complete" => Some(End::Completed),
            "Failed" => {
                let (reason, message) = (text(condition, "reason"), text(condition, "message"));
                let separator = if reason.is_empty() || message.is_empty() { "" } else { ": " };
                Some(End::Failed(format!("{reason}{separator}{message}")))
            }
            _ => None,
        }
    })
}

/// The last words of the container that failed in the newest Pod of the Job, if they can be read.
async fn last_words_of(client: &Client, namespace: &str, job: &str) -> Option<String> {
    let params = ListParams::default().labels(&format!("job-name={job}")).limit(MAX_PODS);
    let request = Request::new(V1Pod::url_path(&(), Some(namespace))).list(&params).ok()?;
    let _permit = permit().await;
    let pods: PodList = client.request(request).await.ok()?;
    words(&pods.items)
}

/// The last words of the container that failed in the newest of `pods`.
fn words(pods: &[Pod]) -> Option<String> {
    let failed = pods.iter().filter_map(|pod| Some((pod, failed(pod)?)));
    let (pod, (container, ended)) =
        failed.max_by(|(a, _), (b, _)| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp))?;
    let words = last_words(&ended.message, pod);
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    Some(format!("container {container} exited with code {}{words}", ended.exit_code))
}

/// The container of `pod` that failed: its name and end.
fn failed(pod: &Pod) -> Option<(&str, &Terminated)> {
    let containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let ended = containers.filter_map(|container| {
        let ended = container.state.terminated.as_ref().or(container.last_state.terminated.as_ref())?;
        Some((container.name.as_str(), ended))
    });
    ended.into_iter().find(|(_, ended)| ended.exit_code != 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn end_of_a_job_is_that_of_its_conditions() {
        let job = |conditions: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
                "status": {"conditions": conditions}}))
            .unwrap()
        };
        let condition =
            |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "R", "message": "m"});
        for (conditions, expected) in [
            (json!(null), None),
            (json!([condition("Suspended", "True"), condition("Complete", "False")]), None),
            (json!([condition("FailureTarget", "True")]), None),
            (json!([condition("SuccessCriteriaMet", "True"), condition("Complete", "True")]), Some(End::Completed)),
            (json!([condition("Failed", "True")]), Some(End::Failed("R: m".to_owned()))),
        ] {
            assert_eq!(end(&job(conditions.clone())), expected, "{conditions}");
        }
    }

    #[test]
    fn last_words_are_those_of_the_container_that_failed() {
        let pod = |time: &str, code: i64, message: &str| -> Pod {
            let state = json!({"terminated": {"exitCode": code, "message": message}});
            let pod = json!({"metadata": {"name": "gate-load-1", "creationTimestamp": time}, "status": {"containerStatuses": [
                {"name": "first", "state": {"terminated": {"exitCode": 0}}}, {"name": "second", "state": state}]}});
            serde_json::from_value(pod).unwrap()
        };
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        let text = words(&[pod(old, 1, "old"), pod(new, 7, "one\nerror rate 0.3 > 0.1\n")]).unwrap();
        assert_eq!(text, "container second exited with code 7: error rate 0.3 > 0.1");
        assert_eq!(words(&[pod(old, 2, "")]).unwrap(), "container second exited with code 2");
        assert_eq!(words(&[pod(old, 0, "fine")]), None);
        let secret = words(&[pod(old, 1, "password: hunter22hunter22")]).unwrap();
        assert!(!secret.contains("hunter22"), "{secret}");
    }
}
