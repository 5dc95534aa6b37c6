//! A hub whose resources have statuses as the operator writes them, of any number of clusters.

use knative_operator_shared::api::{ClusterProfile, KnativeEventing, KnativeServing};
use knative_operator_tests::cluster::{Cluster, Setup};
use knative_operator_tests::product::FLEET;
use knative_operator_tests::sim::hub::each;
use knative_operator_tests::{Result, tools, wait};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

/// Namespace of the operator, which is not the usual one.
pub const OPERATOR: &str = "platform";
/// Namespace of the resources.
pub const PLACE: &str = "fleet";
/// Why the resources of some clusters are not available: what their Pods tell.
pub const CAUSE: &str = "cannot pull image \"registry.example/activator:none\": not found";
/// The version before the rollout, and the one that is rolled out.
pub const VERSIONS: [&str; 2] = ["1.22.1", "1.23.0"];
/// Clusters of the first stage.
const CANARIES: usize = 10;

/// A hub with clusters of a fleet in the middle of a rollout.
pub struct Fake {
    /// The hub.
    pub hub: Cluster,
    clusters: usize,
}

/// Name of the ClusterProfile of cluster `number`.
pub fn name(number: usize) -> String {
    let place = if number < CANARIES { "canary" } else { ["eu", "us", "asia"][number % 3] };
    format!("{place}-{number:03}")
}

/// The status of the KnativeServing of cluster `number`, which changes back and forth.
pub fn status(number: usize, version: &str, change: usize) -> Value {
    let now = now();
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    let ok = |type_: &str| condition(type_, "True", "", "");
    let resolved = if number % 250 == 7 {
        let message = format!("the API server of {} answers 401 Unauthorized", name(number));
        condition("TargetClusterResolved", "False", "RemoteClusterUnauthorized", &message)
    } else {
        ok("TargetClusterResolved")
    };
    let waiting = number % 100 == 42 || change % 2 == 1;
    let available = if waiting {
        condition("DeploymentsAvailable", "False", "NotReady", &format!("Waiting on deployments: activator ({CAUSE})"))
    } else {
        ok("DeploymentsAvailable")
    };
    let is_ready = resolved["status"] == "True" && !waiting;
    let ready = if is_ready { ok("Ready") } else { condition("Ready", "False", "NotReady", "") };
    json!({"status": {"observedGeneration": 1, "version": version,
        "conditions": [available, ok("DependenciesInstalled"), ok("InstallSucceeded"), ready, resolved, ok("VersionMigrationEligible")]}})
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn tier(number: usize, clusters: usize) -> &'static str {
    match number {
        0..CANARIES => "0",
        _ if number < clusters / 3 => "1",
        _ => "2",
    }
}

/// How many clusters have the new version.
fn updated(clusters: usize) -> usize {
    clusters * 7 / 10
}

impl Fake {
    /// A hub with `clusters` clusters.
    pub async fn start(hub: &str, clusters: usize) -> Result<Self> {
        let setup = Setup { webhooks: false, ..Setup::SIMULATED };
        let fake = Self { hub: Cluster::start(hub, setup).await?, clusters };
        fake.define().await?;
        let all: Vec<usize> = (0..clusters).collect();
        each(&all, |number| fake.profile(number)).await?;
        each(&all, |number| fake.resources(number)).await?;
        fake.fleet(&json!({"type": "Progressing", "status": "True", "reason": "RollingOut", "message": ""})).await?;
        Ok(fake)
    }

