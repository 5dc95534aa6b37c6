//! Applies a plan: writes changed objects, prunes obsolete ones, follows Jobs, and reports what it
//! found.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use jiff::Timestamp;
use knative_operator_shared::api::Knative;
use kube::Client;

use super::apply_events;
use super::conditions::InstallationReport;
use super::context::Context;
use super::readiness::{self, PodCauses, with_cause};
use super::state::OwnedAnchor;
use super::unlabeled;
use crate::metrics::ObjectCounts;
use knative_operator_apply::anchor::InventoryStore;
use knative_operator_apply::error::ApplyError;
use knative_operator_apply::inventory::{Entry, Inventory};
use knative_operator_apply::observed::ObservedState;
use knative_operator_apply::remove::{self, Deletion};
use knative_operator_apply::store_error::StoreError;
use knative_operator_apply::target::Target;
use knative_operator_apply::throttle::Throttle;
use knative_operator_apply::{differ, engine, served};
use knative_operator_objects::AppliedVersion;
use knative_operator_objects::Kinds;
use knative_operator_objects::ObjectId;
use knative_operator_objects::health::Health;
use knative_operator_objects::plan::{Phase, Plan};

/// An installation during a reconcile.
pub struct Installation<'a> {
    /// Shared by all actors.
    pub cx: &'a Context,
    /// The custom resource.
    pub resource: &'a Knative,
    /// Client of the target cluster.
    pub client: &'a Client,
    /// Desired objects.
    pub plan: &'a Plan,
    /// Kinds that neither the plan nor Kubernetes defines.
    pub kinds: &'a Kinds,
    /// Store of the inventory.
    pub store: &'a InventoryStore,
    /// The anchor, with the owner.
    pub owned: OwnedAnchor,
    /// Observed state of the target cluster.
    pub observed: &'a ObservedState,
    /// Version of the plan.
    pub version: &'a str,
    /// The same, with the state of the resource that asks for it.
    pub applied: AppliedVersion,
    /// Whether nothing of the inventory was applied yet.
    pub is_new: bool,
    /// Why workloads are not available, as far as their Pods were asked.
    pub causes: PodCauses,
}

