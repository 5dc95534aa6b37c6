//! A fleet, its clusters and an adversary, for tests of all decisions. What is true is recorded
//! beside what the operator sees, and [`super::invariants`] compares decisions with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_shared::api::fleet::{ApprovalPolicy, OnFailure, Rollout, Stage};
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::version::Version;

use super::decision::{Decision, Input};
use super::member::{Applied, Change, Child, Contents, Member, Wanted, Write};
use super::outcome::Outcome;
use super::template::content_with;
use super::timer::{Elapsed, Timers};
use super::truth::{DEADLINE, Truth};

/// Revisions `a` to `e`, with contents and versions. Compared with `a`, `c` does not change the
/// clusters with an even number; `d` and `e` drop a component, `e` changes nothing else.
#[derive(Clone, Debug)]
pub struct Revisions {
    versions: Vec<Version>,
    /// Clusters with other labels, and so with other contents.
    relabeled: BTreeSet<String>,
}

impl Contents for Revisions {
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Wanted> {
        let is_even = cluster.name.parse::<u32>().is_ok_and(|number| number % 2 == 0);
        let (content, version) = match (revision, component) {
            ("a", _) => (1, "1.20"),
            ("b", _) => (2, "1.23"),
            ("c", Component::Serving) if !is_even => (3, "1.20"),
            ("c", _) => (1, "1.20"),
            ("d", Component::Serving) => (4, "1.21.3"),
            ("e", Component::Serving) => (1, "1.20"),
            _ => return None,
        };
        let other = if self.relabeled.contains(&cluster.name) { 100 } else { 0 };
        let all = Component::ALL.into_iter().filter(|c| *c == Component::Serving || !["d", "e"].contains(&revision));
        Some(Wanted { content: content_with((content + other) << 8, all), version: Some(version.to_owned()) })
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
    /// The clock of the replica is set.
    SetClock(i64),
    /// The spec gets another revision.
    Edit(&'static str),
    /// A cluster becomes unavailable, or available.
    Outage(usize, bool),
    /// The hub can't reach a cluster because of a fault of its own, or can.
    HubFault(usize, bool),
    /// A revision can't be installed on a cluster, or can.
    Break(usize, bool),
    /// A resource is not Ready for a moment, such as when a node is drained.
    Blip(usize),
    /// Somebody changes a resource.
    Drift(usize),
    /// The labels of a cluster change.
    Relabel(usize),
    /// A cluster joins.
    Join(usize),
    /// A stage is approved.
    Approve,
    Pause(bool),
    /// The operator stops after some writes, and another replica continues.
    Crash(usize),
}

/// A fleet and its clusters.
#[derive(Clone, Debug)]
pub struct World {
    pub stages: Stages,
    pub members: Vec<Member>,
    pub truth: Vec<Truth>,
    pub broken: BTreeSet<usize>,
    /// Clusters where finalizers hold deletions.
    pub held: BTreeSet<usize>,
    pub contents: Revisions,
    pub current: Option<String>,
    pub update: &'static str,
    pub failed: BTreeSet<&'static str>,
    on_failure: OnFailure,
    pub paused: bool,
    pub approvals: HashSet<(String, String)>,
    pub generation: i64,
    timers: RefCell<Timers>,
    /// True time since the start.
    pub elapsed: SignedDuration,
    /// Difference of the clock of the replica.
    skew: SignedDuration,
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
                progress_deadline_seconds: i32::try_from(DEADLINE).ok(),
                approval: approval.then_some(ApprovalPolicy::Required),
            };
        let rollout = Rollout { stages: stages.iter().enumerate().map(stage).collect(), ..Rollout::default() };
        let versions = ["1.20.3", "1.21.3", "1.22.1", "1.23.0"].map(|v| v.parse().unwrap()).to_vec();
        let mut world = Self {
            stages: Stages::of(&rollout).unwrap(),
            members: Vec::new(),
            truth: Vec::new(),
            broken: BTreeSet::new(),
            held: BTreeSet::new(),
            contents: Revisions { versions, relabeled: BTreeSet::new() },
            current: None,
            update: "a",
            failed: BTreeSet::new(),
            on_failure,
            paused: false,
            approvals: HashSet::new(),
            generation: 1,
            timers: RefCell::default(),
            elapsed: SignedDuration::ZERO,
            skew: SignedDuration::ZERO,
        };
        clusters.iter().for_each(|stage| world.join(*stage));
        world
    }

    fn join(&mut self, stage: usize) {
        let child = |component| Child { component, conflict: None, applied: None };
        self.truth.push(Truth::default());
        self.members.push(Member {
            cluster: ClusterProfileReference { name: self.members.len().to_string(), namespace: "n".to_owned() },
            stage: stage % self.stages.settings().len(),
            unavailable: None,
            hub_fault: None,
            elapsed: Elapsed::default(),
            refused: None,
            children: Component::ALL.map(child).to_vec(),
        });
    }

    /// The members as the operator observes them.
    pub fn observed(&self) -> Vec<Member> {
        let mut members = self.members.clone();
        for member in &mut members {
            let revision =
                member.other_in_progress(self.update, self.current.as_deref(), &self.contents).unwrap_or(self.update);
            let (phase, written) = (member.phase(revision, &self.contents), member.written(self.generation));
            member.elapsed = self.timers.borrow_mut().observe(&member.cluster, written, phase, self.elapsed);
        }
        members
    }

