//! What GitOps tools see of the states of a fleet: see [`super::gitops`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use knative_operator_fleet::approval::Approved;
use knative_operator_fleet::decision::Input;
use knative_operator_fleet::member::{Applied, Child, Contents, Member, Refused, Reported, Wanted};
use knative_operator_fleet::outcome::Outcome;
use knative_operator_fleet::removal::{Blocked, Leavers, RemovalDecision};
use knative_operator_fleet::status;
use knative_operator_overview::stalled;
use knative_operator_shared::api::fleet::{ApprovalPolicy, KnativeFleetStatus, OnFailure, Rollout, Stage};
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::fleet_crd::definitions;
use knative_operator_shared::version::Version;
use serde_json::{Value, json};

use super::gitops::{deleted, new, resource, seen};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// The installed revision.
const INSTALLED: &str = "r";
/// The revision that is rolled out.
const NEXT: &str = "u";

struct Revisions;

impl Contents for Revisions {
    fn of(&self, revision: &str, _: &ClusterProfileReference, component: Component) -> Option<Arc<Wanted>> {
        let content = if revision == INSTALLED { 1 } else { 2 };
        (component == Component::Serving).then(|| Arc::new(Wanted { content, version: None }))
    }

    fn knows(&self, _: &str) -> bool {
        true
    }

    fn is_known(&self, _: &str, _: &ClusterProfileReference) -> bool {
        true
    }

    fn versions(&self, _: Component) -> &[Version] {
        &[]
    }
}

fn cluster(name: &str) -> ClusterProfileReference {
    ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() }
}

/// A cluster on which the installed revision is Ready.
fn member() -> Member {
    let applied = Applied {
        skipped: None,
        revision: INSTALLED.to_owned(),
        previous: None,
        stage: None,
        outcome: Some(Outcome::Succeeded),
        since: NOW,
        content: 1,
        version: None,
        installed: None,
        ready: Ok(NOW),
        has_drifted: false,
        is_terminating: false,
        reported: Reported::Current,
    };
    Member::new(cluster("a"), vec![Child { component: Component::Serving, conflict: None, applied: Some(applied) }])
}

/// A fleet, and what is decided about it.
struct Case {
    members: Vec<Member>,
    update: &'static str,
    has_failed: bool,
    is_paused: bool,
    approval: Option<ApprovalPolicy>,
    leaving: Vec<ClusterProfileReference>,
    removal: RemovalDecision,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            members: vec![member()],
            update: INSTALLED,
            has_failed: false,
            is_paused: false,
            approval: None,
            leaving: Vec::new(),
            removal: RemovalDecision::default(),
        }
    }
}

impl Case {
    /// Its status, as the operator writes it.
    fn status(self) -> KnativeFleetStatus {
        let stage = Stage { name: "all".to_owned(), approval: self.approval, ..Stage::default() };
        let stages = Stages::of(&Rollout { stages: vec![stage], ..Rollout::default() }).unwrap();
        let input = Input {
            stages: &stages,
            members: &self.members,
            had_clusters: &BTreeSet::new(),
            uncounted: &BTreeMap::new(),
            current: Some(INSTALLED),
            update: self.update,
            has_failed: self.has_failed,
            generation: 2,
            on_failure: OnFailure::Pause,
            is_paused: self.is_paused,
            pause: "paused by a person",
            approvals: &Approved::new(),
            contents: &Revisions,
            now: NOW,
            installable: OnceLock::new(),
        };
        let clusters: Vec<_> = self.leaving.iter().collect();
        let leavers = Leavers { clusters: &clusters, decision: &self.removal };
        let old = KnativeFleetStatus::default();
        stalled::of_fleet(&old, status::status(&old, Some(2), &input, &input.decide(), &leavers), NOW)
    }
}

/// A fleet with `status`.
fn fleet(status: &KnativeFleetStatus) -> Value {
    resource("KnativeFleet", "v1alpha1", &json!(status))
}

/// A change of a status.
type Standing = fn(&KnativeFleetStatus, Option<i64>, &str, Timestamp) -> KnativeFleetStatus;

