//! Resources whose deletion takes time, which is no reason to write anything else.

use knative_operator_shared::api::fleet::OnFailure;

use super::adversary::Action;
use super::findings::pass;
use super::member::Applied;
use super::model::World;
use super::progress::Progress;

/// The clusters that have `revision`, apart from resources that are being deleted.
fn have(world: &World, revision: &str) -> usize {
    let has = |applied: &Applied| applied.revision == revision && !applied.is_terminating;
    let members = world.members.iter();
    members.filter(|m| m.applied().any(has)).count()
}

/// Three clusters of a stage, which lose a component at the same time.
fn world(needs_approval: bool) -> World {
    let mut world = World::new(&[(3, 0, 0, false), (3, 0, 0, needs_approval)], &[0, 1, 1, 1], OnFailure::Pause);
    world.act(&Action::Approve);
    world.settle();
    (0..4).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.current.as_deref(), Some("a"));
    world.act(&Action::Edit("d"));
    world.act(&Action::Approve);
    world.settle();
    pass(&mut world, 1);
    world.settle();
    assert_eq!(have(&world, "d"), 4);
    assert!(world.members[1..].iter().all(|member| member.children[1].applied.as_ref().unwrap().is_terminating));
    world
}

#[test]
fn deletion_starts_no_other_revision() {
    // Stages, approvals and a pause hold.
    let mut world = world(true);
    world.act(&Action::Edit("b"));
    world.settle();
    assert_eq!(have(&world, "b"), 1, "the first stage");
    let mut world = self::world(false);
    world.act(&Action::Pause(true));
    world.act(&Action::Edit("b"));
    world.settle();
    assert_eq!(have(&world, "b"), 0);
    // What was started is finished.
    world.act(&Action::Pause(false));
    for _ in 0..8 {
        pass(&mut world, 1);
    }
    assert_eq!((have(&world, "b"), world.current.as_deref()), (4, Some("b")));
}

#[test]
fn cluster_with_nothing_but_deletions_waits_and_blocks_no_other() {
    let mut world = World::new(&[(1, 0, 0, false)], &[0, 0], OnFailure::Pause);
    world.settle();
    (0..4).for_each(|_| pass(&mut world, 1));
    // Somebody deletes all its resources, and finalizers hold them.
    world.hanging.insert(0);
    let children = world.members[0].children.iter_mut().filter_map(|child| child.applied.as_mut());
    children.for_each(|applied| applied.is_terminating = true);
    world.act(&Action::Edit("c"));
    world.settle();
    assert!(matches!(world.decide().progress[0], Progress::Deferred(_)), "{:?}", world.decide().progress[0]);
    (0..4).for_each(|_| pass(&mut world, 1));
    assert_eq!(world.decide().progress[1], Progress::Updated);
    world.hanging.clear();
    (0..4).for_each(|_| pass(&mut world, 1));
    assert_eq!((have(&world, "c"), world.decide().progress[0].clone()), (2, Progress::Updated));
}
