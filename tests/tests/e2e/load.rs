//! Admissions through the API server at a constant rate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_tests::Result;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::resource;

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
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    refused: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Load {
    /// Sends `rate` admissions per second, in `namespace`, as dry runs.
    pub fn start(client: &Client, namespace: &str, rate: u32) -> Self {
        let (stop, done, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::default());
        let api: Api<KnativeServing> = Api::namespaced(client.clone(), namespace);
        let (ended, counted, errors): (_, _, Arc<Mutex<Vec<String>>>) =
            (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&refused));
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
            let mut requests = JoinSet::new();
            while !ended.load(Ordering::Relaxed) {
                tick.tick().await;
                let (api, object, done, errors) =
                    (api.clone(), object.clone(), Arc::clone(&counted), Arc::clone(&errors));
                requests.spawn(async move {
                    match api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
                        Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => errors.lock().unwrap().push(error.to_string()),
                    }
                });
            }
            requests.join_all().await;
        });
        Self { stop, done, refused, task }
    }

    /// Stops, and waits for the last answers; returns the number of admissions. Fails if any
    /// failed.
    pub async fn end(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?;
        let refused = self.refused.lock().unwrap();
        let done = self.done.load(Ordering::Relaxed);
        if refused.is_empty() {
            Ok(done)
        } else {
            Err(format!("{} of {done} failed, the first: {}", refused.len(), refused[0]).into())
        }
    }

    /// Number of admissions so far.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Number of failures so far.
    pub fn failures(&self) -> usize {
        self.refused.lock().unwrap().len()
    }
}
