//! What must be the same before and after another operator takes over: Pods and Deployments.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::{self, GoOperator};
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, wait};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{INSTALL, apply, condition, resource, status};

/// Name and uid of each Pod and ReplicaSet; uid, generation and spec of each Deployment. A new
/// annotation is a new generation of a Deployment, too: so the specs are compared.
#[derive(Clone, Debug)]
pub struct State {
    pub pods: BTreeMap<String, String>,
    pub sets: BTreeMap<String, String>,
    pub deployments: BTreeMap<String, (String, i64, Value)>,
}

impl State {
    /// That of `namespaces`; without Pods of Jobs, which come and go.
    pub async fn read(cluster: &Cluster, namespaces: &[&str]) -> Result<Self> {
        let mut state = Self { pods: BTreeMap::new(), sets: BTreeMap::new(), deployments: BTreeMap::new() };
        for namespace in namespaces {
            let all = ListParams::default();
            let of_job = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.kind == "Job");
            for pod in Api::<Pod>::namespaced(cluster.client(), namespace).list(&all).await?.items {
                if !of_job(&pod) {
                    state.pods.insert(format!("{namespace}/{}", pod.name_any()), pod.uid().unwrap_or_default());
                }
            }
            for set in Api::<ReplicaSet>::namespaced(cluster.client(), namespace).list(&all).await? {
                state.sets.insert(format!("{namespace}/{}", set.name_any()), set.uid().unwrap_or_default());
            }
            for found in Api::<Deployment>::namespaced(cluster.client(), namespace).list(&all).await? {
                let generation = found.metadata.generation.unwrap_or_default();
                let (name, uid) = (format!("{namespace}/{}", found.name_any()), found.uid().unwrap_or_default());
                state.deployments.insert(name, (uid, generation, serde_json::to_value(&found.spec)?));
            }
        }
        assert!(state.pods.len() > 4 && state.deployments.len() > 4, "not installed: {state}");
        Ok(state)
    }

    /// Without what belongs to `name`.
    pub fn without(mut self, name: &str) -> Self {
        self.pods.retain(|pod, _| !pod.contains(name));
        self.sets.retain(|set, _| !set.contains(name));
        self.deployments.retain(|deployment, _| !deployment.contains(name));
        self
    }

    /// Checks that no Pod restarted; prints both states.
    pub fn no_restart(&self, after: &Self, what: &str) {
        eprintln!("{what}: before: {self}; after: {after}");
        assert_eq!(self.pods, after.pods, "{what}: Pods were restarted");
        assert_eq!(self.sets, after.sets, "{what}: Deployments were rolled out");
    }

    /// Checks that also no spec of a Deployment was changed.
    pub fn is_same(&self, after: &Self, what: &str) {
        self.no_restart(after, what);
        for (name, (uid, _, spec)) in &self.deployments {
            let (uid_after, _, spec_after) = &after.deployments[name];
            assert_eq!((uid, spec), (uid_after, spec_after), "{what}: {name} was changed");
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generations: i64 = self.deployments.values().map(|(_, generation, _)| generation).sum();
        let (pods, sets, deployments) = (self.pods.len(), self.sets.len(), self.deployments.len());
        write!(f, "{pods} Pods, {sets} ReplicaSets, {deployments} Deployments with generations of {generations} in sum")
    }
}

/// Values for a takeover: those of the tests, and the Go operator's for multi-cluster support.
pub fn values(hub: &Cluster, multicluster: bool) -> Value {
    let mut values = product::bundled(hub);
    if multicluster {
        values["knative_operator"]["multicluster"] =
            go_operator::multicluster_values()["knative_operator"]["multicluster"].clone();
    }
    values
}

/// Upgrades the Go operator's release on `hub`, ends its processes, and starts this operator.
pub async fn take_over(hub: &Cluster, go: &mut GoOperator, multicluster: bool) -> Result<Product> {
    Product::upgrade_release(hub, &values(hub, multicluster)).await?;
    go.stop()?;
    Product::start(hub, &go_operator::releases()?, [].into()).await
}

/// Rolls the Helm release back to the Go operator's, ends `product`, and starts the Go operator.
pub async fn go_back(hub: &Cluster, product: Product, go: &mut GoOperator) -> Result<()> {
    hub.helm(&["rollback", "knative-operator", "1", "--namespace", product::NAMESPACE, "--wait"]).await?;
    drop(product);
    go.start(hub).await
}

/// A resource that the Go operator installs: Kourier, without Istio.
pub fn installed_by_go(component: Component, namespace: &str, profile: Option<&str>, version: &str) -> Value {
    let spec = match component {
        Component::Serving => json!({
            "version": version,
            "ingress": {"kourier": {"enabled": true}, "istio": {"enabled": false}},
            "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}},
        }),
        Component::Eventing => json!({"version": version}),
    };
    resource(component, namespace, component.canonical(), profile, spec)
}

/// Waits until `resource` is Ready at its current generation.
pub async fn current(hub: &Cluster, resource: &Value) -> Result<()> {
    let (kind, name) = (resource["kind"].as_str().unwrap_or_default(), resource["metadata"]["name"].as_str());
    let place = resource["metadata"]["namespace"].as_str().unwrap_or_default();
    let path = "jsonpath={.metadata.generation}";
    let generation = hub.kubectl(&["get", kind, name.unwrap_or_default(), "-n", place, "-o", path], "").await?;
    let generation: i64 = generation.parse()?;
    status(hub, resource, INSTALL, "Ready at its generation", |s| {
        s.observed_generation == Some(generation) && condition(s, "Ready").is_some_and(|c| c.status == "True")
    })
    .await
    .map(drop)
}

/// Changes the spec of `resource` so that an operator must write, and waits until it has.
pub async fn reconciled(hub: &Cluster, target: &Cluster, resource: &Value, mark: &str) -> Result<()> {
    let mut changed = resource.clone();
    changed["spec"]["config"]["features"] = json!({"mark": mark});
    apply(hub, &changed).await?;
    // Where the Go operator has installed it, also on a spoke.
    let place = resource["metadata"]["namespace"].as_str().unwrap_or_default();
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(target.client(), place);
    let name = if resource["kind"] == "KnativeServing" { "config-features" } else { "config-ping-defaults" };
    let has = |map: Option<&k8s_openapi::api::core::v1::ConfigMap>| {
        map.and_then(|m| m.data.as_ref()?.get("mark")).is_some_and(|found| found == mark)
    };
    wait::until(&maps, name, INSTALL, "changed", has).await?;
    current(hub, &changed).await
}

/// Waits until the Deployments in `namespace` are available.
pub async fn available(cluster: &Cluster, namespace: &str) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(cluster.client(), namespace);
    for deployment in deployments.list(&ListParams::default()).await? {
        wait::until(&deployments, &deployment.name_any(), INSTALL, "available", wait::available).await?;
    }
    Ok(())
}

/// Waits until each Deployment in `namespace` has this operator's digest.
pub async fn taken(cluster: &Cluster, namespace: &str) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(cluster.client(), namespace);
    let ours = |d: Option<&Deployment>| d.is_some_and(|d| d.annotations().contains_key("operator.knative.dev/digest"));
    for deployment in deployments.list(&ListParams::default()).await? {
        let name = deployment.name_any();
        wait::until(&deployments, &name, INSTALL, "taken over", ours).await?;
    }
    Ok(())
}
