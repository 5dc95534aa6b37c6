//! The clusters of a fleet: those that a selector selects, or those of a decision (KEP-5313).

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::placement_error::{DecisionError, PlacementError};
use super::selector::{ClusterSelector, Labels, Traits};
use crate::api::cluster_profile::HEALTHY;
use crate::api::fleet::{DecisionReference, FleetOverride, Placement, Selecting};
use crate::api::{ClusterProfile, ClusterProfileReference, KnativeFleetSpec};
use crate::strict;

/// Matches the ClusterProfiles of all namespaces.
const ALL: &str = "*";
/// Maximum number of namespaces of a placement, each of which costs the webhook a question about
/// the permission of the user. The API server enforces it, after the mutating webhook.
pub const MAX_NAMESPACES: usize = 256;
/// Label of a PlacementDecision: name of the decision that it is a slice of.
const DECISION_KEY: &str = "multicluster.x-k8s.io/decision-key";
/// Label of a PlacementDecision: number of the slice.
const DECISION_INDEX: &str = "multicluster.x-k8s.io/decision-index";

/// Namespaces of the ClusterProfiles that `placement` of a fleet in `namespace` selects; `None` for
/// all.
pub fn namespaces<'p>(placement: &'p Placement, namespace: &'p str) -> Option<Vec<&'p str>> {
    if placement.namespaces.is_empty() {
        return Some(vec![namespace]);
    }
    let is_all = placement.namespaces.iter().any(|namespace| namespace == ALL);
    (!is_all).then(|| placement.namespaces.iter().map(String::as_str).collect())
}

/// The ClusterProfiles among `profiles`, with their traits, that `placement` of a fleet in
/// `namespace` selects, by name.
///
/// # Errors
///
/// The selector in `placement` that is invalid, or that selects by properties that can't be read: a
/// cluster must not leave its fleet because of them.
pub fn selected<'p>(
    placement: &Placement,
    namespace: &str,
    profiles: impl Iterator<Item = (&'p ClusterProfileReference, Traits<'p>)>,
) -> Result<Vec<ClusterProfileReference>, PlacementError> {
    let Some(selector) = ClusterSelector::of(placement)? else { return Ok(Vec::new()) };
    let namespaces: Option<HashSet<&str>> = namespaces(placement, namespace).map(|all| all.into_iter().collect());
    let mut selected = Vec::new();
    for (reference, traits) in profiles {
        if namespaces.as_ref().is_some_and(|all| !all.contains(reference.namespace.as_str())) {
            continue;
        }
        if !selector.matches_labels(&traits.labels) {
            continue;
        }
        if selector.uses_properties() && traits.are_unreadable {
            return Err(PlacementError::UnreadableProperties(reference.clone()));
        }
        // Without properties, a selector such as NotIn would guess.
        let is_known = !selector.uses_properties() || traits.has_properties();
        if is_known && selector.matches(&traits) {
            selected.push(reference.clone());
        }
    }
    selected.sort();
    Ok(selected)
}

/// Whether `placement` of a fleet in `namespace` may select the ClusterProfile `reference` with
/// `labels`: its properties decide, if it selects by them. False for a placement by decisions.
pub fn may_select(
    placement: &Placement,
    namespace: &str,
    reference: &ClusterProfileReference,
    labels: &Labels,
) -> bool {
    let selector = ClusterSelector::of(placement).ok().flatten();
    let is_near = namespaces(placement, namespace).is_none_or(|all| all.contains(&reference.namespace.as_str()));
    placement.decision.is_none() && is_near && selector.is_some_and(|selector| selector.matches_labels(labels))
}

