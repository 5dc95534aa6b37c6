//! Selectors of clusters: by the labels of their ClusterProfiles, by their properties, or by both.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

use crate::api::fleet::{FleetOverride, Selecting};
use crate::api::{ClusterProfile, KnativeFleetSpec};

/// Labels or properties, by name.
pub type Labels = BTreeMap<String, String>;

/// Why a label selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An expression has no key. It is read as an empty one, which no label has, so that `NotIn`
    /// would select everything.
    #[error("an expression has no key")]
    NoKey,
    /// An expression has an unknown operator, or the wrong number of values.
    #[error("{0}")]
    Expression(String),
}

/// Why the selectors of a placement, a stage or an override are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterSelectorError {
    /// One of them is invalid.
    #[error("{field}: {why}")]
    Invalid {
        /// Its name.
        field: &'static str,
        /// What is wrong with it.
        why: SelectorError,
    },
    /// An override has none: it could be for all clusters, or for none.
    #[error("neither clusterSelector nor propertySelector is set")]
    Missing,
}

/// The selector that `given` describes.
///
/// # Errors
///
/// What is wrong with it.
pub fn selector(given: LabelSelector) -> Result<Selector, SelectorError> {
    if given.match_expressions.iter().flatten().any(|expression| expression.key.is_empty()) {
        return Err(SelectorError::NoKey);
    }
    Selector::try_from(given).map_err(|error| SelectorError::Expression(error.to_string()))
}

/// What selectors look at in a ClusterProfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits<'a> {
    /// Labels.
    pub labels: Cow<'a, Labels>,
    /// Properties.
    pub properties: Cow<'a, Labels>,
    /// Whether this version can't read the properties.
    pub are_unreadable: bool,
}

impl<'a> Traits<'a> {
    /// Those of `profile`; one that does not exist has none.
    pub fn of(profile: Option<&'a ClusterProfile>) -> Self {
        let Some(profile) = profile else { return Self::default() };
        let borrowed = |map: Option<&'a Labels>| map.map_or_else(Cow::default, Cow::Borrowed);
        Self {
            labels: borrowed(profile.metadata.labels.as_ref()),
            properties: borrowed(profile.status.as_ref().map(|status| &status.properties.0)),
            are_unreadable: profile.has_unreadable_properties(),
        }
    }

    /// Whether the properties are known: this version can read them, and there are some. They are
    /// in the status, so a new ClusterProfile has none yet.
    pub fn has_properties(&self) -> bool {
        !self.are_unreadable && !self.properties.is_empty()
    }

    /// The same, borrowed.
    pub fn borrowed(&self) -> Traits<'_> {
        let Self { labels, properties, are_unreadable } = self;
        Traits {
            labels: Cow::Borrowed(labels.as_ref()),
            properties: Cow::Borrowed(properties.as_ref()),
            are_unreadable: *are_unreadable,
        }
    }

    /// The same, without the ClusterProfile.
    pub fn into_owned(self) -> Traits<'static> {
        Traits {
            labels: Cow::Owned(self.labels.into_owned()),
            properties: Cow::Owned(self.properties.into_owned()),
            are_unreadable: self.are_unreadable,
        }
    }

    /// Names of the properties that `other` lacks, or has with another value, and the other way
    /// round.
    pub fn differing_properties<'t>(&'t self, other: &'t Traits<'_>) -> BTreeSet<&'t str> {
        let (own, others): (&'t Labels, &'t Labels) = (&self.properties, &other.properties);
        let names = own.keys().chain(others.keys());
        names.filter(|name| own.get(*name) != others.get(*name)).map(String::as_str).collect()
    }
}

/// Selects clusters by labels and properties.
#[derive(Clone, Debug)]
pub struct ClusterSelector {
    labels: Selector,
    properties: Selector,
}

impl ClusterSelector {
    /// The selector of `selecting`, such as a stage; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Which of its fields is invalid, and why.
    pub fn of(selecting: &impl Selecting) -> Result<Option<Self>, ClusterSelectorError> {
        if !selecting.has_selector() {
            return Ok(None);
        }
        let [labels, properties] = selecting.selectors();
        let read = |field: &'static str, given: Option<&LabelSelector>| {
            let read = selector(given.cloned().unwrap_or_default());
            read.map_err(|why| ClusterSelectorError::Invalid { field, why })
        };
        Ok(Some(Self { labels: read("clusterSelector", labels)?, properties: read("propertySelector", properties)? }))
    }

    /// The selector of `change`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or that there is none.
    pub fn of_override(change: &FleetOverride) -> Result<Self, ClusterSelectorError> {
        Self::of(change)?.ok_or(ClusterSelectorError::Missing)
    }

    /// Whether it selects a cluster with `traits`.
    pub fn matches(&self, traits: &Traits<'_>) -> bool {
        let (labels, properties): (&Labels, &Labels) = (&traits.labels, &traits.properties);
        self.labels.matches(labels) && self.properties.matches(properties)
    }

    /// Whether it selects clusters with these labels, of which ones `properties` decides then.
    pub fn matches_labels(&self, labels: &Labels) -> bool {
        self.labels.matches(labels)
    }

    /// Whether it selects by properties.
    pub fn uses_properties(&self) -> bool {
        !self.properties.selects_all()
    }
}

