//! A spoke, what is on it, and the resources that declare it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use knative_operator_shared::api::Component;
use knative_operator_tests::applied::{self, Applied};
use knative_operator_tests::chaos::Chaos;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::Gate;
use knative_operator_tests::product::{self, FLEET};
use knative_operator_tests::{Result, wait};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use tokio::sync::{Mutex, RwLock};

use super::config::{Config, FLEET_LABEL};

/// Time limit of a deletion.
const DELETION: Duration = Duration::from_secs(90);

/// Objects by kind, namespace and name.
pub type State = BTreeMap<String, Value>;

/// A spoke.
pub struct Site {
    pub name: String,
    pub spoke: RwLock<Cluster>,
    pub chaos: Arc<Chaos>,
    pub _gate: Gate,
    /// Indices of the resources that install something on it.
    pub resources: Vec<usize>,
    /// Another resource of its component, whose ClusterProfile leads to the same spoke.
    pub second: Resource,
}

impl Site {
    /// Registers `spoke` with `hub` behind a proxy, twice, and selects it for the fleet if
    /// `in_fleet`.
    pub async fn register(
        hub: &Cluster,
        name: String,
        mut spoke: Cluster,
        resources: Vec<usize>,
        second: Resource,
        in_fleet: bool,
    ) -> Result<Self> {
        let chaos = Arc::new(Chaos::default());
        let gate = Gate::open(&spoke, &chaos).await?;
        spoke.set_pod_endpoint(gate.url.clone(), gate.authority.clone());
        product::register(hub, &spoke, &name).await?;
        product::profile(hub, &second.namespace, &product::access(&spoke, &name)).await?;
        if in_fleet {
            hub.kubectl(&["label", "clusterprofile", &name, "-n", FLEET, FLEET_LABEL], "").await?;
        }
        create_namespaces(&spoke, &Component::ALL.map(Component::canonical)).await?;
        Ok(Self { name, spoke: RwLock::new(spoke), chaos, _gate: gate, resources, second })
    }

    /// Replaces the spoke by an empty one under the same address, and its credentials.
    pub async fn replace(&self, hub: &Cluster) -> Result<()> {
        let mut spoke = self.spoke.write().await;
        spoke.replace().await?;
        // The operator keeps namespaces that it did not create, whose deletion takes seconds.
        create_namespaces(&spoke, &Component::ALL.map(Component::canonical)).await?;
        product::register(hub, &spoke, &self.name).await
    }
}

/// A resource of a user: for a site, or a fleet.
pub struct Resource {
    /// Its namespace, which no other one has. The ClusterProfile of its site has the same name.
    pub namespace: String,
    pub name: &'static str,
    /// `knativeservings`, `knativeeventings` or `knativefleets`.
    pub plural: &'static str,
    pub component: Component,
    pub declared: Mutex<Option<Config>>,
    /// What it declared since the last time without faults.
    pub history: Mutex<Vec<Option<Config>>>,
}

impl Resource {
    pub fn new(namespace: &str, name: &'static str, plural: &'static str, component: Component) -> Self {
        let (declared, history) = (Mutex::default(), Mutex::default());
        Self { namespace: namespace.to_owned(), name, plural, component, declared, history }
    }

    /// Applies `config`, or deletes the resource and waits until it is gone.
    pub async fn set(&self, hub: &Cluster, config: Option<Config>) -> Result<()> {
        let api = api(hub, self.plural, &self.namespace);
        let Some(config) = config else {
            if self.declared.lock().await.is_some() {
                api.delete(self.name, &DeleteParams::default()).await?;
                wait::until(&api, self.name, DELETION, "deleted", |resource| resource.is_none()).await?;
                self.declare(None).await;
            }
            return Ok(());
        };
        let object = if self.plural == "knativefleets" {
            config.fleet(&self.namespace)
        } else {
            config.resource(&self.namespace, self.name, &self.namespace)
        };
        api.patch(self.name, &PatchParams::apply("chaos").force(), &Patch::Apply(&object)).await?;
        self.declare(Some(config)).await;
        Ok(())
    }

    async fn declare(&self, config: Option<Config>) {
        *self.declared.lock().await = config;
        self.history.lock().await.push(config);
    }

