//! Takes over an installation of the Go operator: no Pod restarts, and fields that the Go operator
//! set are removed when the spec doesn't have them. Uses `../shared/takeover`, the state that the
//! Go operator left on a spoke; skipped without it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod};
use knative_operator_shared::api::{KnativeServing, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::tools::project;
use knative_operator_tests::{Result, releases, wait};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{INSTALL, apply, condition, delete, gone, namespace, nothing_left, ready, run, status};
use crate::writers;

/// Image digests of the Go operator's Pods; a restart for another value would be correct.
pub const MIN_VERSION: &str = "1.30.0";

/// The items of one file of the Go operator's state, each changed by `change`; `None` if the file
/// is missing.
pub fn left(name: &str, change: impl Fn(String) -> String) -> Result<Option<Vec<Value>>> {
    let folder = project().join("../shared/takeover");
    if !folder.is_dir() {
        let _ = writeln!(std::io::stderr(), "skipped: {} is not there", folder.display());
        return Ok(None);
    }
    let list: Value = serde_json::from_str(&change(std::fs::read_to_string(folder.join(name))?))?;
    Ok(Some(list["items"].as_array().cloned().unwrap_or_default()))
}

#[test]
fn go_operator_objects_are_taken_over_without_restart() {
    run(async {
        let same = |text| text;
        let (Some(items), Some(mut resources)) =
            (left("spoke-objects.json", same)?, left("hub-resources-remote.json", same)?)
        else {
            return Ok(());
        };
        let (hub, spoke) = tokio::try_join!(Cluster::hub("takeover"), Cluster::spoke("taken"))?;
        let before = objects(&spoke.client()).await?;
        load(&spoke, items, BTreeMap::new()).await?;
        let client = spoke.client();
        // Eventing's controller has written whole lists to the adapter.
        writers::play_adapter(&spoke).await?;
        for place in ["knative-serving", "knative-eventing"] {
            available(&Api::namespaced(client.clone(), place)).await?;
        }
        let adapter = writers::adapter(&spoke).await?;
        let pods = uids(&Api::<Pod>::all(client.clone())).await?;
        let sets = uids(&Api::<ReplicaSet>::all(client.clone())).await?;

        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["kubernetes_min_version"] = json!(MIN_VERSION);
        let product = Product::install(&hub, &releases::best(), values, plugins.path()).await?;
        product::register(&hub, &spoke, "taken").await?;
        for resource in &mut resources {
            resource["spec"]["clusterProfileRef"] = json!({"name": "taken", "namespace": FLEET});
            let place = resource["metadata"]["namespace"].as_str().unwrap_or_default();
            namespace(&hub, place).await?;
            restore(&hub, resource).await?;
        }
        for resource in &resources {
            taken(&spoke, resource).await?;
            ready(&hub, resource).await?;
        }
        assert_eq!(uids(&Api::<Pod>::all(client.clone())).await?, pods, "pods were restarted");
        assert_eq!(uids(&Api::<ReplicaSet>::all(client.clone())).await?, sets, "Deployments were rolled out");
        assert_eq!(writers::adapter(&spoke).await?, adapter, "what Eventing's controller had written");

        // The Go operator owns nothing any more, and the objects are the same.
        let deployments = Api::<Deployment>::namespaced(client.clone(), "knative-serving");
        for deployment in deployments.list(&ListParams::default()).await? {
            let managers: BTreeSet<_> = deployment.managed_fields().iter().filter_map(|m| m.manager.clone()).collect();
            assert!(!managers.contains("manifestival"), "{}: {managers:?}", deployment.name_any());
            assert!(
                !deployment.annotations().contains_key("kubectl.kubernetes.io/last-applied-configuration"),
                "{}",
                deployment.name_any()
            );
            // A field of an override that the spec no longer has is removed.
            assert!(!deployment.annotations().contains_key("example.com/override"), "{}", deployment.name_any());
        }

        // A field that is removed from the spec later is removed from the cluster.
        let serving = &resources[0];
        let mut changed = serving.clone();
        changed["metadata"] =
            json!({"name": serving["metadata"]["name"], "namespace": serving["metadata"]["namespace"]});
        changed.as_object_mut().map(|o| o.remove("status"));
        changed["spec"]["config"] = json!({"features": {"taken": "over"}});
        apply(&hub, &changed).await?;
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "knative-serving");
        let has = |m: Option<&ConfigMap>| m.and_then(|m| m.data.as_ref()).is_some_and(|d| d.contains_key("taken"));
        wait::until(&maps, "config-features", INSTALL, "changed", has).await?;
        changed["spec"].as_object_mut().map(|s| s.remove("config"));
        apply(&hub, &changed).await?;
        wait::until(&maps, "config-features", INSTALL, "as before", |m| !has(m)).await?;

        for resource in &resources {
            delete(&hub, resource).await?;
        }
        drop(product);
        // Objects that the cluster creates in each namespace, and the namespaces, which existed
        // before.
        let own = [
            "/kube-root-ca.crt",
            "/default",
            "/knative-hub",
            "Namespace. /knative-serving",
            "Namespace. /knative-eventing",
        ];
        let own = |object: &String| own.iter().any(|end| object.ends_with(end));
        nothing_left(&spoke, &objects(&spoke.client()).await?.into_iter().filter(own).chain(before).collect()).await
    });
}

