//! Follows the hub once for all tabs, and publishes what changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use knative_operator_overview::follow::Follower;
use knative_operator_overview::{ClusterView, Overview, Snapshot, overview};
use knative_operator_shared::time::truncate;

/// Minimum interval of updates.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval of checks whether the API server answers: while it does, and while it does not.
const PROBES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1));
/// Time limit of a check.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Configuration of the operator's webhook.
const CONFIGURATION: &str = "validation.operator.knative.dev";
/// Number of updates that a slow tab may lag behind.
const QUEUE: usize = 64;

/// The newest state, and the updates.
pub struct Updates {
    /// The URL of the hub and where it is from, the version of this program, and the namespace of
    /// the operator, if it is known.
    hub: Value,
    state: RwLock<Published>,
    changes: broadcast::Sender<Arc<str>>,
}

#[derive(Clone, Default)]
struct Published {
    /// Number of updates so far.
    sequence: u64,
    snapshot: Arc<Snapshot>,
    overview: Arc<Overview>,
    /// What tabs have.
    message: Map<String, Value>,
    clusters: BTreeMap<String, Value>,
}

impl Updates {
    /// The objects of the hub.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).snapshot)
    }

    /// The overview.
    pub fn overview(&self) -> Arc<Overview> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).overview)
    }

    /// The whole state as JSON, and the changes from then on.
    pub fn subscribe(&self) -> (String, broadcast::Receiver<Arc<str>>) {
        // A change that is in both does no harm: it has whole clusters.
        let changes = self.changes.subscribe();
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut message = state.message.clone();
        message.insert("sequence".to_owned(), json!(state.sequence));
        message.insert("clusters".to_owned(), json!(state.clusters));
        (Value::Object(message).to_string(), changes)
    }

    /// Publishes the state of `follower`, if it changed.
    fn publish(&self, follower: &Follower, connection: &Value) {
        let overview = overview(follower.snapshot(), Timestamp::now());
        let message = json!({
            "ready": overview.ready,
            "clustersByState": overview.clusters_by_state,
            "fleets": overview.fleets.iter().map(|fleet| brief(json!(fleet))).collect::<Vec<_>>(),
            "notes": overview.notes,
            "hub": self.hub,
            "connection": connection,
        });
        let message = message.as_object().cloned().unwrap_or_default();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let changed = changed(&state, &overview);
        state.snapshot = Arc::new(follower.snapshot().clone());
        state.overview = Arc::new(overview);
        let mut update: Map<String, Value> = message
            .iter()
            .filter(|(key, value)| state.message.get(*key) != Some(value))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        if changed.is_empty() && update.is_empty() {
            return;
        }
        state.sequence += 1;
        for (id, view) in &changed {
            match view {
                Value::Null => drop(state.clusters.remove(id)),
                view => drop(state.clusters.insert(id.clone(), view.clone())),
            }
        }
        update.insert("sequence".to_owned(), json!(state.sequence));
        update.insert("clusters".to_owned(), Value::Object(changed));
        state.message = message;
        // Without tabs, nobody receives it.
        let _ = self.changes.send(Value::Object(update).to_string().into());
    }
}

/// What tabs need to have the clusters of `overview`: those that changed, and null for those that
/// are gone. The others, thousands of them, only get compared.
fn changed(before: &Published, overview: &Overview) -> Map<String, Value> {
    let known: HashMap<&str, &ClusterView> =
        before.overview.clusters.iter().map(|cluster| (cluster.id.as_str(), cluster)).collect();
    let now: HashSet<&str> = overview.clusters.iter().map(|cluster| cluster.id.as_str()).collect();
    let gone = before.clusters.keys().filter(|id| !now.contains(id.as_str()));
    let others = overview.clusters.iter().filter(|cluster| known.get(cluster.id.as_str()) != Some(cluster));
    others
        .map(|cluster| (cluster.id.clone(), brief(json!(cluster))))
        .filter(|(id, view)| before.clusters.get(id) != Some(view))
        .chain(gone.map(|id| (id.clone(), Value::Null)))
        .collect()
}

