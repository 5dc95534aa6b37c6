//! Measures the gates of clusters. Each measurement is a task of its own, which ends when the
//! cluster doesn't need it any more; its result wakes the task of all fleets. A cluster has one
//! measurement at a time, and none while nothing is rolled out to it.

mod event;
mod http;
mod job;
mod job_manifest;
mod limits;
mod measure;
mod subject;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use knative_operator_shared::api::fleet::{Gate, Rollout};
use knative_operator_shared::api::{ClusterProfileReference, Component, KnativeFleet};
use serde_json::json;

use self::measure::Measurement;
use self::subject::Subject;
use super::children::Children;
use super::contents::CachedContents;
use crate::controller::context::Context;
use crate::fleet_metrics::FleetMetrics;
use knative_operator_fleet::decision::{Decision, Input};
use knative_operator_fleet::gates::{Answer, Gates, Series};
use knative_operator_fleet::member::{Contents, Member};

/// Delay before a gate is measured again that could not be.
const UNKNOWN_RETRY: Duration = Duration::from_secs(15);
/// Delay before gates are measured again after a failure that is not the update's.
const FAILED_RETRY: Duration = Duration::from_secs(300);

/// The gates of a stage.
#[derive(Debug, Default)]
pub struct StageGates {
    gates: Vec<Gate>,
    digest: u64,
}

/// The gates of the stages of `rollout`, in their order.
pub fn of_stages(rollout: &Rollout) -> Vec<Arc<StageGates>> {
    let gates = rollout.stages.iter().map(|stage| {
        let digest = if stage.gates.is_empty() { 0 } else { digest(&json!(stage.gates).to_string()) };
        Arc::new(StageGates { gates: stage.gates.clone(), digest })
    });
    gates.collect()
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The measurements of a cluster after an update.
struct Run {
    /// Digest of what was written, and of the gates.
    update: u64,
    stage: Arc<StageGates>,
    series: Series,
    due: Instant,
    measurement: Option<Measurement>,
}

impl Run {
    fn new(update: u64, stage: Arc<StageGates>) -> Self {
        Self { update, stage, series: Series::default(), due: Instant::now(), measurement: None }
    }

    fn state(&self) -> Gates {
        self.series.state(&self.stage.gates)
    }

    fn is_over(&self) -> bool {
        self.series.next(&self.stage.gates).is_none()
    }

    /// Records the result of the measurement, if it ended.
    fn collect(&mut self, metrics: &FleetMetrics) {
        let Some(answer) = self.measurement.as_mut().and_then(Measurement::answer) else { return };
        self.measurement = None;
        let Some(gate) = self.series.next(&self.stage.gates) else { return };
        metrics.measured(kind(gate), &answer);
        let mut delay = Duration::from_secs(gate.interval_seconds().into());
        let is_unknown = matches!(answer, Answer::Unknown(_));
        let name = gate.name.clone();
        self.series.record(&self.stage.gates, answer);
        match self.series.next(&self.stage.gates) {
            None => delay = FAILED_RETRY,
            Some(next) if next.name != name => delay = Duration::ZERO,
            Some(_) if is_unknown => delay = delay.max(UNKNOWN_RETRY),
            Some(_) => {}
        }
        self.due = Instant::now() + delay;
    }
}

/// The kind of `gate`, as in metrics.
fn kind(gate: &Gate) -> &'static str {
    match gate {
        Gate { http: Some(_), .. } => "http",
        Gate { event: Some(_), .. } => "event",
        _ => "job",
    }
}

/// The measurements for a fleet, by cluster.
#[derive(Default)]
pub struct Runs(HashMap<ClusterProfileReference, Run>);

impl Runs {
    /// Records the results of measurements that ended.
    pub fn collect(&mut self, metrics: &FleetMetrics) {
        self.0.values_mut().for_each(|run| run.collect(metrics));
    }

    /// What the gates of `stage` say about the last update of `member`, in the rollout that records
    /// failures with `generation`.
    pub fn state(&self, member: &Member, stage: Option<&Arc<StageGates>>, generation: i64) -> Gates {
        let Some(stage) = stage.filter(|stage| !stage.gates.is_empty()) else { return Gates::Passed };
        match self.0.get(&member.cluster) {
            Some(run) if run.update == update(member, stage, generation) => run.state(),
            // The record of a failure changes what was written.
            Some(run) if member.has_failed_gates(generation) && matches!(run.state(), Gates::Failed(_)) => run.state(),
            _ => Series::default().state(&stage.gates),
        }
    }
}

