//! Makes the target cluster equal to what a resource asks for, as far as that goes in one pass.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use knative_operator_runtime::words;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use kube::Client;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::Context;
use super::actor::{Memory, Next};
use super::finalize::{add_finalizer, inherited};
use super::pass::{Installed, Outcome, tell};
use super::resolve::Cluster;
use super::verdict::{Installation, TERMINATING, Verdict};
use super::{place, survey};
use crate::apply::differ::Sight;
use crate::apply::home::{Found, Home};
use crate::apply::inventory::{Entry, Inventory};
use crate::apply::observer::Observer;
use crate::apply::seen::Seen;
use crate::apply::throttle::Throttle;
use crate::apply::{engine, remove};
use crate::health::Health;
use crate::kinds::Kinds;
use crate::metrics::Counts;
use crate::object::{Kind, ObjectId};
use crate::owner::Owner;
use crate::plan::{Phase, Plan};
use crate::release::Release;
use crate::render::{self, RenderError};

/// Objects named in an event, at most.
const NAMED: usize = 8;
/// How an API server refuses what is created in a namespace that is being deleted.
const GOES: &str = "because it is being terminated";
/// How soon it is looked again whether it is gone; the watch tells sooner.
const AGAIN: Duration = Duration::from_millis(500);
/// After how long the status says what a pass is doing.
const LONG: Duration = Duration::from_secs(1);

/// Installs `version` on `cluster`.
pub async fn run(
    cx: &Context,
    resource: &Knative,
    memory: &mut Memory,
    cluster: &Cluster,
    version: Version,
) -> Outcome {
    match place::settle(cx, resource, memory, &cluster.client).await {
        Ok(resource) => settled(cx, &resource, memory, cluster, version).await,
        Err(error) => Outcome::failed(resource, words(&error), Next::Retry),
    }
}