impl Installation<'_> {
    /// Makes the cluster equal to the plan; returns what it found. Fails if the inventory can't be
    /// stored.
    pub async fn apply(&mut self, throttle: &mut Throttle) -> Result<InstallationReport, StoreError> {
        let stored = self.owned.inventory.clone();
        let applied_before = if self.is_new { &Inventory::default() } else { &self.owned.inventory };
        let changes = engine::changes(self.plan, applied_before, self.observed);
        // Stored before the objects are created, so that they are found again after a crash.
        self.owned.inventory.add(changes.iter().map(|(item, _)| *item));
        self.owned.inventory.forget_obsolete_jobs(self.plan);
        if self.owned.inventory.is_too_large() {
            return Err(StoreError::TooLarge);
        }
        self.store(&stored).await?;
        let stored = self.owned.inventory.clone();

        let (first_install, mark) = (self.is_first_install(), self.owned.owner.mark());
        let target = Target {
            client: self.client,
            plan: self.plan,
            kinds: self.kinds,
            observed: self.observed,
            mark: &mark,
            unreachable: AtomicBool::new(false),
            refused_definitions: Mutex::default(),
        };
        served::touch_unestablished(&target, throttle, Instant::now()).await;
        let waits = |phase| self.waits(phase, first_install);
        let applied = engine::apply(&target, &changes, waits, throttle).await;
        for id in &applied.applied {
            self.owned.inventory.entries.entry(id.clone()).and_modify(|entry| entry.deleting = false);
        }
        self.cx.metrics.objects_written(self.resource, applied.applied.len(), applied.repaired.len());
        apply_events::publish(&self.cx.events, self.resource, &applied);

        let mut report = InstallationReport {
            refused: applied.refused,
            unreachable: target.unreachable.into_inner(),
            ..InstallationReport::of(self.resource.component())
        };
        if !report.unreachable && !applied.deferred {
            self.prune(&mut report).await;
        }
        let has_running_jobs = self.follow_jobs(&mut report);
        if applied.deferred {
            report.pending.push("the Deployments, before their dependent objects are applied".to_owned());
        }
        // Completed Jobs are recorded together, in one write.
        if !has_running_jobs || self.owned.inventory.entries.len() != stored.entries.len() {
            self.store(&stored).await?;
        }
        readiness::add(&mut report, self.plan, self.observed, &self.causes, Timestamp::now());
        let counts = ObjectCounts {
            planned: self.plan.items().len(),
            refused: report.refused.len(),
            unavailable: report.unavailable.len(),
            pending: report.pending.len(),
        };
        self.cx.metrics.set_objects(self.resource, counts);
        Ok(report)
    }

    /// Whether nothing was installed before. A step is on the way from a version, also if the
    /// status lost it.
    fn is_first_install(&self) -> bool {
        self.applied.beyond.is_none() && self.installed_version().is_none()
    }

    /// Whether `phase` waits: what Knative's webhooks admit for these, and in an upgrade the Jobs,
    /// which migrate stored objects for the new Deployments, for all Deployments.
    fn waits(&self, phase: Phase, first_install: bool) -> bool {
        match phase {
            Phase::Dependents => !readiness::webhooks_run(self.plan, self.observed, first_install),
            Phase::Jobs => !first_install && !readiness::unavailable(self.plan, self.observed).is_empty(),
            _ => false,
        }
    }

    fn installed_version(&self) -> Option<&str> {
        self.resource.status().and_then(|s| s.version.as_deref())
    }

    /// Stores inventory and version, unless the anchor has them: `stored` is the inventory in it.
    async fn store(&mut self, stored: &Inventory) -> Result<(), StoreError> {
        let OwnedAnchor { anchor, owner, inventory } = &mut self.owned;
        // One from the future of the resource is forged, or the hub was restored: later changes of
        // the resource must count.
        let is_recorded = |applied: &AppliedVersion| {
            (&applied.version, &applied.uid, &applied.asked)
                == (&self.applied.version, &self.applied.uid, &self.applied.asked)
                && applied.generation <= self.applied.generation
        };
        let has_version = owner.applied.as_ref().is_some_and(is_recorded);
        if !has_version {
            owner.applied = Some(self.applied.clone());
        }
        if inventory != stored || !has_version {
            *anchor = self.store.store(self.client, anchor, owner, inventory).await?;
        }
        Ok(())
    }

    /// Deletes objects of the inventory that are no longer in the plan. A Job whose deletion began
    /// before the plan contained it again is deleted, too: then it runs again. While an object of
    /// a kind is refused, those of the same kind stay: it may be their successor.
    async fn prune(&mut self, report: &mut InstallationReport) {
        let refused: Kinded = report.refused.iter().map(|(id, _)| (id.group.clone(), id.kind.clone())).collect();
        let mut obsolete: Vec<(ObjectId, Entry)> = Vec::new();
        let is_due = |id: &ObjectId, entry: &Entry| is_obsolete(self.plan, &refused, id, entry);
        for (id, entry) in self.owned.inventory.entries.iter_mut().filter(|(id, entry)| is_due(id, entry)) {
            obsolete.push((id.clone(), entry.clone()));
            // The response may be lost.
            entry.deleting = true;
        }
        let (mut deleted, mut left) = (Vec::new(), Vec::new());
        let proof = self.owned.proof(self.resource);
        let (cx, kinds) = (self.cx, self.plan.kinds());
        for (id, outcome) in unlabeled::delete(cx, self.resource, self.client, kinds, &proof, obsolete).await {
            match outcome {
                Ok(Deletion::Gone) if self.plan.get(&id).is_some() => {
                    report.pending.push(format!("{id} to run again"));
                }
                Ok(Deletion::Gone) => {
                    self.owned.inventory.entries.remove(&id);
                    deleted.push(id);
                }
                Ok(Deletion::Left(why)) => {
                    self.owned.inventory.entries.remove(&id);
                    left.push((id, why));
                }
                Ok(Deletion::Terminating) => report.pending.push(format!("{id} to be deleted")),
                Err(error) => {
                    let (what, why) = ("delete the obsolete object".to_owned(), error.to_string());
                    report.refused.push((id, ApplyError::Failed { what, why }));
                }
            }
        }
        apply_events::publish_pruned(&self.cx.events, self.resource, &deleted);
        apply_events::publish_left(self.cx, self.resource, &left);
    }

    /// Reports the Jobs and marks completed ones in the inventory; returns whether any is still
    /// running. An upgrade waits for its Jobs, which migrate stored objects; a first install has
    /// none to migrate.
    fn follow_jobs(&mut self, report: &mut InstallationReport) -> bool {
        let mut has_running_jobs = false;
        let is_upgrade =
            !self.is_first_install() && self.installed_version().is_none_or(|installed| installed != self.version);
        for item in self.plan.phase(Phase::Jobs) {
            let Some(entry) = self.owned.inventory.entries.get_mut(&item.id).filter(|e| !e.done) else { continue };
            let name = &item.id.name;
            if entry.deleting {
                // The complete Job that is still observed is the earlier one.
                has_running_jobs = true;
                continue;
            }
            match self.observed.health(&item.id) {
                Some(Health::Ready) => entry.done = true,
                Some(Health::Failed(reason)) => {
                    report.waiting.insert(item.id.clone(), self.plan.digest(item));
                    let cause = self.causes.get(&item.id).map(|found| format!(" ({})", found.text()));
                    let cause = cause.unwrap_or_default();
                    report.failures.push(format!("Job {name} failed: {reason}{cause}; delete it to run it again"));
                }
                Some(Health::Waiting(wait)) => {
                    // An event tells why it does not run, also in a first install.
                    if is_upgrade || !wait.is_of_running_job() {
                        report.waiting.insert(item.id.clone(), self.plan.digest(item));
                    }
                    if is_upgrade {
                        let wait = with_cause(wait, &item.id, &self.causes);
                        report.pending.push(format!("Job {name} ({wait})"));
                    }
                }
                None if is_upgrade => report.pending.push(format!("Job {name}")),
                None => {}
            }
            has_running_jobs |= !entry.done;
        }
        has_running_jobs
    }
}

