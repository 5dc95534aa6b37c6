//! Removes clusters from a fleet: records since when they have left, decides, records what is
//! removed, and removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use knative_operator_rules::is_protected;
use knative_operator_shared::api::fleet::RemovalPolicy;
use knative_operator_shared::api::{ClusterProfileReference, Component, Knative, KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::label::FLEET_LEFT_AT;

use super::children::Children;
use super::leave::{self, Unselected};
use super::sender::List;
use super::state::{FleetState, uptime};
use super::write::{self, WriteError};
use crate::controller::context::Context;
use knative_operator_cluster_access::profiles::Profiles;
use knative_operator_fleet::child;
use knative_operator_fleet::removal::{
    GRACE_PERIOD, Leaving, RemovalDecision, RemovalInput, are_left, of_policy, recorded,
};

/// What was done, and the first write that failed.
pub struct Removals {
    /// What was decided.
    pub decision: RemovalDecision,
    /// A write that failed. It is tried again.
    pub failed: Option<WriteError>,
    /// Time until another pass writes more, if some is left.
    pub again: Option<Duration>,
}

/// What is installed.
pub struct Installed<'a> {
    /// The resources of the fleet.
    pub children: &'a Children,
    /// Clusters that the fleet does not select.
    pub unselected: &'a Unselected,
    /// Those that count in the rollout, and stay until it ends.
    pub counting: &'a BTreeSet<ClusterProfileReference>,
    /// The ClusterProfiles.
    pub profiles: &'a Profiles,
}

/// Advances the removal of the unselected clusters.
pub async fn advance(
    cx: &Context,
    fleet: &KnativeFleet,
    status: &mut KnativeFleetStatus,
    installed: &Installed<'_>,
    state: &mut FleetState,
    is_approved: impl Fn(&str) -> bool,
) -> Removals {
    let Installed { unselected, children, counting, .. } = *installed;
    let removal = &fleet.spec.removal;
    let grace = removal.grace_period_seconds.map_or(GRACE_PERIOD, |seconds| SignedDuration::from_secs(seconds.into()));
    let before = of_policy(status.removals.clone().unwrap_or_default(), removal.policy);
    let now = Timestamp::now();
    let left_at = |resource: &Knative| recorded(resource.annotation(FLEET_LEFT_AT)?, &before, now);
    let leaving = leaving(installed, fleet, state, left_at);
    let passed = uptime();
    let elapsed = state.budget.observe(&before, are_left(&leaving, &before), passed);
    let input = RemovalInput {
        leaving: &leaving,
        counting,
        staying: unselected.staying,
        max_at_once: removal.max_at_once.as_ref(),
        grace,
        policy: removal.policy,
        is_paused: fleet.spec.rollout.paused,
        record: &before,
        elapsed,
        now,
    };
    let mut decision = input.decide(is_approved);
    let wanted = |cluster: &ClusterProfileReference, resource: &Knative| {
        decision.mark(cluster, leaving.contains_key(cluster), left_at(resource))
    };
    let (marked, are_cleared) = mark(cx, (children, &unselected.leaving), wanted, state).await;
    if !are_cleared && decision.record.allowed_until != before.allowed_until {
        // It would be for clusters as well that it is not about.
        decision.remove.clear();
        decision.record.clone_from(&before);
    }
    state.budget.decide(&decision.record, passed);
    let removed =
        if decision.remove.is_empty() { Ok(None) } else { remove(cx, fleet, status, children, &decision, state).await };
    let again = [&marked, &removed].into_iter().filter_map(|result| *result.as_ref().ok()?).max();
    Removals { decision, failed: marked.err().or(removed.err()), again }
}

fn leaving(
    installed: &Installed<'_>,
    fleet: &KnativeFleet,
    state: &mut FleetState,
    left_at: impl Fn(&Knative) -> Option<Timestamp>,
) -> BTreeMap<ClusterProfileReference, Leaving> {
    let clusters = &installed.unselected.leaving;
    // A protected resource can be orphaned, and one of a cluster that is not available.
    let uninstalls = fleet.spec.removal.policy == RemovalPolicy::Delete;
    let leaving = |cluster: &ClusterProfileReference| {
        let of = |component| installed.children.own().get(&(cluster.clone(), component));
        let own = Component::ALL.into_iter().filter_map(of).filter(|resource| !resource.is_terminating());
        let own: Vec<&Knative> = own.map(Arc::as_ref).collect();
        let profile = installed.profiles.get(cluster).map(Arc::as_ref);
        let times: Option<Vec<Timestamp>> = own.iter().map(|resource| left_at(resource)).collect();
        Leaving {
            since: times.and_then(|times| times.into_iter().max()),
            observed: SignedDuration::ZERO,
            available_for: None,
            is_protected: uninstalls && own.iter().any(|resource| is_protected(resource.meta())),
            is_unavailable: uninstalls && child::unavailable(&own, profile).is_some(),
            is_installed: own.iter().any(|resource| resource.installed_version().is_some()),
        }
    };
    let left = clusters.iter().map(|cluster| (cluster.clone(), leaving(cluster)));
    // An approval may name one whose ClusterProfile vanished since. It stays, as in an outage.
    let vanished = installed.unselected.vanished.iter().map(|cluster| {
        let one = leaving(cluster);
        (cluster.clone(), Leaving { is_protected: false, is_unavailable: true, is_installed: false, ..one })
    });
    let mut all: BTreeMap<_, _> = left.chain(vanished.filter(|(_, one)| one.since.is_some())).collect();
    state.observe_removals(&mut all, fleet.spec.rollout.paused, uptime());
    all
}