    /// The next decision.
    pub fn decide(&self) -> Decision {
        Input {
            stages: &self.stages,
            members: &self.observed(),
            uncounted: &BTreeMap::new(),
            current: self.current.as_deref(),
            update: self.update,
            has_failed: self.failed.contains(self.update),
            generation: self.generation,
            on_failure: self.on_failure,
            is_paused: self.paused,
            approvals: &self.approvals,
            contents: &self.contents,
            now: self.now(),
        }
        .decide()
    }

    /// The time by the clock of the replica.
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap() + self.elapsed + self.skew
    }

    fn apply(&mut self, write: &Write) {
        let now = self.now();
        let index = self.members.iter().position(|member| member.cluster == write.cluster).unwrap();
        let cluster = write.cluster.clone();
        if !matches!(write.change, Change::Record(_) | Change::Repair { .. }) {
            let soak = self.stages.settings()[self.members[index].stage].min_ready;
            self.truth[index].write(&self.members[index], &write.change, soak, self.elapsed);
        }
        let child = self.members[index].children.iter_mut().find(|child| child.component == write.component).unwrap();
        match &write.change {
            Change::Delete => {
                let applied = child.applied.as_mut().unwrap();
                (applied.is_terminating, applied.ready) = (true, Err(("Deleting".to_owned(), String::new())));
            }
            Change::Repair { .. } => child.applied.as_mut().unwrap().has_drifted = false,
            Change::Record(outcome) => child.applied.as_mut().unwrap().outcome = Some(outcome.clone()),
            Change::Apply { revision, previous, version, was_ready } => {
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
                    outcome: Some(Outcome::Progressing { was_ready: *was_ready }),
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
        self.observe_truth();
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

    /// Resources become Ready, where nothing is broken. Their times are those of other clocks.
    pub fn tick(&mut self, seconds: i64) {
        self.elapsed += SignedDuration::from_secs(seconds);
        // Rounded up, or by another replica whose clock is ahead.
        let recorded = self.now() + SignedDuration::from_secs(1);
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let works = member.unavailable.is_none() && !self.broken.contains(&index);
            for child in member.children.iter_mut().filter(|_| works && !self.held.contains(&index)) {
                child.applied = child.applied.take_if(|applied| !applied.is_terminating);
            }
            for applied in member.children.iter_mut().filter_map(|child| child.applied.as_mut()) {
                if works && applied.ready.is_err() {
                    applied.ready = Ok(recorded);
                    applied.installed = Version::resolve(applied.version.as_deref(), &self.contents.versions).ok();
                }
            }
        }
        self.observe_truth();
    }

    fn not_ready(&mut self, index: usize) {
        let children = self.members[index].children.iter_mut().filter_map(|child| child.applied.as_mut());
        children.for_each(|applied| applied.ready = Err(("NotReady".to_owned(), String::new())));
        self.observe_truth();
    }

    /// Does `action`.
    pub fn act(&mut self, action: &Action) {
        let count = self.members.len();
        match action {
            Action::Tick(seconds) => self.tick(*seconds),
            Action::SetClock(seconds) => self.skew = SignedDuration::from_secs(*seconds),
            Action::Edit(revision) => {
                self.update = revision;
                self.generation += 1;
                self.failed.clear();
                self.truth.iter_mut().for_each(|truth| truth.forgive(self.elapsed));
            }
            Action::Outage(index, outage) => {
                self.members[index % count].unavailable = outage.then(|| "unreachable".to_owned());
                self.observe_truth();
            }
            Action::HubFault(index, fault) => {
                self.members[index % count].hub_fault = fault.then(|| "no credential".to_owned());
                self.observe_truth();
            }
            Action::Break(index, true) => {
                self.broken.insert(index % count);
                self.not_ready(index % count);
            }
            Action::Break(index, false) => drop(self.broken.remove(&(index % count))),
            Action::Blip(index) => self.not_ready(index % count),
            Action::Drift(index) => {
                let children = self.members[index % count].children.iter_mut();
                children.filter_map(|c| c.applied.as_mut()).for_each(|a| a.has_drifted = true);
            }
            Action::Relabel(index) => {
                let name = (index % count).to_string();
                if !self.contents.relabeled.remove(&name) {
                    self.contents.relabeled.insert(name);
                }
                self.truth[index % count].supersede();
                self.observe_truth();
            }
            Action::Join(stage) => self.join(*stage),
            Action::Approve => {
                let names: Vec<_> = self.stages.settings().iter().map(|stage| stage.name.clone()).collect();
                self.approvals.extend(names.into_iter().map(|name| (self.update.to_owned(), name)));
            }
            Action::Pause(paused) if self.paused == *paused => {}
            Action::Pause(paused) => {
                self.generation += 1;
                self.truth.iter_mut().for_each(|truth| truth.forgive(self.elapsed));
                self.paused = *paused;
            }
            Action::Crash(limit) => {
                self.advance(*limit);
                self.timers = RefCell::default();
                self.truth.iter_mut().for_each(|truth| truth.restart(self.elapsed));
            }
        }
    }

    /// Decides until nothing is left to do at this time.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 12, "the same is decided again and again: {:?}", self.decide());
            if self.advance(usize::MAX) == 0 {
                break;
            }
        }
    }
}
