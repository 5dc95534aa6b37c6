//! What a fleet would change, before it is stored.

use std::collections::{HashMap, HashSet};

use knative_operator_shared::api::fleet::{RemovalPolicy, Template};
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, Knative, KnativeFleet};
use knative_operator_shared::fleet::overrides::{InvalidOverride, overridden};
use knative_operator_shared::fleet::placement::unhealthy;
use knative_operator_shared::fleet::selector::Traits;
use knative_operator_shared::fleet::stage::{InvalidStages, Stages};
use knative_operator_shared::version::Version;
use knative_operator_shared::way::{self, Lacking};
use serde::Serialize;
use serde_json::{Value, json};

use super::child;
use super::removal::GRACE_PERIOD;
use super::revision::RevisionData;
use super::template::child_name;
use super::versions::{self, Meaning, VersionSources};

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
    /// The version of Knative that it asks for afterwards, if it asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
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
    /// The versions in the release bundle of the operator; none if they are not known.
    pub available: &'a [(Component, Vec<Version>)],
    /// Whether the operator keeps what is installed.
    pub keeps_installed: bool,
}

impl Stored<'_> {
    /// The versions of `component` in the release bundle.
    fn versions(&self, component: Component) -> &[Version] {
        self.available.iter().find(|(of, _)| *of == component).map_or(&[], |(_, versions)| versions.as_slice())
    }

    /// The versions that `fleet`, which selects `clusters`, has installed, also by what it adopts.
    fn installed(&self, fleet: &KnativeFleet, clusters: &[ClusterProfileReference]) -> Vec<(Component, Version)> {
        let key = |resource: &Knative| Some((resource.common().cluster_profile_ref.clone()?, resource.component()));
        let (own, others): (Vec<_>, Vec<_>) = self.resources.iter().partition(|resource| is_owned(fleet, resource));
        let keys: HashSet<_> = own.iter().filter_map(|resource| key(resource)).collect();
        let selected: HashSet<_> = clusters.iter().collect();
        let is_adopted = |resource: &&Knative| {
            let is_free = child::is_adoptable(fleet, resource) && !resource.is_terminating();
            is_free && key(resource).is_some_and(|key| selected.contains(&key.0) && !keys.contains(&key))
        };
        let adopted = others.into_iter().filter(is_adopted);
        let all = own.iter().copied().chain(adopted);
        all.filter_map(|resource| Some((resource.component(), child::known_version(resource)?))).collect()
    }
}

