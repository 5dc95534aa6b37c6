//! Installs a version on a cluster, as far as that is possible in one reconcile.
//!
//! Five steps, each with the result of the one before: assemble the release, store the inventory,
//! plan, observe, apply.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knative_operator_runtime::error_text;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use knative_operator_shared::way::Way;
use kube::core::GroupVersionKind;

use tracing::{Instrument, debug_span};

use super::announce::{self, installed_version};
use super::conditions::{InstallationReport, NOT_PERMITTED, OCCUPIED, ReconcileResult, TERMINATING};
use super::context::Context;
use super::go_inventory::Intended;
use super::installation::Installation;
use super::namespace;
use super::outcome::{InstalledRelease, NotStored, Outcome, Requeue, Stopped};
use super::owner::{self, Claimed, Ownership, Unclaimed};
use super::recorded;
use super::state::{Cluster, OwnedAnchor, Planned, ReconcilerState};
use super::status::publish_outcome;
use knative_operator_apply::anchor::InventoryStore;
use knative_operator_apply::differ::Observation;
use knative_operator_apply::error::ApplyError;
use knative_operator_apply::observed::ObservedState;
use knative_operator_objects::AppliedVersion;
use knative_operator_objects::Kind;
use knative_operator_objects::Kinds;
use knative_operator_objects::ObjectId;
use knative_operator_objects::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_release::Release;

/// Interval of questions about an author who lacks a permission, and of looks at what others have
/// in the namespace: the operator watches neither.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of checks whether the namespace is gone; its watch usually reports it earlier.
const NAMESPACE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Delay of the step that follows one back to the version of the status.
const NEXT_STEP: Duration = Duration::from_secs(1);
/// Duration of an apply after which the status shows its progress.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// Installs the next version of `way` on `cluster`.
pub async fn install(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    cluster: &Cluster,
    Way { next: version, then }: Way,
) -> Outcome {
    // For an older operator after a rollback, also if only a part of it is applied.
    cx.library.keep(resource, &version, false);
    match namespace::resolve_namespace(cx, resource, state, &cluster.client).await {
        Ok(resource) => {
            let (resource, store) = (&resource, InventoryStore::of(&resource));
            let install = InstallSteps { cx, resource, cluster, store, version, then, disproved: None };
            install.run(state).await.unwrap_or_else(|stopped| *stopped)
        }
        Err(error) => Outcome::failed(resource, error_text(&error), Requeue::Retry),
    }
}

/// What all steps work on.
struct InstallSteps<'a> {
    cx: &'a Context,
    resource: &'a Knative,
    cluster: &'a Cluster,
    store: InventoryStore,
    version: Version,
    /// The versions that follow, up to the one that the spec means.
    then: Vec<Version>,
    /// A version in the record that the cluster doesn't have.
    disproved: Option<Version>,
}

/// The anchor during a reconcile, with the stored inventory.
struct Inventoried {
    owned: OwnedAnchor,
    /// Whether nothing of the inventory was applied yet.
    is_new: bool,
}

