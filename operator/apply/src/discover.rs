//! The kinds that a cluster serves. Not by kube's discovery, which takes time exponential in the
//! depth of names with slashes: a hostile API server would stop the operator.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList};
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};

use knative_operator_objects::Kind;

/// Maximum number of API groups, of versions of a group, and of resources of each. Kubernetes
/// itself has 30 groups; the others are of CustomResourceDefinitions.
const MAX_GROUPS: usize = 1024;
const MAX_VERSIONS: usize = 16;
const MAX_RESOURCES: usize = 1024;
/// Maximum length of a name.
const MAX_NAME: usize = 253;

/// A kind that a cluster serves.
#[derive(Clone, Debug)]
pub struct Served {
    /// Resource name and scope.
    pub kind: Kind,
    /// Whether its objects can be listed.
    pub listable: bool,
}

/// An API group with its versions, the preferred one first.
pub type Group = (String, Vec<String>);

/// Whether `name` is one of a group, a version, a resource or a kind, which messages can show.
fn is_name(name: &str) -> bool {
    let is_valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_valid)
}

/// The API groups of the cluster, besides that of the core, which has no name.
pub async fn groups(client: &Client) -> kube::Result<Vec<Group>> {
    let found = match client.list_api_groups().await {
        Ok(found) => found.groups,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(found.into_iter().take(MAX_GROUPS).filter(|group| is_name(&group.name)).map(versions).collect())
}

fn versions(group: APIGroup) -> Group {
    let preferred = group.preferred_version.map(|version| version.version);
    let mut versions: Vec<String> = group.versions.into_iter().map(|version| version.version).collect();
    versions.retain(|version| is_name(version));
    versions.sort_by_key(|version| Some(version) != preferred.as_ref());
    versions.truncate(MAX_VERSIONS);
    (group.name, versions)
}

/// The kind of `gvk`; `None` if the cluster doesn't serve it.
pub async fn kind(client: &Client, gvk: &GroupVersionKind) -> kube::Result<Option<Kind>> {
    let served = resources(client, &gvk.group, &gvk.version).await?;
    Ok(served.into_iter().map(|served| served.kind).find(|kind| kind.resource.kind == gvk.kind))
}

/// All kinds of `group`, each in the first version that has it.
pub async fn kinds(client: &Client, (group, versions): &Group) -> kube::Result<Vec<Served>> {
    let mut all: BTreeMap<String, Served> = BTreeMap::new();
    for version in versions {
        for served in resources(client, group, version).await? {
            all.entry(served.kind.resource.plural.clone()).or_insert(served);
        }
        if all.len() >= MAX_RESOURCES {
            break;
        }
    }
    Ok(all.into_values().collect())
}

/// The kinds of `version` of `group`; none if it is not served.
async fn resources(client: &Client, group: &str, version: &str) -> kube::Result<Vec<Served>> {
    let list = if group.is_empty() {
        client.list_core_api_resources(version).await
    } else {
        client.list_api_group_resources(&format!("{group}/{version}")).await
    };
    match list {
        Ok(list) => Ok(served(group, version, list)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The kinds in `list`, without subresources.
fn served(group: &str, version: &str, list: APIResourceList) -> Vec<Served> {
    let is_kind = |resource: &APIResource| is_name(&resource.name) && is_name(&resource.kind);
    let found = list.resources.into_iter().take(MAX_RESOURCES).filter(is_kind);
    found
        .map(|found| {
            let gvk = GroupVersionKind::gvk(group, version, &found.kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, &found.name);
            let listable = found.verbs.iter().any(|verb| verb == "list");
            Served { kind: Kind { resource, namespaced: found.namespaced }, listable }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(name: &str, kind: &str) -> serde_json::Value {
        json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"]})
    }

    #[test]
    fn subresources_and_other_names_are_left_out() {
        let deep: Vec<_> = (1..3000).map(|depth| resource(&format!("services{}", "/a".repeat(depth)), "A")).collect();
        let mut all = vec![resource("services", "Service"), resource("x\u{1b}[2J", "B"), resource("y", "C D")];
        all.extend(deep);
        let list = json!({"groupVersion": "serving.knative.dev/v1", "resources": all});
        let found = served("serving.knative.dev", "v1", serde_json::from_value(list).unwrap());
        let names: Vec<_> = found.iter().map(|served| served.kind.resource.plural.as_str()).collect();
        assert_eq!(names, ["services"]);
        assert_eq!(found[0].kind.resource.api_version, "serving.knative.dev/v1");
    }

    #[test]
    fn preferred_version_is_first() {
        let version = |version: &str| json!({"groupVersion": format!("g/{version}"), "version": version});
        let group = json!({"name": "g", "preferredVersion": version("v1"),
            "versions": [version("v2alpha1"), version("v1"), version("v1beta1"), version("../x")]});
        let (name, versions) = versions(serde_json::from_value(group).unwrap());
        assert_eq!((name.as_str(), versions.join(" ").as_str()), ("g", "v1 v2alpha1 v1beta1"));
    }
}
