//! Writes resources, revisions and the status of a fleet.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_rules as rules;
use knative_operator_rules::is_protected;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_runtime::untyped::api_resource;
use knative_operator_shared::api::{Component, Knative, KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::label::{
    ADOPT, FLEET, FLEET_FIELD_MANAGER, FLEET_LEFT_AT, FLEET_REVISION, ON_DELETE, ORPHAN,
};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};

/// Number of times that a resource may change while it is deleted.
const MAX_CONFLICTS: usize = 3;

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The API server refused it: it is not retried soon.
    #[error("{0}")]
    Refused(String),
    /// The object changed: it is retried with what the watch reports.
    #[error("{0}")]
    Conflict(String),
    /// The hub has too much to do (429).
    #[error("{0}")]
    Throttled(String),
    /// Something else: it is retried.
    #[error("{0}")]
    Other(String),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Self::Refused(error_text(&error)),
            kube::Error::Api(status) if status.code == 409 => Self::Conflict(error_text(&error)),
            kube::Error::Api(status) if status.code == 429 => Self::Throttled(error_text(&error)),
            _ => Self::Other(error_text(&error)),
        }
    }
}

fn api(client: &Client, component: Component, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &api_resource(component))
}

fn name_of(manifest: &Value) -> (&str, &str) {
    let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn parsed(component: Component, object: &DynamicObject) -> Option<Knative> {
    rules::parse(component, &serde_json::to_value(object).ok()?).ok()
}

/// Applies `manifest` (server-side apply); returns the stored resource.
pub async fn apply(client: &Client, component: Component, manifest: &Value) -> Result<Option<Knative>, WriteError> {
    let (namespace, name) = name_of(manifest);
    let params = PatchParams::apply(FLEET_FIELD_MANAGER).force();
    let stored = api(client, component, namespace).patch(name, &params, &Patch::Apply(manifest)).await?;
    Ok(parsed(component, &stored))
}

/// Makes a resource that somebody else changed equal to `manifest` again.
pub async fn repair(
    client: &Client,
    component: Component,
    manifest: &Value,
    difference: &Value,
) -> Result<Option<Knative>, WriteError> {
    let (namespace, name) = name_of(manifest);
    let params = patch_as(FLEET_FIELD_MANAGER);
    api(client, component, namespace).patch(name, &params, &Patch::Merge(difference)).await?;
    apply(client, component, manifest).await
}

/// Deletes `resource`, unless its owners or its protection changed: it may not be the fleet's any
/// more.
pub async fn delete(client: &Client, resource: &Knative) -> Result<(), WriteError> {
    let (api, meta) = (api(client, resource.component(), resource.namespace()), resource.meta());
    let mut version = meta.resource_version.clone();
    for attempt in 0.. {
        let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: version };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let error = match api.delete(resource.name(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => break,
            Err(error) => error,
            Ok(_) => break,
        };
        let is_conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
        if !is_conflict || attempt == MAX_CONFLICTS {
            return Err(error.into());
        }
        // Others may write its metadata all the time.
        let Some(live) = api.get_metadata_opt(resource.name()).await? else { break };
        let is_same = |live: &ObjectMeta| live.uid == meta.uid && live.owner_references == meta.owner_references;
        if !is_same(&live.metadata) || is_protected(&live.metadata) != is_protected(meta) {
            return Err(error.into());
        }
        version = live.metadata.resource_version;
    }
    Ok(())
}

/// Sets the annotation `name` of `resource`, or removes it; returns the stored resource.
pub async fn annotate(
    client: &Client,
    resource: &Knative,
    name: &str,
    value: Option<&str>,
) -> Result<Option<Knative>, WriteError> {
    // Not of another resource that has the name now.
    let patch = json!({"metadata": {"uid": resource.meta().uid, "annotations": {name: value}}});
    let (component, params) = (resource.component(), patch_as(FLEET_FIELD_MANAGER));
    match api(client, component, resource.namespace()).patch(resource.name(), &params, &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        patched => Ok(parsed(component, &patched?)),
    }
}

/// Removes `resource` from its fleet and leaves it as it is. A fleet that selects its cluster
/// adopts it. `is_last`: its namespace is being deleted, and it leaves its installation.
pub async fn orphan(client: &Client, resource: &Knative, is_last: bool) -> Result<(), WriteError> {
    let owners = resource.meta().owner_references.iter().flatten().filter(|owner| owner.kind != "KnativeFleet");
    let mut patch = json!({"metadata": {
        "resourceVersion": resource.meta().resource_version,
        "ownerReferences": owners.collect::<Vec<_>>(),
        "labels": {FLEET: null, FLEET_REVISION: null},
        "annotations": {ADOPT: "true", FLEET_LEFT_AT: null},
    }});
    if is_last {
        patch["metadata"]["annotations"][ON_DELETE] = json!(ORPHAN);
    }
    let params = patch_as(FLEET_FIELD_MANAGER);
    match api(client, resource.component(), resource.namespace())
        .patch(resource.name(), &params, &Patch::Merge(patch))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => Ok(patched.map(drop)?),
    }
}

