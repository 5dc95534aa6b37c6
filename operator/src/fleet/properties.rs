//! Properties of all decisions, tested with random fleets, failures, recoveries, edits, spec
//! changes and lost writes.

use std::collections::{BTreeMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_shared::api::fleet::{ApprovalPolicy, OnFailure, Rollout, Stage, StageState};
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::version::Version;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::decision::{Decision, Input};
use super::member::{Applied, Change, Child, Contents, Member, Progress, Wanted, Write};

/// Revisions `a` to `d`, with contents and versions; `c` does not change the clusters with an even
/// number, compared with `a`.
struct Revisions {
    versions: Vec<Version>,
    /// Clusters with other labels, and so with other contents.
    relabeled: HashSet<String>,
}

impl Contents for Revisions {
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Wanted> {
        let is_even = cluster.name.parse::<u32>().is_ok_and(|number| number % 2 == 0);
        let (content, version) = match (revision, component) {
            ("a", _) => (1, "1.20"),
            ("b", _) => (2, "1.23"),
            ("c", Component::Serving) if is_even => (1, "1.20"),
            ("c", Component::Serving) => (3, "1.20"),
            ("d", Component::Serving) => (4, "1.21.3"),
            _ => return None,
        };
        let other = if self.relabeled.contains(&cluster.name) { 100 } else { 0 };
        Some(Wanted { content: content + other, version: Some(version.to_owned()) })
    }

    fn knows(&self, _: &str) -> bool {
        true
    }

    fn versions(&self, _: Component) -> &[Version] {
        &self.versions
    }
}

/// Something that happens to a fleet.
#[derive(Clone, Debug)]
pub enum Action {
    /// Time passes, and resources become Ready.
    Tick(i64),
    /// The spec gets another revision.
    Edit(&'static str),
    /// A cluster becomes unavailable, or available.
    Outage(Index, bool),
    /// A revision can't be installed on a cluster, or can.
    Break(Index, bool),
    /// Somebody changes a resource.
    Drift(Index),
    /// The labels of a cluster change.
    Relabel(Index),
    /// A cluster joins.
    Join(usize),
    /// A stage is approved.
    Approve,
    Pause(bool),
    /// The operator stops after some writes.
    Crash(Index),
}

/// A fleet and its clusters.
pub struct World {
    stages: Stages,
    pub members: Vec<Member>,
    broken: HashSet<String>,
    contents: Revisions,
    pub current: Option<String>,
    update: &'static str,
    failed: HashSet<&'static str>,
    on_failure: OnFailure,
    paused: bool,
    approvals: HashSet<(String, String)>,
    now: Timestamp,
}

impl World {
    /// A fleet with `stages` (maximum of concurrent updates and of failures, seconds, whether an
    /// approval is needed) and a cluster in each of the stages `clusters`.
    pub fn new(stages: &[(usize, usize, i32, bool)], clusters: &[usize], on_failure: OnFailure) -> Self {
        let stage =
            |(number, (concurrent, failures, min_ready, approval)): (usize, &(usize, usize, i32, bool))| Stage {
                name: number.to_string(),
                cluster_selector: Some(LabelSelector {
                    match_labels: Some(BTreeMap::from([("stage".to_owned(), number.to_string())])),
                    ..LabelSelector::default()
                }),
                max_concurrent: i32::try_from(*concurrent).ok().map(IntOrString::Int),
                max_failures: i32::try_from(*failures).ok().map(IntOrString::Int),
                min_ready_seconds: Some(*min_ready),
                progress_deadline_seconds: Some(100),
                approval: approval.then_some(ApprovalPolicy::Required),
            };
        let rollout = Rollout { stages: stages.iter().enumerate().map(stage).collect(), ..Rollout::default() };
        let versions = ["1.20.3", "1.21.3", "1.22.1", "1.23.0"].map(|v| v.parse().unwrap()).to_vec();
        let mut world = Self {
            stages: Stages::of(&rollout).unwrap(),
            members: Vec::new(),
            broken: HashSet::new(),
            contents: Revisions { versions, relabeled: HashSet::new() },
            current: None,
            update: "a",
            failed: HashSet::new(),
            on_failure,
            paused: false,
            approvals: HashSet::new(),
            now: Timestamp::UNIX_EPOCH,
        };
        clusters.iter().for_each(|stage| world.join(*stage));
        world
    }

    fn join(&mut self, stage: usize) {
        let child = |component| Child { component, conflict: None, applied: None };
        self.members.push(Member {
            cluster: ClusterProfileReference { name: self.members.len().to_string(), namespace: "n".to_owned() },
            stage: stage % self.stages.settings().len(),
            unavailable: None,
            refused: None,
            children: Component::ALL.map(child).to_vec(),
        });
    }

    /// The next decision.
    pub fn decide(&self) -> Decision {
        Input {
            stages: &self.stages,
            members: &self.members,
            uncounted: &BTreeMap::new(),
            current: self.current.as_deref(),
            update: self.update,
            has_failed: self.failed.contains(self.update),
            on_failure: self.on_failure,
            is_paused: self.paused,
            approvals: &self.approvals,
            contents: &self.contents,
            now: self.now,
        }
        .decide()
    }

    fn apply(&mut self, write: &Write) {
        let now = self.now;
        let member = self.members.iter_mut().find(|member| member.cluster == write.cluster).unwrap();
        let cluster = member.cluster.clone();
        let child = member.children.iter_mut().find(|child| child.component == write.component).unwrap();
        match &write.change {
            Change::Delete => child.applied = None,
            Change::Repair { .. } => child.applied.as_mut().unwrap().has_drifted = false,
            Change::Apply { revision, previous, version } => {
                let installed = child.applied.as_ref().and_then(|applied| applied.installed.clone());
                let target = Version::resolve(version.as_deref(), &self.contents.versions).unwrap();
                assert!(
                    target.may_follow(installed.as_ref(), "").is_ok(),
                    "{installed:?} to {target}: a minor is skipped"
                );
                let wanted = self.contents.of(revision, &cluster, write.component).unwrap();
                child.applied = Some(Applied {
                    revision: revision.clone(),
                    previous: previous.clone(),
                    since: now,
                    content: wanted.content,
                    version: version.clone(),
                    installed,
                    ready: Err(("Installing".to_owned(), String::new())),
                    has_drifted: false,
                    is_terminating: false,
                });
            }
        }
    }

    /// Applies the decision: all its writes, or the first ones.
    fn advance(&mut self, limit: usize) -> usize {
        let decision = self.decide();
        self.check(&decision);
        let writes: Vec<_> = decision.writes.iter().take(limit).cloned().collect();
        writes.iter().for_each(|write| self.apply(write));
        if writes.len() == decision.writes.len() {
            if decision.mark_failed {
                self.failed.insert(self.update);
            }
            if decision.is_complete {
                self.current = Some(self.update.to_owned());
            }
        }
        writes.len() + usize::from(decision.mark_failed || decision.is_complete)
    }

    /// Members whose update `decision` starts.
    fn started<'a>(&'a self, decision: &'a Decision) -> impl Iterator<Item = &'a Member> {
        let starts = |member: &&Member| {
            let applies = |write: &Write| {
                write.cluster == member.cluster
                    && matches!(&write.change, Change::Apply { revision, .. } if *revision == self.update)
            };
            !member.is_started(self.update, self.current.as_deref(), &self.contents)
                && decision.writes.iter().any(applies)
        };
        self.members.iter().filter(starts)
    }

    fn check(&self, decision: &Decision) {
        let is_rolling_out = self.current.as_deref() != Some(self.update);
        for (index, stage) in self.stages.settings().iter().enumerate() {
            let report = &decision.stages[index];
            let started = self.started(decision).filter(|member| member.stage == index).count();
            if started == 0 {
                continue;
            }
            assert!(report.updating + started <= stage.concurrency(report.clusters), "too many at the same time");
            assert!(!self.paused && !self.failed.contains(self.update), "started although paused or failed");
            if is_rolling_out {
                assert!(report.failed <= stage.failures(report.clusters), "started after too many failures");
            }
            let approved = self.approvals.contains(&(self.update.to_owned(), stage.name.clone()));
            assert!(!stage.needs_approval || approved, "started without approval");
            let earlier = decision.stages[..index].iter().all(|earlier| earlier.pending + earlier.updating == 0);
            assert!(earlier, "a later stage started before an earlier one was done");
        }
    }

    /// Resources become Ready, where nothing is broken.
    pub fn tick(&mut self, seconds: i64) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
        for member in &mut self.members {
            let works = member.unavailable.is_none() && !self.broken.contains(&member.cluster.name);
            for applied in member.children.iter_mut().filter_map(|child| child.applied.as_mut()) {
                if works && applied.ready.is_err() {
                    applied.ready = Ok(self.now);
                    applied.installed = Version::resolve(applied.version.as_deref(), &self.contents.versions).ok();
                }
            }
        }
    }

    /// Does `action`.
    pub fn act(&mut self, action: &Action) {
        match action {
            Action::Tick(seconds) => self.tick(*seconds),
            Action::Edit(revision) => {
                self.update = revision;
                self.failed.clear();
            }
            Action::Outage(index, outage) => {
                let member = index.index(self.members.len());
                self.members[member].unavailable = outage.then(|| "unreachable".to_owned());
            }
            Action::Break(index, broken) => {
                let name = index.index(self.members.len()).to_string();
                if *broken {
                    self.broken.insert(name)
                } else {
                    self.broken.remove(&name)
                };
            }
            Action::Drift(index) => {
                let member = index.index(self.members.len());
                self.members[member]
                    .children
                    .iter_mut()
                    .filter_map(|c| c.applied.as_mut())
                    .for_each(|a| a.has_drifted = true);
            }
            Action::Relabel(index) => {
                let name = index.index(self.members.len()).to_string();
                if !self.contents.relabeled.remove(&name) {
                    self.contents.relabeled.insert(name);
                }
            }
            Action::Join(stage) => self.join(*stage),
            Action::Approve => {
                let names: Vec<_> = self.stages.settings().iter().map(|stage| stage.name.clone()).collect();
                self.approvals.extend(names.into_iter().map(|name| (self.update.to_owned(), name)));
            }
            Action::Pause(paused) => self.paused = *paused,
            Action::Crash(index) => drop(self.advance(index.index(4))),
        }
    }

    /// Decides until nothing is left to do at this time.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10, "the same is decided again and again");
            if self.advance(usize::MAX) == 0 {
                break;
            }
        }
    }
}

