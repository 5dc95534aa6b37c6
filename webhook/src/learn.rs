//! Learns what is to be known from the cluster: four watches, of each object only what matters.

use std::collections::{HashMap, HashSet};
use std::future::ready;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_runtime::words;
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component};
use knative_operator_shared::label::{GROUP, RELEASES_CONFIG_MAP, VERSION};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;

use crate::known::{Known, Name};

/// Keeps `known` true, for ever. What can't be watched is tried again and again, and not known meanwhile.
pub async fn run(client: Client, namespace: String, known: Known) {
    let resources = futures::future::join_all(Component::ALL.map(|component| resources(&client, component, &known)));
    futures::join!(resources, profiles(&client, &known), releases(&client, &namespace, &known));
}

async fn resources(client: &Client, component: Component, known: &Known) {
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, component.kind()), component.plural());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let name = |resource: &DynamicObject| -> Name { (resource.namespace().unwrap_or_default(), resource.name_any()) };
    // Untyped: one resource that can't be read must not stop the list of all.
    let target = |resource: &DynamicObject| {
        Option::<ClusterProfileReference>::deserialize(&resource.data["spec"]["clusterProfileRef"]).ok()?
    };
    let set = |resource: DynamicObject| match resource.metadata.deletion_timestamp {
        Some(_) => known.remove_target(component, &name(&resource)),
        None => known.set_target(component, name(&resource), target(&resource)),
    };
    let mut listed = HashSet::new();
    watcher(api, watcher::Config::default())
        .default_backoff()
        .for_each(|event| {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(resource)) => {
                    listed.insert(name(&resource));
                    set(resource);
                }
                Ok(Event::InitDone) => known.only_targets(component, &std::mem::take(&mut listed)),
                Ok(Event::Apply(resource)) => set(resource),
                Ok(Event::Delete(resource)) => known.remove_target(component, &name(&resource)),
                Err(error) => tracing::warn!(%component, error = words(&error), "watch interrupted"),
            }
            ready(())
        })
        .await;
}

async fn profiles(client: &Client, known: &Known) {
    let name = |p: &ClusterProfile| ClusterProfileReference {
        name: p.name_any(),
        namespace: p.namespace().unwrap_or_default(),
    };
    let mut listed = HashMap::new();
    watcher(Api::<ClusterProfile>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .for_each(|event| {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(profile)) => drop(listed.insert(name(&profile), is_healthy(&profile))),
                Ok(Event::InitDone) => known.all_profiles(std::mem::take(&mut listed)),
                Ok(Event::Apply(profile)) => known.set_profile(name(&profile), Some(is_healthy(&profile))),
                Ok(Event::Delete(profile)) => known.set_profile(name(&profile), None),
                Err(error) => match &error {
                    // Without the kind there is none.
                    watcher::Error::InitialListFailed(kube::Error::Api(status))
                    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
                        if status.code == 404 =>
                    {
                        known.all_profiles(HashMap::new());
                    }
                    other => tracing::warn!(error = words(other), "ClusterProfiles can't be watched"),
                },
            }
            ready(())
        })
        .await;
}

fn is_healthy(profile: &ClusterProfile) -> bool {
    let conditions = profile.status.iter().flat_map(|s| &s.conditions);
    conditions.into_iter().any(|c| c.type_ == "ControlPlaneHealthy" && c.status == "True")
}

async fn releases(client: &Client, namespace: &str, known: &Known) {
    let only = watcher::Config::default().fields(&format!("metadata.name={RELEASES_CONFIG_MAP}"));
    let read = |map: &ConfigMap| {
        let text = map.data.as_ref().and_then(|data| data.get("releases.json"))?;
        serde_json::from_str(text)
            .inspect_err(|error| tracing::warn!(%error, "{RELEASES_CONFIG_MAP} can't be read"))
            .ok()
    };
    watcher(Api::<ConfigMap>::namespaced(client.clone(), namespace), only)
        .default_backoff()
        .for_each(|event| {
            match event {
                Ok(Event::InitApply(map) | Event::Apply(map)) => known.set_releases(read(&map)),
                Ok(Event::Delete(_)) => known.set_releases(None),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => tracing::warn!(error = words(&error), "{RELEASES_CONFIG_MAP} can't be watched"),
            }
            ready(())
        })
        .await;
}
