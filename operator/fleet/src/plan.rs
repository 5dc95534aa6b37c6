//! What a fleet would change, before it is stored.

use std::collections::{BTreeMap, HashMap, HashSet};

use knative_operator_shared::api::fleet::RemovalPolicy;
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, Knative, KnativeFleet};
use knative_operator_shared::fleet::overrides::overridden;
use knative_operator_shared::fleet::placement::unhealthy;
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::label::ADOPT;
use knative_operator_shared::version::Version;
use serde::Serialize;
use serde_json::{Value, json};

use super::child;
use super::removal::GRACE_PERIOD;
use super::revision::RevisionData;
use super::template::child_name;
use super::versions::{self, VersionSources};

/// A change of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It becomes part of the fleet.
    Adopt,
    /// Nothing.
    None,
    /// Nothing, because another resource uses the cluster.
    Conflict,
    /// It stays: its ClusterProfile does not exist.
    Keep,
    /// It is deleted.
    Delete,
    /// It stays without its fleet.
    Orphan,
}

/// Start of the note about a cluster that is not updated now.
pub const DEFERRED: &str = "deferred: ";

/// What happens to a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedChange {
    /// Its cluster.
    pub cluster: String,
    /// The stage of the cluster; empty if it leaves.
    pub stage: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What happens.
    pub change: Change,
    /// The fields that change, with their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// What to know about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What is stored on the hub.
pub struct Stored<'a> {
    /// The ClusterProfiles.
    pub profiles: &'a HashMap<ClusterProfileReference, ClusterProfile>,
    /// All KnativeServings and KnativeEventings.
    pub resources: &'a [Knative],
    /// What the fleet rolls out now.
    pub before: Option<&'a RevisionData>,
}

/// What `fleet`, which selects `clusters`, would change, by stage.
///
/// # Errors
///
/// If a selector is invalid.
pub fn plan(
    fleet: &KnativeFleet,
    clusters: &[ClusterProfileReference],
    stored: &Stored<'_>,
) -> Result<Vec<PlannedChange>, String> {
    let stages = Stages::of(&fleet.spec.rollout).map_err(|error| format!("spec.rollout.stages: {error}"))?;
    let mut by_cluster: HashMap<(ClusterProfileReference, Component), &Knative> = HashMap::new();
    for resource in stored.resources.iter().filter(|resource| !resource.is_terminating()) {
        if let Some(cluster) = resource.common().cluster_profile_ref.clone() {
            let entry = by_cluster.entry((cluster, resource.component())).or_insert(resource);
            if is_owned(fleet, resource) {
                *entry = resource;
            }
        }
    }
    let data = pinned(fleet, stored);
    let no_labels = BTreeMap::new();
    let mut changes = Vec::new();
    for cluster in clusters {
        let profile = stored.profiles.get(cluster);
        let labels = profile.and_then(|profile| profile.metadata.labels.as_ref()).unwrap_or(&no_labels);
        let stage = stages.index_of(labels);
        for component in Component::ALL {
            let present = by_cluster.get(&(cluster.clone(), component)).copied();
            let template = fleet.spec.template(component).map(|template| {
                let template = overridden(template, &fleet.spec.overrides, component, labels);
                let mut template = template.map_err(|(index, why)| format!("spec.overrides[{index}]: {why}"))?;
                data.pin(component, &mut template);
                Ok::<_, String>(template)
            });
            let Some(mut planned) = planned(fleet, cluster, component, template.transpose()?, present) else {
                continue;
            };
            planned.stage.clone_from(&stages.settings()[stage].name);
            if let Some(why) = unhealthy(profile).filter(|_| planned.change != Change::None) {
                planned.note = format!("{DEFERRED}{why}");
            }
            changes.push((stage, planned));
        }
    }
    let selected: HashSet<&ClusterProfileReference> = clusters.iter().collect();
    let left = stored.resources.iter().filter(|resource| is_owned(fleet, resource) && !resource.is_terminating());
    for resource in left {
        let Some(cluster) = &resource.common().cluster_profile_ref else { continue };
        if !selected.contains(cluster) {
            let mut removed = row(cluster, resource.component(), resource.name(), Change::Keep);
            if stored.profiles.contains_key(cluster) {
                (removed.change, removed.note) = removal(fleet);
            } else {
                "the ClusterProfile does not exist".clone_into(&mut removed.note);
            }
            changes.push((usize::MAX, removed));
        }
    }
    changes.sort_by(|(a, x), (b, y)| (a, &x.cluster, x.kind).cmp(&(b, &y.cluster, y.kind)));
    Ok(changes.into_iter().map(|(_, change)| change).collect())
}

/// What `fleet` contains, with the versions that it has for those without a patch number. Which
/// newer ones an operator has is not known.
fn pinned(fleet: &KnativeFleet, stored: &Stored<'_>) -> RevisionData {
    let own = stored.resources.iter().filter(|resource| is_owned(fleet, resource));
    let installed: Vec<_> =
        own.filter_map(|resource| Some((resource.component(), resource.installed_version()?))).collect();
    let sources =
        VersionSources { available: &[], before: stored.before, installed: &installed, keeps_installed: false };
    versions::resolved(RevisionData::of(&fleet.spec), &sources)
}

