//! What a hub says of a KnativeServing to which nothing bad happens: no Warning event, and no
//! condition that is False, but for Deployments that are on their way.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use knative_operator_shared::api::{Condition, KnativeServing};
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::JoinHandle;

use crate::support::{NAMESPACE, warnings};

/// Reads all conditions of the KnativeServings of a hub, until it is dropped.
pub struct Healthy {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    statuses: usize,
    faults: BTreeSet<String>,
}

impl Healthy {
    pub fn watch(hub: &Cluster) -> Self {
        let api = Api::<KnativeServing>::namespaced(hub.client(), NAMESPACE);
        let seen = Arc::<Mutex<Seen>>::default();
        let task = tokio::spawn({
            let seen = seen.clone();
            async move {
                let mut resources =
                    watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
                while let Some(resource) = resources.next().await {
                    let Some(status) = resource.ok().and_then(|resource| resource.status) else { continue };
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.statuses += 1;
                    seen.faults.extend(status.conditions.iter().filter_map(fault));
                }
            }
        });
        Self { seen, task }
    }

    /// Asserts that nothing bad was said of `what` on `hub`.
    pub async fn assert(&self, hub: &Cluster, what: &str) -> Result<()> {
        {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(seen.statuses > 0, "no status was read during {what}");
            assert!(seen.faults.is_empty(), "conditions of {what}: {:?}", seen.faults);
        }
        let mut warnings = warnings(hub).await?;
        // It is so: before former Pods end, the requests of new ones are more than two processors.
        warnings.retain(|warning| !(warning.starts_with("WorkloadNotReady: ") && warning.contains("Insufficient cpu")));
        assert!(warnings.is_empty(), "Warning events of {what}: {warnings:?}");
        Ok(())
    }
}

impl Drop for Healthy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What `condition` says that isn't so.
fn fault(condition: &Condition) -> Option<String> {
    let Condition { type_, status, .. } = condition;
    let (reason, message) =
        (condition.reason.as_deref().unwrap_or_default(), condition.message.as_deref().unwrap_or_default());
    let is_on_the_way =
        matches!(type_.as_str(), "DeploymentsAvailable" | "Ready") && message.starts_with("Waiting on deployments: ");
    (status == "False" && !is_on_the_way).then(|| format!("{type_} {reason}: {message}"))
}
