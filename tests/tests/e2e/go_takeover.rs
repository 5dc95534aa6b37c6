//! Takes over installations that the real Go operator made: no Pod restarts, no spec of a
//! Deployment changes, and fields that the Go operator set are removed when the spec doesn't have
//! them. And the way back: the Go operator takes over again.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Service};
use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::{self, GoOperator};
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, wait};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::go_site::asked_for;
use crate::go_state::{self, State, available, current, go_back, installed_by_go, reconciled, take_over, taken};
use crate::support::{
    INSTALL, apply, condition, delete, gone, has_condition, namespace, nothing_left, ready, run, status,
};
use crate::writers;

const ADAPTER: &str = "pingsource-mt-adapter";
const BOTH: [&str; 2] = ["knative-serving", "knative-eventing"];

/// Checks that the Go operator owns nothing of the Deployments in `place` any more.
async fn owned_by_this_operator(cluster: &Cluster, place: &str) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(cluster.client(), place).list(&ListParams::default()).await?;
    assert!(!deployments.items.is_empty(), "no Deployments");
    for deployment in deployments {
        let (name, annotations) = (deployment.name_any(), deployment.annotations());
        let managers: BTreeSet<_> = deployment.managed_fields().iter().filter_map(|m| m.manager.clone()).collect();
        assert!(!managers.contains("manifestival"), "{name}: {managers:?}");
        // `kubectl replace`, which plays Eventing's controller, writes the annotation.
        let played = name == ADAPTER;
        assert!(
            played || !annotations.contains_key("kubectl.kubernetes.io/last-applied-configuration"),
            "{name}: {:#?}",
            deployment.managed_fields()
        );
    }
    Ok(())
}

/// Whether Service `controller` of Serving has the annotation of the override.
async fn overridden(cluster: &Cluster) -> Result<bool> {
    let service = Api::<Service>::namespaced(cluster.client(), "knative-serving").get("controller").await?;
    Ok(service.annotations().contains_key("example.com/override"))
}

#[test]
fn go_operator_objects_are_taken_over_without_restart() {
    if !asked_for() {
        return;
    }
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("takeover"), Cluster::spoke("taken"))?;
        let mut go = GoOperator::install(&hub, &[&spoke]).await?;
        product::register(&hub, &spoke, "taken").await?;
        let before = objects(&spoke.client()).await?;
        let mut resources =
            Component::ALL.map(|c| installed_by_go(c, c.canonical(), Some("taken"), go_operator::VERSION));
        let serving = 0;
        let plain = resources[serving].clone();
        resources[serving]["spec"]["services"] =
            json!([{"name": "controller", "annotations": {"example.com/override": "x"}}]);
        for resource in &resources {
            let place = resource["metadata"]["namespace"].as_str().unwrap_or_default();
            namespace(&hub, place).await?;
            apply(&hub, resource).await?;
        }
        for resource in &resources {
            ready(&hub, resource).await?;
        }
        assert!(overridden(&spoke).await?, "the Go operator set no override");

        // While no operator runs, Eventing's controller writes whole lists to the adapter, and the
        // override is removed from the spec.
        go.stop()?;
        writers::play_adapter(&spoke).await?;
        apply(&hub, &plain).await?;
        resources[serving] = plain;
        for place in BOTH {
            available(&spoke, place).await?;
        }
        let adapter = writers::adapter(&spoke).await?;
        let state = State::read(&spoke, &BOTH).await?;
        let product = take_over(&hub, &mut go, true).await?;
        for (resource, place) in resources.iter().zip(BOTH) {
            taken(&spoke, place).await?;
            current(&hub, resource).await?;
            owned_by_this_operator(&spoke, place).await?;
        }
        state.is_same(&State::read(&spoke, &BOTH).await?, "taken over on a spoke");
        assert_eq!(writers::adapter(&spoke).await?, adapter, "what Eventing's controller had written");
        assert!(!overridden(&spoke).await?, "the override that the spec no longer has is still there");

        // A field that is removed from the spec later is removed from the cluster.
        reconciled(&hub, &spoke, &resources[serving], "over").await?;
        apply(&hub, &resources[serving]).await?;
        let maps = Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving");
        let has = |m: Option<&ConfigMap>| m.and_then(|m| m.data.as_ref()).is_some_and(|d| d.contains_key("mark"));
        wait::until(&maps, "config-features", INSTALL, "as before", |m| !has(m)).await?;

        // Back to the Go operator, and forth.
        let state = State::read(&spoke, &BOTH).await?;
        go_back(&hub, product, &mut go).await?;
        reconciled(&hub, &spoke, &resources[serving], "back").await?;
        current(&hub, &resources[1]).await?;
        // The Go operator overwrites what Eventing's controller wrote to its adapter.
        let back = State::read(&spoke, &BOTH).await?.without(ADAPTER);
        state.without(ADAPTER).no_restart(&back, "back to the Go operator on a spoke");
        let product = take_over(&hub, &mut go, true).await?;
        for resource in &resources {
            apply(&hub, resource).await?;
            current(&hub, resource).await?;
        }
        for resource in &resources {
            delete(&hub, resource).await?;
        }
        drop(product);
        let namespaces = BOTH.map(|place| format!("Namespace. /{place}"));
        nothing_left(&spoke, &before.into_iter().chain(namespaces).collect()).await
    });
}

