//! Clusters that are not part of the fleet any more while a revision is rolled out to them: they
//! left, or their ClusterProfile vanished. What came of the update must not be forgotten with them,
//! so they count in their stage until the rollout ends.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, StageState};
use knative_operator_shared::fleet::stage::Stages;

use super::absence::Gone;
use super::decision::Input;
use super::member::{Applied, Contents, Member};
use super::outcome::Outcome;
use super::progress::Progress;

/// What to do about a cluster that is gone.
const FIX: &str = "to go on without it, delete its resources in the namespace of the fleet; to keep the installation, annotate them with \
                   operator.knative.dev/on-delete=orphan before";

impl Member {
    /// Whether the update to `update` was begun in the rollout after `current`. One to another
    /// revision with the same content is the same.
    pub fn is_begun(&self, update: &str, current: Option<&str>, contents: &impl Contents) -> bool {
        let is_open = |applied: &Applied| applied.outcome.as_ref().is_some_and(|o| *o != Outcome::Succeeded);
        let is_same = || self.applied().any(is_open) && self.has(update, contents);
        current != Some(update) && (self.is_touched(update, current, contents) || is_same())
    }

    /// Moves it to the stage in which its update to `update` was begun: until the rollout after
    /// `current` ends, it doesn't change with the labels.
    pub fn keep_stage(&mut self, stages: &Stages, update: &str, current: Option<&str>, contents: &impl Contents) {
        if !self.is_begun(update, current, contents) {
            return;
        }
        let index = |name: &str| stages.settings().iter().position(|stage| stage.name == name);
        let recorded = self.of_update(update).filter_map(|applied| {
            let stage = applied.stage.as_deref().and_then(index)?;
            Some((applied.since, Reverse(stage)))
        });
        // A resource with the same content has that of an earlier rollout of the revision.
        if let Some((_, Reverse(stage))) = recorded.max() {
            self.stage = stage;
        }
    }

    /// Whether it counts in the rollout of `update` after `current`. One that is gone does if its
    /// update has not ended, or failed.
    pub fn counts(&self, update: &str, current: Option<&str>, contents: &impl Contents) -> bool {
        let has_succeeded = || self.of_update(update).all(|applied| applied.outcome == Some(Outcome::Succeeded));
        self.gone.is_none() || self.is_begun(update, current, contents) && !has_succeeded()
    }

    /// The resources that were written for `update`, or all if its content has another name.
    pub(super) fn of_update(&self, update: &str) -> impl Iterator<Item = &Applied> {
        let is_named = self.applied().any(|applied| applied.revision == update);
        self.applied().filter(move |applied| !is_named || applied.revision == update)
    }

    /// The progress of a cluster that is gone, for the reason `gone`: what is recorded about the
    /// update to `update`. Without its labels, its content is not known.
    pub(super) fn recorded_progress(&self, gone: Gone, update: &str) -> Progress {
        if let Some(reason) = self.of_update(update).find_map(Applied::failure) {
            return Progress::Failed(reason.to_owned(), format!("{}; {FIX}", gone.message()));
        }
        let message = format!("{}, or the revision changes; {FIX}", gone.message());
        Progress::Waiting(gone.reason().to_owned(), message, None)
    }
}

impl<C: Contents> Input<'_, C> {
    /// Clusters that are gone and keep their resources until the rollout ends.
    pub fn counting(&self) -> BTreeSet<ClusterProfileReference> {
        let counting = self.members.iter().filter(|member| member.gone.is_some() && !self.has_failed);
        counting.map(|member| member.cluster.clone()).collect()
    }
}

/// The stages that had clusters in the rollout of `update`, by the stored status `old`, and were
/// not complete: without clusters, nothing shows that the revision works there.
pub fn stages_with_clusters(old: &KnativeFleetStatus, update: &str) -> BTreeSet<String> {
    let is_same = old.update_revision.as_deref() == Some(update);
    // One that lost its clusters is in progress until it has some.
    let had_clusters = |clusters: i32, state| clusters > 0 || state == StageState::Progressing;
    let stages = old.stages.iter().filter(|_| is_same).filter(|stage| stage.state != StageState::Complete);
    stages.filter(|stage| had_clusters(stage.clusters, stage.state)).map(|stage| stage.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::fleet::StageStatus;

    use super::*;

    #[test]
    fn stage_that_lost_its_clusters_is_remembered_in_the_same_rollout() {
        let stage = |name: &str, state, clusters| StageStatus {
            name: name.to_owned(),
            state,
            clusters,
            ..StageStatus::default()
        };
        let status = KnativeFleetStatus {
            update_revision: Some("b".to_owned()),
            stages: vec![
                stage("complete", StageState::Complete, 1),
                stage("empty", StageState::Pending, 0),
                stage("lost", StageState::Progressing, 0),
                stage("pending", StageState::Pending, 2),
            ],
            ..KnativeFleetStatus::default()
        };
        let names: Vec<_> = stages_with_clusters(&status, "b").into_iter().collect();
        assert_eq!(names, ["lost", "pending"]);
        assert!(stages_with_clusters(&status, "c").is_empty(), "another revision");
    }
}
