//! The record of an installation is lost, with its namespace or without.

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, releases};
use rustix::process::Signal;
use serde_json::Value;

use super::{TEAM, hub};
use crate::owners::{ANCHOR, PLACE};
use crate::support::{apply, delete, eventing, gone, has_event, namespace, nothing_left, ready, run, serving};

/// Deletes `resource` while the operator is away, after `lose` was run on `cluster`.
async fn delete_without_record(hub: &Cluster, resource: &Value, cluster: &Cluster, lose: &[&str]) -> Result<()> {
    cluster.kubectl(lose, "").await?;
    hub.stored(resource).start_deletion().await
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
            has_event(&hub, TEAM, "InventoryMissing", ANCHOR).await?;
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
        delete(&hub, &beside).await?;
        nothing_left(&hub, &before[1]).await?;
        nothing_left(&spoke, &before[0]).await
    });
}