#[test]
fn installation_in_own_namespace_stays_there() {
    run(async {
        // The Go operator used the resource's own namespace on the spoke.
        let moved = |text: String| {
            let keys = ["namespace", "kubernetes.io/metadata.name", "value"];
            keys.iter().fold(text, |text, key| {
                text.replace(&format!("\"{key}\": \"knative-serving\""), &format!("\"{key}\": \"team\""))
            })
        };
        let (Some(mut items), Some(mut resources)) =
            (left("spoke-objects.json", moved)?, left("hub-resources-remote.json", moved)?)
        else {
            return Ok(());
        };
        items.retain(|o| !o.to_string().contains("knative-eventing"));
        for namespace in items.iter_mut().filter(|o| o["kind"] == "Namespace") {
            namespace["metadata"]["name"] = json!("team");
            // It had created that namespace itself.
            namespace["metadata"]["annotations"] = json!({"manifestival": "new"});
        }
        resources.retain(|r| r["kind"] == "KnativeServing");
        let resource = &mut resources[0];
        let (hub, spoke) = tokio::try_join!(Cluster::hub("own"), Cluster::spoke("owned"))?;
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["kubernetes_min_version"] = json!(MIN_VERSION);
        let mut product = Product::install(&hub, &releases::best(), values, plugins.path()).await?;
        product::register(&hub, &spoke, "owned").await?;
        let before = objects(&spoke.client()).await?;
        load(&spoke, items, BTreeMap::new()).await?;
        let client = spoke.client();
        let deployments = Api::<Deployment>::namespaced(client.clone(), "team");
        available(&deployments).await?;
        let pods = uids(&Api::<Pod>::all(client.clone())).await?;

        resource["spec"]["clusterProfileRef"] = json!({"name": "owned", "namespace": FLEET});
        namespace(&hub, "team").await?;
        restore(&hub, resource).await?;
        for deployment in deployments.list(&ListParams::default()).await? {
            let ours =
                |d: Option<&Deployment>| d.is_some_and(|d| d.annotations().contains_key("operator.knative.dev/digest"));
            wait::until(&deployments, &deployment.name_any(), Duration::from_secs(60), "taken over", ours).await?;
        }
        ready(&hub, resource).await?;
        assert_eq!(uids(&Api::<Pod>::all(client.clone())).await?, pods, "pods were restarted");
        assert!(Api::<Namespace>::all(client.clone()).get_opt("knative-serving").await?.is_none());
        let events = Api::<Event>::namespaced(hub.client(), "team").list(&ListParams::default()).await?;
        assert!(events.iter().any(|e| e.reason.as_deref() == Some("NamespaceKept")), "there is no event NamespaceKept");

        // Deleted right after a restart, the installation is removed from there, including the
        // namespace.
        product.restart_operator(&hub, rustix::process::Signal::KILL).await?;
        delete(&hub, resource).await?;
        nothing_left(&spoke, &before).await
    });
}

