//! How often a decision asks for the contents of revisions. It visits each cluster of the fleet,
//! also those of which nothing changed, so this is what one of them costs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use knative_operator_shared::api::fleet::OnFailure;
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::version::Version;

use super::adversary::Action;
use super::decision::Input;
use super::member::{Contents, Wanted};
use super::model::{Revisions, World};
use super::progress::Progress;

/// Number of clusters. Each has two resources.
const CLUSTERS: usize = 100;

/// The contents of a world, and how often they were asked for.
struct Counted<'a> {
    contents: &'a Revisions,
    asked: Cell<usize>,
}

impl Contents for Counted<'_> {
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Arc<Wanted>> {
        self.asked.set(self.asked.get() + 1);
        self.contents.of(revision, cluster, component)
    }

    fn knows(&self, revision: &str) -> bool {
        self.contents.knows(revision)
    }

    fn is_known(&self, revision: &str, cluster: &ClusterProfileReference) -> bool {
        self.contents.is_known(revision, cluster)
    }

    fn versions(&self, component: Component) -> &[Version] {
        self.contents.versions(component)
    }
}

/// The number of questions for each cluster. All clusters have the progress `expected`.
fn questions(world: &World, expected: fn(&Progress) -> bool) -> usize {
    let (members, uncounted) = (world.observed(), BTreeMap::new());
    let contents = Counted { contents: &world.contents, asked: Cell::new(0) };
    let input = Input {
        stages: &world.stages,
        members: &members,
        had_clusters: &world.had_clusters,
        uncounted: &uncounted,
        current: world.current.as_deref(),
        update: world.update,
        has_failed: false,
        generation: world.generation,
        on_failure: world.on_failure,
        is_paused: world.paused,
        pause: "",
        approvals: &world.approvals,
        contents: &contents,
        now: Timestamp::UNIX_EPOCH,
        installable: OnceLock::new(),
    };
    let decision = input.decide();
    assert!(decision.progress.len() == CLUSTERS && decision.progress.iter().all(expected), "{:?}", decision.progress);
    contents.asked.get().div_ceil(CLUSTERS)
}

#[test]
fn clusters_that_wait_or_are_updated_cost_least() {
    let mut world = World::new(&[(CLUSTERS, 0, 0, false)], &[0; CLUSTERS], OnFailure::Pause);
    world.settle();
    world.tick(1);
    world.settle();
    assert_eq!(world.current.as_deref(), Some("a"));
    // Whether each of its resources has the content.
    assert_eq!(questions(&world, |progress| *progress == Progress::Updated), 2);
    world.act(&Action::Pause(true));
    world.act(&Action::Edit("b"));
    // Whether the first one has it.
    assert_eq!(questions(&world, |progress| *progress == Progress::Pending), 1);
    // As many as are updated at the same time cost more.
    world.act(&Action::Pause(false));
    world.settle();
    let in_progress = questions(&world, |progress| matches!(progress, Progress::Updating(_)));
    assert!(in_progress <= 30, "{in_progress} for each cluster");
}
