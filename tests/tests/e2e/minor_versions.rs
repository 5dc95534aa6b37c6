//! A resource that asks for each minor version goes through all of them, up and down.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use knative_operator_shared::api::{Component, KnativeServing, KnativeStatus};
use knative_operator_shared::label::{EACH, MINOR_VERSIONS};
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::tools::copy;
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::owners::{ANCHOR, PLACE, state};
use crate::support::{
    INSTALL, apply, condition, delete, fleet, forbid, has_condition, has_event, jobs_done, namespace, ready, resource,
    run, serving, status,
};
use crate::upgrade::all_of;

/// Time limit of a way: each of its versions is an installation.
const WAY: Duration = Duration::from_secs(3 * INSTALL.as_secs());

/// What a status said on the way.
#[derive(Debug, Default)]
struct Seen {
    /// `status.version`, whenever it was another one.
    versions: Vec<String>,
    /// Of these, those without available Deployments.
    unavailable: Vec<String>,
    /// Messages of `InstallSucceeded`.
    messages: Vec<String>,
}

impl Seen {
    /// The versions, without the one `before` the way, which may not be seen any more.
    fn after(&self, before: &str) -> Vec<&str> {
        self.versions.iter().map(String::as_str).filter(|version| *version != before).collect()
    }
}

/// Follows `resource` until it is Ready, which it is not before the end of its way.
async fn seen_on_the_way(hub: &Cluster, resource: &Value) -> Result<Seen> {
    let text = |field: &str| resource["metadata"][field].as_str().unwrap();
    let stored = Api::<KnativeServing>::namespaced(hub.client(), text("namespace")).get(text("name")).await?;
    let generation = stored.metadata.generation;
    let seen = Mutex::new(Seen::default());
    let is_true = |status: &KnativeStatus, type_: &str| condition(status, type_).is_some_and(|c| c.status == "True");
    let is_at_the_end = |status: &KnativeStatus| {
        // The status of the spec before.
        if status.observed_generation != generation {
            return false;
        }
        let mut seen = seen.lock().unwrap();
        let version = status.version.clone().unwrap_or_default();
        if seen.versions.last() != Some(&version) {
            if !is_true(status, "DeploymentsAvailable") {
                seen.unavailable.push(version.clone());
            }
            seen.versions.push(version);
        }
        let message = condition(status, "InstallSucceeded").and_then(|c| c.message.clone());
        seen.messages.extend(message);
        is_true(status, "Ready")
    };
    status(hub, resource, WAY, "Ready at the end of the way", is_at_the_end).await?;
    Ok(seen.into_inner().unwrap())
}

#[test]
fn resource_goes_through_each_minor_version_and_back() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, Cluster::spoke("minors").await?);
        product::register(hub, &spoke, "minors").await?;
        namespace(hub, "minors").await?;
        let mut resource = serving("minors", "ks", Some("minors"), &fleet.releases);
        resource["spec"]["version"] = json!("1.20");
        apply(hub, &resource).await?;
        ready(hub, &resource).await?;

        // By default, it is refused as before.
        resource["spec"]["version"] = json!("1.23");
        let refused = apply(hub, &resource).await.unwrap_err().to_string();
        let way_out = format!("or set the annotation {MINOR_VERSIONS} to {EACH}");
        assert!(refused.contains("set spec.version to 1.21 first") && refused.contains(&way_out), "{refused}");

        resource["metadata"]["annotations"] = json!({MINOR_VERSIONS: EACH});
        let up = ["1.20.3", "1.21.3", "1.22.1", "1.23.0"];
        let down = ["1.23.0", "1.22.1", "1.21.3", "1.20.3"];
        for (asked, [first, second, third, last]) in [("1.23", up), ("1.20", down)] {
            resource["spec"]["version"] = json!(asked);
            apply(hub, &resource).await?;
            let seen = seen_on_the_way(hub, &resource).await?;
            assert_eq!(seen.after(first), [second, third, last], "{seen:?}");
            assert!(!seen.unavailable.iter().any(|version| [second, third].contains(&version.as_str())), "{seen:?}");
            for step in [
                format!("version {second} on the way from {first} to {last} (then {third}, {last})"),
                format!("version {third} on the way from {second} to {last} (then {last})"),
            ] {
                assert!(seen.messages.iter().any(|message| message.contains(&step)), "{step}: {seen:?}");
            }
            for (version, from, to) in [
                (second, first, format!(" on the way to {last}")),
                (third, second, format!(" on the way to {last}")),
                (last, third, String::new()),
            ] {
                has_event(hub, "minors", "Installing", &format!("Installing version {version} from {from}{to}: "))
                    .await?;
            }
            all_of(&spoke, last, false).await?;
        }
        delete(hub, &resource).await
    });
}

