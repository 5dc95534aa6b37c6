//! One pass: where, what, apply, look, tell. Each step hands a value to the next.

use std::path::Path;

use knative_operator_shared::api::Knative;
use knative_operator_shared::rules;
use knative_operator_shared::version::{Version, VersionError};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::actor::{Memory, Next};
use super::report::{self, Report};
use super::resolve::{self, Cluster};
use super::verdict::{self, Installation, Verdict};
use super::{Context, finalize};
use crate::apply::differ::Sight;
use crate::apply::home::{self, Home};
use crate::apply::inventory::{Entry, Inventory};
use crate::apply::observer::Seen;
use crate::apply::{engine, remove};
use crate::health::Health;
use crate::object::{ObjectId, text};
use crate::plan::{Item, Phase, Plan};
use crate::release::ReleaseError;
use crate::render;

/// Makes one pass over `resource`.
pub async fn run(cx: &Context, resource: &Knative, memory: &mut Memory) -> Next {
    if resource.deleting() {
        return finalize::run(cx, resource, memory).await;
    }
    let outcome = look(cx, resource, memory).await;
    tell(cx, resource, memory, outcome).await
}

/// What a pass came to.
struct Outcome {
    verdict: Verdict,
    release: Option<Release>,
    next: Next,
}

impl Outcome {
    fn of(verdict: Verdict, next: Next) -> Self {
        Self { verdict, release: None, next }
    }

    fn failed(why: impl Into<String>, next: Next) -> Self {
        Self::of(Verdict::Installation(Installation { failed: Some(why.into()), ..Installation::default() }), next)
    }
}

/// What is installed.
#[derive(Clone)]
struct Release {
    version: Version,
    manifests: Vec<String>,
}

async fn look(cx: &Context, resource: &Knative, memory: &mut Memory) -> Outcome {
    if let Some(problem) = rules::faults(resource).into_iter().next() {
        return Outcome::failed(problem.to_string(), Next::Idle);
    }
    if let Some(elder) = cx.siblings.elder(resource) {
        let why = format!(
            "{} {}/{} is older and installed on the same cluster; delete one of the two",
            elder.component, elder.namespace, elder.name
        );
        return Outcome::failed(why, Next::Idle);
    }
    let unsupported = render::unsupported(resource);
    if !unsupported.is_empty() {
        return Outcome::failed(
            format!("{} can't be installed by this version of the operator yet; remove it from the spec", unsupported.join(", ")),
            Next::Idle,
        );
    }
    let version = match target(cx, resource) {
        Err(Target::Ineligible(why)) => return Outcome::of(Verdict::Ineligible(why), Next::Idle),
        other => other,
    };
    let suspect = memory.suspect || memory.observer.as_ref().is_some_and(|(_, o)| o.seen.take_trouble());
    let cluster = match resolve::cluster(cx, resource, suspect).await {
        Ok(cluster) => cluster,
        Err(unresolved) => {
            // When it is back, everything is looked at anew.
            memory.observer = None;
            memory.suspect = true;
            let next = if unresolved.reason.retried() { Next::Retry } else { Next::Idle };
            return Outcome::of(Verdict::Unresolved(unresolved), next);
        }
    };
    memory.suspect = false;
    match version {
        Ok(version) => install(cx, resource, memory, &cluster, version).await,
        Err(Target::Ineligible(why)) => Outcome::of(Verdict::Ineligible(why), Next::Idle),
        Err(Target::Missing(why, next)) => Outcome::failed(why, next),
    }
}

/// Why there is no version to install.
enum Target {
    /// It may not follow the installed one.
    Ineligible(String),
    /// It can't be had.
    Missing(String, Next),
}

/// The version to install.
fn target(cx: &Context, resource: &Knative) -> Result<Version, Target> {
    let component = resource.component();
    let available = cx.bundle.versions(component).map_err(|e| Target::Missing(e.to_string(), Next::Retry))?;
    let version = Version::resolve(resource.common().version.as_deref(), &available).map_err(|error| match error {
        VersionError::Unavailable { .. } => Target::Missing(error.to_string(), Next::Idle),
        other => Target::Ineligible(other.to_string()),
    })?;
    let installed = resource.status().and_then(|s| s.version.as_deref()).and_then(|v| v.parse().ok());
    version.may_follow(installed.as_ref(), component.kind()).map_err(|e| Target::Ineligible(e.to_string()))?;
    Ok(version)
}

