//! Stored revisions that this version can't read, such as those of a newer one. What such a
//! revision contains is not guessed: without a part of it, components would be deleted, or changed.
//! A fleet that uses one stops.

use knative_operator_rules as rules;
use knative_operator_shared::api::Component;
use knative_operator_shared::fleet::content::RevisionData;
use knative_operator_shared::fleet::overrides;
use knative_operator_shared::fleet::selector::ClusterSelector;
use knative_operator_shared::strict;
use serde_json::{Value, json};

/// A stored revision that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct UnreadableRevision {
    /// Uid of the fleet that is its controller.
    pub owner: Option<String>,
    /// The field of the ControllerRevision.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

/// Reads the content of a revision from `data`.
///
/// # Errors
///
/// The field that this version can't read, and why.
pub fn read(data: &Value) -> Result<RevisionData, (String, String)> {
    let data: RevisionData = strict::read(data).map_err(|error| ("data".to_owned(), error.to_string()))?;
    if data.serving.is_none() && data.eventing.is_none() {
        return Err(("data".to_owned(), "it has neither serving nor eventing".to_owned()));
    }
    for component in Component::ALL {
        let Some(template) = data.template(component) else { continue };
        let resource = json!({"metadata": {}, "spec": template.spec});
        rules::parse(component, &resource)
            .map_err(|violation| (format!("data.{}.{}", component.word(), violation.field), violation.message))?;
    }
    for (index, change) in data.overrides.iter().enumerate() {
        let field = format!("data.overrides[{index}]");
        ClusterSelector::of_override(change).map_err(|error| (field.clone(), error.to_string()))?;
        for component in Component::ALL {
            let Some(template) = data.template(component) else { continue };
            // Whether it leaves a template depends on no other one, since each field has one type.
            overrides::patch(&mut json!(template), change, component)
                .map_err(|error| (format!("{field}.{}", component.word()), error.to_string()))?;
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_that_can_not_be_read_is_named() {
        let overridden = |change: Value| json!({"serving": {"spec": {}}, "overrides": [change]});
        let labels = json!({"metadata": {"labels": "none"}});
        for (data, expected) in [
            (json!({}), "data"),
            (json!([]), "data"),
            (json!({"serving": {"spec": {"config": 7}}}), "data.serving.spec.config"),
            (overridden(json!({"serving": {"spec": {}}})), "data.overrides[0]"),
            (overridden(json!({"clusterSelector": {}, "serving": labels})), "data.overrides[0].serving"),
            (overridden(json!({"clusterSelector": {}, "serving": {"spec": "later"}})), "data.overrides[0].serving"),
        ] {
            let (field, why) = read(&data).unwrap_err();
            assert!(field == expected && !why.is_empty(), "{data}: {field}: {why}");
        }
        // A null removes what the template has, and what is for a component without a template is
        // for none.
        for mut change in [json!({"serving": {"spec": null, "metadata": null}}), json!({"eventing": labels})] {
            change["clusterSelector"] = json!({});
            read(&overridden(change)).unwrap();
        }
    }
}