/// What happens to a resource whose cluster leaves `fleet`, and when.
fn removal(fleet: &KnativeFleet) -> (Change, String) {
    let removal = &fleet.spec.removal;
    let change = match removal.policy {
        RemovalPolicy::Delete => Change::Delete,
        RemovalPolicy::Orphan => Change::Orphan,
    };
    let grace = removal.grace_period_seconds.map_or(GRACE_PERIOD.as_secs(), i64::from);
    (change, format!("{grace} s after the cluster left (removal.gracePeriodSeconds), within removal.maxAtOnce"))
}

fn row(cluster: &ClusterProfileReference, component: Component, name: &str, change: Change) -> PlannedChange {
    PlannedChange {
        cluster: cluster.to_string(),
        stage: String::new(),
        kind: component.kind(),
        name: name.to_owned(),
        change,
        fields: Vec::new(),
        note: String::new(),
    }
}

/// What happens to the resource `present` of a cluster.
fn planned(
    fleet: &KnativeFleet,
    cluster: &ClusterProfileReference,
    component: Component,
    template: Option<knative_operator_shared::api::fleet::Template>,
    present: Option<&Knative>,
) -> Option<PlannedChange> {
    let fleet_name = fleet.metadata.name.as_deref().unwrap_or_default();
    let Some(present) = present else {
        template?;
        return Some(row(cluster, component, &child_name(fleet_name, cluster), Change::Create));
    };
    let mut planned = row(cluster, component, present.name(), Change::None);
    let is_own = is_owned(fleet, present);
    let Some(template) = template else {
        planned.change = Change::Delete;
        return is_own.then_some(planned);
    };
    let owner = present.meta().owner_references.iter().flatten().find(|owner| owner.kind == "KnativeFleet");
    let adopts = present.meta().namespace == fleet.metadata.namespace && present.annotation(ADOPT) == Some("true");
    if !is_own && (owner.is_some() || !adopts) {
        let of = owner.map(|owner| format!(" of KnativeFleet {}", owner.name)).unwrap_or_default();
        planned.change = Change::Conflict;
        planned.note = format!("{component} {}/{}{of} uses the cluster", present.namespace(), present.name());
        return Some(planned);
    }
    let mut spec = json!({"spec": template.spec});
    spec["spec"]["clusterProfileRef"] = json!({"name": cluster.name, "namespace": cluster.namespace});
    let wanted = child::with_defaults(component, &spec);
    differences(&child::spec(present), &wanted["spec"], "spec", &mut planned.fields);
    planned.note = steps(present, template.spec.get("version").and_then(Value::as_str)).unwrap_or_default();
    planned.change = match (is_own, planned.fields.is_empty()) {
        (false, _) => Change::Adopt,
        (true, false) => Change::Update,
        (true, true) => Change::None,
    };
    Some(planned)
}

/// Whether a fleet called like `fleet` owns `resource`. A fleet in a file has no uid.
pub fn is_owned(fleet: &KnativeFleet, resource: &Knative) -> bool {
    let mut owners = resource.meta().owner_references.iter().flatten();
    resource.meta().namespace == fleet.metadata.namespace
        && owners.any(|owner| owner.kind == "KnativeFleet" && Some(&owner.name) == fleet.metadata.name.as_ref())
}

/// The steps from the installed version to `asked`, if there are several.
fn steps(present: &Knative, asked: Option<&str>) -> Option<String> {
    let installed = present.installed_version()?;
    let asked = asked?;
    let target: Version = asked.parse().or_else(|_| format!("{asked}.0").parse()).ok()?;
    target.may_follow(Some(&installed), "").err()?;
    Some(format!("in steps: {}", installed.steps(&target).join(", ")))
}

