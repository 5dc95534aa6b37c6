//! What the page loads on demand: a cluster's objects, what a resource renders to, and how it
//! differs from its cluster. With the rights of the user, on clusters that their kubeconfig has a
//! context for.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use knative_operator_rules as rules;
use knative_operator_runtime::error_text;
use knative_operator_runtime::user::UserArgs;
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::text::{MAX_MESSAGE, shown};
use knative_operator_shared::yaml;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::live::Updates;
use crate::command::diff::{difference, load_inventory};
use crate::command::output::PROGRAM;
use crate::command::release_args::ReleaseArgs;
use knative_operator_objects::ObjectId;
use knative_operator_objects::health::{self, Health, WatchedObject};
use knative_operator_objects::plan::Item;
use knative_operator_overview::build::{LOCAL, target};
use knative_operator_overview::{State, Watched, activity};

/// Concurrent requests to a cluster.
const CONCURRENCY: usize = 8;

/// Loads details.
pub struct Details {
    /// Client of the hub.
    pub client: Client,
    /// The kubeconfig of the user.
    pub user: UserArgs,
    /// Source of releases.
    pub releases: ReleaseArgs,
    /// The state of the hub.
    pub updates: Arc<Updates>,
}

/// A resource: component, namespace and name.
pub type Name<'a> = (Component, &'a str, &'a str);

impl Details {
    /// The cluster `id`, with conditions, events and what happened.
    pub fn cluster(&self, id: &str) -> Result<Value, String> {
        let overview = self.updates.overview();
        let cluster = overview.clusters.iter().find(|cluster| cluster.id == id);
        let cluster = cluster.ok_or_else(|| format!("no resource refers to cluster {id}"))?;
        let mut view = json!(cluster);
        view["activity"] = json!(activity::of_cluster(cluster));
        Ok(view)
    }

    /// The fleet `name`, with conditions and events.
    pub fn fleet(&self, namespace: &str, name: &str) -> Result<Value, String> {
        let overview = self.updates.overview();
        let mut fleets = overview.fleets.iter();
        let fleet = fleets.find(|fleet| fleet.namespace == namespace && fleet.name == name);
        Ok(json!(fleet.ok_or_else(|| format!("KnativeFleet {namespace}/{name} does not exist"))?))
    }

    /// What happened lately, newest first.
    pub fn activity(&self) -> Value {
        json!(activity::activity(&self.updates.overview()))
    }

    fn stored(&self, (component, namespace, name): Name<'_>) -> Result<Arc<Value>, String> {
        let kind = match component {
            Component::Serving => Watched::Servings,
            Component::Eventing => Watched::Eventings,
        };
        let snapshot = self.updates.snapshot();
        let found = snapshot.get(kind, &(namespace.to_owned(), name.to_owned()));
        found.cloned().ok_or_else(|| format!("{component} {namespace}/{name} does not exist"))
    }

    fn parsed(&self, name: Name<'_>) -> Result<Knative, String> {
        rules::parse(name.0, self.stored(name)?.as_ref()).map_err(|violation| violation.to_string())
    }

    /// The spec of a resource as YAML, its cluster, conditions and events.
    pub fn resource(&self, name: Name<'_>) -> Result<Value, String> {
        let stored = self.stored(name)?;
        let overview = self.updates.overview();
        let (component, namespace, short) = name;
        let all = overview.clusters.iter().flat_map(|cluster| &cluster.components);
        let view = all.into_iter().find(|c| c.kind == component.kind() && c.namespace == namespace && c.name == short);
        let spec = stored.get("spec").cloned().unwrap_or_else(|| json!({}));
        let spec = yaml::write(&spec).map_err(|error| error.to_string())?;
        Ok(json!({"cluster": target(&stored), "spec": spec, "component": view}))
    }

    /// What a resource renders to, as YAML by object.
    pub async fn rendered(&self, name: Name<'_>) -> Result<Value, String> {
        let resource = self.parsed(name)?;
        let (plan, warnings) = self.releases.plan(&resource, "").await?;
        let object = |item: &Item| -> Result<Value, String> {
            let rendered = plan.rendered_object_of(item);
            let id: &ObjectId = &item.id;
            let yaml = yaml::write(&rendered).map_err(|error| error.to_string())?;
            Ok(json!({"kind": id.kind, "namespace": id.namespace, "name": id.name, "yaml": yaml}))
        };
        let objects = plan.items().iter().map(object).collect::<Result<Vec<_>, _>>()?;
        Ok(json!({"objects": objects, "warnings": warnings}))
    }

