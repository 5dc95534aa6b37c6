//! Installs on spokes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, product, tools, wait};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::overrides;
use crate::support::{
    apply, condition, delete, eventing, fleet, has_condition, has_event, namespace, nothing_left, ready, run, serving,
    status, step, without_ingress,
};

/// Time limit of a repair: 2 s are expected, the rest is for a loaded machine. Less than the
/// back-off of a contended object.
const REPAIR: Duration = Duration::from_secs(45);

/// Deleting the anchor deletes everything that it owns: all of it is recreated, such as the
/// Deployment `name`, owned by a new anchor.
async fn deleted_anchor_is_recreated(spoke: &Cluster, anchor: &ConfigMap, name: &str) -> Result<()> {
    let anchors = Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving");
    let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
    anchors.delete(&anchor.name_any(), &DeleteParams::default()).await?;
    let renewed =
        wait::until(&anchors, &anchor.name_any(), REPAIR, "back", |a| a.is_some_and(|a| a.uid() != anchor.uid()))
            .await?;
    let owner = renewed.and_then(|a| a.uid());
    let owned = |d: Option<&Deployment>| {
        d.is_some_and(|d| d.owner_references().iter().map(|o| Some(o.uid.clone())).eq([owner.clone()]))
    };
    wait::until(&deployments, name, REPAIR, "owned by the new anchor", owned).await.map(drop)
}

#[test]
fn both_kinds_install_on_spoke_are_repaired_and_leave_only_crds() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, &fleet.spokes[0]);
        let before = objects(&spoke.client()).await?;
        namespace(hub, "both").await?;
        let (serving, eventing) = (
            serving("both", "ks", Some("spoke-0"), &fleet.releases),
            eventing("both", "ke", Some("spoke-0"), &fleet.releases),
        );
        tokio::try_join!(apply(hub, &serving), apply(hub, &eventing))?;
        let (serving_status, eventing_status) = tokio::try_join!(ready(hub, &serving), ready(hub, &eventing))?;

        // The status has the version, the sources and the generation.
        assert_eq!(serving_status.version.as_deref(), Some(fleet.releases.serving));
        assert_eq!(eventing_status.version.as_deref(), Some(fleet.releases.eventing));
        assert_eq!(serving_status.observed_generation, Some(1));
        assert!(
            serving_status
                .manifests
                .iter()
                .any(|m| m.ends_with(&format!("knative-serving/{}", fleet.releases.serving))),
            "{:?}",
            serving_status.manifests
        );
        assert!(serving_status.manifests.iter().any(|m| m.ends_with("/kourier")));
        assert_eq!(serving_status.conditions.len(), 6);
        assert!(
            serving_status.conditions.iter().all(|c| c.status == "True" && c.reason.is_none()),
            "{serving_status:#?}"
        );
        let shown = hub.kubectl(&["get", "knativeserving,knativeeventing", "-n", "both"], "").await?;
        let columns = shown.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(columns, "NAME TARGET CLUSTER VERSION READY REASON AGE", "{shown}");

        check_diff(spoke, &serving, &fleet.releases.dir)?;

        // The anchor owns namespaced objects; cluster-scoped ones have no owner.
        let anchor =
            Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving").get("knativeserving-ks-root-owner").await?;
        assert_eq!(anchor.annotations().get("operator.knative.dev/protected").map(String::as_str), Some("true"));
        let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
        for deployment in deployments.list(&ListParams::default()).await? {
            let owners = deployment.owner_references();
            assert_eq!((owners.len(), owners[0].uid.clone()), (1, anchor.uid().unwrap()), "{}", deployment.name_any());
        }

        // A deleted Deployment is recreated; an edited ConfigMap is repaired; an added key stays.
        let name = if fleet.releases.real { "activator" } else { "controller" };
        let uid = deployments.get(name).await?.uid();
        deployments.delete(name, &DeleteParams::default()).await?;
        wait::until(&deployments, name, REPAIR, "back", |d| d.is_some_and(|d| d.uid() != uid)).await?;
        let maps = Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving");
        let released = maps.get("config-defaults").await?.data.unwrap_or_default();
        let key = released.keys().next().unwrap().clone();
        let edit = json!({"data": {key.clone(): "edited by hand", "extra": "mine"}});
        maps.patch("config-defaults", &PatchParams::default(), &Patch::Merge(edit)).await?;
        let right = |m: Option<&ConfigMap>| {
            m.and_then(|m| m.data.as_ref())
                .is_some_and(|d| d.get(&key) == released.get(&key) && d.contains_key("extra"))
        };
        wait::until(&maps, "config-defaults", REPAIR, "repaired", right).await?;
        ready(hub, &serving).await?;

        step("a deleted anchor", deleted_anchor_is_recreated(spoke, &anchor, name)).await?;
        ready(hub, &serving).await?;

        // Each step is in an event.
        let events = Api::<Event>::namespaced(hub.client(), "both").list(&ListParams::default()).await?;
        let reasons: Vec<_> = events.iter().filter_map(|e| e.reason.clone()).collect();
        for reason in [
            "FinalizerUpdate",
            "Installing",
            "TargetClusterResolved",
            "DeploymentsAvailable",
            "InstallSucceeded",
            "Ready",
            "DriftRepaired",
        ] {
            assert!(reasons.iter().any(|r| r == reason), "no event {reason} in {reasons:?}");
        }

        let asked = Instant::now();
        tokio::try_join!(delete(hub, &serving), delete(hub, &eventing))?;
        eprintln!("both uninstalled after {:.1?}", asked.elapsed());
        // Endpoints, ReplicaSets and similar objects are deleted by their own controllers a moment
        // later.
        nothing_left(spoke, &before).await
    });
}

