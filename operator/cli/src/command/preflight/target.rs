//! Which clusters are checked, and for which resources.

use knative_operator_fleet::template::child_name;
use knative_operator_rules as rules;
use knative_operator_shared::api::{ClusterProfileReference, Component, Kind, Knative, KnativeFleet};
use knative_operator_shared::fleet::overrides::overridden;
use knative_operator_shared::fleet::selector::Traits;
use knative_operator_shared::label::{GROUP, VERSION};
use kube::Client;
use serde_json::{Value, json};

use crate::command::{fleet, list, read};

/// A cluster to check.
#[derive(Clone, Debug)]
pub struct CheckTarget {
    /// Its ClusterProfile.
    pub reference: ClusterProfileReference,
    /// What is, or would be, installed there.
    pub resources: Vec<Knative>,
}

/// A fleet, and the clusters that it selects, with what selectors see of them.
pub struct Selection {
    fleet: KnativeFleet,
    /// The clusters.
    pub clusters: Vec<(ClusterProfileReference, Traits<'static>)>,
}

/// What the fleet called `name` selects. It is found in a list, which the operator's account may
/// read, too.
pub async fn selection(client: &Client, namespace: &str, name: &str) -> Result<Selection, String> {
    let listed = list::objects(client, Kind::Fleet, Some(namespace)).await?;
    let listed = listed.ok_or_else(|| list::not_installed(Kind::Fleet))?;
    let found = listed.into_iter().find(|fleet| fleet.metadata.name.as_deref() == Some(name));
    let found = found.ok_or_else(|| format!("KnativeFleet {namespace}/{name} does not exist"))?;
    let fleet = rules::parse_fleet(&json!(found)).map_err(|why| format!("KnativeFleet {name}: {why}"))?;
    let profiles = fleet::profiles(client).await?;
    let traits = |cluster: &ClusterProfileReference| Traits::of(profiles.get(cluster)).into_owned();
    let selected = fleet::clusters(client, &fleet, &profiles).await?;
    let clusters = selected.into_iter().map(|cluster| (cluster.clone(), traits(&cluster))).collect();
    Ok(Selection { fleet, clusters })
}

impl Selection {
    /// What the fleet installs on `cluster`.
    pub fn resources(&self, cluster: &ClusterProfileReference, traits: &Traits<'_>) -> Result<Vec<Knative>, String> {
        let (meta, spec) = (&self.fleet.metadata, &self.fleet.spec);
        let name = meta.name.as_deref().unwrap_or_default();
        let mut resources = Vec::new();
        for component in Component::ALL {
            let Some(template) = spec.template(component) else { continue };
            let template =
                overridden(template, &spec.overrides, component, traits).map_err(|invalid| invalid.to_string())?;
            let mut object = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": component.kind(), "spec": template.spec,
                "metadata": {"name": child_name(name, cluster), "namespace": meta.namespace}});
            object["spec"]["clusterProfileRef"] = reference_of(cluster);
            let parsed = rules::parse(component, &object);
            resources.push(parsed.map_err(|why| format!("KnativeFleet {name}: spec.{}: {why}", component.word()))?);
        }
        Ok(resources)
    }
}

fn reference_of(cluster: &ClusterProfileReference) -> Value {
    json!({"name": cluster.name, "namespace": cluster.namespace})
}

/// The resources for `cluster`: those `given` by the user; or those `stored` for it, with those
/// that its fleet `adds`; or the usual ones.
pub fn resources_for(
    cluster: &ClusterProfileReference,
    given: Option<&[Knative]>,
    stored: &[Knative],
    adds: Vec<Knative>,
) -> Result<Vec<Knative>, String> {
    if let Some(given) = given {
        return Ok(given.iter().map(|resource| on(resource, cluster)).collect());
    }
    let is_own = |resource: &&Knative| {
        resource.common().cluster_profile_ref.as_ref() == Some(cluster) && !resource.is_terminating()
    };
    let mut found: Vec<Knative> = stored.iter().filter(is_own).cloned().collect();
    for added in adds {
        if !found.iter().any(|resource| resource.component() == added.component()) {
            found.push(added);
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Ok(usual()?.iter().map(|resource| on(resource, cluster)).collect())
}

/// A KnativeServing and a KnativeEventing without settings.
pub fn usual() -> Result<Vec<Knative>, String> {
    Ok(read::resources(&read::default_resources(), None, false)?.0)
}

/// `resource` as for `cluster`.
fn on(resource: &Knative, cluster: &ClusterProfileReference) -> Knative {
    let mut resource = resource.clone();
    resource.common_mut().cluster_profile_ref = Some(cluster.clone());
    resource
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn cluster(name: &str) -> ClusterProfileReference {
        ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() }
    }

    fn resource(component: Component, name: &str, on: &str) -> Knative {
        let object = json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"clusterProfileRef": reference_of(&cluster(on))}});
        rules::parse(component, &object).unwrap()
    }

    #[test]
    fn given_resources_count_before_stored_ones_and_those_before_the_usual() {
        let stored = [resource(Component::Serving, "a", "east"), resource(Component::Serving, "b", "west")];
        let names = |given: Option<&[Knative]>, of: &str, adds: &[Knative]| {
            let found = resources_for(&cluster(of), given, &stored, adds.to_vec()).unwrap();
            assert!(found.iter().all(|one| one.common().cluster_profile_ref == Some(cluster(of))));
            found.iter().map(|one| one.name().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let given = [resource(Component::Eventing, "given", "elsewhere")];
        assert_eq!(names(Some(&given), "east", &[]), "given");
        assert_eq!(names(None, "east", &[]), "a");
        assert_eq!(names(None, "north", &[]), "knative-serving knative-eventing");
        let of_fleet = [resource(Component::Serving, "f-s", "east"), resource(Component::Eventing, "f-e", "east")];
        assert_eq!(names(None, "east", &of_fleet), "a f-e");
    }

    #[test]
    fn fleet_adds_what_its_templates_have() {
        let fleet = json!({"metadata": {"name": "prod", "namespace": "n"}, "spec": {
            "placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22"}},
            "overrides": [{"clusterSelector": {"matchLabels": {"a": "b"}}, "serving": {"spec": {"version": "1.21"}}}]}});
        let selection = Selection { fleet: rules::parse_fleet(&fleet).unwrap(), clusters: Vec::new() };
        let version = |labels: Value| {
            let labels = Cow::Owned(serde_json::from_value(labels).unwrap());
            let found = selection.resources(&cluster("east"), &Traits { labels, ..Traits::default() }).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].common().cluster_profile_ref, Some(cluster("east")));
            found[0].common().version.clone()
        };
        assert_eq!(version(json!({})).as_deref(), Some("1.22"));
        assert_eq!(version(json!({"a": "b"})).as_deref(), Some("1.21"));
    }
}