#[test]
fn local_installation_is_taken_over_or_removed() {
    run(async {
        let same = |text| text;
        let (Some(items), Some(resources)) =
            (left("local-objects.json", same)?, left("hub-resources-local.json", same)?)
        else {
            return Ok(());
        };
        let items: Vec<_> =
            items.into_iter().filter(|o| !o["kind"].as_str().is_some_and(|k| k.starts_with("Knative"))).collect();
        // Without admission webhooks: Knative's own have no Pods here.
        let hub = Cluster::spoke("local-takeover").await?;
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["kubernetes_min_version"] = json!(MIN_VERSION);
        let mut product = Product::install(&hub, &releases::best(), values, plugins.path()).await?;
        let before = objects(&hub.client()).await?;
        let (client, resource) = (hub.client(), &resources[0]);
        // Twice: taken over and then deleted; and deleted before the first reconcile.
        for looked in [true, false] {
            product.stop_operator(rustix::process::Signal::TERM)?;
            namespace(&hub, "knative-serving").await?;
            restore(&hub, resource).await?;
            let serving =
                Api::<KnativeServing>::namespaced(client.clone(), "knative-serving").get("knative-serving").await?;
            let owner = [("knative-serving".to_owned(), serving.uid().unwrap_or_default())].into();
            let missing = |o: &Value| o["kind"] != "Namespace" && (looked || o["kind"] != "CustomResourceDefinition");
            load(&hub, items.iter().filter(|o| missing(o)).cloned().collect(), owner).await?;
            available(&Api::namespaced(client.clone(), "knative-serving")).await?;
            let pods = uids(&Api::<Pod>::namespaced(client.clone(), "knative-serving")).await?;
            if looked {
                product.start_operator(&hub).await?;
                taken(&hub, resource).await?;
                ready(&hub, resource).await?;
                assert_eq!(
                    uids(&Api::<Pod>::namespaced(client.clone(), "knative-serving")).await?,
                    pods,
                    "pods were restarted"
                );
                delete(&hub, resource).await?;
            } else {
                hub.kubectl(
                    &["delete", "knativeserving", "knative-serving", "-n", "knative-serving", "--wait=false"],
                    "",
                )
                .await?;
                product.start_operator(&hub).await?;
                gone(&hub, resource).await?;
            }
            hub.kubectl(&["delete", "namespace", "knative-serving", "--timeout=60s"], "").await?;
            nothing_left(&hub, &before).await?;
        }
        Ok(())
    });
}

#[test]
fn upgrade_during_takeover_removes_objects_of_the_old_version() {
    run(async {
        let same = |text| text;
        let (Some(items), Some(mut resources)) =
            (left("local-objects.json", same)?, left("hub-resources-local.json", same)?)
        else {
            return Ok(());
        };
        // Without objects that need a definition.
        let plain = |o: &Value| {
            o["kind"] == "Namespace"
                || o["metadata"]["namespace"] == "knative-serving"
                    && !o["apiVersion"].as_str().is_some_and(|v| v.contains("knative.dev"))
        };
        let items: Vec<_> = items.into_iter().filter(plain).collect();
        let (hub, plugins) = (Cluster::spoke("late").await?, tempfile::tempdir()?);
        let mut product = Product::install(&hub, &releases::best(), product::values(&[]), plugins.path()).await?;
        product.stop_operator(rustix::process::Signal::TERM)?;
        load(&hub, items.iter().filter(|o| o["kind"] == "Namespace").cloned().collect(), BTreeMap::new()).await?;
        // The newest version of that Go operator was 1.22.1.
        resources[0]["spec"]["version"] = json!("1.23.0");
        restore(&hub, &resources[0]).await?;
        let serving = Api::<KnativeServing>::namespaced(hub.client(), "knative-serving").get("knative-serving").await?;
        let owner = [("knative-serving".to_owned(), serving.uid().unwrap_or_default())].into();
        load(&hub, items.into_iter().filter(|o| o["kind"] != "Namespace").collect(), owner).await?;
        let jobs = Api::<Job>::namespaced(hub.client(), "knative-serving");
        let of_version = |version: &'static str| move |job: &Job| job.name_any().ends_with(version);
        assert!(jobs.list(&ListParams::default()).await?.items.iter().any(of_version("1.22.1")));
        product.start_operator(&hub).await?;
        let upgraded = |s: &KnativeStatus| {
            s.version.as_deref() == Some("1.23.0") && condition(s, "Ready").is_some_and(|c| c.status == "True")
        };
        status(&hub, &resources[0], INSTALL, "upgraded", upgraded).await?;
        let there = jobs.list(&ListParams::default()).await?.items;
        assert!(
            there.iter().any(of_version("1.23.0")) && !there.iter().any(of_version("1.22.1")),
            "{:?}",
            there.iter().map(Job::name_any).collect::<Vec<_>>()
        );
        delete(&hub, &resources[0]).await
    });
}