/// `knative-operator diff` finds no changes for an installation, and shows the effect of a change.
fn check_diff(spoke: &Cluster, serving: &Value, releases: &Path) -> Result<()> {
    let file = spoke.dir().join("planned.json");
    let diff = |resource: &Value| -> Result<(Option<i32>, String)> {
        std::fs::write(&file, resource.to_string())?;
        let mut command = Command::new(tools::binary("knative-operator")?);
        command.args(["diff", "--kubernetes-min-version=v1.25.0", "--color=never", "-f"]).arg(&file);
        let output = command.arg("--kubeconfig").arg(spoke.kubeconfig()).arg("--releases").arg(releases).output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?))
    };
    let (code, text) = diff(serving)?;
    assert!(code == Some(0) && text.starts_with("0 to create, 0 to change, 0 to delete, "), "{code:?} {text}");
    let mut changed = serving.clone();
    changed["spec"]["config"] = json!({"network": {"added": "yes"}});
    without_ingress(&mut changed);
    let (code, text) = diff(&changed)?;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("+++ planned/ConfigMap knative-serving/config-network\n")
            && text.contains("\n+  added: \"yes\"\n"),
        "{text}"
    );
    assert!(text.contains("--- live/Deployment knative-serving/3scale-kourier-gateway\n+++ /dev/null\n"), "{text}");
    assert!(
        text.lines().last().is_some_and(|l| l.starts_with("0 to create, 1 to change, ") || l.starts_with("0 to create, 2 to change, ")),
        "{text}"
    );
    changed["spec"]["version"] = json!("9.9.9");
    let (code, text) = diff(&changed)?;
    assert!(code == Some(2) && text.starts_with("error: ") && text.contains("spec.version: "), "{code:?} {text}");
    Ok(())
}