/// States of a fleet: a name, the resource, and what our script and kstatus say.
fn states() -> Vec<(&'static str, Value, [&'static str; 2])> {
    let rollout = || Case { update: NEXT, ..Case::default() };
    let ready = Case::default().status();
    let changed = KnativeFleetStatus { observed_generation: Some(1), ..ready.clone() };
    let standing = |change: Standing| fleet(&stalled::of_fleet(&ready, change(&ready, Some(2), "why", NOW), NOW));
    let unready = || {
        let mut member = member();
        let applied = member.children[0].applied.as_mut().unwrap();
        applied.ready = Err(("RemoteClusterUnreachable".to_owned(), "why".to_owned()));
        member
    };
    let unavailable = || Member { unavailable: Some("why".to_owned()), ..member() };
    let refused = || {
        let refused = Refused { revision: NEXT.to_owned(), message: "why".to_owned(), is_due: false };
        Member { refused: Some(refused), ..member() }
    };
    let deletion = status::deleting(&ready, Some(2), 1, NOW);
    let leaving_clusters = [cluster("b"), cluster("c")].into();
    let blocked = Some(Blocked { name: Some("0123456789".to_owned()), clusters: leaving_clusters, limit: 1 });
    let blocked = RemovalDecision { blocked, ..RemovalDecision::default() };
    let leaving = || vec![cluster("b"), cluster("c")];
    let progresses = ["Progressing", "InProgress"];
    let is_well = ["Healthy", "Current"];
    let waits_as_planned = ["Suspended", "InProgress"];
    let needs_a_person = ["Degraded", "Failed"];
    let going = ["Progressing", "Terminating"];
    vec![
        ("created", resource("KnativeFleet", "v1alpha1", &new(&definitions()[0])), progresses),
        ("Ready", fleet(&ready), is_well),
        ("changed", fleet(&changed), progresses),
        ("rolling out", fleet(&rollout().status()), progresses),
        ("unreachable cluster", fleet(&Case { members: vec![unready()], ..Case::default() }.status()), progresses),
        ("clusters unknown", standing(status::unknown), progresses),
        ("clusters leave", fleet(&Case { leaving: leaving(), ..Case::default() }.status()), is_well),
        ("paused", fleet(&Case { is_paused: true, ..rollout() }.status()), waits_as_planned),
        (
            "awaiting approval",
            fleet(&Case { approval: Some(ApprovalPolicy::Required), ..rollout() }.status()),
            waits_as_planned,
        ),
        ("too many failures", fleet(&Case { members: vec![refused()], ..rollout() }.status()), needs_a_person),
        // No cluster shows that the revision works, so nothing follows until one is available.
        (
            "no cluster of a stage is updated",
            fleet(&Case { members: vec![unavailable()], ..rollout() }.status()),
            progresses,
        ),
        ("rolled back", fleet(&Case { has_failed: true, ..rollout() }.status()), needs_a_person),
        // A pause ends no failure.
        (
            "too many failures, and paused",
            fleet(&Case { members: vec![refused()], is_paused: true, ..rollout() }.status()),
            needs_a_person,
        ),
        (
            "rolled back, and paused",
            fleet(&Case { has_failed: true, is_paused: true, ..rollout() }.status()),
            needs_a_person,
        ),
        ("no clusters", fleet(&Case { members: Vec::new(), ..Case::default() }.status()), progresses),
        ("invalid", standing(status::invalid), needs_a_person),
        (
            "removal blocked",
            fleet(&Case { leaving: leaving(), removal: blocked, ..Case::default() }.status()),
            needs_a_person,
        ),
        ("deleting", deleted(fleet(&deletion)), going),
        ("deletion not confirmed", deleted(standing(status::unconfirmed)), going),
    ]
}

#[test]
fn tools_see_the_truth_about_fleets() {
    let states = states();
    let resources: Vec<Value> = states.iter().map(|(_, resource, _)| resource.clone()).collect();
    println!("| state | our script | kstatus |");
    for ((name, resource, expected), seen) in states.iter().zip(seen(&resources)) {
        println!("| {name} | {} | {} |", seen.own, seen.kstatus);
        assert_eq!([&*seen.own, &*seen.kstatus], *expected, "{name}: {resource}");
        // Argo CD has no script for the kind, and takes it for Healthy.
        assert_eq!(seen.argo, "", "Argo CD has a script now: compare it with ours");
    }
}
