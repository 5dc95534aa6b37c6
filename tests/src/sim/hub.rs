//! ClusterProfiles of simulated spokes on a hub.

use futures::TryStreamExt;
use knative_operator_shared::api::ClusterProfile;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::Result;
use crate::product::FLEET;

/// Concurrent requests to the hub.
const CONCURRENCY: usize = 32;
/// A plugin that prints a token.
pub const TOKEN_PLUGIN: &str = "#!/bin/sh\necho '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t\"}}'\n";

/// Runs `work` for each number. The hub may close an idle connection just before a request, so a
/// failed request is repeated once; all of them are idempotent.
pub async fn each<F: Future<Output = Result<()>>>(all: &[usize], work: impl Fn(usize) -> F) -> Result<()> {
    let twice = async |n: usize| match work(n).await {
        Ok(()) => Ok(()),
        Err(_) => work(n).await,
    };
    futures::stream::iter(all.iter().map(|n| Ok(twice(*n))))
        .try_buffer_unordered(CONCURRENCY)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}

/// The numbers of spokes in `BENCH_FLEET`, in ascending order; `default` without it.
pub fn sizes(default: usize) -> Result<Vec<usize>> {
    let Ok(text) = std::env::var("BENCH_FLEET") else { return Ok(vec![default]) };
    let size = |text: &str| -> Result<usize> {
        text.parse::<usize>().map_err(|error| format!("BENCH_FLEET: {text}: {error}").into())
    };
    let mut sizes = text.split_whitespace().map(size).collect::<Result<Vec<usize>>>()?;
    sizes.sort_unstable();
    Ok(sizes)
}

/// Name of the ClusterProfile of spoke `number`.
pub fn name(number: usize) -> String {
    format!("spoke-{number}")
}

/// Applies the ClusterProfile of spoke `number`, with `labels`.
pub async fn profile(hub: Client, number: usize, labels: Value, access: Value) -> Result<()> {
    let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": name(number), "namespace": FLEET, "labels": labels},
        "spec": {"displayName": name(number), "clusterManager": {"name": "bench"}}});
    let api = Api::<ClusterProfile>::namespaced(hub.clone(), FLEET);
    api.patch(&name(number), &PatchParams::apply("bench"), &Patch::Apply(&profile)).await?;
    status(hub, number, access).await
}

/// Writes the status of the ClusterProfile of spoke `number`.
pub async fn status(hub: Client, number: usize, access: Value) -> Result<()> {
    let patch = json!({"status": {"accessProviders": access, "conditions": [
        {"type": "ControlPlaneHealthy", "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let api = Api::<ClusterProfile>::namespaced(hub, FLEET);
    Ok(api.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)?)
}
