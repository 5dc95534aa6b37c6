//! Clusters whose content in an earlier revision is not known: its overrides select by properties
//! that their ClusterProfiles don't have. They neither return to it nor get it, since a guess would
//! change what they have; the others go on.

use knative_operator_shared::api::fleet::StageState;

use super::decision::Input;
use super::member::{Contents, Member};
use super::rollback;

/// Reason of a cluster whose content is not known.
pub const CONTENT_UNKNOWN: &str = "ContentUnknown";

impl<C: Contents> Input<'_, C> {
    /// The earlier revision that `member` has to get, and does not, since its content is not known.
    pub fn unknown_revision<'m>(&'m self, member: &'m Member) -> Option<&'m str> {
        if member.gone.is_some() || member.is_skipped || !self.is_rolling_out() {
            return None;
        }
        let is_unknown = |revision: &&str| !self.contents.is_known(revision, &member.cluster);
        if member.is_new() {
            let current = self.current.filter(is_unknown).filter(|_| member.unavailable.is_none());
            return current.filter(|_| self.may_install(member.stage));
        }
        if !self.has_failed {
            return None;
        }
        rollback::target(member, self).filter(is_unknown)
    }

    /// The same, if `member`, whose stage is in `state`, does not get the update before.
    pub fn waits_for_unknown<'m>(&'m self, member: &'m Member, state: StageState) -> Option<&'m str> {
        let is_open = self.has_failed || matches!(state, StageState::Pending | StageState::AwaitingApproval);
        self.unknown_revision(member).filter(|_| is_open)
    }
}

/// What is wrong with a cluster that has to get `revision`, and what to do.
pub fn message(revision: &str) -> String {
    format!(
        "it waits for revision {revision}, whose overrides select by what its ClusterProfile does not have: its cluster manager has to \
         publish status.properties, or change the templates or overrides, which is another revision"
    )
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::fleet::OnFailure;

    use super::*;
    use crate::adversary::Action;
    use crate::findings::pass;
    use crate::member::Change;
    use crate::model::World;
    use crate::truth::DEADLINE;

    fn revisions(world: &World) -> Vec<&str> {
        let all = world.members.iter().map(|member| &member.children[0].applied);
        all.map(|applied| applied.as_ref().map_or("", |applied| applied.revision.as_str())).collect()
    }

    fn rolled_out() -> World {
        let mut world = World::new(&[(3, 0, 0, false)], &[0, 0], OnFailure::Rollback);
        world.settle();
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!(world.current.as_deref(), Some("a"));
        world
    }

    #[test]
    fn cluster_does_not_return_to_what_is_not_known() {
        let mut world = rolled_out();
        world.act(&Action::Edit("d"));
        world.settle();
        world.act(&Action::Break(1, true));
        pass(&mut world, 1);
        world.contents.unknown.insert(("a", "0".to_owned()));
        pass(&mut world, DEADLINE);
        world.act(&Action::Break(1, false));
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!((revisions(&world), world.failed.contains("d")), (vec!["d", "a"], true));
        assert_eq!(world.decide().stages[0].state, StageState::Progressing);
        assert_eq!(world.unknown_revisions(), [Some("a".to_owned()), None]);
        world.contents.unknown.clear();
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!(revisions(&world), ["a", "a"]);
        assert_eq!(world.decide().stages[0].state, StageState::Complete);
    }

    #[test]
    fn what_is_not_known_deletes_nothing() {
        let mut world = rolled_out();
        let deletes = |world: &World| {
            let writes = world.members[0].writes("e", &world.contents);
            writes.iter().any(|write| write.change == Change::Delete)
        };
        assert!(deletes(&world), "it drops a component");
        world.contents.unknown.insert(("e", "0".to_owned()));
        assert!(!deletes(&world) && world.members[0].writes("e", &world.contents).is_empty());
    }

    #[test]
    fn new_cluster_does_not_get_what_is_not_known() {
        let mut world = World::new(&[(1, 0, 3600, false), (1, 0, 0, false)], &[0, 1], OnFailure::Pause);
        world.settle();
        (0..4).for_each(|_| pass(&mut world, 3600));
        assert_eq!(world.current.as_deref(), Some("a"));
        world.act(&Action::Edit("d"));
        world.contents.unknown.insert(("a", "2".to_owned()));
        (0..2).for_each(|_| world.act(&Action::Join(1)));
        (0..4).for_each(|_| pass(&mut world, 1));
        assert_eq!(revisions(&world), ["d", "a", "", "a"], "before their stage has its turn");
        assert_eq!(world.unknown_revisions(), [None, None, Some("a".to_owned()), None]);
        (0..8).for_each(|_| pass(&mut world, 3600));
        assert_eq!(revisions(&world), ["d"; 4]);
    }
}