/// A bundle in `folder` with the versions 1.0.0 and 1.1.0, and `newer` ones of Serving, copies of
/// the last one.
fn bundle(folder: &Path, newer: &[&str]) -> Result<Releases> {
    copy(&releases::small().dir, folder)?;
    for minor in newer {
        copy(&folder.join("knative-serving/1.1.0"), &folder.join(format!("knative-serving/{minor}.0")))?;
        copy(&folder.join("ingress/1.1"), &folder.join("ingress").join(minor))?;
    }
    Ok(Releases { dir: folder.to_owned(), ..releases::small() })
}

/// Kills the operator as soon as `resource` has `version`, on its way.
async fn killed_on_the_way(hub: &Cluster, product: &mut Product, resource: &Value, version: &str) -> Result<Seen> {
    let kill = async {
        let is_there = |status: &KnativeStatus| status.version.as_deref() == Some(version);
        status(hub, resource, WAY, &format!("with version {version}"), is_there).await?;
        product.restart_operator(hub, Signal::KILL).await
    };
    let (seen, ()) = tokio::try_join!(seen_on_the_way(hub, resource), kill)?;
    Ok(seen)
}

#[test]
fn resource_without_a_version_follows_a_bundle_that_is_far_ahead_on_request() {
    run(async {
        let (folder, plugins) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(folder.path(), &[])?;
        let (hub, spoke) = tokio::try_join!(Cluster::hub("far-ahead"), Cluster::spoke("far-ahead-spoke"))?;
        let mut product = Product::create(&hub, &releases, product::values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "team").await?;
        let mut wanted = resource(Component::Serving, "team", "knative-serving", Some("spoke"), json!({}));
        apply(&hub, &wanted).await?;
        assert_eq!(ready(&hub, &wanted).await?.version.as_deref(), Some("1.1.0"));
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        let installed = state(&spoke, PLACE).await?;

        // The next operator is two minor versions ahead: the condition says what to do.
        product.stop_operator(Signal::TERM)?;
        bundle(folder.path(), &["1.2", "1.3"])?;
        product.start_operator(&hub).await?;
        let part = format!("set spec.version to 1.2 first, then to 1.3.0, or set the annotation {MINOR_VERSIONS}");
        has_condition(&hub, &wanted, "VersionMigrationEligible", "Error", &part).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);

        hub.object("knativeserving", "team", "knative-serving").annotate(&json!({MINOR_VERSIONS: EACH})).await?;
        let seen = killed_on_the_way(&hub, &mut product, &wanted, "1.2.0").await?;
        assert_eq!(seen.after("1.1.0"), ["1.2.0", "1.3.0"], "{seen:?}");

        // Back, also by an operator that was killed on the way.
        wanted["metadata"]["annotations"] = json!({MINOR_VERSIONS: EACH});
        wanted["spec"]["version"] = json!("1.0");
        apply(&hub, &wanted).await?;
        let seen = killed_on_the_way(&hub, &mut product, &wanted, "1.1.0").await?;
        assert_eq!(seen.after("1.3.0"), ["1.2.0", "1.1.0", "1.0.0"], "{seen:?}");
        delete(&hub, &wanted).await
    });
}

#[test]
fn step_is_finished_if_the_bundle_lacks_what_follows() {
    run(async {
        let (folder, plugins) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(folder.path(), &["1.2", "1.3", "1.4"])?;
        let (hub, spoke) = tokio::try_join!(Cluster::hub("half-way"), Cluster::spoke("half-way-spoke"))?;
        let mut product = Product::create(&hub, &releases, product::values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "team").await?;
        let spec = json!({"version": "1.1"});
        let mut wanted = resource(Component::Serving, "team", "knative-serving", Some("spoke"), spec);
        wanted["metadata"]["annotations"] = json!({MINOR_VERSIONS: EACH});
        apply(&hub, &wanted).await?;
        ready(&hub, &wanted).await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;

        // The first step can't end.
        forbid(&spoke, "no-jobs", "jobs", &job("1.2.0")).await?;
        wanted["spec"]["version"] = json!("1.4");
        apply(&hub, &wanted).await?;
        has_condition(&hub, &wanted, "InstallSucceeded", "Error", "no-jobs").await?;

        // The operator is rolled back to a bundle without the second one.
        product.stop_operator(Signal::TERM)?;
        std::fs::remove_dir_all(folder.path().join("knative-serving/1.3.0"))?;
        permit(&spoke).await?;
        product.start_operator(&hub).await?;
        let is_at = |status: &KnativeStatus| status.version.as_deref() == Some("1.2.0");
        let found = status(&hub, &wanted, WAY, "with the version of the step", is_at).await?;
        assert!(condition(&found, "InstallSucceeded").is_some_and(|c| c.status == "True"), "{found:?}");
        let part = "lacks version 1.3, which is on the way from the installed version v1.2.0 to 1.4.0";
        has_condition(&hub, &wanted, "VersionMigrationEligible", "Error", part).await?;
        delete(&hub, &wanted).await
    });
}