async fn install(cx: &Context, resource: &Knative, memory: &mut Memory, cluster: &Cluster, version: Version) -> Outcome {
    let (objects, manifests) = match objects(cx, resource, &version).await {
        Ok(found) => found,
        Err(error) => return Outcome::failed(error.to_string(), Next::Retry),
    };
    let home = Home::of(resource);
    let seen = std::sync::Arc::clone(&memory.on(cluster, resource).seen);
    // An anchor that somebody deleted, or made anew, owns nothing: everything is applied again with the one that is.
    if let (Some((uid, _)), sight) = (&memory.home, seen.sight(&home.id())) {
        let other = seen.uid(&home.id()).is_some_and(|found| found != *uid);
        if sight == Sight::Missing || other {
            memory.home = None;
        }
    }
    if memory.home.is_none() {
        // From now on there may be something to take away: not before, so that what was never installed goes at once.
        if let Err(error) = add_finalizer(cx, resource).await {
            return Outcome::failed(format!("the finalizer can't be added: {}", engine::words(&error)), Next::Retry);
        }
        let namespace = objects.iter().rfind(|o| text(o, "/kind") == "Namespace");
        match home.ensure(&cluster.client, &namespace_of(resource, namespace)).await {
            Ok(found) => memory.home = Some(found),
            Err(error) => return Outcome::failed(knative_operator_runtime::chain(&error), Next::Retry),
        }
    }
    let Some((uid, stored)) = memory.home.clone() else { return Outcome::failed("no inventory", Next::Retry) };
    let mut plan = match render::plan(resource, &version, objects, &home::owner(resource, &uid)) {
        Ok(plan) => plan,
        Err(error) => return Outcome::failed(error.to_string(), Next::Idle),
    };
    if resource.common().cluster_profile_ref.is_some() {
        // A spoke's namespace is created with the anchor, and never changed.
        plan.items.retain(|item| item.phase() != Phase::Namespaces);
    }
    let observer = memory.on(cluster, resource);
    observe(observer, &plan, &home);
    announce(cx, resource, memory, &plan, &version);

    let mut inventory = stored.clone();
    let next = match apply(cx, resource, memory, cluster, &plan, &home, &mut inventory, &seen).await {
        Ok(found) => {
            let next = if found.pending.is_empty() && found.unavailable.is_empty() && found.seen {
                Next::Idle
            } else {
                Next::After(cx.poll_interval)
            };
            (found, next)
        }
        Err(why) => return Outcome::failed(why, Next::Retry),
    };
    if let Some((_, kept)) = &mut memory.home {
        *kept = inventory;
    }
    let (found, next) = next;
    Outcome { verdict: Verdict::Installation(found), release: Some(Release { version, manifests }), next }
}

/// The Namespace to create on a spoke: the release's, with the settings of the spec.
fn namespace_of(resource: &Knative, released: Option<&Value>) -> Value {
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {}}});
    for field in ["labels", "annotations"] {
        if let Some(entries) = released.and_then(|n| n["metadata"].get(field)) {
            namespace["metadata"][field] = entries.clone();
        }
    }
    if let Some(settings) = resource.common().namespace_settings() {
        for (field, entries) in [("labels", &settings.labels), ("annotations", &settings.annotations)] {
            for (key, value) in entries {
                namespace["metadata"][field][key] = json!(value);
            }
        }
    }
    namespace
}

/// The objects of the release with the ingresses or sources that the spec enables, and where they came from.
async fn objects(cx: &Context, resource: &Knative, version: &Version) -> Result<(Vec<Value>, Vec<String>), ReleaseError> {
    let (component, bundle) = (resource.component(), &cx.bundle);
    let mut directories = vec![bundle.release(component, version)];
    match resource {
        Knative::Serving(serving) => {
            // No ingress given means Istio, as with the Go operator.
            let enabled = serving.spec.ingress.as_ref().map_or_else(|| vec!["istio"], |i| i.enabled());
            directories.extend(enabled.into_iter().map(|name| bundle.extra("ingress", version, name)));
        }
        Knative::Eventing(eventing) => {
            let enabled = eventing.spec.source.as_ref().map(|s| s.enabled()).unwrap_or_default();
            directories.extend(enabled.into_iter().map(|name| bundle.extra("eventing-source", version, name)));
        }
    }
    let read = |directory: &Path| bundle.objects(directory);
    // Parsing takes tens of milliseconds, once a directory.
    let all = tokio::task::block_in_place(|| directories.iter().map(|d| read(d)).collect::<Result<Vec<_>, _>>())?;
    let objects = all.iter().flat_map(|objects| objects.iter().cloned()).collect();
    Ok((objects, directories.iter().map(|d| d.display().to_string()).collect()))
}