#[test]
fn installation_in_own_namespace_stays_there() {
    if !asked_for() {
        return;
    }
    run(async {
        // The Go operator uses the resource's own namespace on the spoke.
        let (hub, spoke) = tokio::try_join!(Cluster::hub("own"), Cluster::spoke("owned"))?;
        let mut go = GoOperator::install(&hub, &[&spoke]).await?;
        product::register(&hub, &spoke, "owned").await?;
        let before = objects(&spoke.client()).await?;
        let resource = installed_by_go(Component::Serving, "team", Some("owned"), go_operator::VERSION);
        namespace(&hub, "team").await?;
        apply(&hub, &resource).await?;
        ready(&hub, &resource).await?;
        let state = State::read(&spoke, &["team"]).await?;

        let product = take_over(&hub, &mut go, true).await?;
        taken(&spoke, "team").await?;
        current(&hub, &resource).await?;
        state.is_same(&State::read(&spoke, &["team"]).await?, "taken over in its own namespace");
        assert!(Api::<Namespace>::all(spoke.client()).get_opt("knative-serving").await?.is_none());
        let events = Api::<Event>::namespaced(hub.client(), "team").list(&ListParams::default()).await?;
        assert!(events.iter().any(|e| e.reason.as_deref() == Some("NamespaceKept")), "there is no event NamespaceKept");

        // The way back, and here again.
        go_back(&hub, product, &mut go).await?;
        reconciled(&hub, &spoke, &resource, "back").await?;
        state.no_restart(&State::read(&spoke, &["team"]).await?, "back to the Go operator in its own namespace");
        let mut product = take_over(&hub, &mut go, true).await?;
        reconciled(&hub, &spoke, &resource, "again").await?;

        // Deleted right after a restart, the installation is removed from there. The namespace
        // stays, as with the Go operator: it is not marked as created by it.
        product.restart_operator(&hub, rustix::process::Signal::KILL).await?;
        delete(&hub, &resource).await?;
        let namespace = "Namespace. /team".to_owned();
        nothing_left(&spoke, &before.into_iter().chain([namespace]).collect()).await
    });
}

