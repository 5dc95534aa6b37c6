//! What users of fleets try: a hub and two spokes, `a` and `b`. The fleet `prod` updates `a` first;
//! the next stage, with `b`, waits for an approval.

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::{Result, releases, tools, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::attacker::{mode, role, to_use};
use crate::authorization::binding;
use crate::knative_fleet::{PLACE, approve, has, status_of};
use crate::support::{INSTALL, apply, namespace};

/// May edit fleets and use all clusters, but neither customize nor approve.
pub const EDITOR: &str = "fleet-editor";
/// Like [`EDITOR`]; may also write ControllerRevisions in the namespace of the fleets.
pub const HISTORIAN: &str = "historian";
/// May edit fleets and use cluster `a`.
pub const AUTHOR: &str = "fleet-author";
/// May edit fleets and use the clusters of all namespaces.
pub const PLANNER: &str = "planner";
/// May write PlacementDecisions in [`SCHEDULES`].
pub const SCHEDULER: &str = "scheduler";
/// A namespace in which only the scheduler has permissions.
pub const SCHEDULES: &str = "schedules";

/// A hub with the operator, and the spokes.
pub struct Site {
    product: Product,
    /// The hub.
    pub hub: Cluster,
    /// The spoke of the first stage.
    pub a: Cluster,
    /// The spoke of the next stage.
    pub b: Cluster,
    _plugins: TempDir,
}

/// The fleet `prod`. Its content differs by the number of replicas.
pub fn prod(replicas: i32) -> Value {
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": PLACE}, "spec": {
        "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}, "namespaces": [FLEET]},
        "serving": {"spec": {
            "version": "1.0.0", "ingress": {"kourier": {"enabled": true}}, "high-availability": {"replicas": replicas},
        }},
        "rollout": {"stages": [
            {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}},
            {"name": "prod", "approval": "Required"},
        ]},
    }})
}

/// A fleet of Knative Eventing, which is beside `prod` on the same clusters.
pub fn eventing(name: &str, placement: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": name, "namespace": PLACE},
        "spec": {"placement": placement, "eventing": {"spec": spec}}})
}

/// The fleets' resource of `component` for `cluster`.
pub async fn child(hub: &Cluster, component: Component, cluster: &str) -> Result<Option<Value>> {
    let is_of_cluster = |item: &Value| item["spec"]["clusterProfileRef"]["name"] == cluster;
    Ok(hub.list(component.plural(), PLACE).await?.into_iter().find(is_of_cluster))
}

/// Changes what has no effect in the fleet `name`, and waits until the operator has made a pass
/// over it since, with all writes.
pub async fn settle(hub: &Cluster, name: &str) -> Result<()> {
    static LIMIT: AtomicU32 = AtomicU32::new(20);
    let patch = json!({"spec": {"revisionHistoryLimit": LIMIT.fetch_add(1, Ordering::Relaxed)}});
    hub.object("knativefleet", PLACE, name).merge(&patch).await?;
    status_of(hub, name, "observed again", |_| true).await.map(drop)
}

/// Whether `prod` is on both clusters.
fn is_done(status: &KnativeFleetStatus) -> bool {
    has(status, "Ready", "Ready") && status.updated == 2
}

/// Whether the next stage of `prod` waits for an approval.
pub fn is_waiting(status: &KnativeFleetStatus) -> bool {
    has(status, "Progressing", "AwaitingApproval")
}

impl Site {
    /// Starts everything but `b`, which is registered later.
    pub async fn start() -> Result<Self> {
        let (hub, a, b) =
            tokio::try_join!(Cluster::hub("attacks-fleet"), Cluster::spoke("attacks-a"), Cluster::spoke("attacks-b"))?;
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        values["knative_operator"]["operator_webhook"]["authorization"] = json!(mode());
        let product = Product::create(&hub, &releases::small(), values, plugins.path()).await?;
        let decisions = std::fs::read_to_string(tools::control_plane("placementdecisions.yaml")?)?;
        hub.kubectl(&["apply", "-f", "-"], &decisions).await?;
        wait::established(hub.client()).await?;
        namespace(&hub, PLACE).await?;
        namespace(&hub, SCHEDULES).await?;
        apply(&hub, &grants()).await?;
        let site = Self { product, hub, a, b, _plugins: plugins };
        site.register("a", "canary").await?;
        apply(&site.hub, &prod(2)).await?;
        // The next stage has no cluster yet, and needs an approval, too: for this rollout only.
        let status = status_of(&site.hub, "prod", "waiting", is_waiting).await?;
        approve(&site.hub, &status.update_revision.unwrap_or_default(), "prod").await?;
        status_of(&site.hub, "prod", "Ready", |s| has(s, "Ready", "Ready")).await?;
        site.hub.delete_all("knativefleetapprovals", PLACE).await?;
        Ok(site)
    }

