//! What people rely on during a rollback, in the words of the documents.

use jiff::Timestamp;

use super::decision::Decision;
use super::member::{Applied, Change, Contents, Member};
use super::model::World;

impl World {
    /// "All stages return at the same time, at most `maxConcurrent` clusters of each. The cluster
    /// whose update began last returns first."
    pub fn check_rollback(&self, decision: &Decision) {
        if !self.is_rolling_back() {
            return;
        }
        let observed = self.observed();
        for (stage, settings) in self.stages.settings().iter().enumerate() {
            let own: Vec<&Member> = observed.iter().filter(|member| member.stage == stage).collect();
            let waiting = own.iter().copied().filter(|member| self.needs_place(member));
            let (begun, rest): (Vec<&Member>, Vec<&Member>) =
                waiting.partition(|member| self.is_written(member, decision));
            let Some(oldest) = begun.iter().map(|member| self.began(member)).min() else { continue };
            let newer = rest.iter().find(|member| self.can_return(member) && self.began(member) > oldest);
            assert!(newer.is_none(), "a cluster returns before one whose update began later: {newer:?}");
            let is_begun = |member: &Member| begun.iter().any(|other| other.cluster == member.cluster);
            let others = own.iter().filter(|member| !is_begun(member) && self.is_returning(member)).count();
            let (busy, limit) = (begun.len() + others, settings.concurrency(decision.stages[stage].clusters));
            assert!(busy <= limit, "{busy} clusters of stage {stage} return at the same time");
        }
    }

    /// Whether `member` has the failed revision, and its update came to an end. Others return in
    /// the place that they have.
    fn needs_place(&self, member: &Member) -> bool {
        let current = self.current.as_deref();
        let has_failed = member.applied().any(|applied| applied.revision == self.update && applied.failure().is_some());
        member.gone.is_none()
            && !member.is_skipped
            && (member.is_ready() || has_failed)
            && member.is_touched(self.update, current, &self.contents)
            && member.other_in_progress(self.update, current, &self.contents).is_none()
    }

    /// Whether `decision` applies another revision than the failed one on `member`.
    fn is_written(&self, member: &Member, decision: &Decision) -> bool {
        decision.writes.iter().any(|write| write.cluster == member.cluster && self.is_other(&write.change))
    }

    fn is_other(&self, change: &Change) -> bool {
        matches!(change, Change::Apply { revision, .. } if *revision != self.update)
    }

    /// Whether `member` has a revision to return to, with a resource that differs.
    fn can_return(&self, member: &Member) -> bool {
        let own = member.applied().filter(|applied| applied.revision == self.update);
        let previous = own.filter_map(|applied| applied.previous.as_deref()).find(|name| *name != self.update);
        let previous = previous.filter(|name| self.contents.is_known(name, &member.cluster));
        // What is not known is not done.
        let is_reported = !member.applied().any(Applied::is_lost);
        let previous = previous.filter(|_| is_reported);
        let writes = previous.map(|previous| member.writes(previous, &self.contents)).unwrap_or_default();
        writes.iter().any(|write| self.is_other(&write.change))
    }

    /// When the update of `member` began.
    fn began(&self, member: &Member) -> Option<Timestamp> {
        member.applied().filter(|applied| applied.revision == self.update).map(|applied| applied.since).max()
    }

    /// Whether `member` is on its way back.
    fn is_returning(&self, member: &Member) -> bool {
        let index = self.members.iter().position(|other| other.cluster == member.cluster);
        let is_on_way = |index: usize| self.truth[index].returns == Some(self.generation) && self.is_in_flight(index);
        member.gone.is_none() && !member.is_skipped && index.is_some_and(is_on_way)
    }

    /// Whether `change` lets the cluster `index` return, or is a further step of that.
    pub fn is_return(&self, index: usize, change: &Change) -> bool {
        let has_failed = self.members[index].is_touched(self.update, self.current.as_deref(), &self.contents);
        let is_step = self.truth[index].returns == Some(self.generation);
        self.is_rolling_back() && self.is_other(change) && (has_failed || is_step)
    }

