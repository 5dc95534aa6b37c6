//! How a planned change proceeds: through which stages, and what becomes of clusters that leave.
//! Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use knative_operator_rules::is_protected;
use knative_operator_shared::api::fleet::{Gate, RemovalPolicy};
use knative_operator_shared::api::{
    ClusterProfile, ClusterProfileReference, Knative, KnativeFleet, KnativeFleetStatus,
};
use knative_operator_shared::fleet::stage::{InvalidStages, StageSettings, Stages};
use serde::Serialize;

use super::child;
use super::plan::{Change, DEFERRED, PlannedChange, is_owned};
use super::removal::{GRACE_PERIOD, Leaving, RemovalInput, of_policy};

/// A stage in which something changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStage {
    /// Its name.
    pub name: String,
    /// Number of its clusters that change.
    pub changes: usize,
    /// Number of its clusters.
    pub clusters: usize,
    /// Number of clusters that are updated at the same time.
    pub max_concurrent: usize,
    /// Number of clusters that may fail.
    pub max_failures: usize,
    /// Whether it waits for an approval.
    pub needs_approval: bool,
    /// Names of its gates.
    pub gates: Vec<String>,
    /// Seconds that it takes at least: soak and gates, without installations and approvals.
    pub at_least_seconds: i64,
    /// Seconds that it took in the last rollout, with installations and pauses, if that is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seconds: Option<i64>,
}

/// Clusters that leave the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedRemoval {
    /// Number of clusters that leave.
    pub clusters: usize,
    /// Number of those among them that stay while their resources are protected from deletion.
    pub protected: usize,
    /// Number of those among them that stay while they are not healthy or not reachable, and for
    /// another grace period then.
    pub unavailable: usize,
    /// Number of clusters with an installation, with those that leave.
    pub installed: usize,
    /// Number of clusters that may leave within 24 hours, if more would.
    pub blocked_by_limit: Option<usize>,
    /// Seconds after which a cluster that left is removed.
    pub grace_period_seconds: i64,
}

/// The stages of `fleet` in which `changes` change something, in order. `status` is that of the
/// stored fleet.
///
/// # Errors
///
/// If a selector is invalid.
pub fn stages(
    fleet: &KnativeFleet,
    changes: &[PlannedChange],
    status: &KnativeFleetStatus,
) -> Result<Vec<PlannedStage>, InvalidStages> {
    let stages = Stages::of(&fleet.spec.rollout)?;
    let gates = fleet.spec.rollout.stages.iter().map(|stage| stage.gates.as_slice()).chain([&[][..]]);
    let planned = stages.settings().iter().zip(gates).map(|(stage, gates)| PlannedStage {
        last_seconds: last(status, &stage.name),
        ..planned(stage, gates, changes)
    });
    let planned: Vec<_> = planned.collect();
    // One without clusters waits for its approval as well.
    let has_changes = planned.iter().any(|stage| stage.changes > 0);
    Ok(planned.into_iter().filter(|stage| stage.changes > 0 || (has_changes && stage.needs_approval)).collect())
}

/// Seconds that the stage called `name` took in the last rollout, if that is over.
fn last(status: &KnativeFleetStatus, name: &str) -> Option<i64> {
    let stage = status.stages.iter().find(|stage| stage.name == name && stage.clusters > 0)?;
    let time = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    Some(time(&stage.finished_at)?.duration_since(time(&stage.started_at)?).as_secs().max(0))
}

fn planned(stage: &StageSettings, gates: &[Gate], changes: &[PlannedChange]) -> PlannedStage {
    let own = changes.iter().filter(|change| change.stage == stage.name);
    let is_change = |change: &&PlannedChange| !matches!(change.change, Change::None | Change::Conflict | Change::Keep);
    let count = |changes: &mut dyn Iterator<Item = &PlannedChange>| {
        changes.map(|change| change.cluster.as_str()).collect::<HashSet<_>>().len()
    };
    let (changes, clusters) = (count(&mut own.clone().filter(is_change)), count(&mut own.clone()));
    // Nothing is awaited on a cluster that is deferred.
    let updates = count(&mut own.filter(is_change).filter(|change| !change.note.starts_with(DEFERRED)));
    let max_concurrent = stage.concurrency(clusters);
    let of_gates =
        gates.iter().map(|gate| i64::from(gate.count().saturating_sub(1)) * i64::from(gate.interval_seconds()));
    let of_cluster = stage.min_ready.as_secs() + of_gates.sum::<i64>();
    PlannedStage {
        name: stage.name.clone(),
        changes,
        clusters,
        max_concurrent,
        max_failures: stage.failures(clusters),
        needs_approval: stage.needs_approval,
        gates: gates.iter().map(|gate| gate.name.clone()).collect(),
        at_least_seconds: i64::try_from(updates.div_ceil(max_concurrent))
            .unwrap_or(i64::MAX)
            .saturating_mul(of_cluster)
            .saturating_add(if updates == 0 { 0 } else { (stage.soak.as_secs() - of_cluster).max(0) }),
        last_seconds: None,
    }
}