/// Records the `wanted` times in the resources of clusters that leave, and clears them in those of
/// clusters that are back, or wait. Returns the time until the next ones, if there are more, and
/// whether all former times are cleared.
async fn mark(
    cx: &Context,
    (children, leaving): (&Children, &BTreeSet<ClusterProfileReference>),
    wanted: impl Fn(&ClusterProfileReference, &Knative) -> Option<Timestamp>,
    state: &mut FleetState,
) -> (Result<Option<Duration>, WriteError>, bool) {
    let mut differing = Vec::new();
    let leaving = leaving.iter().flat_map(|cluster| Component::ALL.map(|component| (cluster.clone(), component)));
    let concerned: BTreeSet<_> = leaving.chain(children.marked().cloned()).collect();
    for (key, resource) in concerned.iter().filter_map(|key| children.own().get_key_value(key)) {
        let wanted = wanted(&key.0, resource).map(|since| since.to_string());
        if resource.annotation(FLEET_LEFT_AT) != wanted.as_deref() && !resource.is_terminating() {
            differing.push((key.clone(), Arc::clone(resource), wanted));
        }
    }
    // Those that are back first: one that leaves again has a time of its own.
    let (marks, cleared): (Vec<_>, Vec<_>) = differing.into_iter().partition(|(_, _, wanted)| wanted.is_some());
    let (mut to_clear, mut outcome) = (cleared.len(), Ok(None));
    for (list, differing) in [(List::Cleared, cleared), (List::Marks, marks)] {
        let sent = state.sender.send(list, differing, |(key, resource, wanted)| async move {
            let written = write::annotate(&cx.hub, &resource, FLEET_LEFT_AT, wanted.as_deref()).await;
            (key, written)
        });
        let sent = sent.await;
        outcome = outcome.map(|again| [again, sent.again].into_iter().flatten().max());
        for (key, written) in sent.results {
            match written {
                Ok(resource) => {
                    state.keep_written(&key, resource);
                    to_clear -= usize::from(list == List::Cleared);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
    }
    (outcome, to_clear == 0)
}

/// Removes what `decision` says. It is recorded before: after a crash, it counts. Returns the time
/// until the next ones, if there are more.
async fn remove(
    cx: &Context,
    fleet: &KnativeFleet,
    status: &mut KnativeFleetStatus,
    children: &Children,
    decision: &RemovalDecision,
    state: &mut FleetState,
) -> Result<Option<Duration>, WriteError> {
    if status.removals.as_ref() != Some(&decision.record) {
        status.removals = Some(decision.record.clone());
        write::status(&cx.hub, fleet, status).await?;
        state.status = Some(status.clone());
    }
    leave::remove(&cx.hub, (fleet.spec.removal.policy, false), children, &decision.remove, &mut state.sender).await
}

#[cfg(test)]
mod tests {
    use knative_operator_rules as rules;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn cluster_whose_profile_vanished_stays_part_of_the_removal_that_names_it() {
        let cluster = |name: &str| ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() };
        let resource = |name: &str, left_at: Option<&str>| {
            let annotations: Value = left_at.map(|time| json!({FLEET_LEFT_AT: time})).unwrap_or_default();
            let resource = json!({
                "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "status": {"version": "1.22.0"},
                "metadata": {"name": name, "namespace": "n", "uid": name, "annotations": annotations},
                "spec": {"clusterProfileRef": cluster(name)},
            });
            ((cluster(name), Component::Serving), Arc::new(rules::parse(Component::Serving, &resource).unwrap()))
        };
        let time = "2026-01-01T00:00:00Z";
        let own = [resource("a", Some(time)), resource("b", Some(time)), resource("c", None)];
        let children = Children::from_iter(own);
        let unselected = Unselected {
            leaving: [cluster("a")].into(),
            vanished: [cluster("b"), cluster("c")].into(),
            ..Unselected::default()
        };
        let healthy = json!({"metadata": {"name": "a", "namespace": "f"}, "spec": {},
            "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": "True"}]}});
        let profiles = Profiles::from([(cluster("a"), Arc::new(serde_json::from_value(healthy).unwrap()))]);
        let counting = BTreeSet::new();
        let installed =
            Installed { children: &children, unselected: &unselected, counting: &counting, profiles: &profiles };
        for policy in ["Delete", "Orphan"] {
            let fleet = json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {"placement": {}, "removal": {"policy": policy}}});
            let fleet: KnativeFleet = serde_json::from_value(fleet).unwrap();
            let left_at = |resource: &Knative| resource.annotation(FLEET_LEFT_AT)?.parse().ok();
            let all = leaving(&installed, &fleet, &mut FleetState::default(), left_at);
            let all: Vec<_> = all.iter().map(|(cluster, one)| (cluster.name.as_str(), one.is_unavailable)).collect();
            assert_eq!(all, [("a", false), ("b", true)], "{policy}");
        }
    }
}
