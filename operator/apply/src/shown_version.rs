//! The versions that the CustomResourceDefinitions of a component show in their labels, on a
//! cluster or in a release. Those who may write ConfigMaps in a namespace can't change them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{APP_NAME, APP_VERSION};
use knative_operator_shared::version::Version;
use kube::api::ListParams;
use kube::{Api, Client};

use super::managed_fields::owned_fields;
use knative_operator_objects::plan::CRD;
use knative_operator_objects::{CompactObject, text};

/// Maximum number of definitions that are read. Knative's components have up to 35.
const PAGE: u32 = 250;

/// The versions that the definitions of `component` on the cluster show which the operator applied.
pub async fn on_cluster(client: &Client, component: Component) -> kube::Result<Vec<Version>> {
    let selected = ListParams::default().labels(&format!("{APP_NAME}={}", component.canonical())).limit(PAGE);
    let found = Api::<CustomResourceDefinition>::all(client.clone()).list_metadata(&selected).await?;
    let own = found.items.iter().map(|definition| &definition.metadata).filter(|meta| owned_fields(meta).is_some());
    Ok(own.filter_map(|meta| meta.labels.as_ref()?.get(APP_VERSION)?.parse().ok()).collect())
}

/// The versions that the definitions among the `objects` of a release show.
pub fn of_release<'a>(objects: impl IntoIterator<Item = &'a CompactObject>) -> Vec<Version> {
    let pointer = format!("/metadata/labels/{}", APP_VERSION.replace('/', "~1"));
    let is_definition = |object: &CompactObject| (object.id().group.as_str(), object.id().kind.as_str()) == CRD;
    let definitions = objects.into_iter().filter(|object| is_definition(object));
    definitions.filter_map(|definition| text(&definition.parse(), &pointer).parse().ok()).collect()
}

/// Whether a cluster whose definitions show the versions `shown` has not got the `recorded`
/// version, not even partly: they show the `installed` or the `wanted` one, and none on the way to
/// the recorded one.
pub fn disproves(shown: &[Version], recorded: &Version, installed: &Version, wanted: &Version) -> bool {
    let is_reached = |shown: &Version| if recorded > installed { shown >= recorded } else { shown <= recorded };
    recorded != installed
        && shown.iter().any(|shown| shown == installed || shown == wanted)
        && !shown.iter().any(is_reached)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn versions(texts: &[&str]) -> Vec<Version> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn definitions_disprove_a_forged_record_only() {
        let disproves = |shown: &[&str], recorded: &str, wanted: &str| {
            let all = versions(&[recorded, "1.22.1", wanted]);
            super::disproves(&versions(shown), &all[0], &all[1], &all[2])
        };
        for recorded in ["1.23.0", "1.22.2", "1.99.0", "99.0.0", "1.10.0"] {
            assert!(disproves(&["1.22.1", "1.22.1"], recorded, "1.22.1"), "{recorded}");
            // Others of the component, such as a source, have other patch versions.
            assert!(disproves(&["1.22.0", "1.22.1"], recorded, "1.22.1"), "{recorded}");
            // The hub is restored: the cluster has that version, or a part of it.
            assert!(!disproves(&[recorded], recorded, "1.22.1"), "{recorded}");
            assert!(!disproves(&["1.22.1", recorded], recorded, "1.22.1"), "{recorded}");
            // Labels that show nothing.
            assert!(!disproves(&[], recorded, "1.22.1") && !disproves(&["1.20.0"], recorded, "1.22.1"), "{recorded}");
        }
        // In an upgrade.
        assert!(disproves(&["1.23.0"], "99.0.0", "1.23.0"));
        assert!(!disproves(&["1.22.1"], "1.22.1", "1.24.0"));
    }

    #[test]
    fn release_shows_the_versions_of_its_definitions() {
        let object = |kind: &str, version: &str| {
            let group = if kind == CRD.1 { "apiextensions.k8s.io/v1" } else { "v1" };
            let labels = json!({"app.kubernetes.io/version": version});
            CompactObject::new(&json!({"apiVersion": group, "kind": kind, "metadata": {"name": "a", "labels": labels}}))
        };
        let objects = [object(CRD.1, "1.22.1"), object("ConfigMap", "1.22.2"), object(CRD.1, "")];
        assert_eq!(of_release(&objects), versions(&["1.22.1"]));
    }
}