fn observe(observer: &mut crate::apply::observer::Observer, plan: &Plan, home: &Home) {
    let mut gvks: Vec<_> = plan.items.iter().map(|item| item.gvk.clone()).collect();
    let map = kube::core::GroupVersionKind::gvk("", "v1", &home.id().kind);
    gvks.push(map);
    for gvk in gvks {
        if let Some(kind) = plan.kinds.get(&gvk) {
            observer.watch(&kind);
        }
    }
}

fn announce(cx: &Context, resource: &Knative, memory: &mut Memory, plan: &Plan, version: &Version) {
    let installed = resource.status().and_then(|s| s.version.as_deref());
    let what = format!("{}@{version}", resource.meta().generation.unwrap_or_default());
    if memory.announced.as_ref() != Some(&what) {
        if installed != Some(version.to_string().as_str()) {
            let from = installed.map(|v| format!(" from {v}")).unwrap_or_default();
            let note =
                format!("Installing version {version}{from}: {} objects in namespace {}", plan.items.len(), resource.target_namespace());
            cx.events.normal(resource, "Installing", note);
        }
        memory.announced = Some(what);
    }
}

/// Makes the cluster equal to the plan; what was found.
#[allow(clippy::too_many_arguments)] // each is another thing, and none can be had from another
async fn apply(
    cx: &Context,
    resource: &Knative,
    memory: &mut Memory,
    cluster: &Cluster,
    plan: &Plan,
    home: &Home,
    inventory: &mut Inventory,
    seen: &Seen,
) -> Result<Installation, String> {
    let stored = inventory.clone();
    let todo = engine::differing(plan, inventory, seen);
    // What is to be created is remembered first: whatever happens, it is found again.
    for (item, _) in &todo {
        inventory.0.entry(item.id.clone()).or_insert_with(|| Entry::meant(item));
    }
    let store = |inventory: Inventory| {
        let client = cluster.client.clone();
        async move { home.store(&client, &inventory).await.map_err(|e| knative_operator_runtime::chain(&e)) }
    };
    if *inventory != stored {
        store(inventory.clone()).await?;
    }
    let meant = inventory.clone();
    let available = unavailable(plan, inventory, seen).is_empty();
    let target = engine::Target { client: &cluster.client, kinds: &plan.kinds, seen };
    let applied = engine::run(&target, &todo, available, inventory, &mut memory.throttle).await;
    cx.metrics.wrote(resource.component(), applied.applied.len(), applied.repaired.len());
    if !applied.repaired.is_empty() {
        cx.events.normal(resource, "DriftRepaired", format!("Put right: {}", names(&applied.repaired)));
    }
    for id in &applied.fought {
        cx.events.warning(resource, "DriftFight", format!("{id} is changed again and again by somebody else; it is put right less often"));
    }
    let mut found = Installation { refused: applied.refused, ..Installation::default() };
    if found.refused.is_empty() && !applied.held {
        prune(cx, resource, &cluster.client, plan, inventory, &mut found).await;
    }
    jobs(plan, inventory, seen, &mut found);
    if applied.held {
        found.pending.push("the Deployments, before what depends on them is applied".to_owned());
    }
    if *inventory != meant {
        store(inventory.clone()).await?;
    }
    found.unavailable = unavailable(plan, inventory, seen);
    found.seen = plan.items.iter().filter(|i| is_workload(&i.id)).all(|i| seen.sight(&i.id) != Sight::Unknown);
    Ok(found)
}