/// Stores a revision.
pub async fn store_revision(client: &Client, manifest: &Value) -> Result<(), WriteError> {
    let (namespace, name) = name_of(manifest);
    let api = Api::<ControllerRevision>::namespaced(client.clone(), namespace);
    let params = PatchParams::apply(FLEET_FIELD_MANAGER).force();
    Ok(api.patch(name, &params, &Patch::Apply(manifest)).await.map(drop)?)
}

/// Deletes the revision `name`.
pub async fn delete_revision(client: &Client, namespace: &str, name: &str) -> Result<(), WriteError> {
    let api = Api::<ControllerRevision>::namespaced(client.clone(), namespace);
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

/// Writes the status of `fleet`.
pub async fn status(client: &Client, fleet: &KnativeFleet, status: &KnativeFleetStatus) -> Result<(), WriteError> {
    let (namespace, name) = (fleet.metadata.namespace.as_deref(), fleet.metadata.name.as_deref());
    let api = Api::<KnativeFleet>::namespaced(client.clone(), namespace.unwrap_or_default());
    let params = patch_as(FLEET_FIELD_MANAGER);
    let patch = Patch::Merge(status_patch(status));
    Ok(api.patch_status(name.unwrap_or_default(), &params, &patch).await.map(drop)?)
}

/// A JSON merge patch that replaces the status. Fields that are not set now may have been set
/// before.
fn status_patch(status: &KnativeFleetStatus) -> Value {
    let mut patch = json!({"status": status});
    for field in [
        "currentRevision",
        "previousRevision",
        "updateRevision",
        "requestedBy",
        "failedRevisions",
        "rollouts",
        "removals",
        "blockedRemoval",
        "stage",
        "stages",
        "attention",
    ] {
        if patch["status"].get(field).is_none() {
            patch["status"][field] = Value::Null;
        }
    }
    patch
}

/// Sets the finalizers of `fleet`.
pub async fn finalizers(client: &Client, fleet: &KnativeFleet, finalizers: &[String]) -> Result<(), WriteError> {
    let (namespace, name) = (fleet.metadata.namespace.as_deref(), fleet.metadata.name.as_deref());
    let api = Api::<KnativeFleet>::namespaced(client.clone(), namespace.unwrap_or_default());
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": fleet.metadata.resource_version}});
    match api.patch_metadata(name.unwrap_or_default(), &patch_as(FLEET_FIELD_MANAGER), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => Ok(patched.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::fleet::{ApprovedRemoval, BlockedRemoval, RecentRemoval, RemovalStatus};

    use super::*;

    #[test]
    fn nothing_of_a_former_removal_stays_in_the_status() {
        let of = |name: Option<&str>| BlockedRemoval { name: name.map(str::to_owned), clusters: 3, limit: 1 };
        let with = |removal: Option<BlockedRemoval>| KnativeFleetStatus {
            blocked_removal: removal,
            ..KnativeFleetStatus::default()
        };
        for (before, after) in [(Some(of(Some("12ab"))), Some(of(None))), (Some(of(Some("12ab"))), None)] {
            let mut stored = json!({"status": with(before)});
            json_patch::merge(&mut stored, &status_patch(&with(after.clone())));
            let read: KnativeFleetStatus = serde_json::from_value(stored["status"].take()).unwrap();
            assert_eq!(read.blocked_removal, after);
        }
    }

    #[test]
    fn removals_that_count_no_longer_leave_the_status() {
        let of = |recent: Vec<RecentRemoval>| {
            let until = "2026-01-01T00:00:00Z".to_owned();
            let approved = recent.iter().map(|_| ApprovedRemoval { after: None, until: until.clone() }).collect();
            let (orphans, allowed_until) = (Some(!recent.is_empty()), Some(until).filter(|_| !recent.is_empty()));
            let removals = RemovalStatus { allowed_until, approved, orphans, recent };
            KnativeFleetStatus { removals: Some(removals), ..KnativeFleetStatus::default() }
        };
        let mut stored = json!({"status": of(vec![RecentRemoval { clusters: 1, ..RecentRemoval::default() }])});
        json_patch::merge(&mut stored, &status_patch(&of(Vec::new())));
        let read: KnativeFleetStatus = serde_json::from_value(stored["status"].take()).unwrap();
        assert_eq!(read, of(Vec::new()));
    }
}
