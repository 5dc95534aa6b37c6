//! The record of an installation is lost, with its namespace or without.

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, releases};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{TEAM, event, hub};
use crate::owners::{ANCHOR, PLACE, state};
use crate::support::{apply, delete, eventing, gone, has_condition, namespace, nothing_left, ready, run, serving};

/// Deletes `resource` while the operator is away, after `lose` was run on `cluster`.
async fn delete_without_record(hub: &Cluster, resource: &Value, cluster: &Cluster, lose: &[&str]) -> Result<()> {
    cluster.kubectl(lose, "").await?;
    hub.kubectl(&["delete", "-f", "-", "--wait=false"], &resource.to_string()).await.map(drop)
}

/// Deletes `eventing` on `spoke` while a user has a Broker there: as the annotation asks, nothing
/// is deleted before the Broker is.
async fn wait_for_objects_of_users(hub: &Cluster, spoke: &Cluster, eventing: &Value) -> Result<()> {
    let broker = json!({"apiVersion": "eventing.knative.dev/v1", "kind": "Broker",
        "metadata": {"name": "of-a-user", "namespace": "default"}, "spec": {}});
    apply(spoke, &broker).await?;
    let installed = state(spoke, "knative-eventing").await?;
    // The block of docs/operate/lifecycle.md.
    let resource = ["knativeeventing", "knative-eventing", "-n", TEAM];
    hub.kubectl(&[&["annotate"][..], &resource, &["operator.knative.dev/on-delete=wait"]].concat(), "").await?;
    hub.kubectl(&[&["delete", "--wait=false"][..], &resource].concat(), "").await?;
    has_condition(hub, eventing, "InstallSucceeded", "Uninstalling", "objects of users: 1 brokers.eventing").await?;
    assert_eq!(state(spoke, "knative-eventing").await?, installed, "something was deleted");

    delete(spoke, &broker).await?;
    gone(hub, eventing).await
}

#[test]
fn lost_record_leaves_nothing_behind() {
    run(async {
        let (releases, plugins) = (releases::best(), tempfile::tempdir()?);
        let spoke = Cluster::spoke("forgotten").await?;
        let (hub, mut product) = hub("forgetful", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        namespace(&hub, "knative-eventing").await?;
        let remote = serving(TEAM, "knative-serving", Some("spoke"), &releases);
        let beside = eventing(TEAM, "knative-eventing", Some("spoke"), &releases);
        let local = eventing("knative-eventing", "knative-eventing", None, &releases);
        let before = [objects(&spoke.client()).await?, objects(&hub.client()).await?];
        apply(&hub, &beside).await?;
        ready(&hub, &beside).await?;
        let with_eventing = objects(&spoke.client()).await?;

        for lose in [
            vec!["delete", "namespace", PLACE, "--timeout=120s"],
            vec!["delete", "configmap", ANCHOR, "-n", PLACE, "--cascade=orphan"],
            vec!["patch", "configmap", ANCHOR, "-n", PLACE, "--type=merge", "-p", r#"{"data":null}"#],
        ] {
            apply(&hub, &remote).await?;
            ready(&hub, &remote).await?;
            product.stop_operator(Signal::KILL)?;
            delete_without_record(&hub, &remote, &spoke, &lose).await?;
            product.start_operator(&hub).await?;
            gone(&hub, &remote).await?;
            event(&hub, "InventoryMissing", ANCHOR).await?;
            // Nothing of the other component is touched.
            nothing_left(&spoke, &with_eventing).await?;
            ready(&hub, &beside).await?;
        }

        // Locally, the record goes with the namespace, and the resource with it.
        apply(&hub, &local).await?;
        ready(&hub, &local).await?;
        product.stop_operator(Signal::KILL)?;
        let inventory = format!("{}-knative-eventing-inventory", Component::Eventing.kind().to_lowercase());
        let lose = ["delete", "configmap", &inventory, "-n", "knative-eventing"];
        delete_without_record(&hub, &local, &hub, &lose).await?;
        product.start_operator(&hub).await?;
        gone(&hub, &local).await?;
        wait_for_objects_of_users(&hub, &spoke, &beside).await?;
        nothing_left(&hub, &before[1]).await?;
        nothing_left(&spoke, &before[0]).await
    });
}
