//! A fleet and its clusters, for tests of all decisions. What is true is recorded
//! beside what the operator sees, and [`super::invariants`] compares decisions with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_shared::api::fleet::{
    ApprovalPolicy, KnativeFleetStatus, OnFailure, Rollout, Stage, StageState, StageStatus,
};
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::stage::{REST, Stages};
use knative_operator_shared::version::Version;

use super::absence::Gone;
use super::approval::Approved;
use super::backup::{Backup, FORMER, Installed};
use super::decision::{Decision, Input};
use super::gates::Gates;
use super::member::{Applied, Change, Child, Contents, Member, Reported, Wanted, Write};
use super::removal::{Leavers, RemovalDecision};
use super::status::status;
use super::template::content_with;
use super::timer::Timers;
use super::truth::{DEADLINE, Truth};

static NOBODY: BTreeMap<ClusterProfileReference, (&str, String)> = BTreeMap::new();

/// Revisions `a` to `f`, with contents and versions. Compared with `a`, `c` does not change the
/// clusters with an even number; `d` and `e` drop a component, `e` changes nothing else; `f` has
/// another patch, and is what `a` means with a newer release bundle.
#[derive(Clone, Debug)]
pub struct Revisions {
    versions: Vec<Version>,
    /// Clusters with other labels, and so with other contents.
    pub relabeled: BTreeSet<String>,
    /// Revisions, and clusters whose content in them is not known.
    pub unknown: BTreeSet<(&'static str, String)>,
}

impl Contents for Revisions {
    fn of(&self, revision: &str, cluster: &ClusterProfileReference, component: Component) -> Option<Arc<Wanted>> {
        let is_even = cluster.name.parse::<u32>().is_ok_and(|number| number % 2 == 0);
        let (content, version) = match (revision, component) {
            ("a", _) => (1, "1.20.3"),
            ("b", _) => (2, "1.23"),
            ("c", Component::Serving) if !is_even => (3, "1.20.3"),
            ("c", _) => (1, "1.20.3"),
            ("d", Component::Serving) => (4, "1.21.3"),
            ("e", Component::Serving) => (1, "1.20.3"),
            ("f", _) => (1, "1.20.4"),
            _ => return None,
        };
        let other = if self.relabeled.contains(&cluster.name) { 100 } else { 0 };
        let all = Component::ALL.into_iter().filter(|c| *c == Component::Serving || !["d", "e"].contains(&revision));
        let content = content_with((content + other) << 8, all);
        Some(Arc::new(Wanted { content, version: Some(version.to_owned()) }))
    }

    fn knows(&self, revision: &str) -> bool {
        revision != FORMER
    }

    fn is_known(&self, revision: &str, cluster: &ClusterProfileReference) -> bool {
        !self.unknown.iter().any(|(of, name)| (*of, name) == (revision, &cluster.name))
    }

