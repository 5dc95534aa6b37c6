//! Admissions through the API server at a constant rate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_tests::{Result, wait};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::support::resource;

/// Maximum number of requests in progress: a machine that can't keep up gets fewer requests instead
/// of a queue, which no time limit would hold.
const IN_PROGRESS: usize = 16;

/// Whether to run at full load, which needs an idle machine: `ROTATION=full`.
pub fn is_full() -> bool {
    std::env::var("ROTATION").is_ok_and(|v| v == "full")
}

/// Admissions per second.
pub fn rate() -> u32 {
    if is_full() { 200 } else { 50 }
}

/// Admissions until it is stopped.
pub struct Load {
    stop: watch::Sender<bool>,
    done: watch::Receiver<usize>,
    refused: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

/// Whether the API server itself had no time, and asked no webhook in vain: a client sends such a
/// request again.
fn is_of_the_api_server(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let is_late = matches!(status.code, 429 | 504) || status.code >= 500 && status.message.contains("etcdserver");
    is_late && !status.message.contains("webhook")
}

impl Load {
    /// Sends `rate` admissions per second, in `namespace`, as dry runs.
    pub fn start(client: &Client, namespace: &str, rate: u32) -> Self {
        let (stop, ended) = watch::channel(false);
        let (counter, done) = watch::channel(0);
        let refused: Arc<Mutex<Vec<String>>> = Arc::default();
        let api: Api<KnativeServing> = Api::namespaced(client.clone(), namespace);
        let (counter, errors) = (Arc::new(counter), Arc::clone(&refused));
        let object = resource(
            Component::Serving,
            namespace,
            "load",
            Some("nowhere"),
            json!({"high-availability": {"replicas": 2}}),
        );
        let object: KnativeServing = serde_json::from_value(object).unwrap();
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
            // Not those that were missed: after a pause of this process, they would come at once.
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut requests = JoinSet::new();
            while !*ended.borrow() {
                tick.tick().await;
                while requests.try_join_next().is_some() {}
                if requests.len() >= IN_PROGRESS {
                    requests.join_next().await;
                }
                let (api, object, counter, errors) =
                    (api.clone(), object.clone(), Arc::clone(&counter), Arc::clone(&errors));
                requests.spawn(async move {
                    match api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
                        Ok(_) => counter.send_modify(|count| *count += 1),
                        Err(error) if is_of_the_api_server(&error) => {}
                        Err(error) => errors.lock().unwrap().push(error.to_string()),
                    }
                });
            }
            requests.join_all().await;
        });
        Self { stop, done, refused, task }
    }

    /// Waits until `count` more requests were admitted.
    pub async fn more(&self, count: usize) -> Result<()> {
        let (mut done, before) = (self.done.clone(), self.done());
        let reached = done.wait_for(|done| *done >= before + count);
        if matches!(tokio::time::timeout(wait::LIMIT, reached).await, Ok(Ok(_))) {
            return Ok(());
        }
        let (admitted, refused) = (self.done() - before, self.refused.lock().unwrap());
        Err(format!("{admitted} of {count} more were admitted; refused: {refused:?}").into())
    }

    /// Stops, and waits for the last answers; returns the number of admissions. Fails if any
    /// failed.
    pub async fn end(self) -> Result<usize> {
        self.stop.send_replace(true);
        self.task.await?;
        let refused = self.refused.lock().unwrap();
        let done = *self.done.borrow();
        if refused.is_empty() {
            Ok(done)
        } else {
            Err(format!("{} of {done} failed, the first: {}", refused.len(), refused[0]).into())
        }
    }

    /// Number of admissions so far.
    pub fn done(&self) -> usize {
        *self.done.borrow()
    }

    /// Number of failures so far.
    pub fn failures(&self) -> usize {
        self.refused.lock().unwrap().len()
    }
}

#[test]
fn only_a_late_api_server_is_no_refusal() {
    let of = |code: u16, message: &str| {
        let status = kube::core::Status { code, message: message.to_owned(), ..Default::default() };
        kube::Error::Api(Box::new(status))
    };
    for (code, message) in [(500, "etcdserver: request timed out"), (504, "Timeout"), (429, "too many requests")] {
        assert!(is_of_the_api_server(&of(code, message)), "{message}");
    }
    for (code, message) in [
        (500, "failed calling webhook \"validation.operator.knative.dev\": context deadline exceeded"),
        (503, "conversion webhook for operator.knative.dev/v1beta1 failed: etcdserver"),
        (404, "the server could not find the requested resource"),
        (504, "failed calling webhook \"validation.operator.knative.dev\": timed out"),
        (403, "etcdserver"),
        (503, "the server is currently unable to handle the request"),
    ] {
        assert!(!is_of_the_api_server(&of(code, message)), "{message}");
    }
}