/// The clusters that leave `fleet`, which selects `clusters`, among those of `resources` that have
/// a `profile`; `None` if none leaves. `status`: that of the stored fleet.
pub fn removal<'p>(
    fleet: &KnativeFleet,
    clusters: &[ClusterProfileReference],
    resources: &[Knative],
    (status, now): (&KnativeFleetStatus, Timestamp),
    profile: impl Fn(&ClusterProfileReference) -> Option<&'p ClusterProfile>,
) -> Option<PlannedRemoval> {
    let selected: HashSet<_> = clusters.iter().collect();
    let own = resources.iter().filter(|resource| is_owned(fleet, resource) && !resource.is_terminating());
    let (mut staying, mut left) = (BTreeSet::new(), BTreeMap::<_, Vec<&Knative>>::new());
    for resource in own {
        let Some(cluster) = resource.common().cluster_profile_ref.clone() else { continue };
        if !selected.contains(&cluster) && profile(&cluster).is_some() {
            left.entry(cluster).or_default().push(resource);
        } else if selected.contains(&cluster) && resource.installed_version().is_some() {
            staying.insert(cluster);
        }
    }
    if left.is_empty() {
        return None;
    }
    // A protected resource can be orphaned, and one of a cluster that is not available.
    let uninstalls = fleet.spec.removal.policy == RemovalPolicy::Delete;
    let leaving = left.into_iter().map(|(cluster, own)| {
        let one = Leaving {
            is_protected: uninstalls && own.iter().any(|resource| is_protected(resource.meta())),
            is_unavailable: uninstalls && child::unavailable(&own, profile(&cluster)).is_some(),
            is_installed: own.iter().any(|resource| resource.installed_version().is_some()),
            ..Leaving::default()
        };
        (cluster, one)
    });
    let leaving: BTreeMap<_, _> = leaving.collect();
    let settings = &fleet.spec.removal;
    let grace = settings.grace_period_seconds.map_or(GRACE_PERIOD.as_secs(), i64::from);
    let input = RemovalInput {
        leaving: &leaving,
        counting: &BTreeSet::new(),
        staying: staying.len(),
        max_at_once: settings.max_at_once.as_ref(),
        grace: SignedDuration::from_secs(grace),
        policy: settings.policy,
        is_paused: fleet.spec.rollout.paused,
        record: &of_policy(status.removals.clone().unwrap_or_default(), settings.policy),
        elapsed: SignedDuration::ZERO,
        now,
    };
    let decision = input.decide(|_| false);
    Some(PlannedRemoval {
        clusters: leaving.len(),
        protected: decision.protected.len(),
        unavailable: decision.unavailable.len(),
        installed: staying.len() + leaving.len(),
        blocked_by_limit: decision.blocked.map(|blocked| blocked.limit),
        grace_period_seconds: grace,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;
    use knative_operator_shared::label::PROTECTED;
    use serde_json::{Value, json};

    use super::*;

    fn fleet(spec: &Value) -> KnativeFleet {
        let mut fleet = json!({"metadata": {"name": "prod", "namespace": "n", "uid": "1"}, "spec": {"placement": {}}});
        json_patch::merge(&mut fleet["spec"], spec);
        serde_json::from_value(fleet).unwrap()
    }

    fn change(stage: &str, cluster: usize, change: Change) -> PlannedChange {
        PlannedChange {
            cluster: format!("f/c{cluster}"),
            stage: stage.to_owned(),
            kind: "KnativeServing",
            name: String::new(),
            change,
            version: None,
            fields: Vec::new(),
            note: String::new(),
        }
    }

    #[test]
    fn stages_show_what_they_wait_for() {
        let gate = json!({"name": "smoke", "count": 3, "intervalSeconds": 20, "http": {"service": {"namespace": "n", "name": "s"}}});
        let stages_of = json!([
            {"name": "canary", "clusterSelector": {"matchLabels": {"env": "canary"}}, "minReadySeconds": 60, "gates": [gate]},
            {"name": "prod", "maxConcurrent": "50%", "approval": "Required", "minReadySeconds": 10},
        ]);
        let fleet = fleet(&json!({"rollout": {"stages": stages_of}}));
        let mut changes = vec![change("canary", 0, Change::Update), change("canary", 1, Change::Create)];
        changes.extend(
            (2..12).map(|number| change("prod", number, if number < 4 { Change::None } else { Change::Update })),
        );
        let status: KnativeFleetStatus = serde_json::from_value(json!({"stages": [
            {"name": "canary", "state": "Complete", "clusters": 2, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:05:00Z"},
            {"name": "prod", "state": "Progressing", "clusters": 9, "startedAt": "2026-01-01T00:05:00Z"}]}))
        .unwrap();
        let planned = stages(&fleet, &changes, &status).unwrap();
        let [canary, prod] = planned.as_slice() else { panic!("{planned:?}") };
        assert_eq!((canary.changes, canary.max_concurrent, canary.at_least_seconds), (2, 1, 2 * (60 + 40)));
        assert_eq!((canary.gates.as_slice(), canary.needs_approval), (&["smoke".to_owned()][..], false));
        assert_eq!((prod.changes, prod.clusters, prod.max_concurrent, prod.at_least_seconds), (8, 10, 5, 2 * 10));
        assert!(prod.needs_approval);
        assert_eq!((canary.last_seconds, prod.last_seconds), (Some(300), None));
        assert_eq!(stages(&fleet, &changes[2..4], &status).unwrap(), []);
    }

    #[test]
    fn removal_beyond_the_limit_is_blocked() {
        let own = |number: usize, protected: bool| {
            let owner = json!({"apiVersion": "v1", "kind": "KnativeFleet", "name": "prod", "uid": "1"});
            let serving = json!({
                "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"name": format!("c{number}"), "namespace": "n", "ownerReferences": [owner],
                    "annotations": {PROTECTED: protected.to_string()}},
                "spec": {"clusterProfileRef": {"name": format!("c{number}"), "namespace": "f"}},
                "status": {"version": "1.22.0"},
            });
            rules::parse(Component::Serving, &serving).unwrap()
        };
        let resources: Vec<Knative> = (0..20).map(|number| own(number, number >= 18)).collect();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let cluster = |resource: &Knative| resource.common().cluster_profile_ref.clone().unwrap();
        let profile = |number: usize, is_healthy: bool| -> (ClusterProfileReference, ClusterProfile) {
            let status = if is_healthy { "True" } else { "Unknown" };
            let conditions = json!([{"type": "ControlPlaneHealthy", "status": status}]);
            let profile = json!({"metadata": {"name": format!("c{number}"), "namespace": "f"}, "spec": {}, "status": {"conditions": conditions}});
            (cluster(&resources[number]), serde_json::from_value(profile).unwrap())
        };
        // The first `lost` clusters are not available.
        let planned = |left: usize, lost: usize, policy: &str| {
            let clusters: Vec<_> = resources.iter().skip(left).map(cluster).collect();
            let profiles: HashMap<_, _> = (0..20).map(|number| profile(number, number >= lost)).collect();
            let (fleet, status) = (fleet(&json!({"removal": {"policy": policy}})), KnativeFleetStatus::default());
            removal(&fleet, &clusters, &resources, (&status, now), |cluster| profiles.get(cluster))
        };
        let removed = |left: usize, exists: bool| {
            if exists {
                return planned(left, 0, "Delete");
            }
            let (clusters, status) = (resources.iter().skip(left).map(cluster), KnativeFleetStatus::default());
            removal(&fleet(&json!({})), &clusters.collect::<Vec<_>>(), &resources, (&status, now), |_| None)
        };
        assert_eq!(removed(0, true), None);
        assert_eq!(removed(5, false), None);
        let outage = |left, lost, policy| {
            let planned = planned(left, lost, policy).unwrap();
            (planned.clusters, planned.unavailable, planned.blocked_by_limit)
        };
        // What stays counts against no limit.
        assert_eq!((outage(5, 2, "Delete"), outage(5, 3, "Delete")), ((5, 2, Some(2)), (5, 3, None)));
        assert_eq!((outage(5, 3, "Orphan"), outage(20, 20, "Delete")), ((5, 0, Some(2)), (20, 18, None)));
        let two = removed(2, true).unwrap();
        assert_eq!((two.clusters, two.installed, two.blocked_by_limit, two.grace_period_seconds), (2, 20, None, 3600));
        assert_eq!(removed(5, true).unwrap().blocked_by_limit, Some(2));
        let all = removed(20, true).unwrap();
        assert_eq!((all.clusters, all.protected, all.blocked_by_limit), (20, 2, Some(2)));
    }
}