/// Digest of the last update of `member`, of its gates, and of the time since which it is Ready:
/// what was measured before says nothing about it.
fn update(member: &Member, stage: &StageGates, generation: i64) -> u64 {
    let ready = member.applied().filter_map(|applied| applied.ready.as_ref().ok()).max();
    digest(&(member.written(generation), stage.digest, ready))
}

/// What measurements for a fleet depend on.
pub struct Measuring<'a> {
    pub fleet: &'a KnativeFleet,
    pub children: &'a Children,
    pub stages: &'a [Arc<StageGates>],
    pub input: &'a Input<'a, CachedContents<'a>>,
    pub decision: &'a Decision,
}

impl Measuring<'_> {
    /// Starts the measurements that are due, and ends those that no cluster needs any more. Returns
    /// the clusters whose gates are measured, and the time until the next measurement.
    pub fn advance(&self, cx: &Arc<Context>, runs: &mut Runs) -> (Vec<ClusterProfileReference>, Option<Duration>) {
        let (input, now) = (self.input, Instant::now());
        let (mut measured, mut wake) = (Vec::new(), None);
        if runs.0.is_empty() && self.stages.iter().all(|stage| stage.gates.is_empty()) {
            return (measured, wake);
        }
        for (member, progress) in input.members.iter().zip(&self.decision.progress) {
            let stage = self.stages.get(member.stage).filter(|stage| !stage.gates.is_empty());
            let Some(stage) = stage.filter(|_| input.measures_gates(member, progress)) else { continue };
            measured.push(member.cluster.clone());
            let update = update(member, stage, input.generation);
            let run = runs.0.entry(member.cluster.clone()).or_insert_with(|| Run::new(update, Arc::clone(stage)));
            if run.update != update {
                *run = Run::new(update, Arc::clone(stage));
            }
            if run.measurement.is_some() {
                continue;
            }
            if run.due > now {
                let left = run.due - now;
                wake = Some(wake.map_or(left, |wake: Duration| wake.min(left)));
                continue;
            }
            if run.state() == Gates::Passed {
                continue;
            }
            if run.is_over() {
                run.series.restart(&stage.gates);
            }
            let gate = run.series.next(&run.stage.gates).cloned();
            let subject = self.subject(member, update, run.series.number());
            run.measurement = gate.zip(subject).map(|(gate, subject)| Measurement::start(cx, subject, gate));
        }
        let needed: HashSet<&ClusterProfileReference> = measured.iter().collect();
        let members: HashSet<&ClusterProfileReference> = input.members.iter().map(|member| &member.cluster).collect();
        // The result stays until it is recorded.
        runs.0.retain(|cluster, run| needed.contains(cluster) || run.is_over() && members.contains(cluster));
        (measured, wake)
    }

    /// What a measurement is about: that of `member` after `update`, with this number.
    fn subject(&self, member: &Member, update: u64, number: u32) -> Option<Subject> {
        let child = |component| self.children.own().get(&(member.cluster.clone(), component));
        let meta = &self.fleet.metadata;
        Some(Subject {
            resource: Arc::clone(Component::ALL.into_iter().find_map(child)?),
            fleet: meta.name.clone().unwrap_or_default(),
            fleet_uid: meta.uid.clone().unwrap_or_default(),
            cluster: member.cluster.clone(),
            update,
            number,
            variables: self.variables(member),
        })
    }

    /// What the containers of Jobs get to know.
    fn variables(&self, member: &Member) -> Vec<(String, String)> {
        let stage = self.input.stages.settings()[member.stage].name.clone();
        let previous = member.applied().find_map(|applied| applied.previous.clone()).unwrap_or_default();
        let name = |text: &str| format!("KNATIVE_FLEET_{text}");
        let mut variables = vec![
            (name("NAME"), self.fleet.metadata.name.clone().unwrap_or_default()),
            (name("CLUSTER"), member.cluster.to_string()),
            (name("STAGE"), stage),
            (name("REVISION"), self.input.update.to_owned()),
            (name("PREVIOUS_REVISION"), previous),
        ];
        for child in member.children.iter() {
            let Some(applied) = &child.applied else { continue };
            let word = child.component.word().to_uppercase();
            let before = applied.previous.as_deref().and_then(|previous| {
                let wanted = self.input.contents.of(previous, &member.cluster, child.component)?;
                wanted.version.clone()
            });
            let version = applied.installed.as_ref().map(ToString::to_string);
            variables.push((name(&format!("{word}_VERSION")), version.unwrap_or_default()));
            variables.push((name(&format!("PREVIOUS_{word}_VERSION")), before.unwrap_or_default()));
        }
        variables
    }
}