#[test]
fn local_installation_is_taken_over_or_removed() {
    if !asked_for() {
        return;
    }
    run(async {
        // Without admission webhooks: Knative's own have no Pods here.
        let hub = Cluster::spoke("local-takeover").await?;
        let mut go = GoOperator::install(&hub, &[]).await?;
        let before = objects(&hub.client()).await?;
        let resource = installed_by_go(Component::Serving, "knative-serving", None, go_operator::VERSION);
        // Twice: taken over and then deleted; and deleted before the first reconcile.
        for looked in [true, false] {
            namespace(&hub, "knative-serving").await?;
            apply(&hub, &resource).await?;
            ready(&hub, &resource).await?;
            let state = State::read(&hub, &["knative-serving"]).await?;
            if looked {
                // This operator waits until the Go operator has stopped.
                Product::upgrade_release(&hub, &go_state::values(&hub, false)).await?;
                let product = Product::start(&hub, &go_operator::releases()?, [].into()).await?;
                has_condition(&hub, &resource, "InstallSucceeded", "GoOperatorRunning", "renews Lease").await?;
                go.stop()?;
                taken(&hub, "knative-serving").await?;
                current(&hub, &resource).await?;
                let taken_over = State::read(&hub, &["knative-serving"]).await?;
                state.is_same(&taken_over, "taken over locally");
                owned_by_this_operator(&hub, "knative-serving").await?;
                go_back(&hub, product, &mut go).await?;
                reconciled(&hub, &hub, &resource, "back").await?;
                let back = State::read(&hub, &["knative-serving"]).await?;
                taken_over.no_restart(&back, "back to the Go operator locally");
                let product = take_over(&hub, &mut go, false).await?;
                reconciled(&hub, &hub, &resource, "again").await?;
                state.no_restart(&State::read(&hub, &["knative-serving"]).await?, "taken over again");
                delete(&hub, &resource).await?;
                go_back(&hub, product, &mut go).await?;
            } else {
                go.stop()?;
                hub.kubectl(
                    &["delete", "knativeserving", "knative-serving", "-n", "knative-serving", "--wait=false"],
                    "",
                )
                .await?;
                let product = take_over(&hub, &mut go, false).await?;
                gone(&hub, &resource).await?;
                go_back(&hub, product, &mut go).await?;
            }
            hub.object("namespace", "", "knative-serving").delete().await?;
            // The operators' own namespace has their Pods.
            let own = objects(&hub.client()).await?.into_iter().filter(|object| object.contains(" knative-operator/"));
            nothing_left(&hub, &own.chain(before.iter().cloned()).collect()).await?;
        }
        Ok(())
    });
}

#[test]
fn upgrade_during_takeover_removes_objects_of_the_old_version() {
    if !asked_for() {
        return;
    }
    run(async {
        let hub = Cluster::spoke("late").await?;
        let mut go = GoOperator::install(&hub, &[]).await?;
        let mut resource = installed_by_go(Component::Serving, "knative-serving", None, "1.22.1");
        namespace(&hub, "knative-serving").await?;
        apply(&hub, &resource).await?;
        ready(&hub, &resource).await?;
        let jobs = Api::<Job>::namespaced(hub.client(), "knative-serving");
        let of_version = |version: &'static str| move |job: &Job| job.name_any().ends_with(version);
        assert!(jobs.list(&ListParams::default()).await?.items.iter().any(of_version("1.22.1")));
        go.stop()?;
        resource["spec"]["version"] = json!("1.23.0");
        apply(&hub, &resource).await?;
        let _product = take_over(&hub, &mut go, false).await?;
        let upgraded = |s: &KnativeStatus| {
            s.version.as_deref() == Some("1.23.0") && condition(s, "Ready").is_some_and(|c| c.status == "True")
        };
        status(&hub, &resource, INSTALL, "upgraded", upgraded).await?;
        let there = jobs.list(&ListParams::default()).await?.items;
        assert!(
            there.iter().any(of_version("1.23.0")) && !there.iter().any(of_version("1.22.1")),
            "{:?}",
            there.iter().map(Job::name_any).collect::<Vec<_>>()
        );
        delete(&hub, &resource).await
    });
}