    /// Whether its status says that it is installed.
    pub async fn is_installed(&self, hub: &Cluster) -> Result<bool> {
        let Some(config) = *self.declared.lock().await else { return Ok(true) };
        is_ready(hub, self.plural, &self.namespace, self.name, config.version).await
    }

    /// Whether its status says that another resource owns the installation.
    pub async fn is_waiting(&self, hub: &Cluster) -> Result<bool> {
        let resource = api(hub, self.plural, &self.namespace).get(self.name).await?;
        Ok(has_condition(&resource, |c| {
            c["type"] == "InstallSucceeded" && c["status"] == "False" && c["reason"] == "Occupied"
        }))
    }

    pub async fn status(&self, hub: &Cluster) -> Result<String> {
        hub.kubectl(&["get", self.plural, "-n", &self.namespace, "-o", "yaml"], "").await
    }
}

/// Creates these namespaces.
pub async fn create_namespaces(cluster: &Cluster, names: &[&str]) -> Result<()> {
    for name in names {
        cluster.namespace(name).await?;
    }
    Ok(())
}

/// The API of resources with this plural in `namespace`.
fn api(hub: &Cluster, plural: &str, namespace: &str) -> Api<DynamicObject> {
    let version = if plural == "knativefleets" { "v1alpha1" } else { "v1beta1" };
    let kind = GroupVersionKind::gvk("operator.knative.dev", version, "");
    Api::namespaced_with(hub.client(), namespace, &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Whether the status of resource `name` says that the current generation with `version` is Ready.
pub async fn is_ready(hub: &Cluster, plural: &str, namespace: &str, name: &str, version: &str) -> Result<bool> {
    let is_fleet = plural == "knativefleets";
    let resource = api(hub, plural, namespace).get(name).await?;
    Ok((is_fleet || resource.data["status"]["version"] == version)
        && has_condition(&resource, |c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Whether the status of the current generation of `resource` has a condition for which `holds` is
/// true.
fn has_condition(resource: &DynamicObject, holds: impl Fn(&Value) -> bool) -> bool {
    let status = &resource.data["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    status["observedGeneration"].as_i64() == resource.metadata.generation && conditions.any(holds)
}

/// The applied objects, without their history.
pub async fn objects(spoke: &Cluster) -> Result<BTreeMap<String, Applied>> {
    let mut objects = applied::with_uids(spoke).await?;
    objects.retain(|name, _| !name.starts_with("ReplicaSet ") && !name.starts_with("ControllerRevision "));
    for Applied { content, .. } in objects.values_mut() {
        content["annotations"].as_object_mut().map(|all| all.remove("deployment.kubernetes.io/revision"));
        // The name of the anchor has the name of the resource, which differs with a fleet.
        for owner in content["owners"].as_array_mut().into_iter().flatten() {
            *owner = owner.as_str().and_then(|text| text.split(' ').next()).unwrap_or_default().into();
        }
    }
    Ok(objects)
}

/// The contents of `objects`.
pub fn contents(objects: &BTreeMap<String, Applied>) -> State {
    objects.iter().map(|(name, applied)| (name.clone(), applied.content.clone())).collect()
}

/// The contents of `objects`, with the marks of their owners.
pub fn marked(objects: &BTreeMap<String, Applied>) -> State {
    let marked = |applied: &Applied| with_mark(applied.content.clone(), &applied.mark);
    objects.iter().map(|(name, applied)| (name.clone(), marked(applied))).collect()
}

/// The content of an object, with the mark of its owner.
pub fn with_mark(mut content: Value, mark: &str) -> Value {
    content["mark"] = mark.into();
    content
}

pub fn differences(expected: &State, found: &State) -> String {
    let missing = expected.keys().filter(|name| !found.contains_key(*name)).map(|name| format!("missing {name}"));
    let further = found.keys().filter(|name| !expected.contains_key(*name)).map(|name| format!("left over {name}"));
    let changed = expected.iter().filter_map(|(name, object)| {
        let found = found.get(name).filter(|found| *found != object)?;
        Some(format!("changed {name}: {object} to {found}"))
    });
    missing.chain(further).chain(changed).collect::<Vec<_>>().join("; ")
}