/// The clusters of `decision` in `namespace`, in the order of its slices; `slices` are
/// PlacementDecisions. A cluster that is named twice is there once.
///
/// # Errors
///
/// Which decision can't be read, or that the named one doesn't exist. A cluster that is not read
/// would leave its fleet.
pub fn decided<'s>(
    decision: &DecisionReference,
    namespace: &str,
    slices: impl Iterator<Item = &'s Value>,
) -> Result<Vec<ClusterProfileReference>, DecisionError> {
    let text = |value: &'s Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let label = |slice: &'s Value, name: &str| slice["metadata"]["labels"][name].as_str().unwrap_or_default();
    let is_there = |slice: &&'s Value| text(slice, "/metadata/namespace") == namespace;
    let mut own: Vec<&'s Value> = slices.filter(is_there).collect();
    match (&decision.key, &decision.name) {
        (Some(key), None) => own.retain(|slice| label(slice, DECISION_KEY) == key),
        (None, Some(name)) => {
            own.retain(|slice| text(slice, "/metadata/name") == name);
            let called = format!("{namespace}/{name}");
            let Some(slice) = own.first() else { return Err(DecisionError::NotFound(called)) };
            let key = label(slice, DECISION_KEY);
            if !key.is_empty() {
                return Err(DecisionError::Slice { slice: called, key: key.to_owned() });
            }
        }
        _ => return Err(DecisionError::Unclear),
    }
    let index = |slice: &'s Value| label(slice, DECISION_INDEX).parse::<u32>().unwrap_or(u32::MAX);
    own.sort_by_key(|slice| (index(slice), text(slice, "/metadata/name")));
    let (mut clusters, mut seen) = (Vec::new(), HashSet::new());
    for slice in own {
        let failed = |why: String| DecisionError::Unreadable {
            slice: format!("{namespace}/{}", text(slice, "/metadata/name")),
            why,
        };
        let Value::Array(decisions) = &slice["decisions"] else {
            return Err(failed("decisions is not a list".to_owned()));
        };
        for (number, decision) in decisions.iter().enumerate() {
            let reference: DecidedReference = strict::read(&decision["clusterProfileRef"])
                .map_err(|error| failed(format!("decisions[{number}].clusterProfileRef: {error}")))?;
            let named = reference.namespace.filter(|named| !named.is_empty());
            let cluster = ClusterProfileReference {
                name: reference.name,
                namespace: named.unwrap_or_else(|| namespace.to_owned()),
            };
            if cluster.name.is_empty() {
                return Err(failed(format!("decisions[{number}].clusterProfileRef.name is missing")));
            }
            if seen.insert(cluster.clone()) {
                clusters.push(cluster);
            }
        }
    }
    Ok(clusters)
}

/// A reference in a PlacementDecision.
#[derive(Deserialize)]
struct DecidedReference {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

/// A cluster whose stage or content properties decide, which are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProperties {
    /// The selector by properties.
    pub field: String,
    /// The cluster.
    pub cluster: ClusterProfileReference,
}

impl UnknownProperties {
    /// What to do about it.
    pub const FIX: &str = "its cluster manager has to publish them, or exclude the cluster by spec.placement";

    /// The first one among `clusters` of a fleet with `spec`. A guess could pass an approval, so
    /// nothing is written for the fleet.
    pub fn find<'c, 't>(
        spec: &KnativeFleetSpec,
        mut clusters: impl Iterator<Item = (&'c ClusterProfileReference, Traits<'t>)>,
    ) -> Option<Self> {
        let field = dividing_field(spec)?;
        let (cluster, _) = clusters.find(|(_, traits)| !traits.has_properties())?;
        Some(Self { field, cluster: cluster.clone() })
    }
}

impl fmt::Display for UnknownProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, cluster } = self;
        let what = format!("ClusterProfile {cluster} has no status.properties that this version can read");
        write!(f, "{field} is set, but {what}; {}", Self::FIX)
    }
}

/// The first selector by properties that decides the stage or the content of the clusters of a
/// fleet with `spec`.
pub fn dividing_field(spec: &KnativeFleetSpec) -> Option<String> {
    let stage = spec.rollout.stages.iter().position(uses_properties);
    let stage = stage.map(|index| format!("spec.rollout.stages[{index}].propertySelector"));
    let change = || spec.overrides.iter().position(uses_properties);
    stage.or_else(|| Some(format!("spec.overrides[{}].propertySelector", change()?)))
}

fn uses_properties(selecting: &impl Selecting) -> bool {
    let [_, properties] = selecting.selectors();
    properties.is_some()
}

/// Whether it is known which of `overrides` select a cluster with `profile`. Those of an earlier
/// revision may select by what the spec doesn't select by any more.
pub fn are_known(overrides: &[FleetOverride], profile: Option<&ClusterProfile>) -> bool {
    let Some(profile) = profile else { return overrides.is_empty() };
    !overrides.iter().any(uses_properties) || Traits::of(Some(profile)).has_properties()
}