    fn versions(&self, _: Component) -> &[Version] {
        &self.versions
    }
}

/// A fleet and its clusters.
#[derive(Clone, Debug)]
pub struct World {
    rollout: Rollout,
    pub stages: Stages,
    pub members: Vec<Member>,
    pub truth: Vec<Truth>,
    pub broken: BTreeSet<usize>,
    /// What the gates of clusters say, if they are measured and don't pass.
    pub gates: BTreeMap<usize, Gates>,
    /// Clusters where finalizers hold deletions.
    pub hanging: BTreeSet<usize>,
    /// Clusters of whose resources the operator reports no state.
    pub silent: BTreeSet<usize>,
    pub contents: Revisions,
    pub current: Option<String>,
    pub update: &'static str,
    /// The patch in the release bundle of what revision `a` asks for.
    pub bundle: &'static str,
    pub failed: BTreeSet<&'static str>,
    pub on_failure: OnFailure,
    pub paused: bool,
    pub approvals: Approved,
    /// The generation of the fleet since which it rolls this out.
    pub generation: i64,
    /// Clusters that left, or whose ClusterProfile vanished.
    pub gone: BTreeMap<usize, Gone>,
    /// Stages that had clusters in the rollout, and were not complete.
    pub had_clusters: BTreeSet<String>,
    pub backup: Option<Rc<Backup>>,
    /// Versions of clusters that are newer than what the hub knows.
    pub ahead: Installed,
    /// Clusters whose resources were restored and have no status yet.
    pub unreported: BTreeSet<usize>,
    pub timers: RefCell<Timers>,
    /// True time since the start.
    pub elapsed: SignedDuration,
    /// Difference of the clock of the replica.
    pub skew: SignedDuration,
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
                ..Stage::default()
            };
        // The last stage, of the clusters that no other selects, has the same deadline.
        let rest = Stage {
            name: REST.to_owned(),
            progress_deadline_seconds: i32::try_from(DEADLINE).ok(),
            ..Stage::default()
        };
        let stages = stages.iter().enumerate().map(stage).chain([rest]).collect();
        let rollout = Rollout { stages, ..Rollout::default() };
        let versions = ["1.20.3", "1.20.4", "1.21.3", "1.22.1", "1.23.0"].map(|v| v.parse().unwrap()).to_vec();
        let mut world = Self {
            stages: Stages::of(&rollout).unwrap(),
            rollout,
            members: Vec::new(),
            truth: Vec::new(),
            broken: BTreeSet::new(),
            gates: BTreeMap::new(),
            hanging: BTreeSet::new(),
            silent: BTreeSet::new(),
            contents: Revisions { versions, relabeled: BTreeSet::new(), unknown: BTreeSet::new() },
            current: None,
            update: "a",
            bundle: "1.20.3",
            failed: BTreeSet::new(),
            on_failure,
            paused: false,
            approvals: Approved::new(),
            generation: 1,
            gone: BTreeMap::new(),
            had_clusters: BTreeSet::new(),
            backup: None,
            ahead: BTreeMap::new(),
            unreported: BTreeSet::new(),
            timers: RefCell::default(),
            elapsed: SignedDuration::ZERO,
            skew: SignedDuration::ZERO,
        };
        clusters.iter().for_each(|stage| world.join(*stage));
        world
    }

    /// The clusters of the stage `index` soak for `seconds`.
    pub fn with_soak(mut self, index: usize, seconds: i32) -> Self {
        if let Some(stage) = self.rollout.stages.get_mut(index) {
            stage.soak_seconds = Some(seconds);
            self.stages = Stages::of(&self.rollout).unwrap();
        }
        self
    }

    pub fn join(&mut self, stage: usize) {
        let child = |component| Child { component, conflict: None, applied: None };
        self.truth.push(Truth::default());
        let name = self.members.len().to_string();
        let cluster = ClusterProfileReference { name, namespace: "n".to_owned() };
        let stage = stage % self.stages.settings().len();
        self.members.push(Member { stage, ..Member::new(cluster, Component::ALL.map(child).to_vec()) });
    }

    /// The members as the operator observes them.
    pub fn observed(&self) -> Vec<Member> {
        let mut members = self.members.clone();
        let current = self.current.as_deref();
        for (index, member) in members.iter_mut().enumerate() {
            member.gone = self.gone.get(&index).copied();
            member.gates = self.gates.get(&index).cloned().unwrap_or_default();
            if member.gone == Some(Gone::Vanished) {
                // So are its labels.
                member.stage = self.stages.settings().len() - 1;
            }
            member.keep_stage(&self.stages, self.update, current, &self.contents);
        }
        members.retain(|member| member.counts(self.update, current, &self.contents));
        let here = members.iter().filter(|member| member.gone.is_none()).map(|member| member.cluster.clone());
        let here: BTreeSet<_> = here.collect();
        self.timers.borrow_mut().retain(|cluster| here.contains(cluster));
        for member in members.iter_mut().filter(|member| member.gone.is_none()) {
            let revision = member.other_in_progress(self.update, current, &self.contents).unwrap_or(self.update);
            let (phase, written) = (member.phase(revision, &self.contents), member.written(self.generation));
            member.elapsed = self.timers.borrow_mut().observe(&member.cluster, written, phase, self.elapsed);
        }
        members
    }

    /// The next decision.
    pub fn decide(&self) -> Decision {
        self.decide_with_measured().0
    }

    /// The next decision, and the clusters whose gates are measured.
    pub fn decide_with_measured(&self) -> (Decision, Vec<ClusterProfileReference>) {
        let members = self.observed();
        let input = self.input(&members);
        let decision = input.decide();
        let all = members.iter().zip(&decision.progress);
        let measured = all.filter(|(member, progress)| input.measures_gates(member, progress));
        let measured = measured.map(|(member, _)| member.cluster.clone()).collect();
        (decision, measured)
    }

    /// The earlier revisions that clusters have to get, and whose content is not known.
    pub fn unknown_revisions(&self) -> Vec<Option<String>> {
        let members = self.observed();
        let input = self.input(&members);
        members.iter().map(|member| input.unknown_revision(member).map(str::to_owned)).collect()
    }

    /// The status after `old`. No cluster leaves.
    pub fn status_after(&self, old: &KnativeFleetStatus) -> KnativeFleetStatus {
        let members = self.observed();
        let input = self.input(&members);
        let removal = RemovalDecision::default();
        let leavers = Leavers { clusters: &[], decision: &removal };
        status(old, Some(self.generation), &input, &input.decide(), &leavers)
    }

    /// The stages in the status after `old`.
    pub fn stages_after(&self, old: &KnativeFleetStatus) -> Vec<StageStatus> {
        self.status_after(old).stages
    }

    /// What a decision about `members` depends on.
    fn input<'a>(&'a self, members: &'a [Member]) -> Input<'a, Revisions> {
        Input {
            stages: &self.stages,
            members,
            had_clusters: &self.had_clusters,
            uncounted: &NOBODY,
            current: self.current.as_deref(),
            update: self.update,
            has_failed: self.failed.contains(self.update),
            generation: self.generation,
            on_failure: self.on_failure,
            is_paused: self.paused,
            pause: "",
            approvals: &self.approvals,
            contents: &self.contents,
            now: self.now(),
            installable: OnceLock::new(),
        }
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
            let (stage, is_return) = (self.stage(index), self.is_return(index, &write.change));
            if matches!(write.change, Change::Apply { .. }) {
                self.truth[index].returns = is_return.then_some(self.generation);
            }
            let stage = (stage, self.stages.settings()[stage].soak);
            let is_ready = self.members[index].is_new() || self.is_ready(index);
            self.truth[index].write((&self.members[index], is_ready), &write.change, stage, self.elapsed);
        }
        let observed = self.observed().into_iter().find(|member| member.cluster == write.cluster);
        let stage = observed.map(|one| self.stages.settings()[one.stage].name.clone());
        let child = self.members[index].children.iter_mut().find(|child| child.component == write.component).unwrap();
        match &write.change {
            Change::Delete => {
                let applied = child.applied.as_mut().unwrap();
                (applied.is_terminating, applied.ready) = (true, Err(("Deleting".to_owned(), String::new())));
                applied.reported = Reported::Earlier;
            }
            Change::Repair { .. } => child.applied.as_mut().unwrap().drift(false),
            Change::Record(outcome) => child.applied.as_mut().unwrap().outcome = Some(outcome.clone()),
            Change::Apply { revision, previous, version, outcome } => {
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
                    stage,
                    outcome: Some(outcome.clone()),
                    since: now,
                    content: wanted.content,
                    version: version.clone(),
                    installed,
                    ready: Err(("Installing".to_owned(), String::new())),
                    has_drifted: false,
                    is_terminating: false,
                    reported: Reported::after_write(child.applied.as_ref()),
                    skipped: None,
                });
            }
        }
    }

    /// Applies the decision: all its writes, or the first ones.
    pub fn advance(&mut self, limit: usize) -> usize {
        self.follow_bundle();
        let (decision, measured) = self.decide_with_measured();
        self.check(&decision);
        measured.iter().for_each(|cluster| self.timers.borrow_mut().suspend(cluster));
        let stages = self.stages.settings().iter().zip(&decision.stages);
        let unfinished = stages.filter(|(_, r)| r.state != StageState::Complete && (r.clusters > 0 || r.is_lost));
        self.had_clusters = unfinished.map(|(settings, _)| settings.name.clone()).collect();
        let writes: Vec<_> = decision.writes.iter().take(limit).cloned().collect();
        writes.iter().for_each(|write| self.apply(write));
        self.observe_truth();
        if writes.len() == decision.writes.len() {
            if decision.mark_failed {
                self.failed.insert(self.update);
            }
            if decision.is_complete {
                self.current = Some(self.update.to_owned());
                self.truth.iter_mut().for_each(|truth| truth.begun.clear());
            }
        }
        writes.len() + usize::from(decision.mark_failed || decision.is_complete)
    }

    /// Resources become Ready, where nothing is broken. Their times are those of other clocks.
    pub fn tick(&mut self, seconds: i64) {
        self.look();
        self.elapsed += SignedDuration::from_secs(seconds);
        let recorded = self.now() + SignedDuration::from_secs(1); // Rounded up, or of a clock that is ahead.
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let is_silent = self.silent.contains(&index);
            let works = member.unavailable.is_none() && !self.broken.contains(&index) && !is_silent;
            for child in member.children.iter_mut().filter(|_| works && !self.hanging.contains(&index)) {
                child.applied = child.applied.take_if(|applied| !applied.is_terminating);
            }
            let is_seen = member.unavailable.is_none() && member.hub_fault.is_none() && !is_silent;
            self.unreported.retain(|other| *other != index || !is_seen);
            for number in 0..self.members[index].children.len() {
                let is_ahead = self.is_ahead(index, number);
                let child = &mut self.members[index].children[number];
                let (key, Some(applied)) = ((index, child.component), &mut child.applied) else { continue };
                if is_seen && applied.reported == Reported::Nothing {
                    applied.reported = Reported::Current;
                }
                if works && !is_ahead && applied.ready.is_err() {
                    applied.ready = Ok(recorded);
                    applied.installed = Version::resolve(applied.version.as_deref(), &self.contents.versions).ok();
                    self.ahead.remove(&key);
                }
                // The cluster has a record of it.
                let recorded = || self.ahead.get(&key).filter(|_| is_seen).cloned();
                applied.installed = applied.installed.take().or_else(recorded);
            }
        }
        self.observe_truth();
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