/// Deletes what was applied once and is not in the plan any more.
async fn prune(cx: &Context, resource: &Knative, client: &Client, plan: &Plan, inventory: &mut Inventory, found: &mut Installation) {
    let planned: std::collections::HashSet<_> = plan.items.iter().map(|i| &i.id).collect();
    let stale: Vec<(ObjectId, Entry)> =
        inventory.0.iter().filter(|(id, _)| !planned.contains(id) && !remove::kept(id)).map(|(id, e)| (id.clone(), e.clone())).collect();
    if stale.is_empty() {
        return;
    }
    let mut gone = Vec::new();
    for (id, outcome) in remove::delete(client, &plan.kinds, stale).await {
        match outcome {
            Ok(true) => {
                inventory.0.remove(&id);
                gone.push(id);
            }
            Ok(false) => found.pending.push(format!("{id} to be deleted")),
            Err(why) => found.refused.push((id, format!("it is obsolete and can't be deleted: {why}"))),
        }
    }
    if !gone.is_empty() {
        cx.events.normal(resource, "Pruned", format!("Deleted what is not part of it any more: {}", names(&gone)));
    }
}

/// What the Jobs are doing; those that are done are remembered as done.
fn jobs(plan: &Plan, inventory: &mut Inventory, seen: &Seen, found: &mut Installation) {
    for item in plan.phase(Phase::Jobs) {
        let Some(entry) = inventory.0.get_mut(&item.id).filter(|e| !e.done && !e.digest.is_none()) else { continue };
        match seen.health(&item.id) {
            Some(Health::Ready) => entry.done = true,
            Some(Health::Broken(why)) => found.broken.push((item.id.name.clone(), why)),
            Some(Health::Waiting(why)) => found.pending.push(format!("Job {} ({why})", item.id.name)),
            None => found.pending.push(format!("Job {}", item.id.name)),
        }
    }
}

fn is_workload(id: &ObjectId) -> bool {
    id.group == "apps" && matches!(id.kind.as_str(), "Deployment" | "StatefulSet")
}

/// The workloads of the plan that aren't available, as far as anybody has looked.
fn unavailable(plan: &Plan, inventory: &Inventory, seen: &Seen) -> Vec<(String, String)> {
    let why = |item: &Item| match (seen.health(&item.id), seen.sight(&item.id)) {
        (Some(Health::Ready), _) => None,
        (Some(Health::Waiting(why) | Health::Broken(why)), _) => Some(why),
        (None, Sight::Unknown) if inventory.0.get(&item.id).is_some_and(|e| e.digest == item.digest) => None,
        (None, Sight::Present(_)) => Some("its status is not known yet".to_owned()),
        (None, _) => Some("it isn't there".to_owned()),
    };
    plan.items.iter().filter(|i| is_workload(&i.id)).filter_map(|i| Some((i.id.name.clone(), why(i)?))).collect()
}

fn names(ids: &[ObjectId]) -> String {
    let shown: Vec<_> = ids.iter().take(8).map(ToString::to_string).collect();
    let more = if ids.len() > 8 { format!(" and {} more", ids.len() - 8) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

async fn tell(cx: &Context, resource: &Knative, memory: &mut Memory, outcome: Outcome) -> Next {
    let old = memory.status(resource);
    let before = verdict::stored(&old.conditions);
    let states = verdict::states(before.clone(), &outcome.verdict);
    // The version is what was installed last: it is told once every object was accepted.
    let done = states[2] == knative_operator_shared::condition::State::True;
    let release = outcome.release.filter(|_| done);
    let report = Report { version: release.as_ref().map(|r| r.version.to_string()), manifests: release.map(|r| r.manifests), states };
    cx.metrics.told(resource, &report.states);
    let status = report::status(&old, resource.meta().generation, &report, jiff::Timestamp::now());
    if status == old {
        return outcome.next;
    }
    match report::write(&cx.hub, resource, &status).await {
        Ok(meta) => {
            let version = meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default();
            memory.written = Some((version, status));
            report::tell(&cx.events, resource, &before, &report.states);
            outcome.next
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Next::Idle,
        Err(error) => {
            tracing::warn!(name = resource.name(), error = engine::words(&error), "status not written");
            Next::Retry
        }
    }
}

/// Adds the finalizer, if it isn't there. Each write carries the resourceVersion that was read.
async fn add_finalizer(cx: &Context, resource: &Knative) -> kube::Result<()> {
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
        match api.patch(resource.name(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => meta = api.get_metadata(resource.name()).await?.metadata,
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    cx.events.normal(resource, "FinalizerUpdate", format!("Updated \"{}\" finalizers", resource.name()));
    Ok(())
}