fn action() -> impl Strategy<Value = Action> {
    let index = any::<Index>;
    prop_oneof![
        6 => (1i64..120).prop_map(Action::Tick),
        // The clock is set back.
        1 => Just(Action::Tick(-3600)),
        2 => select(vec!["a", "b", "c", "d"]).prop_map(Action::Edit),
        2 => (index(), any::<bool>()).prop_map(|(index, outage)| Action::Outage(index, outage)),
        2 => (index(), any::<bool>()).prop_map(|(index, broken)| Action::Break(index, broken)),
        1 => index().prop_map(Action::Drift),
        1 => index().prop_map(Action::Relabel),
        1 => (0usize..4).prop_map(Action::Join),
        1 => Just(Action::Approve),
        1 => any::<bool>().prop_map(Action::Pause),
        2 => index().prop_map(Action::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn limits_hold_and_rollouts_converge(
        stages in prop::collection::vec((1usize..4, 0usize..2, 0i32..30, any::<bool>()), 0..3),
        clusters in prop::collection::vec(0usize..4, 1..9),
        rollback in any::<bool>(),
        actions in prop::collection::vec(action(), 0..40),
    ) {
        let mut world = World::new(&stages, &clusters, if rollback { OnFailure::Rollback } else { OnFailure::Pause });
        for action in &actions {
            world.act(action);
            world.settle();
        }
        // All failures end.
        world.paused = false;
        world.broken.clear();
        world.members.iter_mut().for_each(|member| member.unavailable = None);
        for _ in 0..400 {
            world.act(&Action::Approve);
            world.settle();
            world.tick(60);
        }
        world.settle();
        let decision = world.decide();
        prop_assert!(decision.writes.is_empty());
        if world.failed.contains(world.update) {
            let current = world.current.clone();
            for member in world.members.iter().filter(|_| current.is_some()) {
                prop_assert!(!member.is_touched(world.update, current.as_deref(), &world.contents)
                        || current.as_deref() == Some(world.update), "{member:?} was not returned");
            }
        } else {
            prop_assert_eq!(world.current.as_deref(), Some(world.update));
            prop_assert!(decision.progress.iter().all(|progress| *progress == Progress::Updated), "{:?}", decision.progress);
            prop_assert!(decision.stages.iter().all(|stage| stage.state == StageState::Complete));
            prop_assert!(world.members.iter().all(|member| member.has(world.update, &world.contents)));
        }
    }
}
