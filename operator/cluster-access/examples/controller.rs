//! A controller over all clusters: it follows the ClusterProfiles of the hub, and writes to the
//! ConfigMap `greeting` in namespace `default` of each cluster which ClusterProfile it has.
//!
//! Usage: `KUBECONFIG=HUB cargo run --example controller -- PROVIDER_FILE`

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_cluster_access::backoff::Backoff;
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::credential::CredentialFetcher;
use knative_operator_cluster_access::inventory::InventoryKind;
use knative_operator_cluster_access::provider::Providers;
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_cluster_access::{Annotations, ClusterProfile, ClusterProfileReference, Unmeasured, profile};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::AbortHandle;

/// Field manager and user agent.
const PROGRAM: &str = "greeter";
/// Delay before a cluster that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What reconciles share.
struct Context {
    connections: Connections,
    providers: Providers,
}

impl Context {
    fn new(hub: &Client, providers: Providers) -> Self {
        let annotations = Annotations {
            profiles: "example.com/cluster-profile",
            servers: "example.com/server",
            sent_to: "example.com/sent-to",
        };
        let namespace = hub.default_namespace().to_owned();
        let secrets =
            SecretReader { hub: hub.clone(), namespace, requires_binding: true, annotations, program: PROGRAM };
        let fetcher = CredentialFetcher { secrets, timeout: Duration::from_secs(10), metrics: Arc::new(Unmeasured) };
        // With leader election, this would be false when the Lease may be lost.
        Self { connections: Connections::new(fetcher, Arc::new(|| true)), providers }
    }

    /// Writes the ConfigMap to the cluster of `profile`.
    async fn reconcile(&self, profile: &ClusterProfile) -> Result<(), Box<dyn Error + Send + Sync>> {
        let reference = profile.reference();
        let access = profile::access(&reference, profile, &self.providers, false)?;
        // The same connection as last time, unless the profile leads to another place.
        let connection = Box::pin(self.connections.get(&reference, access, false)).await;
        let client = connection.map_err(|failure| failure.error)?.client;
        let greeting = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting"},
            "data": {"profile": reference.to_string()}});
        let maps = Api::<ConfigMap>::namespaced(client, "default");
        maps.patch("greeting", &PatchParams::apply(PROGRAM), &Patch::Apply(greeting)).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Err means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = std::env::args().nth(1).ok_or("usage: controller PROVIDER_FILE")?;
    let hub = Client::try_default().await?;
    let context = Arc::new(Context::new(&hub, Providers::read(Path::new(&file))?));
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let mut tasks = HashMap::<ClusterProfileReference, AbortHandle>::new();
    let mut events = InventoryKind::ClusterProfile.watch(&hub, Config::default(), backoff);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let (context, profile) = (Arc::clone(&context), ClusterProfile::read(&object));
                let reference = profile.reference();
                // A task for each cluster: one that hangs delays no other.
                let task = tokio::spawn(async move {
                    while let Err(error) = context.reconcile(&profile).await {
                        println!("{}: {error}", profile.reference());
                        tokio::time::sleep(RETRY).await;
                    }
                    println!("{}: reconciled", profile.reference());
                });
                if let Some(former) = tasks.insert(reference, task.abort_handle()) {
                    former.abort();
                }
            }
            Ok(Event::Delete(object)) => {
                let reference = ClusterProfile::read(&object).reference();
                if let Some(task) = tasks.remove(&reference) {
                    task.abort();
                }
                context.connections.remove(&reference);
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => println!("the watch of ClusterProfiles failed: {error}"),
        }
    }
    Ok(())
}