/// API groups and kinds.
type Kinded = HashSet<(String, String)>;

/// Whether the object `id` of the inventory is to be deleted, while objects of the kinds `refused`
/// are refused.
fn is_obsolete(plan: &Plan, refused: &Kinded, id: &ObjectId, entry: &Entry) -> bool {
    match plan.get(id) {
        None => !remove::is_retained(id) && !refused.contains(&(id.group.clone(), id.kind.clone())),
        Some(item) => entry.deleting && differ::runs_once(item),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_shared::api::KnativeServing;

    use super::*;
    use knative_operator_objects::Owner;
    use knative_operator_objects::plan::Rendered;

    #[test]
    fn refused_object_keeps_only_those_of_its_kind() {
        let owner = Owner::of(&Knative::Serving(KnativeServing::default()), "u");
        let plan = Plan::new(Arc::new(Rendered::new(Vec::new())), &owner);
        let refused = Kinded::from([("apps".to_owned(), "Deployment".to_owned())]);
        let is_deleted = |group: &str, kind: &str| {
            is_obsolete(&plan, &refused, &ObjectId::new(group, kind, "n", "a"), &Entry::default())
        };
        assert!(is_deleted("", "Service") && is_deleted("batch", "Job"));
        // It may be the successor of the refused one.
        assert!(!is_deleted("apps", "Deployment"));
        assert!(!is_deleted("apiextensions.k8s.io", "CustomResourceDefinition"));
    }
}
