//! What a decision about a fleet depends on, and the decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use jiff::{SignedDuration, Timestamp};
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::api::fleet::{OnFailure, StageState};
use knative_operator_shared::fleet::stage::{StageSettings, Stages};

use super::approval::Approved;
use super::member::{Contents, Member, Write};
use super::progress::{Goal, Progress};

/// What a decision depends on.
#[derive(Debug)]
pub struct Input<'a, C> {
    /// The stages.
    pub stages: &'a Stages,
    /// The clusters, also those that are gone and count in the rollout.
    pub members: &'a [Member],
    /// Stages that had clusters in this rollout, and were not complete.
    pub had_clusters: &'a BTreeSet<String>,
    /// Clusters that are selected, and not counted, with reason and message.
    pub uncounted: &'a BTreeMap<ClusterProfileReference, (&'static str, String)>,
    /// The revision that was rolled out completely last.
    pub current: Option<&'a str>,
    /// The revision of the spec.
    pub update: &'a str,
    /// Whether the rollout of the update revision has failed, and is rolled back.
    pub has_failed: bool,
    /// Generation of the fleet since which it rolls this out, and there. Failures are recorded with
    /// it: a pause, or another change that rolls out nothing else, ends none.
    pub generation: i64,
    /// What happens if too many clusters fail.
    pub on_failure: OnFailure,
    /// Whether to start no further cluster.
    pub is_paused: bool,
    /// Who or what paused it, in words.
    pub pause: &'a str,
    /// Approved revisions and stages, for this rollout.
    pub approvals: &'a Approved,
    /// The contents of revisions.
    pub contents: &'a C,
    /// The time.
    pub now: Timestamp,
    /// What [`Self::may_install`] says about each stage, once it was asked.
    pub installable: OnceLock<Vec<bool>>,
}

/// What to write next, and the state of the rollout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Writes of resources.
    pub writes: Vec<Write>,
    /// Whether to record that the rollout of the update revision has failed. Nothing is rolled back
    /// before that is stored.
    pub mark_failed: bool,
    /// Whether the update revision is now the current one.
    pub is_complete: bool,
    /// The stages.
    pub stages: Vec<StageReport>,
    /// Progress of each member, in their order.
    pub progress: Vec<Progress>,
    /// Time until the next decision, if nothing changes before.
    pub wake: Option<SignedDuration>,
}

/// State of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageReport {
    /// State.
    pub state: StageState,
    /// Number of clusters.
    pub clusters: usize,
    /// Number of clusters with the update revision.
    pub updated: usize,
    /// Number of clusters that are being updated.
    pub updating: usize,
    /// Number of clusters that soak, or whose success is not stored yet.
    pub soaking: usize,
    /// Number of clusters on which another revision is being installed.
    pub others: usize,
    /// Number of clusters that failed. Those that are observed again count until they are updated.
    pub failed: usize,
    /// Number of those among them that are not observed again, without those with refused writes:
    /// what shows that the revision doesn't work.
    pub broken: usize,
    /// Number of clusters that were not healthy when it was their turn, or are skipped.
    pub deferred: usize,
    /// Number of clusters that have another revision, and can be updated.
    pub pending: usize,
    /// Number of clusters about which nothing is known: the stage waits for them.
    pub waiting: usize,
    /// Number of clusters that failed, and whose failure is not stored yet.
    pub unstored: usize,
    /// The first cluster of whose update the API server refuses to record what came, and why.
    pub unrecorded: Option<String>,
    /// Whether it lost all its clusters during the rollout.
    pub is_lost: bool,
}

impl StageReport {
    /// Whether nothing shows that the revision works on the clusters of the stage: each is
    /// deferred, failed or in conflict. Nothing follows from a stage that was not reached.
    pub fn is_unproven(&self) -> bool {
        self.clusters > 0 && self.updated + self.updating + self.soaking + self.pending == 0
    }

    /// Whether more clusters failed than a stage with `settings` allows.
    pub fn has_too_many(&self, settings: &StageSettings) -> bool {
        self.failed > settings.failures(self.clusters)
    }

    /// Notes that the API server refuses to record what came of the update of `member`, if it does.
    pub fn note_unrecorded(&mut self, member: &Member) {
        if let Some(why) = &member.unrecorded {
            self.unrecorded.get_or_insert_with(|| format!("{}: {why}", member.cluster));
        }
    }

    /// Whether it waits for clusters.
    pub fn waits_for_clusters(&self) -> bool {
        self.is_unproven() || self.waiting > 0 || self.is_lost
    }
}

impl<C: Contents> Input<'_, C> {
    /// Whether the update revision is being rolled out, for the first time or after another one.
    pub fn is_rolling_out(&self) -> bool {
        self.current != Some(self.update)
    }

    /// Whether the update revision failed and is rolled back.
    pub fn is_rolling_back(&self) -> bool {
        self.has_failed && self.is_rolling_out()
    }

    /// The indices of the members in each stage.
    pub fn by_stage(&self) -> Vec<Vec<usize>> {
        let mut stages = vec![Vec::new(); self.stages.settings().len()];
        for (index, member) in self.members.iter().enumerate() {
            stages[member.stage].push(index);
        }
        stages
    }

    /// What the progress of `member` depends on.
    pub fn goal(&self, member: &Member) -> Goal<'_, C> {
        Goal {
            revision: self.update,
            current: self.current,
            contents: self.contents,
            stage: &self.stages.settings()[member.stage],
            generation: self.generation,
        }
    }

    /// Whether the stage `index` needs no approval for the update revision, or has it.
    pub fn is_approved(&self, index: usize) -> bool {
        let stage = &self.stages.settings()[index];
        !stage.needs_approval || self.approvals.contains_key(&(self.update.to_owned(), stage.name.clone()))
    }

    /// Whether new clusters of the stage `index` get the current revision, if there is one. It may
    /// have passed a stage that needs an approval while that had no clusters; so there, another
    /// cluster must have it.
    pub fn may_install(&self, index: usize) -> bool {
        self.installable.get_or_init(|| self.installable_stages())[index]
    }

    /// The same for each stage: it is asked for each cluster, and all clusters answer it.
    fn installable_stages(&self) -> Vec<bool> {
        let mut stages: Vec<bool> = self.stages.settings().iter().map(|stage| !stage.needs_approval).collect();
        let Some(current) = self.current else { return stages };
        for member in self.members {
            let has = || member.is_touched(current, None, self.contents) && member.has(current, self.contents);
            stages[member.stage] = stages[member.stage] || has();
        }
        stages
    }
}