    /// How a resource differs from its cluster, as a unified diff. A server-side dry run: nothing
    /// is written.
    pub async fn diff(&self, name: Name<'_>) -> Result<Value, String> {
        let mut resource = self.parsed(name)?;
        let client = self.client_of(&target(self.stored(name)?.as_ref())).await?;
        let plan = async |resource: &Knative, anchor: String| self.releases.plan(resource, &anchor).await;
        let (warnings, difference) = difference(&client, &mut resource, plan, false).await?;
        Ok(json!({"text": difference.text, "summary": difference.summary(), "warnings": warnings}))
    }

    /// The installed objects of a resource by kind, with their health.
    pub async fn objects(&self, name: Name<'_>) -> Result<Value, String> {
        let resource = self.parsed(name)?;
        let client = self.client_of(&target(self.stored(name)?.as_ref())).await?;
        let (_, inventory) = load_inventory(&client, &resource).await?;
        let requests: Vec<_> = inventory.entries.iter().map(|(id, entry)| state(&client, id, &entry.version)).collect();
        let all: Vec<_> = futures::stream::iter(requests).buffered(CONCURRENCY).collect().await;
        let mut kinds: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (id, (state, message)) in all {
            let object = json!({"namespace": id.namespace, "name": id.name, "state": state, "message": message});
            kinds.entry(&id.kind).or_default().push(object);
        }
        Ok(json!(kinds))
    }

    /// A client for the cluster `id`.
    async fn client_of(&self, id: &str) -> Result<Client, String> {
        if id == LOCAL {
            return Ok(self.client.clone());
        }
        let overview = self.updates.overview();
        let cluster = overview.clusters.iter().find(|cluster| cluster.id == id);
        let server = cluster.and_then(|cluster| cluster.server.clone());
        let server = server.ok_or_else(|| format!("ClusterProfile {id} has no server, or you may not read it"))?;
        let found = self.user.client_of_server(PROGRAM, &server).await.map_err(|error| error.to_string())?;
        found.ok_or_else(|| {
            format!("This needs a context for {server} in your kubeconfig: the page uses your rights, not those of the operator.")
        })
    }
}

/// State of the object `id`, and why.
async fn state<'i>(client: &Client, id: &'i ObjectId, version: &str) -> (&'i ObjectId, (State, String)) {
    let is_ready = !health::has_health(&id.group, &id.kind);
    (id, if is_ready { (State::Ready, String::new()) } else { live_state(client, id, version).await })
}

/// State of the object `id` on the cluster, and why.
async fn live_state(client: &Client, id: &ObjectId, version: &str) -> (State, String) {
    let gvk = GroupVersionKind::gvk(&id.group, version, &id.kind);
    let resource = ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = if id.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &id.namespace, &resource)
    };
    let found = match api.get_opt(&id.name).await {
        Ok(Some(found)) => found,
        Ok(None) => return (State::Failed, "it does not exist".to_owned()),
        Err(error) => return (State::Unreachable, error_text(&error)),
    };
    let watched: Result<WatchedObject, _> = serde_json::from_value(json!(found));
    match watched.ok().and_then(|object| health::of(&id.kind, &object)) {
        None | Some(Health::Ready) => (State::Ready, String::new()),
        Some(Health::Waiting(wait)) => (State::Progressing, shown(&wait.to_string(), MAX_MESSAGE)),
        Some(Health::Failed(why)) => (State::Failed, shown(&why, MAX_MESSAGE)),
    }
}

/// The component, namespace and name in the path `KIND/NAMESPACE/NAME`.
pub fn parse_name(path: &str) -> Result<Name<'_>, String> {
    let mut parts = path.splitn(3, '/');
    let (kind, namespace, name) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let component = Component::of_kind(kind).ok_or_else(|| format!("there is no kind {kind}"))?;
    if name.is_empty() {
        return Err("the name is missing".to_owned());
    }
    Ok((component, namespace, name))
}