/// Names of the properties that a fleet with `spec` selects by.
pub fn selected_properties(spec: &KnativeFleetSpec) -> BTreeSet<&str> {
    let stages = spec.rollout.stages.iter().map(|stage| stage.property_selector.as_ref());
    let placement_and_stages = [spec.placement.property_selector.as_ref()].into_iter().chain(stages);
    let mut names = names(placement_and_stages.flatten());
    names.extend(overriding_properties(&spec.overrides));
    names
}

/// Names of the properties that `overrides` select by.
pub fn overriding_properties(overrides: &[FleetOverride]) -> BTreeSet<&str> {
    names(overrides.iter().filter_map(|change| change.property_selector.as_ref()))
}

fn names<'s>(selectors: impl Iterator<Item = &'s LabelSelector>) -> BTreeSet<&'s str> {
    let mut names = BTreeSet::new();
    for selector in selectors {
        names.extend(selector.match_labels.iter().flatten().map(|(name, _)| name.as_str()));
        names.extend(selector.match_expressions.iter().flatten().map(|expression| expression.key.as_str()));
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn traits(labels: &Value, properties: &Value) -> Traits<'static> {
        let of = |map: &Value| -> Cow<'static, Labels> { Cow::Owned(serde_json::from_value(map.clone()).unwrap()) };
        Traits { labels: of(labels), properties: of(properties), are_unreadable: false }
    }

    fn of(labels: &Value, properties: &Value) -> Result<Option<ClusterSelector>, ClusterSelectorError> {
        let selecting = json!({"clusterSelector": labels, "propertySelector": properties});
        ClusterSelector::of(&serde_json::from_value::<FleetOverride>(selecting).unwrap())
    }

    #[test]
    fn labels_and_properties_must_match() {
        let long = "a value, which is no label: ".repeat(9);
        let cluster = traits(&json!({"env": "prod"}), &json!({"region.example.com/name": "eu-1", "sku": long}));
        let region = |value: &str| json!({"matchLabels": {"region.example.com/name": value}});
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let prod = json!({"matchLabels": {"env": "prod"}});
        for (labels, properties, expected) in [
            (&prod, region("eu-1"), true),
            (&prod, region("us-1"), false),
            (&json!({"matchLabels": {"env": "test"}}), region("eu-1"), false),
            (&Value::Null, region("eu-1"), true),
            // A label is no property, and a property no label.
            (&Value::Null, prod.clone(), false),
            (&region("eu-1"), Value::Null, false),
            (&prod, Value::Null, true),
            (&Value::Null, json!({}), true),
            (&prod, expression("sku", "In", json!([long])), true),
            (&prod, expression("sku", "NotIn", json!([long])), false),
            (&prod, expression("gpu", "NotIn", json!(["yes"])), true),
            (&prod, expression("gpu", "Exists", Value::Null), false),
            (&prod, expression("gpu", "DoesNotExist", Value::Null), true),
        ] {
            let selector = of(labels, &properties).unwrap().unwrap();
            assert_eq!(selector.matches(&cluster), expected, "{labels} {properties}");
        }
        assert!(of(&Value::Null, &Value::Null).unwrap().is_none());
        let like = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        assert!(of(&prod, &like).unwrap_err().to_string().starts_with("propertySelector: "));
        assert!(of(&like, &Value::Null).unwrap_err().to_string().starts_with("clusterSelector: "));
        let no_key = json!({"matchExpressions": [{"key": "", "operator": "DoesNotExist"}]});
        let without_key = ClusterSelectorError::Invalid { field: "propertySelector", why: SelectorError::NoKey };
        assert_eq!(of(&Value::Null, &no_key).unwrap_err(), without_key);
        let missing = ClusterSelector::of_override(&FleetOverride::default()).unwrap_err();
        assert_eq!(missing, ClusterSelectorError::Missing);
    }

    #[test]
    fn properties_that_are_selected_are_known() {
        let by = |name: &str| json!({"matchLabels": {name: "x"}});
        let spec: KnativeFleetSpec = serde_json::from_value(json!({
            "placement": {"clusterSelector": by("label"), "propertySelector": by("a")},
            "overrides": [{"propertySelector": {"matchExpressions": [{"key": "b", "operator": "Exists"}]}}, {"clusterSelector": {}}],
            "rollout": {"stages": [{"name": "s", "propertySelector": by("c")}, {"name": "t", "clusterSelector": by("label")}]},
        }))
        .unwrap();
        assert_eq!(selected_properties(&spec), BTreeSet::from(["a", "b", "c"]));
        assert_eq!(overriding_properties(&spec.overrides), BTreeSet::from(["b"]));
        let labels = json!({});
        let (one, two) = (traits(&labels, &json!({"a": "1", "b": "1"})), traits(&labels, &json!({"b": "2", "c": "1"})));
        assert_eq!(one.differing_properties(&two), BTreeSet::from(["a", "b", "c"]));
        assert!(one.differing_properties(&one.clone()).is_empty());
    }
}