    async fn define(&self) -> Result<()> {
        let crds = std::process::Command::new(tools::binary("knative-operator")?).arg("crds").output()?;
        self.hub.kubectl(&["apply", "-f", "-"], &String::from_utf8_lossy(&crds.stdout)).await?;
        for file in ["knativefleets", "knativefleetapprovals"] {
            let path = tools::project().join(format!("charts/knative-operator/files/crds/{file}.yaml"));
            self.hub.kubectl(&["apply", "-f", "-"], &std::fs::read_to_string(path)?).await?;
        }
        let inventory = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
        self.hub.kubectl(&["apply", "-f", "-"], &inventory).await?;
        wait::established(self.hub.client()).await?;
        // The page has the namespace of the operator from it.
        let service = json!({"name": "operator-webhook", "namespace": OPERATOR});
        let webhook = json!({"name": "validation.operator.knative.dev", "clientConfig": {"service": service},
            "rules": [], "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "validation.operator.knative.dev"}, "webhooks": [webhook]});
        self.hub.kubectl(&["apply", "-f", "-"], &configuration.to_string()).await?;
        for namespace in [FLEET, PLACE] {
            self.hub.namespace(namespace).await?;
        }
        Ok(())
    }

    async fn profile(&self, number: usize) -> Result<()> {
        let name = name(number);
        let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
            "metadata": {"name": name, "namespace": FLEET, "labels": {"tier": tier(number, self.clusters)}},
            "spec": {"displayName": name, "clusterManager": {"name": "test"}}});
        let api = Api::<ClusterProfile>::namespaced(self.hub.client(), FLEET);
        api.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&profile)).await?;
        let access = json!([{"name": "secretreader", "cluster": {"server": format!("https://{name}.example:6443")}}]);
        let healthy = json!({"type": "ControlPlaneHealthy", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now()});
        let status = json!({"status": {"accessProviders": access, "conditions": [healthy]}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// KnativeServing and, on the canaries, KnativeEventing of cluster `number`.
    async fn resources(&self, number: usize) -> Result<()> {
        let name = name(number);
        let version = VERSIONS[usize::from(number < updated(self.clusters))];
        let object = |kind: &str| {
            json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": kind,
                "metadata": {"name": name, "namespace": PLACE, "labels": {"operator.knative.dev/fleet": "prod"}},
                "spec": {"version": version, "clusterProfileRef": {"name": name, "namespace": FLEET}}})
        };
        let (client, own, merge) = (self.hub.client(), PatchParams::apply("test"), PatchParams::default());
        let servings = Api::<KnativeServing>::namespaced(client.clone(), PLACE);
        servings.patch(&name, &own, &Patch::Apply(&object("KnativeServing"))).await?;
        servings.patch_status(&name, &merge, &Patch::Merge(&status(number, version, 0))).await?;
        if number >= CANARIES {
            return Ok(());
        }
        let eventings = Api::<KnativeEventing>::namespaced(client, PLACE);
        let mut object = object("KnativeEventing");
        object["spec"]["version"] = json!(VERSIONS[0]);
        eventings.patch(&name, &own, &Patch::Apply(&object)).await?;
        // Of another minor version than KnativeServing: a skew.
        eventings.patch_status(&name, &merge, &Patch::Merge(&status(1, VERSIONS[0], 0))).await?;
        Ok(())
    }

    /// Writes the status of cluster `number`.
    pub async fn change(&self, number: usize, change: usize) -> Result<()> {
        let version = VERSIONS[usize::from(number < updated(self.clusters))];
        let api = Api::<KnativeServing>::namespaced(self.hub.client(), PLACE);
        let patch = Patch::Merge(status(number, version, change));
        api.patch_status(&name(number), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The fleet, whose last stage is in the middle, with `progressing` as its condition.
    pub async fn fleet(&self, progressing: &Value) -> Result<()> {
        let stage = |name: &str, tier: &str| json!({"name": name, "clusterSelector": {"matchLabels": {"tier": tier}}});
        let object = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": PLACE}, "spec": {
            "placement": {"clusterSelector": {}, "namespaces": [FLEET]}, "serving": {"spec": {"version": VERSIONS[1]}},
            "rollout": {"stages": [stage("canary", "0"), stage("europe", "1"), stage("world", "2")]}}});
        self.hub.apply(&object).await?;
        let (europe, updated) = (self.clusters / 3 - CANARIES, updated(self.clusters));
        let world = self.clusters - europe - CANARIES;
        let time = |minutes: i64| {
            (jiff::Timestamp::now() - jiff::SignedDuration::from_mins(minutes))
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string()
        };
        let is_waiting = progressing["reason"] == "AwaitingApproval";
        let mut stages = [
            json!({"name": "canary", "state": "Complete", "clusters": CANARIES, "updated": CANARIES, "startedAt": time(190), "finishedAt": time(180)}),
            json!({"name": "europe", "state": "Complete", "clusters": europe, "updated": europe, "approvedBy": "jane", "startedAt": time(120), "finishedAt": time(65)}),
            json!({"name": "world", "state": "Progressing", "clusters": world, "updated": updated - europe - CANARIES, "updating": 4, "startedAt": time(60)}),
        ];
        if is_waiting {
            stages[2] = json!({"name": "world", "state": "AwaitingApproval", "clusters": world});
        }
        let ready = format!("{updated}/{} updated to prod-2; {updated} Ready", self.clusters);
        let ready = json!({"type": "Ready", "status": "False", "reason": "RollingOut", "message": ready});
        let rollout = json!({"revision": "prod-2", "requestedBy": "jane", "startedAt": time(190)});
        let status = json!({"status": {"observedGeneration": 1, "clusters": self.clusters, "updated": updated, "ready": updated, "failed": 0, "deferred": 0,
            "updateRevision": "prod-2", "currentRevision": "prod-1", "stage": "world", "rollouts": [rollout],
            "conditions": [ready, progressing], "stages": stages}});
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("operator.knative.dev", "v1alpha1", "KnativeFleet"));
        let api = Api::<DynamicObject>::namespaced_with(self.hub.client(), PLACE, &resource);
        api.patch_status("prod", &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// Publishes an event of the operator about the KnativeServing of cluster `number`.
    pub async fn event(&self, number: usize, (type_, reason, message): (&str, &str, &str)) -> Result<()> {
        let name = name(number);
        let event = json!({"apiVersion": "v1", "kind": "Event", "type": type_, "reason": reason, "message": message,
            "metadata": {"name": format!("{name}.{}", reason.to_lowercase()), "namespace": PLACE},
            "involvedObject": {"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "name": name, "namespace": PLACE},
            "reportingComponent": "knative-operator", "reportingInstance": "test", "firstTimestamp": now(), "lastTimestamp": now(), "count": 1});
        self.hub.apply(&event).await
    }
}
