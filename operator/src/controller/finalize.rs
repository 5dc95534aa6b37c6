//! Takes away what was installed, and lets the custom resource go when it is gone.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::Knative;
use knative_operator_shared::condition::{State, States, TARGET_CLUSTER_RESOLVED};
use knative_operator_shared::label::{FIELD_MANAGER, ON_UNREACHABLE, ORPHAN};
use knative_operator_shared::version::Version;
use kube::api::Patch;
use serde_json::json;

use super::Context;
use super::actor::{Memory, Next};
use super::report::{self, Report};
use super::{place, resolve, verdict};
use crate::apply::home::Home;
use crate::apply::inventory::Inventory;
use crate::apply::remove;
use crate::kinds::Kinds;
use crate::owner::Owner;
use crate::plan::Plan;
use crate::render;

/// Objects named in the status, at most.
const NAMED: usize = 5;
/// How soon it is looked again at what is going away.
const AGAIN: Duration = Duration::from_millis(500);

/// How long a cluster must have been away before a resource is let go without it: a moment's trouble is no reason.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Makes one step of the removal.
pub async fn run(cx: &Context, resource: &Knative, memory: &mut Memory) -> Next {
    let finalizer = resource.component().finalizer();
    if !resource.meta().finalizers.iter().flatten().any(|f| f == finalizer) {
        return Next::Done;
    }
    // Whatever is deleted from now on is no drift.
    memory.observer = None;
    match remove(cx, resource, memory).await {
        Ok(true) => {
            let gone = || {
                cx.events.normal(
                    resource,
                    "Uninstalled",
                    "Everything that was installed is deleted, but CustomResourceDefinitions",
                );
            };
            let_go(cx, resource, gone).await
        }
        Ok(false) => Next::After(AGAIN),
        Err(Stuck::Unresolved(failure)) => {
            memory.suspect = true;
            let since = since(memory, resource);
            let asked = resource
                .meta()
                .annotations
                .as_ref()
                .is_some_and(|a| a.get(ON_UNREACHABLE).is_some_and(|v| v == ORPHAN));
            if asked && Timestamp::now().duration_since(since) >= GRACE {
                let note = format!(
                    "Let go while its cluster can't be reached since {since}, as {ON_UNREACHABLE}={ORPHAN} asks for: {}. Left behind there: {}",
                    failure.unresolved.message,
                    installed(memory, resource)
                );
                return let_go(cx, resource, || {
                    cx.events.warning(resource, "Orphaned", note);
                    cx.metrics.orphaned(resource);
                })
                .await;
            }
            memory.removing = None;
            let message = waits(memory, resource, &failure.unresolved.message, since);
            let mut states = verdict::stored(&memory.status(resource).conditions);
            states[1] = State::no(failure.unresolved.reason.as_str(), message);
            publish(cx, resource, memory, states).await;
            if asked { Next::After(AGAIN) } else { failure.next() }
        }
        Err(Stuck::Failed(why)) => {
            memory.suspect = true;
            memory.removing = None;
            let mut states = verdict::stored(&memory.status(resource).conditions);
            states[2] = State::no("Error", format!("Uninstall failed with message: {why}"));
            publish(cx, resource, memory, states).await;
            Next::Retry
        }
    }
}

/// Takes the finalizer away; when that is done, tells it.
async fn let_go(cx: &Context, resource: &Knative, tell: impl FnOnce()) -> Next {
    let finalizer = resource.component().finalizer();
    let others: Vec<String> =
        resource.meta().finalizers.iter().flatten().filter(|f| *f != finalizer).cloned().collect();
    match set_finalizers(cx, resource, &others).await {
        Ok(true) => {
            tell();
            Next::After(AGAIN)
        }
        Ok(false) => Next::After(AGAIN),
        Err(error) => {
            tracing::warn!(
                name = resource.name(),
                error = knative_operator_runtime::words(&error),
                "finalizer not removed"
            );
            Next::Retry
        }
    }
}

/// Since when the cluster of `resource` can't be reached: what the condition says, or now.
fn since(memory: &Memory, resource: &Knative) -> Timestamp {
    let status = memory.status(resource);
    let told = status.conditions.iter().find(|c| c.type_ == TARGET_CLUSTER_RESOLVED && c.status == "False");
    told.and_then(|c| c.last_transition_time.as_ref()?.parse().ok()).unwrap_or_else(Timestamp::now)
}

/// What was installed, as far as that is known without the cluster.
fn installed(memory: &Memory, resource: &Knative) -> String {
    let version = resource.status().and_then(|s| s.version.as_deref());
    let version = version.map_or_else(|| "what was applied of it so far".to_owned(), |v| format!("version {v}"));
    let known =
        memory.home.as_ref().map(|(_, inventory)| format!("{} objects of ", inventory.0.len())).unwrap_or_default();
    let component = resource.component();
    format!("{known}{component}, {version}, in namespace {} and outside of namespaces", resource.target_namespace())
}

/// Why a deletion waits, for what, since when, and how it goes on.
fn waits(memory: &Memory, resource: &Knative, why: &str, since: Timestamp) -> String {
    let (kind, name, namespace) =
        (resource.component().kind().to_ascii_lowercase(), resource.name(), resource.namespace());
    format!(
        "{why}; the finalizer waits for the cluster since {since}, so that nothing is left on it ({}), and goes on by itself when it is back. \
         To let the resource go and leave everything there: kubectl annotate {kind} {name} -n {namespace} {ON_UNREACHABLE}={ORPHAN} \
         (an event and a metric record what is left); or, with nothing recorded: \
         kubectl patch {kind} {name} -n {namespace} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
        installed(memory, resource)
    )
}