    /// Whether the update revision failed, and is rolled back.
    fn is_rolling_back(&self) -> bool {
        self.failed.contains(self.update) && self.current.as_deref() != Some(self.update)
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::Component;
    use knative_operator_shared::api::fleet::{KnativeFleetStatus, OnFailure, StageState};

    use crate::adversary::Action;
    use crate::findings::pass;
    use crate::member::Reported;
    use crate::model::World;
    use crate::truth::DEADLINE;

    /// The revisions of KnativeServing on the clusters with an odd number.
    fn revisions(world: &World) -> Vec<String> {
        let odd = world.members.iter().skip(1).step_by(2);
        let serving =
            odd.flat_map(|member| member.children.iter()).filter(|child| child.component == Component::Serving);
        serving.filter_map(|child| child.applied.as_ref()).map(|applied| applied.revision.clone()).collect()
    }

    #[test]
    fn cluster_that_can_not_return_holds_no_place() {
        let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Rollback);
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!(world.current.as_deref(), Some("a"));
        world.act(&Action::Edit("d"));
        world.settle();
        pass(&mut world, 1);
        world.act(&Action::Break(1, true));
        // Somebody deletes its resource, and a finalizer holds that.
        world.hanging.insert(1);
        world.members[1].children[0].applied.as_mut().unwrap().is_terminating = true;
        world.settle();
        pass(&mut world, DEADLINE);
        assert!(world.failed.contains("d") && world.members[1].writes("a", &world.contents).is_empty());
        (0..2).for_each(|_| pass(&mut world, 1));
        assert_eq!(world.members[0].children[0].applied.as_ref().unwrap().revision, "a");
    }

    #[test]
    fn cluster_returns_when_its_state_is_known_and_holds_no_place_before() {
        let mut world = World::new(&[(2, 0, 0, false)], &[0, 0], OnFailure::Rollback);
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!(world.current.as_deref(), Some("a"));
        world.act(&Action::Edit("d"));
        world.settle();
        // The status of its resources is lost, and nobody reports it.
        world.silent.insert(1);
        for applied in world.members[1].children.iter_mut().filter_map(|child| child.applied.as_mut()) {
            (applied.reported, applied.installed) = (Reported::Nothing, None);
        }
        world.act(&Action::Break(0, true));
        pass(&mut world, DEADLINE);
        assert!(world.failed.contains("d"));
        world.act(&Action::Break(0, false));
        (0..4).for_each(|_| pass(&mut world, 1));
        let revisions = |world: &World| {
            let serving = world.members.iter().map(|member| member.children[0].applied.as_ref());
            serving.map(|applied| applied.unwrap().revision.clone()).collect::<Vec<_>>()
        };
        assert_eq!(revisions(&world), ["a", "d"]);
        // The stage says so.
        assert_eq!(world.decide().stages[0].state, StageState::Progressing);
        let old = KnativeFleetStatus { update_revision: Some("d".to_owned()), ..KnativeFleetStatus::default() };
        let attention = world.status_after(&old).attention;
        let why = attention.iter().find(|entry| entry.cluster.name == "1").map(|entry| entry.message.as_str());
        assert!(why.is_some_and(|why| why.starts_with("it returns to revision a when its state is known")), "{why:?}");
        world.silent.clear();
        pass(&mut world, 1);
        assert_eq!(revisions(&world), ["a", "a"]);
    }

    #[test]
    fn cluster_whose_update_began_last_returns_first() {
        let mut world = World::new(&[(1, 0, 0, false)], &[0; 6], OnFailure::Rollback);
        for _ in 0..8 {
            world.settle();
            world.tick(1);
        }
        world.settle();
        assert_eq!(world.current.as_deref(), Some("a"));
        // It changes the clusters with an odd number.
        world.act(&Action::Edit("c"));
        for expected in [["c", "a", "a"], ["c", "c", "a"]] {
            world.settle();
            assert_eq!(revisions(&world), expected);
            world.tick(1);
        }
        world.settle();
        assert_eq!(revisions(&world), ["c", "c", "c"]);
        world.act(&Action::Break(5, true));
        world.tick(DEADLINE);
        world.settle();
        assert_eq!(revisions(&world), ["c", "c", "a"]);
        world.act(&Action::Break(5, false));
        for expected in [["c", "a", "a"], ["a", "a", "a"]] {
            world.tick(1);
            world.settle();
            assert_eq!(revisions(&world), expected);
        }
    }
}