/// The Job of `version`, whose creation a policy refuses, so that the step to that version can't
/// end.
fn job(version: &str) -> Value {
    let name = format!("storage-version-migration-serving-serving-{version}");
    let pods = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": pods}}})
}

/// Ends what [`forbid`] began.
async fn permit(cluster: &Cluster) -> Result<()> {
    let policy = ["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "no-jobs"];
    cluster.kubectl(&policy, "").await.map(drop)
}

#[test]
fn manifests_that_are_added_on_the_way_fit_each_version_or_change_nothing() {
    run(async {
        let (folder, plugins) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(folder.path(), &["1.2", "1.3", "1.4"])?;
        for version in ["1.2.0", "1.3.0", "1.4.0"] {
            let labels = json!({"app.kubernetes.io/version": version});
            let meta = json!({"name": "extra", "namespace": PLACE, "labels": labels});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"version": version}});
            std::fs::write(folder.path().join(format!("extra-{version}.yaml")), map.to_string())?;
        }
        let (hub, spoke) = tokio::try_join!(Cluster::hub("own-way"), Cluster::spoke("own-way-spoke"))?;
        let _product = Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "team").await?;
        let mut wanted =
            resource(Component::Serving, "team", "knative-serving", Some("spoke"), json!({"version": "1.2"}));
        wanted["metadata"]["annotations"] = json!({MINOR_VERSIONS: EACH});
        apply(&hub, &wanted).await?;
        ready(&hub, &wanted).await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;

        // The first step, to 1.3.0, is in the middle.
        forbid(&spoke, "no-jobs", "jobs", &job("1.3.0")).await?;
        wanted["spec"]["version"] = json!("1.4");
        apply(&hub, &wanted).await?;
        has_condition(&hub, &wanted, "InstallSucceeded", "Error", "no-jobs").await?;

        // Manifests of the last version are refused. Those of a version that may follow the one in
        // the status are not installed over the one of the step.
        let mut own = wanted.clone();
        own["spec"]["manifests"] = json!([{"URL": "knative-serving/1.4.0"}]);
        apply(&hub, &own).await?;
        let part = "with spec.manifests the operator has no versions on the way";
        has_condition(&hub, &own, "VersionMigrationEligible", "Error", part).await?;
        own["spec"]["version"] = json!("1.1");
        own["spec"]["manifests"] = json!([{"URL": "knative-serving/1.1.0"}]);
        apply(&hub, &own).await?;
        let part = "the cluster has version 1.3.0, which is newer than the 1.1 of this resource";
        has_condition(&hub, &own, "VersionMigrationEligible", "Error", part).await?;

        // Additional manifests of the last version don't fit the step, and say what does.
        apply(&hub, &wanted).await?;
        has_condition(&hub, &wanted, "InstallSucceeded", "Error", "no-jobs").await?;
        wanted["spec"]["additionalManifests"] = json!([{"URL": "extra-1.4.0.yaml"}]);
        apply(&hub, &wanted).await?;
        let part = "the version of the manifests 1.4.0 of the component extra does not match the target version of the operator CR 1.3.0";
        has_condition(&hub, &wanted, "InstallSucceeded", "Error", part).await?;
        has_condition(&hub, &wanted, "InstallSucceeded", "Error", "${VERSION} stands for each version").await?;
        permit(&spoke).await?;
        wanted["spec"]["additionalManifests"] = json!([{"URL": "extra-${VERSION}.yaml"}]);
        apply(&hub, &wanted).await?;
        let seen = seen_on_the_way(&hub, &wanted).await?;
        assert_eq!(seen.after("1.2.0"), ["1.3.0", "1.4.0"], "{seen:?}");
        let path = "jsonpath={.data.version}";
        assert_eq!(spoke.kubectl(&["get", "configmap", "extra", "-n", PLACE, "-o", path], "").await?, "1.4.0");
        delete(&hub, &wanted).await
    });
}
