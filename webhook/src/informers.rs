//! Informers: four watches that keep the facts about the cluster up to date, storing only what
//! reviews use.

use std::collections::{HashMap, HashSet};
use std::future::ready;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_runtime::error_text;
use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_runtime::untyped::api_resource;
use knative_operator_runtime::watch::{BACKOFF, is_kind_missing, watch};
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component};
use knative_operator_shared::fleet::placement::unhealthy;
use knative_operator_shared::fleet::selector::Traits;
use knative_operator_shared::label::{CLUSTER_UID, RELEASES_CONFIG_MAP, RELEASES_KEY};
use knative_operator_shared::strict;
use kube::core::DynamicObject;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt};

use crate::cluster_facts::{ClusterFacts, Name, ProfileFacts};

/// Updates `facts` until the task ends. Facts stay unknown while a watch fails.
pub async fn run(client: Client, namespace: String, facts: ClusterFacts) {
    let resources = futures::future::join_all(Component::ALL.map(|component| resources(&client, component, &facts)));
    futures::join!(resources, profiles(&client, &facts), catalog(&client, &namespace, &facts));
}

async fn resources(client: &Client, component: Component, facts: &ClusterFacts) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &api_resource(component));
    let name = |resource: &DynamicObject| -> Name { (resource.namespace().unwrap_or_default(), resource.name_any()) };
    // Untyped: an invalid resource must not fail the whole list.
    let target = |resource: &DynamicObject| {
        strict::read::<Option<ClusterProfileReference>>(&resource.data["spec"]["clusterProfileRef"]).ok()
    };
    let uid =
        |resource: &DynamicObject| resource.data["status"]["annotations"][CLUSTER_UID].as_str().map(str::to_owned);
    let set = |resource: DynamicObject| match resource.metadata.deletion_timestamp {
        Some(_) => facts.remove_target(component, &name(&resource)),
        None => match target(&resource) {
            Some(target) => facts.set_target(component, name(&resource), target, uid(&resource)),
            // Not the local cluster.
            None => facts.remove_target(component, &name(&resource)),
        },
    };
    let mut listed = HashSet::new();
    watch(api, Config::default())
        .for_each(|event| {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(resource)) => {
                    listed.insert(name(&resource));
                    set(resource);
                }
                Ok(Event::InitDone) => facts.retain_targets(component, &std::mem::take(&mut listed)),
                Ok(Event::Apply(resource)) => set(resource),
                Ok(Event::Delete(resource)) => facts.remove_target(component, &name(&resource)),
                Err(error) => tracing::warn!(%component, error = error_text(&error), "watch interrupted"),
            }
            ready(())
        })
        .await;
}

async fn profiles(client: &Client, facts: &ClusterFacts) {
    // Untyped: one that can't be read must not fail the whole list.
    let read = |profile: &DynamicObject| {
        let profile = ClusterProfile::read(profile);
        (profile.reference(), facts_of(&profile))
    };
    let mut listed = HashMap::new();
    InventoryKind::ClusterProfile
        .watch(client, Config::default(), BACKOFF)
        .for_each(|event| {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(profile)) => listed.extend([read(&profile)]),
                Ok(Event::InitDone) => facts.set_profiles(std::mem::take(&mut listed)),
                Ok(Event::Apply(profile)) => {
                    let (reference, profile) = read(&profile);
                    facts.set_profile(reference, Some(profile));
                }
                Ok(Event::Delete(profile)) => facts.set_profile(read(&profile).0, None),
                // The kind does not exist, so there are no ClusterProfiles.
                Err(error) if is_kind_missing(&error) => facts.set_profiles(HashMap::new()),
                Err(error) => tracing::warn!(error = error_text(&error), "cannot watch ClusterProfiles"),
            }
            ready(())
        })
        .await;
}

fn facts_of(profile: &ClusterProfile) -> ProfileFacts {
    ProfileFacts { healthy: unhealthy(Some(profile)).is_none(), traits: Traits::of(Some(profile)).into_owned() }
}

async fn catalog(client: &Client, namespace: &str, facts: &ClusterFacts) {
    let config = Config::default().fields(&format!("metadata.name={RELEASES_CONFIG_MAP}"));
    let read = |map: &ConfigMap| {
        let text = map.data.as_ref().and_then(|data| data.get(RELEASES_KEY))?;
        serde_json::from_str(text)
            .inspect_err(|error| tracing::warn!(%error, "cannot parse the catalog of the release bundle"))
            .ok()
    };
    watch(Api::<ConfigMap>::namespaced(client.clone(), namespace), config)
        .for_each(|event| {
            match event {
                Ok(Event::InitApply(map) | Event::Apply(map)) => facts.set_catalog(read(&map)),
                Ok(Event::Delete(_)) => facts.set_catalog(None),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => {
                    tracing::warn!(error = error_text(&error), "cannot watch the catalog of the release bundle");
                }
            }
            ready(())
        })
        .await;
}