async fn publish(cx: &Context, resource: &Knative, memory: &mut Memory, states: States) {
    // Whether that could be written or not, the removal is tried again.
    report::publish(cx, resource, memory, &Report { states, version: None, manifests: None }).await;
}

/// Whether nothing is left.
async fn remove(cx: &Context, resource: &Knative, memory: &mut Memory) -> Result<bool, Stuck> {
    let cluster =
        resolve::cluster(cx, resource, memory.suspect || memory.removing.is_none()).await.map_err(Stuck::Unresolved)?;
    memory.suspect = false;
    let _turn = cx.turns.take(&cx.metrics).await;
    let failed = |error| Stuck::Failed(knative_operator_runtime::words(&error));
    let placed = place::settle(cx, resource, memory, &cluster.client).await.map_err(failed)?;
    let (resource, home) = (&*placed, Home::of(&placed));
    if memory.removing.is_none() {
        let stored = home.load(&cluster.client).await.map_err(failed)?;
        // Nothing stored: nothing was installed, or all of it is gone but, on a spoke, the namespace; or the Go operator has
        // installed it, which keeps no inventory.
        let mut inventory = match stored {
            Some((_, inventory)) if !inventory.0.is_empty() => inventory,
            Some(_) => inherited(cx, resource).await.map_err(Stuck::Failed)?,
            None if resource.common().cluster_profile_ref.is_none() => {
                inherited(cx, resource).await.map_err(Stuck::Failed)?
            }
            None => Inventory::default(),
        };
        inventory.0.retain(|id, _| !remove::kept(id));
        if cx.siblings.shares(resource) {
            // Another resource of this kind lives on the same cluster: what both use is its own now.
            inventory.0.retain(|id, _| !id.namespace.is_empty() && id.namespace == resource.namespace());
        }
        if !inventory.0.is_empty() {
            cx.events.normal(resource, "Uninstalling", format!("Deleting {} objects", inventory.0.len()));
        }
        memory.removing = Some(inventory);
    }
    let Some(inventory) = &mut memory.removing else { return Ok(false) };
    let removed = remove::step(&cluster.client, &Kinds::default(), inventory).await;
    if let Some((id, why)) = removed.refused.first() {
        return Err(Stuck::Failed(format!("{id} can't be deleted: {why}")));
    }
    let left = inventory.0.len();
    if left > 0 {
        tracing::info!(name = resource.name(), left, "uninstalling");
        let named: Vec<_> = removed.remaining.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if left > named.len() { format!(" and {} more", left - named.len()) } else { String::new() };
        progress(cx, resource, memory, format!("{}{more}", named.join(", "))).await;
        return Ok(false);
    }
    let gone = home.remove(&cluster.client).await.map_err(failed)?;
    if !gone {
        progress(cx, resource, memory, format!("Namespace {}", resource.target_namespace())).await;
    }
    Ok(gone)
}

/// What the Go operator has installed, which keeps no inventory: the objects of the version in the status. The error says why they can't be listed.
pub async fn inherited(cx: &Context, resource: &Knative) -> Result<Inventory, String> {
    let Some(version) = resource.status().and_then(|s| s.version.as_deref()) else { return Ok(Inventory::default()) };
    let failed = |why: String| format!("what was installed by the Go operator can't be listed: {why}");
    let version: Version = version.parse().map_err(|_| failed(format!("status.version {version} is no version")))?;
    let release = cx.library.release(resource, &version).await.map_err(|e| failed(e.to_string()))?;
    let objects = render::objects(resource, &version, release.objects(), &cx.settings);
    let mut inventory = Inventory::default();
    let plan = Plan::new(Arc::new(objects.map_err(|e| failed(e.to_string()))?), &Owner::of(resource, ""));
    inventory.add(plan.items().iter());
    Ok(inventory)
}

/// Tells what is still there.
async fn progress(cx: &Context, resource: &Knative, memory: &mut Memory, left: String) {
    let mut states = verdict::stored(&memory.status(resource).conditions);
    states[1] = State::True;
    states[2] = State::unclear("Uninstalling", format!("Waiting for {left} to be deleted"));
    states[4] = State::unclear("Uninstalling", "being uninstalled");
    report::publish(cx, resource, memory, &Report { states, version: None, manifests: None }).await;
}

/// Why a removal does not go on.
enum Stuck {
    Unresolved(resolve::Failure),
    Failed(String),
}

/// Takes our finalizer away, leaving `others`; whether that was done. A conflict is no failure: the watch tells what has changed, and the next
/// step tries again.
async fn set_finalizers(cx: &Context, resource: &Knative, others: &[String]) -> kube::Result<bool> {
    let patch = json!({"metadata": {"finalizers": others, "resourceVersion": resource.meta().resource_version}});
    let api = report::metadata_api(&cx.hub, resource);
    match api.patch(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Adds the finalizer, if it isn't there. Each write carries the resourceVersion that was read.
pub async fn add_finalizer(cx: &Context, resource: &Knative) -> kube::Result<()> {
    let finalizer = resource.component().finalizer();
    let api = report::metadata_api(&cx.hub, resource);
    let mut meta = resource.meta().clone();
    loop {
        let mut finalizers = meta.finalizers.unwrap_or_default();
        if finalizers.iter().any(|f| f == finalizer) {
            return Ok(());
        }
        finalizers.push(finalizer.to_owned());
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}});
        match api.patch(resource.name(), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                meta = api.get_metadata(resource.name()).await?.metadata;
            }
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    cx.events.normal(resource, "FinalizerUpdate", format!("Updated \"{}\" finalizers", resource.name()));
    Ok(())
}
