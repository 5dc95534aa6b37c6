//! Lists the Pods of every cluster that a ClusterProfile on the hub refers to.
//!
//! Usage: `KUBECONFIG=HUB cargo run --example list_pods -- PROVIDER_FILE`

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::credential::CredentialFetcher;
use knative_operator_cluster_access::inventory::InventoryKind;
use knative_operator_cluster_access::provider::Providers;
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_cluster_access::{Annotations, ClusterProfile, Unmeasured, profile};
use kube::api::ListParams;
use kube::{Api, Client};

/// What is shared by all clusters: where credentials come from.
fn connections(hub: &Client) -> Connections {
    let annotations = Annotations {
        profiles: "example.com/cluster-profile",
        servers: "example.com/server",
        sent_to: "example.com/sent-to",
    };
    let namespace = hub.default_namespace().to_owned();
    // Any author of a ClusterProfile could name any Secret, so a Secret must name its profiles.
    let secrets =
        SecretReader { hub: hub.clone(), namespace, requires_binding: true, annotations, program: "list-pods" };
    let fetcher = CredentialFetcher { secrets, timeout: Duration::from_secs(10), metrics: Arc::new(Unmeasured) };
    // No leader election: this program may always write.
    Connections::new(fetcher, Arc::new(|| true))
}

/// The Pods on the cluster of `profile`.
async fn pods(
    connections: &Connections,
    profile: &ClusterProfile,
    providers: &Providers,
) -> Result<Vec<Pod>, Box<dyn Error>> {
    let reference = profile.reference();
    let access = profile::access(&reference, profile, providers, false)?;
    let connection = Box::pin(connections.get(&reference, access, false)).await.map_err(|failure| failure.error)?;
    Ok(Api::<Pod>::all(connection.client).list(&ListParams::default()).await?.items)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Err means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = std::env::args().nth(1).ok_or("usage: list_pods PROVIDER_FILE")?;
    let providers = Providers::read(Path::new(&file))?;
    let hub = Client::try_default().await?;
    let connections = connections(&hub);
    for object in InventoryKind::ClusterProfile.list(&hub, None).await? {
        let profile = ClusterProfile::read(&object);
        match pods(&connections, &profile, &providers).await {
            Ok(pods) => {
                for pod in pods {
                    let (namespace, name) = (pod.metadata.namespace.unwrap_or_default(), pod.metadata.name);
                    println!("{}: Pod {namespace}/{}", profile.reference(), name.unwrap_or_default());
                }
            }
            Err(error) => println!("{}: {error}", profile.reference()),
        }
    }
    Ok(())
}