/// The fields that differ between `from` and `to`. Empty values count as missing.
fn differences(from: &Value, to: &Value, path: &str, fields: &mut Vec<String>) {
    let is_empty = |value: &Value| {
        value.is_null()
            || value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    match (from, to) {
        (from, to) if from == to || is_empty(from) && is_empty(to) => {}
        (Value::Object(from), Value::Object(to)) => {
            let keys: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect();
            for key in keys {
                let value = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                differences(&value(from), &value(to), &format!("{path}.{key}"), fields);
            }
        }
        (from, Value::Object(to)) if is_empty(from) => {
            to.iter().for_each(|(key, value)| differences(&Value::Null, value, &format!("{path}.{key}"), fields));
        }
        (from, to) if is_empty(to) => fields.push(format!("{path}: {from} is removed")),
        (from, to) if is_empty(from) => fields.push(format!("{path}: {to} is added")),
        (from, to) => fields.push(format!("{path}: {from} to {to}")),
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::rules;

    use super::*;

    fn cluster(name: &str) -> ClusterProfileReference {
        ClusterProfileReference { name: name.to_owned(), namespace: "n".to_owned() }
    }

    fn profile(tier: &str, healthy: &str) -> ClusterProfile {
        serde_json::from_value(json!({"metadata": {"name": "x", "labels": {"tier": tier}}, "spec": {},
            "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": healthy}]}}))
        .unwrap()
    }

    fn stored(name: &str, target: &str, patch: &Value) -> Knative {
        let mut object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": name, "namespace": "n", "ownerReferences": [{"apiVersion": "a", "kind": "KnativeFleet", "name": "f", "uid": "1"}]},
            "spec": {"version": "1.20.3", "config": {"a": {"b": "c"}}, "clusterProfileRef": {"name": target, "namespace": "n"}}, "status": {"version": "1.20.3"}});
        json_patch::merge(&mut object, patch);
        rules::parse(Component::Serving, &object).unwrap()
    }

    #[test]
    fn each_change_is_planned() {
        let fleet: KnativeFleet = serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {
            "placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22", "config": {"a": {"b": "d"}}}},
            "overrides": [{"clusterSelector": {"matchLabels": {"tier": "old"}}, "serving": {"spec": {"version": "1.20", "config": {"a": {"b": "c"}}}}}],
            "rollout": {"stages": [{"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}}]}}}))
        .unwrap();
        let tiers = [
            ("new", "rest", "True"),
            ("own", "canary", "True"),
            ("same", "old", "True"),
            ("single", "rest", "True"),
            ("adopted", "rest", "False"),
            ("left", "rest", "True"),
        ];
        let profiles: HashMap<_, _> =
            tiers.into_iter().map(|(name, tier, healthy)| (cluster(name), profile(tier, healthy))).collect();
        let resources = [
            stored("one", "own", &json!({})),
            stored("two", "same", &json!({})),
            stored("three", "single", &json!({"metadata": {"ownerReferences": null}})),
            stored("four", "adopted", &json!({"metadata": {"ownerReferences": null, "annotations": {ADOPT: "true"}}})),
            stored("five", "left", &json!({})),
            stored("six", "vanished", &json!({})),
        ];
        let clusters = ["adopted", "new", "own", "same", "single"].map(cluster);
        let changes = plan(&fleet, &clusters, &Stored { profiles: &profiles, resources: &resources, before: None });
        let changes = changes.unwrap();
        let short: Vec<_> = changes.iter().map(|c| (c.cluster.as_str(), c.stage.as_str(), c.change)).collect();
        assert_eq!(
            short,
            [
                ("n/own", "canary", Change::Update),
                ("n/adopted", "rest", Change::Adopt),
                ("n/new", "rest", Change::Create),
                ("n/same", "rest", Change::None),
                ("n/single", "rest", Change::Conflict),
                ("n/left", "", Change::Delete),
                ("n/vanished", "", Change::Keep),
            ]
        );
        assert_eq!(changes[0].fields, [r#"spec.config.a.b: "c" to "d""#, r#"spec.version: "1.20.3" to "1.22""#]);
        assert_eq!(changes[0].note, "in steps: 1.21, 1.22");
        assert_eq!(changes[1].note, "deferred: ControlPlaneHealthy is False");
        assert!(changes[2].name.starts_with("f-new-"));
        assert_eq!(changes[4].note, "KnativeServing n/three uses the cluster");
        assert!(changes[5].note.starts_with("3600 s after the cluster left"), "{}", changes[5].note);
        assert_eq!(changes[6].note, "the ClusterProfile does not exist");
    }

    #[test]
    fn versions_that_are_rolled_out_are_no_change() {
        let profiles = HashMap::from([(cluster("a"), profile("rest", "True"))]);
        let resources = [stored("one", "a", &json!({}))];
        let change = |asked: Option<&str>, before: Option<&RevisionData>| {
            let fleet: KnativeFleet = serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {
                "placement": {"clusterSelector": {}}, "serving": {"spec": {"version": asked, "config": {"a": {"b": "c"}}}}}}))
            .unwrap();
            let stored = Stored { profiles: &profiles, resources: &resources, before };
            plan(&fleet, &[cluster("a")], &stored).unwrap().remove(0).fields
        };
        for asked in [Some("1.20"), Some("latest"), Some("1.20.3"), None] {
            assert!(change(asked, None).is_empty(), "{asked:?}");
        }
        // A rollout of a newer one is in progress.
        let before: RevisionData = serde_json::from_value(json!({"serving": {"spec": {"version": "1.20"}},
            "versions": {"KnativeServing": {"1.20": "1.20.5"}}}))
        .unwrap();
        assert_eq!(change(Some("1.20"), Some(&before)), [r#"spec.version: "1.20.3" to "1.20.5""#]);
        assert_eq!(change(Some("1.21"), Some(&before)), [r#"spec.version: "1.20.3" to "1.21""#]);
    }
}