#[test]
fn two_resources_install_on_two_spokes() {
    run(async {
        let fleet = fleet().await?;
        let hub = &fleet.hub;
        namespace(hub, "two").await?;
        let mut first = serving("two", "ks-1", Some("spoke-1"), &fleet.releases);
        first["spec"]["namespaceConfiguration"] =
            json!({"labels": {"example.com/team": "a"}, "annotations": {"example.com/owner": "b"}});
        let mut second = serving("two", "ks-2", Some("spoke-2"), &fleet.releases);
        second["spec"]["config"] = json!({"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}});
        overrides::add(&mut second);
        tokio::try_join!(apply(hub, &first), apply(hub, &second))?;
        tokio::try_join!(ready(hub, &first), ready(hub, &second))?;

        // The namespace has its settings on its spoke; so have the ConfigMaps.
        let created = Api::<Namespace>::all(fleet.spokes[1].client()).get("knative-serving").await?;
        assert_eq!(created.labels().get("example.com/team").map(String::as_str), Some("a"));
        assert_eq!(created.annotations().get("example.com/owner").map(String::as_str), Some("b"));
        let class = |spoke: usize| async move {
            let maps = Api::<ConfigMap>::namespaced(fleet.spokes[spoke].client(), "knative-serving");
            knative_operator_tests::Result::Ok(
                maps.get("config-network").await?.data.unwrap_or_default().get("ingress-class").cloned(),
            )
        };
        assert_eq!(class(2).await?.as_deref(), Some("kourier.ingress.networking.knative.dev"));
        // The example of Knative's documents names no class, and is rendered as by the Go operator.
        // Then no Service uses Kourier: the event and `status` say so, also long after admission.
        assert_ne!(class(1).await?.as_deref(), Some("kourier.ingress.networking.knative.dev"));
        let unused = "no Service uses kourier; set it to kourier.ingress.networking.knative.dev";
        has_event(hub, "two", "IngressUnused", unused).await?;
        let (code, text, _) = crate::status::command(&hub.kubeconfig(), &["status", "-n", "two"]).await?;
        let notes = text.split_whitespace().collect::<Vec<_>>().join(" ").matches("note: spec.config.network").count();
        assert_eq!((code, notes), (Some(0), 1), "{text}");

        overrides::check(hub, &fleet.spokes[2], &second).await?;

        // A second resource for the same spoke is not installed, and names the first.
        let mut competitor = serving("two", "competitor", Some("spoke-1"), &fleet.releases);
        let refused = apply(hub, &competitor).await.unwrap_err().to_string();
        assert!(
            refused.contains("ClusterProfile fleet-system/spoke-1 already has a KnativeServing: two/ks-1"),
            "{refused}"
        );
        competitor["metadata"]["annotations"] = json!({"operator.knative.dev/shared-target": "true"});
        apply(hub, &competitor).await?;
        let reported = status(hub, &competitor, wait::LIMIT, "refused", |s| {
            condition(s, "InstallSucceeded").is_some_and(|c| c.reason.as_deref() == Some("Occupied"))
        })
        .await?;
        let message = condition(&reported, "InstallSucceeded").and_then(|c| c.message.clone()).unwrap_or_default();
        assert!(message.contains("belongs to KnativeServing two/ks-1 of hub "), "{message}");
        delete(hub, &competitor).await?;
        let still = ready(hub, &first).await?;
        assert_eq!(still.version.as_deref(), Some(fleet.releases.serving));

        // The same for a resource that refers to the spoke by another profile.
        product::profile(hub, "alias", &product::access(&fleet.spokes[1], "spoke-1")).await?;
        let alias = serving("two", "alias", Some("alias"), &fleet.releases);
        apply(hub, &alias).await?;
        has_condition(hub, &alias, "InstallSucceeded", "Occupied", "belongs to KnativeServing two/ks-1 of hub ")
            .await?;
        delete(hub, &alias).await?;
        ready(hub, &first).await?;

        // The namespace of the other component is not affected.
        assert!(
            Api::<Namespace>::all(fleet.spokes[1].client()).get_opt(Component::Eventing.canonical()).await?.is_none()
        );
        tokio::try_join!(delete(hub, &first), delete(hub, &second))?;
        Ok(())
    });
}