impl InstallSteps<'_> {
    async fn run(self, state: &mut ReconcilerState) -> Result<Outcome, Stopped> {
        let release = self.assemble_release().instrument(debug_span!("assemble_release")).await?;
        let observed = Arc::clone(&state.observer_on(&self.cx.watching, self.cluster, self.resource).observed);
        if observed.is_namespace_terminating() {
            return Err(self.namespace_terminating());
        }
        let span = debug_span!("store_inventory");
        let stored = match self.store_inventory(state, &release, &observed).instrument(span).await {
            Ok(stored) => stored,
            Err(NotStored::Stopped(stopped)) => return Err(stopped),
            Err(NotStored::Ineligible(recorded, why)) => return self.ineligible(state, recorded, why).await,
        };
        (state.refused_version, state.allowed_generation) = (Some(String::new()), self.resource.meta().generation);
        let span = debug_span!("render");
        let planned = self.plan(state, release, &stored.owned, &observed).instrument(span).await?;
        let kinds = self.observe(state, &planned.plan).instrument(debug_span!("observe")).await;
        let manifests = planned.release.manifests.clone();
        let span = debug_span!("apply", objects = planned.plan.items().len());
        let report = self.apply(state, planned, stored, &kinds, &observed).instrument(span).await?;
        Ok(self.outcome(report, manifests, &observed, state.causes.next_due()))
    }

    /// Step 1: spec and version → release.
    async fn assemble_release(&self) -> Result<Release, Stopped> {
        self.cx.library.release(self.resource, &self.version).await.map_err(|e| self.failed(e.to_string()))
    }

    /// Step 2: release → inventory, stored on the cluster before anything is created, so that every
    /// object is found again after a crash. Fails if the installation has another owner.
    async fn store_inventory(
        &self,
        state: &mut ReconcilerState,
        release: &Release,
        observed: &ObservedState,
    ) -> Result<Inventoried, NotStored> {
        state.drop_lost_anchor(&self.store, observed);
        // Taken out of the state: after a failure it is loaded from the cluster again.
        if let Some(owned) = state.anchor.take() {
            let objection = owned.owner.objection(&self.applied(), self.resource.has_installed());
            if let Some((known, why)) = objection.filter(|(known, _)| self.disproved.as_ref() != Some(known)) {
                state.anchor = Some(owned);
                return Err(NotStored::Ineligible(known, why));
            }
            return Ok(Inventoried { owned, is_new: false });
        }
        if let Some((message, rest)) = owner::recent_look(state) {
            let result = ReconcileResult::Blocked(OCCUPIED, message);
            return Err(Box::new(Outcome::new(result, Requeue::After(rest))).into());
        }
        let draft = self.render(release, "").await?;
        let applied = self.to_apply(draft.clone());
        let intended = Intended::find(self.cx, self.resource, &applied, &self.version).await;
        let namespace = namespace::manifest(self.resource, &draft);
        let (cx, resource, cluster, store) = (self.cx, self.resource, self.cluster, &self.store);
        let (applied, disproved) = (self.applied(), self.disproved.as_ref());
        let ownership = Ownership { cx, resource, cluster, store, applied, disproved };
        match ownership.claim(state, &namespace, &intended).await {
            // The anchor of a Go operator has no inventory. Its objects exist, and are observed
            // first.
            Ok(Claimed { mut owned, is_created: false }) if owned.inventory.entries.is_empty() => {
                let intended = intended.get(self.cx, self.resource).map_err(|e| self.failed(e.to_string()))?;
                let (client, OwnedAnchor { anchor, owner, .. }) = (&self.cluster.client, &owned);
                let written = self.store.store(client, anchor, owner, intended).await;
                owned.anchor = written.map_err(|e| self.failed(error_text(&e)))?;
                owned.inventory = intended.clone();
                Ok(Inventoried { owned, is_new: false })
            }
            // Objects that the Go operator installed exist, and are observed first.
            Ok(Claimed { owned, is_created }) => {
                Ok(Inventoried { owned, is_new: is_created && installed_version(self.resource).is_none() })
            }
            Err(Unclaimed::Occupied(message)) => {
                Err(Box::new(Outcome::new(ReconcileResult::Blocked(OCCUPIED, message), Requeue::AwaitChange)).into())
            }
            Err(Unclaimed::Used(message)) => {
                let result = ReconcileResult::Blocked(OCCUPIED, message);
                Err(Box::new(Outcome::new(result, Requeue::After(CHECK_INTERVAL))).into())
            }
            Err(Unclaimed::NotPermitted(message)) => {
                let result = ReconcileResult::Blocked(NOT_PERMITTED, message);
                Err(Box::new(Outcome::new(result, Requeue::After(CHECK_INTERVAL))).into())
            }
            Err(Unclaimed::Ineligible(recorded, why)) => Err(NotStored::Ineligible(recorded, why)),
            Err(Unclaimed::Store(error)) if error.is_namespace_terminating() => {
                Err(self.namespace_terminating().into())
            }
            Err(Unclaimed::Store(error)) => Err(self.failed(error_text(&error)).into()),
            Err(Unclaimed::Failed(why)) => Err(self.failed(why).into()),
        }
    }

    /// What this reconcile applies.
    fn applied(&self) -> AppliedVersion {
        let keeps = recorded::keeps_installed(self.cx, self.resource);
        AppliedVersion::of(self.resource, &self.version, self.then.last(), keeps)
    }

    /// What the status says, if the spec means another version, on the way to which this one is.
    fn step(&self) -> Option<String> {
        announce::step(self.resource, &self.version, &self.then)
    }

    /// The version may not follow the one of the record, `known`. It goes on with that one if the
    /// spec means it; or, if the cluster doesn't have that one, without it.
    async fn ineligible(self, state: &mut ReconcilerState, known: Version, why: String) -> Result<Outcome, Stopped> {
        let Self { cx, resource, .. } = self;
        if self.disproved.is_none()
            && recorded::is_disproved(cx, resource, &self.cluster.client, &self.version, &known).await
        {
            recorded::report_disproved(cx, resource, &self.store.id(), &known);
            return Box::pin(InstallSteps { disproved: Some(known), ..self }.run(state)).await;
        }
        if self.version != known
            && let Some(Way { next: version, then }) = recorded::way_from(cx, resource, &known)
            && version != self.version
        {
            return Box::pin(InstallSteps { version, then, ..self }.run(state)).await;
        }
        state.refused_version = resource.common().version.clone().or(Some(String::new()));
        Err(Box::new(Outcome::new(ReconcileResult::Ineligible(why, None), Requeue::AwaitChange)))
    }

    /// Step 3: release → plan. Reused while its inputs are the same.
    async fn plan(
        &self,
        state: &mut ReconcilerState,
        release: Release,
        owned: &OwnedAnchor,
        observed: &ObservedState,
    ) -> Result<Planned, Stopped> {
        let uid = owned.anchor.uid.as_str();
        let generation = self.resource.meta().generation;
        let is_current = |p: &Planned| {
            (p.generation, &p.version, p.uid.as_str()) == (generation, &self.version, uid)
                && p.release.is_same(&release)
        };
        if let Some(planned) = state.planned.take().filter(is_current) {
            return Ok(planned);
        }
        let plan = self.to_apply(self.render(&release, uid).await?);
        announce::warn_of_ignored_overrides(self.cx, self.resource, state, (&release, &self.version)).await;
        observed.set_plan(&plan, &self.store.id(), &owned.owner.mark());
        Ok(Planned { generation, version: self.version.clone(), uid: uid.to_owned(), release, plan })
    }

    /// Step 4: plan → watches of its kinds, and the kinds that neither the plan nor Kubernetes
    /// defines.
    async fn observe(&self, state: &mut ReconcilerState, plan: &Plan) -> Kinds {
        let observer = state.observer_on(&self.cx.watching, self.cluster, self.resource);
        let mut targets: HashSet<_> =
            plan.items().iter().map(|item| (item.gvk.clone(), item.id.namespace.clone())).collect();
        let id = self.store.id();
        if self.store.is_remote() {
            // A namespace that the operator didn't create lacks the label that the watches select.
            observer.watch_namespace(&id.namespace);
        }
        targets.insert((GroupVersionKind::gvk(&id.group, "v1", &id.kind), id.namespace.clone()));
        for (gvk, namespace) in targets {
            match observer.resolve_kind(&self.cluster.client, plan.kinds(), &gvk).await {
                Some(kind) if is_served(&observer.observed, plan, &kind) => observer.watch(&kind, &namespace),
                Some(_) | None => {}
            }
        }
        for id in plan.unlabeled() {
            let kind = plan
                .get(id)
                .and_then(|item| plan.kinds().get(&item.gvk).or_else(|| observer.discovered.get(&item.gvk)));
            if let Some(kind) = kind {
                observer.watch_one(&kind, &id.namespace, &id.name);
            }
        }
        observer.discovered.clone()
    }

    /// Step 5: plan → report of what was applied and observed. The state keeps plan and inventory.
    async fn apply(
        &self,
        state: &mut ReconcilerState,
        planned: Planned,
        stored: Inventoried,
        kinds: &Kinds,
        observed: &ObservedState,
    ) -> Result<InstallationReport, Stopped> {
        let about = (&planned.plan, &self.version, self.then.last());
        let announced = announce::announce(self.cx, self.resource, state, about);
        let announced = announced.map(|report| InstallationReport { step: self.step(), ..report });
        let version = self.version.to_string();
        let mut owned = stored.owned;
        owned.inventory = owned.inventory.share_ids(&planned.plan);
        let mut installation = Installation {
            cx: self.cx,
            resource: self.resource,
            client: &self.cluster.client,
            plan: &planned.plan,
            kinds,
            store: &self.store,
            owned,
            observed,
            version: &version,
            applied: self.applied(),
            is_new: stored.is_new,
            causes: {
                state.causes.collect(&self.cx.events, self.resource);
                state.causes.known()
            },
        };
        let mut throttle = std::mem::take(&mut state.throttle);
        let applied = {
            let mut apply = std::pin::pin!(installation.apply(&mut throttle));
            // The status is written once, at the end of the reconcile, unless that takes long.
            let publish_progress = async {
                match announced {
                    Some(report) => {
                        tokio::time::sleep(PROGRESS_DELAY).await;
                        let outcome = Outcome::new(ReconcileResult::Installation(report), Requeue::AwaitChange);
                        publish_outcome(self.cx, self.resource, state, outcome).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                applied = &mut apply => applied,
                () = publish_progress => apply.await,
            }
        };
        state.throttle = throttle;
        let report = applied.map_err(|error| self.failed(error_text(&error)))?;
        let report = InstallationReport { step: self.step(), ..report };
        state.anchor = Some(installation.owned);
        state.planned = Some(planned);
        if let Some((_, observer)) = &state.observer {
            state.causes.follow(report.waiting.clone(), &self.cluster.client, &observer.observed);
        }
        Ok(report)
    }

    /// `ask_at`: when to ask Pods for causes.
    fn outcome(
        &self,
        report: InstallationReport,
        manifests: Vec<String>,
        observed: &ObservedState,
        ask_at: Option<Instant>,
    ) -> Outcome {
        let namespace = self.resource.target_namespace();
        let in_terminating_namespace = |(id, why): &(ObjectId, ApplyError)| {
            id.namespace == namespace && matches!(why, ApplyError::NamespaceTerminating(_))
        };
        if observed.is_namespace_terminating() || report.refused.iter().any(in_terminating_namespace) {
            return *self.namespace_terminating();
        }
        let poll_interval = (!report.is_complete()).then_some(self.cx.watching.poll);
        let until = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(Instant::now()));
        let starting = until(report.starting_until);
        let result = ReconcileResult::Installation(report);
        // A step back ends with the version that the status has: no change of it starts the next.
        let is_back = result.completes_step() && self.resource.installed_version().as_ref() == Some(&self.version);
        let due = [poll_interval, until(ask_at), starting, is_back.then_some(NEXT_STEP)];
        let requeue = due.into_iter().flatten().min().map_or(Requeue::AwaitChange, Requeue::After);
        let release = Some(InstalledRelease { version: self.version.clone(), manifests });
        Outcome { result, release, requeue }
    }

    /// The installation failed for `reason`, and is retried.
    fn failed(&self, reason: String) -> Stopped {
        self.failed_until(Requeue::Retry, reason)
    }

    fn failed_until(&self, requeue: Requeue, reason: String) -> Stopped {
        let report = InstallationReport::of(self.resource.component());
        let report = InstallationReport { failed: Some(reason), step: self.step(), ..report };
        Box::new(Outcome::new(ReconcileResult::Installation(report), requeue))
    }

    /// Nothing can be applied in a terminating namespace. The operator creates it again once it is
    /// gone.
    fn namespace_terminating(&self) -> Stopped {
        let profile = self.resource.common().cluster_profile_ref.as_ref();
        let cluster = profile.map_or_else(|| "the local cluster".to_owned(), ToString::to_string);
        let namespace = self.resource.target_namespace();
        let message =
            format!("namespace {namespace} on {cluster} is being deleted; waiting. Its status.conditions say for what");
        let requeue = Requeue::After(NAMESPACE_CHECK_INTERVAL);
        Box::new(Outcome::new(ReconcileResult::Blocked(TERMINATING, message), requeue))
    }

    /// The rendered objects, owned by the resource or by the anchor with uid `anchor`.
    async fn render(&self, release: &Release, anchor: &str) -> Result<Plan, Stopped> {
        let rendered = self.cx.rendered.get(self.resource, &self.version, release, &self.cx.settings).await;
        let rendered = rendered.map_err(|error| self.failed_until(Requeue::AwaitChange, error.to_string()))?;
        Ok(Plan::new(rendered, &Owner::of(self.resource, anchor)))
    }

    /// The part of `plan` that is applied: the namespace of a spoke is created with the anchor, and
    /// never changed.
    fn to_apply(&self, plan: Plan) -> Plan {
        if self.store.is_remote() { plan.without_namespaces() } else { plan }
    }
}

/// Whether `kind` can be watched: a kind that `plan` defines only once its definition exists.
fn is_served(observed: &ObservedState, plan: &Plan, kind: &Kind) -> bool {
    plan.definition(kind).is_none_or(|item| matches!(observed.observation(&item.id), Observation::Present { .. }))
}
