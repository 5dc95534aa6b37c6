//! A node that runs Pods for real: each in a network namespace of its own with the address in its
//! status, behind the cluster's Services. It plays kubelet and kube-proxy for some namespaces of a
//! cluster; KWOK plays those of the others.
//!
//! Executables come from [`Programs`]. A Pod whose image has none is Ready without a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::task::JoinHandle;

use crate::Result;
use crate::cluster::Cluster;

use self::network::Network;
use self::pod::Sandbox;
pub use self::programs::Programs;

mod network;
mod pod;
mod probe;
mod programs;
mod services;

/// A task that ends when dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A running node. Dropping it stops its Pods.
pub struct Node {
    _tasks: [Task; 2],
    _network: Arc<Network>,
}

impl Node {
    /// Runs the Pods of the namespaces in the cluster's setup. Needs root.
    pub async fn start(cluster: &Cluster, programs: Programs) -> Result<Self> {
        let network = Arc::new(Network::open(cluster).await?);
        let services = services::serve(cluster.client(), Arc::clone(&network));
        let sandbox = Arc::new(Sandbox::new(cluster, Arc::clone(&network), programs));
        let (client, namespaces) = (cluster.client(), cluster.real_namespaces());
        let pods = tokio::spawn(async move {
            let mut running: BTreeMap<String, Task> = BTreeMap::new();
            let api: Api<Pod> = Api::all(client);
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                        let namespace = pod.namespace().unwrap_or_default();
                        let is_scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                        if is_scheduled && namespaces.contains(&namespace.as_str()) {
                            let sandbox = Arc::clone(&sandbox);
                            running.entry(pod.uid().unwrap_or_default()).or_insert_with(|| {
                                Task(tokio::spawn(async move {
                                    let name = pod.name_any();
                                    if let Err(error) = Box::pin(sandbox.run(pod)).await {
                                        eprintln!("Pod {name}: {error}");
                                    }
                                }))
                            });
                        }
                    }
                    // A task ends with its Pod.
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            }
        });
        Ok(Self { _tasks: [Task(services), Task(pods)], _network: network })
    }
}