/// A fleet of which no plan can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplannable {
    /// Its stages are invalid.
    #[error(transparent)]
    Stages(#[from] InvalidStages),
    /// One of its overrides is invalid.
    #[error(transparent)]
    Override(#[from] InvalidOverride),
}

/// What `fleet`, which selects `clusters`, would change, by stage.
///
/// # Errors
///
/// If a selector or an override is invalid.
pub fn plan(
    fleet: &KnativeFleet,
    clusters: &[ClusterProfileReference],
    stored: &Stored<'_>,
) -> Result<Vec<PlannedChange>, Unplannable> {
    let stages = Stages::of(&fleet.spec.rollout)?;
    let mut by_cluster: HashMap<(ClusterProfileReference, Component), &Knative> = HashMap::new();
    for resource in stored.resources.iter().filter(|resource| !resource.is_terminating()) {
        if let Some(cluster) = resource.common().cluster_profile_ref.clone() {
            let entry = by_cluster.entry((cluster, resource.component())).or_insert(resource);
            if is_owned(fleet, resource) {
                *entry = resource;
            }
        }
    }
    let installed = stored.installed(fleet, clusters);
    let data = versions::resolved(RevisionData::of(&fleet.spec), &sources(stored, &installed));
    let mut changes = Vec::new();
    for cluster in clusters {
        let profile = stored.profiles.get(cluster);
        let traits = Traits::of(profile);
        let stage = stages.index_of(&traits);
        for component in Component::ALL {
            let present = by_cluster.get(&(cluster.clone(), component)).copied();
            let template = fleet.spec.template(component).map(|template| {
                let mut template = overridden(template, &fleet.spec.overrides, component, &traits)?;
                data.pin(component, &mut template);
                Ok::<_, InvalidOverride>(template)
            });
            let available = stored.versions(component);
            let Some(mut planned) = planned(fleet, cluster, component, template.transpose()?, (present, available))
            else {
                continue;
            };
            planned.stage.clone_from(&stages.settings()[stage].name);
            if let Some(why) = unhealthy(profile).filter(|_| planned.change != Change::None) {
                let rest = if planned.note.is_empty() { String::new() } else { format!("; {}", planned.note) };
                planned.note = format!("{DEFERRED}{why}{rest}");
            }
            changes.push((stage, planned));
        }
    }
    let selected: HashSet<&ClusterProfileReference> = clusters.iter().collect();
    let own = stored.resources.iter().filter(|resource| is_owned(fleet, resource) && !resource.is_terminating());
    let mut left: HashMap<&ClusterProfileReference, Vec<&Knative>> = HashMap::new();
    for resource in own {
        let cluster = resource.common().cluster_profile_ref.as_ref();
        if let Some(cluster) = cluster.filter(|cluster| !selected.contains(cluster)) {
            left.entry(cluster).or_default().push(resource);
        }
    }
    for (cluster, own) in left {
        let (change, note) = match stored.profiles.get(cluster) {
            Some(profile) => removal(fleet, child::unavailable(&own, Some(profile)).as_deref()),
            None => (Change::Keep, "the ClusterProfile does not exist".to_owned()),
        };
        for resource in own {
            let removed = row(cluster, resource.component(), resource.name(), change);
            changes.push((usize::MAX, PlannedChange { note: note.clone(), ..removed }));
        }
    }
    changes.sort_by(|(a, x), (b, y)| (a, &x.cluster, x.kind).cmp(&(b, &y.cluster, y.kind)));
    Ok(changes.into_iter().map(|(_, change)| change).collect())
}

/// What the versions without a patch number in `fleet`, which selects `clusters`, mean.
pub fn meanings(fleet: &KnativeFleet, clusters: &[ClusterProfileReference], stored: &Stored<'_>) -> Vec<Meaning> {
    let installed = stored.installed(fleet, clusters);
    versions::meanings(&RevisionData::of(&fleet.spec), &sources(stored, &installed))
}

/// What the versions of a fleet that has `installed` depend on.
fn sources<'a>(stored: &Stored<'a>, installed: &'a [(Component, Version)]) -> VersionSources<'a> {
    let Stored { before, available, keeps_installed, .. } = *stored;
    VersionSources { available, before, installed, keeps_installed }
}

/// What happens to a resource whose cluster leaves `fleet`, and when; `unavailable`: why the
/// cluster is not available, if it is not.
fn removal(fleet: &KnativeFleet, unavailable: Option<&str>) -> (Change, String) {
    let removal = &fleet.spec.removal;
    let change = match removal.policy {
        RemovalPolicy::Delete => Change::Delete,
        RemovalPolicy::Orphan => Change::Orphan,
    };
    let grace = removal.grace_period_seconds.map_or(GRACE_PERIOD.as_secs(), i64::from);
    let after = match unavailable.filter(|_| removal.policy == RemovalPolicy::Delete) {
        Some(why) => format!("stays while the cluster is not available ({why}), and {grace} s after that"),
        None => format!("{grace} s after the cluster left"),
    };
    (change, format!("{after} (removal.gracePeriodSeconds), within removal.maxAtOnce"))
}

fn row(cluster: &ClusterProfileReference, component: Component, name: &str, change: Change) -> PlannedChange {
    PlannedChange {
        cluster: cluster.to_string(),
        stage: String::new(),
        kind: component.kind(),
        name: name.to_owned(),
        change,
        version: None,
        fields: Vec::new(),
        note: String::new(),
    }
}

/// What happens to the resource `present` of a cluster; `available` are the versions in the release
/// bundle.
fn planned(
    fleet: &KnativeFleet,
    cluster: &ClusterProfileReference,
    component: Component,
    template: Option<Template>,
    (present, available): (Option<&Knative>, &[Version]),
) -> Option<PlannedChange> {
    let fleet_name = fleet.metadata.name.as_deref().unwrap_or_default();
    let asked = template.as_ref().and_then(|template| template.spec.get("version")?.as_str()).map(str::to_owned);
    let Some(present) = present else {
        template?;
        let created = row(cluster, component, &child_name(fleet_name, cluster), Change::Create);
        return Some(PlannedChange { version: asked, ..created });
    };
    let mut planned = row(cluster, component, present.name(), Change::None);
    let is_own = is_owned(fleet, present);
    let Some(template) = template else {
        planned.change = Change::Delete;
        return is_own.then_some(planned);
    };
    let owner = present.meta().owner_references.iter().flatten().find(|owner| owner.kind == "KnativeFleet");
    if !is_own && !child::is_adoptable(fleet, present) {
        let of = owner.map(|owner| format!(" of KnativeFleet {}", owner.name)).unwrap_or_default();
        planned.change = Change::Conflict;
        planned.note = format!("{component} {}/{}{of} uses the cluster", present.namespace(), present.name());
        return Some(planned);
    }
    let mut spec = json!({"spec": template.spec});
    spec["spec"]["clusterProfileRef"] = json!({"name": cluster.name, "namespace": cluster.namespace});
    let wanted = child::with_defaults(component, &spec);
    differences(&child::spec(present), &wanted["spec"], "spec", &mut planned.fields);
    // Own manifests may have any version.
    let is_released = template.spec.get("manifests").and_then(Value::as_array).is_none_or(Vec::is_empty);
    planned.note = steps(present, asked.as_deref(), available).filter(|_| is_released).unwrap_or_default();
    planned.version = asked;
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

/// The steps from the installed version to `asked`, if there are several, or why there is no way.
/// `available` are the versions in the release bundle; none if they are not known.
fn steps(present: &Knative, asked: Option<&str>, available: &[Version]) -> Option<String> {
    let installed = present.installed_version()?;
    let asked = asked?;
    if !available.is_empty() {
        return match way::steps(&installed, asked, available) {
            Ok(steps) if steps.len() > 1 => {
                let steps: Vec<_> = steps.iter().map(ToString::to_string).collect();
                Some(format!("in steps: {}", steps.join(", ")))
            }
            Ok(_) => None,
            Err(Lacking(lacking)) => Some(format!("the release bundle of the operator lacks version {lacking}")),
        };
    }
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
#[path = "plan_tests.rs"]
mod tests;