async fn settled(
    cx: &Context,
    resource: &Knative,
    memory: &mut Memory,
    cluster: &Cluster,
    version: Version,
) -> Outcome {
    let release = match cx.library.release(resource, &version).await {
        Ok(release) => release,
        Err(error) => return Outcome::failed(resource, error.to_string(), Next::Retry),
    };
    let whole = |anchor: &str| {
        let rendered = cx.plans.get(resource, &version, &release, &cx.settings)?;
        Ok(Plan::new(rendered, &Owner::of(resource, anchor)))
    };
    // A spoke's namespace is created with the anchor, and never changed.
    let applied =
        |plan: Plan| if resource.common().cluster_profile_ref.is_some() { plan.without_namespaces() } else { plan };
    let unrendered = |error: RenderError| Outcome::failed(resource, error.to_string(), Next::Idle);
    let home = Home::of(resource);
    let seen = Arc::clone(&memory.on(cx, cluster, resource).seen);
    if seen.is_namespace_going() {
        return terminating(resource);
    }
    forget_lost_home(memory, &home, &seen);
    let mut fresh = false;
    if memory.home.is_none() {
        let draft = match whole("") {
            Ok(draft) => draft,
            Err(error) => return unrendered(error),
        };
        // From now on there may be something to take away: not before, so that what was never installed goes at once.
        if let Err(error) = add_finalizer(cx, resource).await {
            return Outcome::failed(resource, format!("the finalizer can't be added: {}", words(&error)), Next::Retry);
        }
        // Remembered first: whatever happens, what is created is found again.
        // What the Go operator installed of another version goes, as with any upgrade; unless the bundle doesn't have that version.
        let upgraded = resource
            .status()
            .and_then(|s| s.version.as_deref())
            .is_some_and(|installed| installed != version.to_string());
        let mut meant = if upgraded { inherited(cx, resource).await.unwrap_or_default() } else { Inventory::default() };
        meant.add(applied(draft.clone()).items().iter());
        match home.ensure(&cluster.client, &namespace_of(resource, &draft), meant.clone()).await {
            // An anchor without an inventory is the Go operator's: what it installed is there, and looked at first.
            Ok((uid, Found::Stored(stored))) if stored.0.is_empty() => {
                if let Err(error) = home.store(&cluster.client, &meant).await {
                    return Outcome::failed(resource, words(&error), Next::Retry);
                }
                memory.home = Some((uid, meant));
            }
            Ok((uid, Found::Stored(stored))) => memory.home = Some((uid, stored)),
            // What was installed by somebody else (the Go operator) is looked at first.
            Ok((uid, Found::New(stored))) => {
                (memory.home, fresh) = (Some((uid, stored)), resource.status().is_none_or(|s| s.version.is_none()));
            }
            Err(error) if error.is_namespace_terminating() => return terminating(resource),
            Err(error) => return Outcome::failed(resource, words(&error), Next::Retry),
        }
    }
    // Taken out of the memory: if the pass breaks off, the inventory is read again from where it is stored.
    let Some((uid, inventory)) = memory.home.take() else {
        return Outcome::failed(resource, "there is no inventory", Next::Retry);
    };
    let generation = resource.meta().generation;
    let same =
        |p: &Planned| (p.generation, &p.version, &p.uid) == (generation, &version, &uid) && p.release.is(&release);
    let planned = match memory.planned.take().filter(same) {
        Some(planned) => planned,
        None => match whole(&uid).map(applied) {
            Ok(plan) => {
                advise(cx, resource, memory, &release, &version);
                seen.expect(&plan, &home.id());
                Planned { generation, version: version.clone(), uid: uid.clone(), release, plan }
            }
            Err(error) => return unrendered(error),
        },
    };
    let observer = memory.on(cx, cluster, resource);
    observe(observer, &planned.plan, &home, &cluster.client).await;
    let kinds = observer.found.clone();
    let coming = announce(cx, resource, memory, &planned.plan, &version);

    let (text, plan) = (version.to_string(), &planned.plan);
    let inventory = inventory.sharing(plan);
    let (client, home, seen) = (&cluster.client, &home, &*seen);
    let mut site = Site { cx, resource, client, plan, kinds: &kinds, home, seen, inventory, version: &text, fresh };
    let mut throttle = std::mem::take(&mut memory.throttle);
    let applied = {
        let mut apply = std::pin::pin!(site.apply(&mut throttle));
        // The status is written once, at the end of the pass, unless that takes long.
        let progress = async {
            match coming {
                Some(coming) => {
                    tokio::time::sleep(LONG).await;
                    tell(cx, resource, memory, Outcome::of(Verdict::Installation(coming), Next::Idle)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            applied = &mut apply => applied,
            () = progress => apply.await,
        }
    };
    memory.throttle = throttle;
    let found = match applied {
        Ok(found) => found,
        Err(why) => return Outcome::failed(resource, why, Next::Retry),
    };
    memory.home = Some((uid, site.inventory));
    let manifests = planned.release.manifests.clone();
    memory.planned = Some(planned);
    if seen.is_namespace_going() || found.refused.iter().any(|(_, why)| why.ends_with(GOES)) {
        return terminating(resource);
    }
    let settled = found.pending.is_empty() && found.unavailable.is_empty() && found.seen && !found.gaps;
    let next = if settled { Next::Idle } else { Next::After(cx.poll_interval) };
    Outcome { verdict: Verdict::Installation(found), release: Some(Installed { version, manifests }), next }
}

/// Nothing can be applied while the namespace is being deleted. It is created again as soon as it is gone.
fn terminating(resource: &Knative) -> Outcome {
    let cluster = resource
        .common()
        .cluster_profile_ref
        .as_ref()
        .map_or_else(|| "the local cluster".to_owned(), ToString::to_string);
    let message = format!("namespace {} on {cluster} is being deleted; waiting", resource.target_namespace());
    Outcome::of(Verdict::Blocked(TERMINATING, message), Next::After(AGAIN))
}

/// What is to be there, and what it was made of.
pub struct Planned {
    generation: Option<i64>,
    version: Version,
    /// Of the home.
    uid: String,
    release: Release,
    plan: Plan,
}

/// An anchor that somebody deleted, or made anew, owns nothing: everything is applied again with the one that is.
fn forget_lost_home(memory: &mut Memory, home: &Home, seen: &Seen) {
    let Some((uid, _)) = &memory.home else { return };
    if seen.is_other(&home.id(), uid) || matches!(seen.sight(&home.id()), Sight::Missing { .. }) {
        memory.home = None;
    }
}

/// The Namespace to create on a spoke: that of the plan, or one with the settings of the spec.
fn namespace_of(resource: &Knative, plan: &Plan) -> Value {
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {}}});
    match plan.phase(Phase::Namespaces).next() {
        Some(planned) => namespace = plan.open(planned),
        None => render::settle_namespace(&mut namespace, resource),
    }
    namespace
}

/// Warns of what the spec asks for and doesn't get, once for each spec and version.
fn advise(cx: &Context, resource: &Knative, memory: &mut Memory, release: &Release, version: &Version) {
    let about = format!("{}@{version}", resource.meta().generation.unwrap_or_default());
    if memory.advised.as_ref() != Some(&about) {
        memory.advised = Some(about);
        let unmatched = render::names(release.objects()).unmatched(resource);
        for warning in release.warnings.iter().cloned().chain(unmatched.iter().map(ToString::to_string)) {
            cx.events.warning(resource, "OverrideIgnored", warning);
        }
    }
}

