//! Overrides of templates: JSON merge patches (RFC 7386) for the clusters that a selector selects.

use serde_json::{Value, json};

use super::selector::{ClusterSelector, Traits};
use crate::api::Component;
use crate::api::fleet::{FleetOverride, Template};
use crate::strict;

/// An override that can't be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.overrides[{index}]: {why}")]
pub struct InvalidOverride {
    /// Its place in the list.
    pub index: usize,
    /// What is wrong with it.
    pub why: String,
}

/// Changes the template `value` by the patch of `component` in `change`.
///
/// # Errors
///
/// The result is no template.
pub fn patch(value: &mut Value, change: &FleetOverride, component: Component) -> serde_json::Result<Template> {
    json_patch::merge(value, &Value::Object(change.patch(component).clone()));
    strict::read(value)
}

/// The template of `component` with the overrides for a cluster with `traits`.
///
/// # Errors
///
/// An override after which the template is invalid.
pub fn overridden(
    template: &Template,
    overrides: &[FleetOverride],
    component: Component,
    traits: &Traits<'_>,
) -> Result<Template, InvalidOverride> {
    let mut value = json!(template);
    for (index, change) in overrides.iter().enumerate() {
        let failed = |why: String| InvalidOverride { index, why };
        let selector = ClusterSelector::of_override(change).map_err(|error| failed(error.to_string()))?;
        if selector.matches(traits) && !change.patch(component).is_empty() {
            patch(&mut value, change, component).map_err(|e| failed(e.to_string()))?;
        }
    }
    strict::read(&value).map_err(|e| InvalidOverride { index: 0, why: e.to_string() })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;
    use crate::fleet::selector::Labels;

    #[test]
    fn overrides_are_merged_in_order() {
        let template = |spec: Value| Template { spec: spec.as_object().unwrap().clone(), ..Template::default() };
        let given = template(json!({"version": "1.22", "config": {"a": {"b": "c"}}}));
        let selector = |value: &str| LabelSelector {
            match_labels: Some([("region".to_owned(), value.to_owned())].into()),
            ..LabelSelector::default()
        };
        let change = |value: &str, patch: Value| FleetOverride {
            cluster_selector: Some(selector(value)),
            serving: patch.as_object().unwrap().clone(),
            ..FleetOverride::default()
        };
        let overrides = [
            change("eu", json!({"spec": {"config": {"a": {"b": "d"}}}})),
            change("us", json!({"spec": {"config": null}})),
            change("eu", json!({"metadata": {"labels": {"x": "y"}}})),
            change("bad", json!({"metadata": {"labels": "none"}})),
            FleetOverride {
                cluster_selector: None,
                property_selector: Some(selector("cn")),
                ..change("", json!({"spec": {"version": "1.21"}}))
            },
        ];
        let region = |value: &str| -> Cow<'static, Labels> {
            Cow::Owned(Labels::from([("region".to_owned(), value.to_owned())]))
        };
        let render = |value: &str| {
            let traits = Traits { labels: region(value), ..Traits::default() };
            overridden(&given, &overrides, Component::Serving, &traits)
        };
        let eu = render("eu").unwrap();
        assert_eq!((&eu.spec["config"], eu.metadata.labels["x"].as_str()), (&json!({"a": {"b": "d"}}), "y"));
        assert!(!render("us").unwrap().spec.contains_key("config"));
        assert_eq!(render("asia").unwrap(), given);
        assert_eq!(render("bad").unwrap_err().index, 3);
        // The property, and not the label.
        assert_eq!(render("cn").unwrap(), given);
        let in_cn = Traits { properties: region("cn"), ..Traits::default() };
        assert_eq!(overridden(&given, &overrides, Component::Serving, &in_cn).unwrap().spec["version"], "1.21");
        // It is not known for which clusters it is.
        let unclear = [FleetOverride { cluster_selector: None, ..change("eu", json!({})) }];
        assert_eq!(overridden(&given, &unclear, Component::Serving, &in_cn).unwrap_err().index, 0);
    }
}