/// `view` without what the page loads on demand: conditions and events. `changed` tells when these
/// changed.
fn brief(mut view: Value) -> Value {
    let strip = |view: &mut Value| {
        let Some(fields) = view.as_object_mut() else { return };
        fields.remove("conditions");
        let events = fields.remove("events").unwrap_or_default();
        let newest = &events[0];
        fields.insert(
            "changed".to_owned(),
            json!(format!("{} {}", newest["at"].as_str().unwrap_or_default(), newest["count"])),
        );
        let repair = events.as_array().into_iter().flatten().find(|event| event["reason"] == "DriftRepaired");
        if let Some(repair) = repair {
            fields.insert("repairedAt".to_owned(), repair["at"].clone());
        }
    };
    if let Some(components) = view.get_mut("components").and_then(Value::as_array_mut) {
        components.iter_mut().for_each(strip);
    } else {
        strip(&mut view);
    }
    view
}

/// The namespace of the operator: that of its webhook; `None` if the user may not read it.
async fn operator_namespace(client: &Client) -> Option<String> {
    let configurations = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let found = tokio::time::timeout(PROBE_TIMEOUT, configurations.get_opt(CONFIGURATION)).await;
    namespace_of(found.ok()?.ok()??)
}

/// The namespace of the Service that `configuration` names. The page shows it in a command, so it
/// has nothing that has a meaning in a shell.
fn namespace_of(configuration: ValidatingWebhookConfiguration) -> Option<String> {
    let services = configuration.webhooks?.into_iter().filter_map(|webhook| webhook.client_config.service);
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    services.map(|service| service.namespace).find(|name| !name.is_empty() && is_plain(name))
}

/// Starts to follow the hub `server`.
pub async fn start(mut follower: Follower, client: Client, server: &str) -> (JoinHandle<()>, Arc<Updates>) {
    let namespace = operator_namespace(&client).await;
    let hub = json!({"server": server, "version": env!("CARGO_PKG_VERSION"), "namespace": namespace});
    let updates = Arc::new(Updates { hub, state: RwLock::default(), changes: broadcast::channel(QUEUE).0 });
    let connected = json!({"connected": true});
    updates.publish(&follower, &connected);
    let published = Arc::clone(&updates);
    let task = tokio::spawn(async move {
        let mut connection = connected.clone();
        let mut last = tokio::time::Instant::now();
        loop {
            let is_connected = connection["connected"] == true;
            let pause = if is_connected { PROBES.0 } else { PROBES.1 };
            tokio::select! {
                () = follower.changed() => {}
                () = tokio::time::sleep(pause) => {
                    // A watch whose connection is gone may not notice for minutes.
                    let answer = tokio::time::timeout(PROBE_TIMEOUT, client.apiserver_version()).await;
                    match answer {
                        Ok(Ok(_)) => follower.reconnected(),
                        Ok(Err(error)) => follower.lost(knative_operator_runtime::error_text(&error)),
                        Err(_) => follower.lost(format!("no answer within {} s", PROBE_TIMEOUT.as_secs())),
                    }
                }
            }
            // The first change after a while is shown at once.
            let _ = tokio::time::timeout_at(last + INTERVAL, async {
                loop {
                    follower.changed().await;
                }
            })
            .await;
            connection = match follower.disconnected() {
                None => connected.clone(),
                Some(error) if is_connected => json!({"connected": false, "since": now(), "error": error}),
                Some(_) => connection,
            };
            published.publish(&follower, &connection);
            last = tokio::time::Instant::now();
        }
    });
    (task, updates)
}

fn now() -> String {
    truncate(Timestamp::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_of_the_operator_is_that_of_its_webhook() {
        let of = |client: Value| {
            let webhook = json!({"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client});
            namespace_of(serde_json::from_value(json!({"webhooks": [webhook]})).unwrap())
        };
        let service = |namespace: &str| of(json!({"service": {"name": "operator-webhook", "namespace": namespace}}));
        assert_eq!(service("platform-1").as_deref(), Some("platform-1"));
        assert_eq!([service("a; reboot"), service(""), of(json!({"url": "https://a"}))], [None, None, None]);
        assert_eq!(namespace_of(ValidatingWebhookConfiguration::default()), None);
    }
}