/// Whether `kind` can be watched: one that `plan` itself defines only once its definition is there.
fn is_served(seen: &Seen, plan: &Plan, kind: &Kind) -> bool {
    plan.definition(kind).is_none_or(|item| matches!(seen.sight(&item.id), Sight::Present { .. }))
}

/// Watches the kinds of `plan`; those that neither it nor Kubernetes itself defines are looked up.
async fn observe(observer: &mut Observer, plan: &Plan, home: &Home, client: &Client) {
    let mut places: HashSet<_> =
        plan.items().iter().map(|item| (item.gvk.clone(), item.id.namespace.clone())).collect();
    let id = home.id();
    if home.is_remote() {
        // A Namespace that the operator didn't create has no label that it could be watched by.
        observer.watch_namespace(&id.namespace);
    }
    places.insert((GroupVersionKind::gvk(&id.group, "v1", &id.kind), id.namespace.clone()));
    for (gvk, namespace) in places {
        match observer.address(client, plan.kinds(), &gvk).await {
            Some(kind) => {
                if is_served(&observer.seen, plan, &kind) {
                    observer.watch(&kind, &namespace);
                }
            }
            None => observer.seen.none_of(&gvk.group, &gvk.kind),
        }
    }
}

/// Tells that a version is going to be installed that wasn't yet, once: in an event, and as what the conditions are to say if that takes long.
fn announce(
    cx: &Context,
    resource: &Knative,
    memory: &mut Memory,
    plan: &Plan,
    version: &Version,
) -> Option<Installation> {
    let installed = resource.status().and_then(|s| s.version.as_deref());
    let what = format!("{}@{version}", resource.meta().generation.unwrap_or_default());
    if memory.announced.as_ref() == Some(&what) || installed == Some(version.to_string().as_str()) {
        return None;
    }
    memory.announced = Some(what);
    let from = installed.map(|v| format!(" from {v}")).unwrap_or_default();
    let note = format!(
        "Installing version {version}{from}: {} objects in namespace {}",
        plan.items().len(),
        resource.target_namespace()
    );
    cx.events.normal(resource, "Installing", note);
    let pending = vec![format!("{} objects to be applied", plan.items().len())];
    Some(Installation { pending, ..Installation::of(resource.component()) })
}

/// One installation, while it is worked on.
struct Site<'a> {
    cx: &'a Context,
    resource: &'a Knative,
    client: &'a Client,
    plan: &'a Plan,
    kinds: &'a Kinds,
    home: &'a Home,
    seen: &'a Seen,
    inventory: Inventory,
    /// The version of the plan.
    version: &'a str,
    /// Whether nothing of the inventory was applied yet.
    fresh: bool,
}

