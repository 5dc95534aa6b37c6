//! Plays kube-proxy and the cluster's DNS: a listener for each port of each Service, and a hosts
//! file with all Services.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;

use super::network::Network;
use crate::Result;
use crate::proxy::ServicePort;

/// Service, port, and address in the cluster.
type Key = (String, String, u16, Ipv4Addr);

/// Keeps the listeners and the hosts file current.
pub fn serve(client: Client, network: Arc<Network>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut open = BTreeMap::new();
        let services = watcher(Api::<Service>::all(client.clone()), watcher::Config::default());
        let slices = watcher(Api::<EndpointSlice>::all(client.clone()), watcher::Config::default());
        let changes = services.default_backoff().map(drop).boxed();
        let mut changes = futures::stream::select(changes, slices.default_backoff().map(drop).boxed());
        while changes.next().await.is_some() {
            // Changes come in groups.
            let end = tokio::time::Instant::now() + Duration::from_millis(30);
            while let Ok(Some(())) = tokio::time::timeout_at(end, changes.next()).await {}
            if let Err(error) = update(&client, &network, &mut open).await {
                eprintln!("Services: {error}");
            }
        }
    })
}

async fn update(client: &Client, network: &Network, open: &mut BTreeMap<Key, [ServicePort; 2]>) -> Result<()> {
    let all = ListParams::default();
    let services = Api::<Service>::all(client.clone()).list(&all).await?.items;
    let slices = Api::<EndpointSlice>::all(client.clone()).list(&all).await?.items;
    let (mut hosts, mut wanted) = ("127.0.0.1 localhost\n".to_owned(), BTreeMap::new());
    for service in &services {
        let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
        let Some(spec) = &service.spec else { continue };
        let Some(address) = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<Ipv4Addr>().ok()) else { continue };
        let host = format!("{name}.{namespace}");
        let _ = writeln!(hosts, "{} {host}.svc.cluster.local {host}.svc {host}", network.service(address));
        let of_service = |slice: &&EndpointSlice| {
            slice.namespace().as_deref() == Some(namespace.as_str())
                && slice.labels().get("kubernetes.io/service-name") == Some(&name)
        };
        for port in spec.ports.iter().flatten().filter(|port| port.protocol.as_deref() != Some("UDP")) {
            let backends = slices.iter().filter(of_service).flat_map(|slice| backends(slice, port.name.as_deref()));
            let number = u16::try_from(port.port)?;
            wanted.insert((namespace.clone(), name.clone(), number, address), backends.collect::<Vec<_>>());
        }
    }
    if std::fs::read_to_string(&network.hosts).ok().as_deref() != Some(&hosts) {
        // In place, since Pods mount the file.
        std::fs::write(&network.hosts, hosts)?;
    }
    open.retain(|key, _| wanted.contains_key(key));
    for (key, backends) in wanted {
        if !open.contains_key(&key) {
            let (_, _, port, address) = key;
            let listen = |address: Ipv4Addr| ServicePort::open(SocketAddr::new(address.into(), port));
            // For the API server, and for Pods.
            match (listen(address).await, listen(network.service(address)).await) {
                (Ok(cluster), Ok(pods)) => drop(open.insert(key.clone(), [cluster, pods])),
                (Err(error), _) | (_, Err(error)) => eprintln!("Service {}/{}: {error}", key.0, key.1),
            }
        }
        for entry in open.get(&key).into_iter().flatten() {
            entry.to(backends.clone());
        }
    }
    Ok(())
}

/// The ready addresses of `slice` for the port `name`.
fn backends(slice: &EndpointSlice, name: Option<&str>) -> Vec<SocketAddr> {
    let named = |port: &&k8s_openapi::api::discovery::v1::EndpointPort| {
        port.name.as_deref().unwrap_or_default() == name.unwrap_or_default()
    };
    let port = slice.ports.iter().flatten().find(named).and_then(|port| port.port);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let ready = slice.endpoints.iter().flatten().filter(is_ready).flat_map(|endpoint| &endpoint.addresses);
    ready.filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, port))).collect()
}