/// Creates `items` on `spoke` as the Go operator did, with new names and owners.
pub async fn load(spoke: &Cluster, items: Vec<Value>, mut owners: BTreeMap<String, String>) -> Result<()> {
    let turn = |o: &Value| match (
        o["kind"].as_str().unwrap_or_default(),
        o["metadata"]["name"].as_str().unwrap_or_default(),
    ) {
        ("Namespace", _) => 0,
        ("ConfigMap", name) if name.ends_with("-root-owner") => 1,
        ("CustomResourceDefinition", _) => 2,
        _ => 3,
    };
    for step in 0..4 {
        let mut due: Vec<Value> = items.iter().filter(|o| turn(o) == step).map(|o| renewed(o, &owners)).collect();
        for object in due.iter_mut().filter(|o| o["kind"] == "Deployment") {
            object["metadata"]["annotations"]["example.com/override"] = json!("set by an override that is gone");
        }
        if due.is_empty() {
            continue;
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": due});
        let created = spoke
            .kubectl(&["create", "--field-manager=manifestival", "-o", "json", "-f", "-"], &list.to_string())
            .await?;
        // One document after another.
        let created: Vec<Value> =
            serde_json::Deserializer::from_str(&created).into_iter().collect::<std::result::Result<_, _>>()?;
        for object in created.iter().filter(|_| step == 1) {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            owners.insert(text("name"), text("uid"));
        }
        if step == 2 {
            wait::established(spoke.client()).await?;
        }
    }
    Ok(())
}

/// `object` without fields that only its original cluster can have.
fn renewed(object: &Value, owners: &BTreeMap<String, String>) -> Value {
    let mut object = object.clone();
    object.as_object_mut().map(|o| o.remove("status"));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| {
            matches!(key.as_str(), "name" | "namespace" | "labels" | "annotations" | "ownerReferences" | "generateName")
        });
    }
    for owner in object["metadata"].get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = owner["name"].as_str().unwrap_or_default();
        owner["uid"] = json!(owners.get(name));
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| !matches!(key.as_str(), "clusterIP" | "clusterIPs"));
    }
    if object["kind"] == "Job" {
        object["spec"].as_object_mut().map(|s| s.remove("selector"));
        if let Some(labels) = object.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut) {
            labels.retain(|key, _| !key.contains("controller-uid") && !key.contains("job-name"));
        }
    }
    object
}

pub async fn available(deployments: &Api<Deployment>) -> Result<()> {
    for deployment in deployments.list(&ListParams::default()).await? {
        wait::until(deployments, &deployment.name_any(), INSTALL, "available", wait::available).await?;
    }
    Ok(())
}

/// Pods and ReplicaSets of Deployments; those of Jobs come and go.
pub async fn uids<K>(api: &Api<K>) -> Result<BTreeSet<String>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let all = api.list(&ListParams::default()).await?;
    let of_job = |o: &K| o.owner_references().iter().any(|r| r.kind == "Job");
    Ok(all
        .items
        .iter()
        .filter(|o| !of_job(o))
        .map(|o| format!("{} {}", o.name_any(), o.uid().unwrap_or_default()))
        .collect())
}

/// Creates `resource` on the hub with its status and finalizer, as the Go operator left it.
pub async fn restore(hub: &Cluster, resource: &Value) -> Result<()> {
    let mut object = resource.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "finalizers"));
    }
    hub.kubectl(&["create", "-f", "-"], &object.to_string()).await?;
    let patch = json!({"status": resource["status"]}).to_string();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, place, name) =
        (text(&resource["kind"]), text(&resource["metadata"]["namespace"]), text(&resource["metadata"]["name"]));
    // Untyped: it may have no spec.
    hub.kubectl(&["patch", &kind, &name, "-n", &place, "--subresource=status", "--type=merge", "-p", &patch], "")
        .await
        .map(drop)
}

/// Waits until each Deployment of `resource` has the operator's digest.
pub async fn taken(spoke: &Cluster, resource: &Value) -> Result<()> {
    let place = if resource["kind"] == "KnativeServing" { "knative-serving" } else { "knative-eventing" };
    let deployments = Api::<Deployment>::namespaced(spoke.client(), place);
    for deployment in deployments.list(&ListParams::default()).await? {
        let ours =
            |d: Option<&Deployment>| d.is_some_and(|d| d.annotations().contains_key("operator.knative.dev/digest"));
        wait::until(&deployments, &deployment.name_any(), Duration::from_secs(60), "taken over", ours).await?;
    }
    Ok(())
}