/// Why a cluster with `profile` can't be updated; `None` if it is healthy, or if its manager
/// publishes how to access it, and nothing about its health.
pub fn unhealthy(profile: Option<&ClusterProfile>) -> Option<String> {
    let Some(profile) = profile else { return Some("the ClusterProfile does not exist".to_owned()) };
    match profile.health() {
        Some(condition) if condition.status == "True" => None,
        Some(condition) if condition.message.is_empty() => Some(format!("{HEALTHY} is {}", condition.status)),
        Some(condition) => Some(format!("{HEALTHY} is {}: {}", condition.status, condition.message)),
        // Nobody vouches for the cluster, so the connection decides.
        None if profile.has_access() => None,
        None => Some(format!("the ClusterProfile has neither access providers nor the condition {HEALTHY}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profile(namespace: &str, name: &str, tier: &str) -> (ClusterProfileReference, ClusterProfile) {
        let profile: ClusterProfile = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"tier": tier}}, "spec": {},
            "status": {"properties": [{"name": "cluster", "value": name}]},
        }))
        .unwrap();
        (ClusterProfileReference { name: name.to_owned(), namespace: namespace.to_owned() }, profile)
    }

    #[test]
    fn selector_selects_in_namespaces() {
        let profiles = [
            profile("own", "b", "prod"),
            profile("own", "a", "prod"),
            profile("own", "c", "test"),
            profile("other", "d", "prod"),
        ];
        let select = |placement: Value| {
            let placement: Placement = serde_json::from_value(placement).unwrap();
            let with_traits = profiles.iter().map(|(reference, profile)| (reference, Traits::of(Some(profile))));
            let all = selected(&placement, "own", with_traits).unwrap();
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let prod = json!({"matchLabels": {"tier": "prod"}});
        assert_eq!(select(json!({"clusterSelector": prod})), ["own/a", "own/b"]);
        assert_eq!(select(json!({"clusterSelector": prod, "namespaces": ["*"]})), ["own/a", "own/b", "other/d"]);
        assert_eq!(select(json!({"clusterSelector": prod, "namespaces": ["other"]})), ["other/d"]);
        assert_eq!(select(json!({"clusterSelector": {}})).len(), 3);
        assert!(select(json!({"decision": {"key": "k"}})).is_empty());
        let not_a = json!({"matchExpressions": [{"key": "cluster", "operator": "NotIn", "values": ["a"]}]});
        assert_eq!(select(json!({"clusterSelector": prod, "propertySelector": not_a})), ["own/b"]);
        assert_eq!(select(json!({"propertySelector": not_a})), ["own/b", "own/c"]);
        let invalid: Placement = serde_json::from_value(
            json!({"clusterSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
        )
        .unwrap();
        assert!(selected(&invalid, "own", std::iter::empty()).is_err());
    }

    #[test]
    fn cluster_does_not_leave_because_of_properties_that_are_not_known() {
        let (reference, _) = profile("own", "a", "prod");
        let select = |placement: Value| {
            let placement: Placement = serde_json::from_value(placement).unwrap();
            let unknown = Traits { are_unreadable: true, ..Traits::default() };
            selected(&placement, "own", [(&reference, unknown)].into_iter())
        };
        let by_property = json!({"matchLabels": {"cluster": "a"}});
        let why = select(json!({"propertySelector": by_property})).unwrap_err().to_string();
        assert!(why.starts_with("propertySelector: ") && why.ends_with("ClusterProfile own/a"), "{why}");
        assert_eq!(select(json!({"clusterSelector": {}})).map(|selected| selected.len()), Ok(1));
        assert_eq!(select(json!({"propertySelector": by_property, "namespaces": ["other"]})), Ok(Vec::new()));
    }

    #[test]
    fn properties_are_known_where_they_decide() {
        let by_property = json!({"propertySelector": {"matchLabels": {"cluster": "a"}}});
        let spec = |patch: Value| {
            let mut spec = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": {}}});
            json_patch::merge(&mut spec, &patch);
            serde_json::from_value::<KnativeFleetSpec>(spec).unwrap()
        };
        let mut named = by_property.clone();
        named["name"] = json!("canary");
        let by_stage = spec(json!({"rollout": {"stages": [{"name": "first", "clusterSelector": {}}, named]}}));
        let by_override = spec(json!({"overrides": [by_property]}));
        let (known, with) = profile("own", "a", "prod");
        let (unknown, mut without) = profile("own", "b", "prod");
        without.status = None;
        let find = |spec: &KnativeFleetSpec| {
            let all = [(&known, Traits::of(Some(&with))), (&unknown, Traits::of(Some(&without)))];
            UnknownProperties::find(spec, all.into_iter()).map(|unknown| unknown.to_string())
        };
        let expected = |field: &str| {
            let what = "ClusterProfile own/b has no status.properties that this version can read";
            Some(format!("{field} is set, but {what}; {}", UnknownProperties::FIX))
        };
        assert_eq!(find(&by_stage), expected("spec.rollout.stages[1].propertySelector"));
        assert_eq!(find(&by_override), expected("spec.overrides[0].propertySelector"));
        assert_eq!(find(&spec(json!({"placement": by_property}))), None, "it selects no such cluster");
        let only_known = [(&known, Traits::of(Some(&with)))].into_iter();
        assert_eq!(UnknownProperties::find(&by_override, only_known), None);
        // The content of a revision, whose overrides the spec may not have.
        let by_label = spec(json!({"overrides": [{"clusterSelector": {}}]}));
        for (spec, profile, expected) in [
            (&by_override, Some(&with), true),
            (&by_override, Some(&without), false),
            (&by_override, None, false),
            (&by_label, Some(&without), true),
            (&by_label, None, false),
            (&by_stage, None, true),
        ] {
            assert_eq!(are_known(&spec.overrides, profile), expected, "{:?} {profile:?}", spec.overrides);
        }
    }

    #[test]
    fn slices_of_a_decision_are_in_order() {
        let slice = |namespace: &str, name: &str, key: &str, index: &str, clusters: Value| json!({"metadata": {"namespace": namespace, "name": name, "labels": {DECISION_KEY: key, DECISION_INDEX: index}}, "decisions": clusters});
        let named = |name: &str| json!({"clusterProfileRef": {"name": name}});
        let slices = [
            slice("n", "z", "k", "1", json!([named("c"), named("a")])),
            slice("n", "y", "k", "0", json!([named("a"), {"clusterProfileRef": {"name": "b", "namespace": "m"}}])),
            json!({"metadata": {"namespace": "n", "name": "x"}, "decisions": [named("d")]}),
            slice("other", "w", "k", "0", json!([named("e")])),
        ];
        let decision = |patch: Value| serde_json::from_value::<DecisionReference>(patch).unwrap();
        let (key, name) = (decision(json!({"key": "k"})), decision(json!({"name": "x"})));
        let texts =
            |clusters: Vec<ClusterProfileReference>| clusters.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(decided(&key, "n", slices.iter()).unwrap()), ["n/a", "m/b", "n/c"]);
        // One without slices, by its name. One that is missing is not one without clusters.
        assert_eq!(texts(decided(&name, "n", slices.iter()).unwrap()), ["n/d"]);
        assert_eq!(decided(&key, "m", slices.iter()), Ok(Vec::new()));
        assert_eq!(decided(&name, "m", slices.iter()), Err(DecisionError::NotFound("m/x".to_owned())));
        // Its scheduler may move clusters to another slice.
        let of_slice = decided(&decision(json!({"name": "z"})), "n", slices.iter());
        assert_eq!(of_slice, Err(DecisionError::Slice { slice: "n/z".to_owned(), key: "k".to_owned() }));
        for unclear in [json!({}), json!({"key": "k", "name": "x"})] {
            assert_eq!(decided(&decision(unclear), "n", slices.iter()), Err(DecisionError::Unclear));
        }
        for unreadable in [json!([{}]), json!({"a": 1}), json!([{"clusterProfileRef": "a"}]), json!(["a"])] {
            let slices = [slice("n", "y", "k", "0", unreadable)];
            assert!(decided(&key, "n", slices.iter()).is_err(), "{slices:?}");
        }
    }

    #[test]
    fn cluster_is_healthy_if_its_control_plane_is() {
        let of = |status: Value| {
            serde_json::from_value::<ClusterProfile>(json!({"metadata": {"name": "a"}, "spec": {}, "status": status}))
                .unwrap()
        };
        let with = |conditions: Value| of(json!({"conditions": conditions}));
        assert_eq!(unhealthy(Some(&with(json!([{"type": HEALTHY, "status": "True"}])))), None);
        for (profile, expected) in [
            (
                Some(with(json!([{"type": HEALTHY, "status": "False", "message": "no lease"}]))),
                "ControlPlaneHealthy is False: no lease",
            ),
            (Some(with(json!([{"type": HEALTHY, "status": "Unknown"}]))), "ControlPlaneHealthy is Unknown"),
            (Some(with(json!([]))), "neither access providers nor the condition"),
            (None, "does not exist"),
        ] {
            assert!(unhealthy(profile.as_ref()).is_some_and(|why| why.contains(expected)));
        }
        // Nobody vouches for it, and there is a way to access it.
        let access = json!([{"name": "p", "cluster": {"server": "https://h"}}]);
        let joined = json!([{"type": "Joined", "status": "False"}]);
        for field in ["accessProviders", "credentialProviders"] {
            assert_eq!(unhealthy(Some(&of(json!({field: access})))), None);
            assert_eq!(unhealthy(Some(&of(json!({field: access, "conditions": joined})))), None);
        }
        let unknown = json!([{"type": HEALTHY, "status": "Unknown"}]);
        assert!(unhealthy(Some(&of(json!({"accessProviders": access, "conditions": unknown})))).is_some());
    }
}