    /// Restarts the operator, as an upgrade does.
    pub async fn restart(&mut self) -> Result<()> {
        self.product.restart_operator(&self.hub, Signal::TERM).await
    }

    /// Registers the spoke `name` for the fleet `prod`.
    pub async fn register(&self, name: &str, tier: &str) -> Result<()> {
        let spoke = if name == "a" { &self.a } else { &self.b };
        product::register(&self.hub, spoke, name).await?;
        let labels = json!({"env": "prod", "tier": tier, "site": name});
        self.hub.object("clusterprofile", FLEET, name).label(&labels).await
    }

    /// Rolls `replicas` out to the first stage; the next one then waits for an approval.
    pub async fn start_rollout(&self, replicas: i32) -> Result<()> {
        self.set(&prod(replicas)).await?;
        status_of(&self.hub, "prod", "awaiting approval", is_waiting).await.map(drop)
    }

    /// Sets the spec to that of `fleet`, as the administrator wants it, approves it if necessary,
    /// and waits until both clusters have it.
    pub async fn finish_rollout(&self, fleet: &Value) -> Result<()> {
        self.set(fleet).await?;
        let status = self.stopped().await?;
        if is_waiting(&status) {
            approve(&self.hub, status.update_revision.as_deref().unwrap_or_default(), "prod").await?;
            status_of(&self.hub, "prod", "done", is_done).await?;
        }
        Ok(())
    }

    /// Waits until the rollout is complete, or waits for an approval.
    pub async fn stopped(&self) -> Result<KnativeFleetStatus> {
        status_of(&self.hub, "prod", "awaiting approval or done", |s| is_done(s) || is_waiting(s)).await
    }

    /// Sets the spec to that of `fleet`.
    pub async fn set(&self, fleet: &Value) -> Result<()> {
        let patch = json!([{"op": "replace", "path": "/spec", "value": fleet["spec"]}]);
        self.hub.object("knativefleet", PLACE, "prod").operate(&patch, "kubectl-patch").await
    }

    /// Whether `replicas` have reached cluster `b`.
    pub async fn has_reached_b(&self, replicas: i32) -> Result<bool> {
        let child = child(&self.hub, Component::Serving, "b").await?;
        if child.is_none_or(|child| child["spec"]["high-availability"]["replicas"] != replicas) {
            return Ok(false);
        }
        let deployments = Api::<Deployment>::namespaced(self.b.client(), Component::Serving.canonical());
        let has_replicas = |d: Option<&Deployment>| d.is_some_and(|d| d.spec.replicas == Some(replicas));
        wait::until(&deployments, "controller", INSTALL, "with the new replicas", has_replicas).await?;
        Ok(true)
    }

    /// Waits until the operator has made a pass over `prod` that knows all changes of resources
    /// until now: it repairs a later change of the resource for `a`, and then makes another pass.
    pub async fn settle_children(&self) -> Result<()> {
        let child = child(&self.hub, Component::Serving, "a").await?.ok_or("cluster a has no resource")?;
        let name = child["metadata"]["name"].as_str().unwrap_or_default();
        let edit = json!({"spec": {"config": {"network": {"by": "hand"}}}});
        self.hub.object("knativeserving", PLACE, name).merge(&edit).await?;
        let api = Api::<KnativeServing>::namespaced(self.hub.client(), PLACE);
        let is_repaired = |serving: Option<&KnativeServing>| serving.is_some_and(|s| s.spec.common.config.is_empty());
        wait::until(&api, name, INSTALL, "repaired", is_repaired).await?;
        settle(&self.hub, "prod").await
    }
}

/// The permissions of all attackers.
fn grants() -> Value {
    let mut items = vec![
        binding("knative-operator-editor", PLACE, &[EDITOR, HISTORIAN, AUTHOR, PLANNER]),
        binding("knative-operator-user", FLEET, &[EDITOR, HISTORIAN]),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "planner"},
            "rules": [{"apiGroups": ["multicluster.x-k8s.io"], "resources": ["clusterprofiles"], "verbs": ["use"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "planner"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "planner"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PLANNER}]}),
    ];
    let verbs = json!(["create", "get", "list", "patch", "update"]);
    let revisions = json!({"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": verbs});
    let decisions =
        json!({"apiGroups": ["multicluster.x-k8s.io"], "resources": ["placementdecisions"], "verbs": verbs});
    items.extend(role("use-a", FLEET, &to_use("a"), AUTHOR));
    items.extend(role("write-revisions", PLACE, &revisions, HISTORIAN));
    items.extend(role("write-decisions", SCHEDULES, &decisions, SCHEDULER));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