impl Site<'_> {
    /// Makes the cluster equal to the plan; what was found.
    async fn apply(&mut self, throttle: &mut Throttle) -> Result<Installation, String> {
        let stored = self.inventory.clone();
        let before = if self.fresh { &Inventory::default() } else { &self.inventory };
        let todo = engine::differing(self.plan, before, self.seen);
        // What is to be created is remembered first: whatever happens, it is found again.
        self.inventory.add(todo.iter().map(|(item, _)| *item));
        self.store(&stored).await?;
        let meant = self.inventory.clone();
        let first = self.resource.status().is_none_or(|s| s.version.is_none());
        let held = self.held(first);
        let (lost, refused) = (AtomicBool::new(false), Mutex::default());
        let target = engine::Target {
            client: self.client,
            plan: self.plan,
            kinds: self.kinds,
            seen: self.seen,
            first,
            lost,
            refused,
        };
        let applied = engine::run(&target, &todo, held, || self.available(), throttle).await;
        self.cx.metrics.wrote(self.resource, applied.applied.len(), applied.repaired.len());
        if !applied.repaired.is_empty() {
            let by = |(id, by): &(ObjectId, Option<String>)| {
                by.as_ref().map_or_else(|| id.to_string(), |by| format!("{id} (changed by \"{by}\")"))
            };
            self.cx.events.normal(
                self.resource,
                "DriftRepaired",
                format!("Put right: {}", names(&applied.repaired, by)),
            );
        }
        if !applied.adopted.is_empty() {
            let by = |(id, by): &(ObjectId, String)| format!("{id} (of \"{by}\")");
            let note = "What was there already is taken over; its fields that are part of the installation are the operator's now";
            self.cx.events.warning(self.resource, "Adopted", format!("{note}: {}", names(&applied.adopted, by)));
        }
        for (id, by) in &applied.fought {
            let who = by
                .as_ref()
                .map_or_else(|| "somebody else".to_owned(), |manager| format!("\"{manager}\" (its field manager)"));
            let note = format!("{id} is changed again and again by {who}; it is put right less often");
            self.cx.events.warning(self.resource, "DriftFight", note);
        }
        let mut found = Installation {
            refused: applied.refused,
            lost: target.lost.into_inner(),
            ..Installation::of(self.resource.component())
        };
        if found.refused.is_empty() && !applied.held {
            self.prune(&mut found).await;
        }
        let running = self.jobs(&mut found);
        if applied.held {
            found.pending.push("the Deployments, before what depends on them is applied".to_owned());
        }
        // Jobs are remembered as done together, which is one write.
        if !running || self.inventory.0.len() != meant.0.len() {
            self.store(&meant).await?;
        }
        survey::add(&mut found, self.plan, self.seen, Timestamp::now());
        let counts = Counts {
            planned: self.plan.items().len(),
            refused: found.refused.len(),
            unavailable: found.unavailable.len(),
            pending: found.pending.len(),
        };
        self.cx.metrics.counted(self.resource, counts);
        Ok(found)
    }

    /// What has to wait for the Deployments: what their webhooks judge, and, unless nothing was installed before, the Jobs, which
    /// bring what is stored to the form that the new Deployments understand.
    fn held(&self, first: bool) -> &'static [Phase] {
        match (self.available(), first) {
            (true, _) => &[],
            (false, true) => &[Phase::Dependents],
            (false, false) => &[Phase::Dependents, Phase::Jobs],
        }
    }

    /// Whether every Deployment is available, as far as anybody has looked.
    fn available(&self) -> bool {
        survey::unavailable(self.plan, self.seen).is_empty()
    }

    /// Stores the inventory if it is not as `stored`.
    async fn store(&self, stored: &Inventory) -> Result<(), String> {
        if self.inventory == *stored {
            return Ok(());
        }
        self.home.store(self.client, &self.inventory).await.map_err(|e| words(&e))
    }

    /// Deletes what was applied once and is not in the plan any more.
    async fn prune(&mut self, found: &mut Installation) {
        let stale = self.inventory.0.iter().filter(|(id, _)| self.plan.find(id).is_none() && !remove::kept(id));
        let stale: Vec<(ObjectId, Entry)> = stale.map(|(id, entry)| (id.clone(), entry.clone())).collect();
        let mut gone = Vec::new();
        for (id, outcome) in remove::delete(self.client, self.plan.kinds(), stale).await {
            match outcome {
                Ok(true) => {
                    self.inventory.0.remove(&id);
                    gone.push(id);
                }
                Ok(false) => found.pending.push(format!("{id} to be deleted")),
                Err(why) => found.refused.push((id, format!("it is obsolete and can't be deleted: {why}"))),
            }
        }
        if !gone.is_empty() {
            self.cx.events.normal(
                self.resource,
                "Pruned",
                format!("Deleted what is not part of it any more: {}", names(&gone, ToString::to_string)),
            );
        }
    }

    /// What the Jobs are doing; those that are done are remembered as done. Whether there are others. Another version is there when its
    /// Jobs are done, which bring what is stored to the form that it understands; a first one has nothing that they could.
    fn jobs(&mut self, found: &mut Installation) -> bool {
        let mut running = false;
        let installed = self.resource.status().and_then(|s| s.version.as_deref());
        let waited = installed.is_some_and(|installed| installed != self.version);
        for item in self.plan.phase(Phase::Jobs) {
            let Some(entry) = self.inventory.0.get_mut(&item.id).filter(|e| !e.done) else { continue };
            match self.seen.health(&item.id) {
                Some(Health::Ready) => entry.done = true,
                Some(Health::Broken(why)) => {
                    found.broken.push(format!("Job {} failed: {why}; delete it to have it run again", item.id.name));
                }
                Some(Health::Waiting(why)) if waited => found.pending.push(format!("Job {} ({why})", item.id.name)),
                None if waited => found.pending.push(format!("Job {}", item.id.name)),
                Some(Health::Waiting(_)) | None => {}
            }
            running |= !entry.done;
        }
        running
    }
}

/// The first few of `all`, each as `name` says.
fn names<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    let shown: Vec<_> = all.iter().take(NAMED).map(name).collect();
    let more = if all.len() > NAMED { format!(" and {} more", all.len() - NAMED) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
