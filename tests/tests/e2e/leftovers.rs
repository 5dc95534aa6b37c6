//! Users delete their Knative Services, and Knative a moment later.

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, releases};
use serde_json::json;

use crate::owners::{PLACE, uids};
use crate::support::{apply, gone, has_condition, has_event, namespace, ready, resource, run};

const TEAM: &str = "team-a";
/// The kind of the object that Knative creates for a Knative Service.
const INGRESSES: &str = "ingresses.networking.internal.knative.dev";

/// An `Ingress` that is being deleted. Only Kourier's controller removes its finalizer, and none
/// runs here.
async fn terminating(spoke: &Cluster) -> Result<()> {
    let meta = json!({"name": "hello", "namespace": "default", "finalizers": [INGRESSES]});
    let version = "networking.internal.knative.dev/v1alpha1";
    apply(spoke, &json!({"apiVersion": version, "kind": "Ingress", "metadata": meta, "spec": {}})).await?;
    spoke.kubectl(&["delete", INGRESSES, "hello", "-n", "default", "--wait=false"], "").await.map(drop)
}

/// Removes the finalizer, as the controller does.
async fn let_go(spoke: &Cluster) -> Result<()> {
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    spoke.kubectl(&["patch", INGRESSES, "hello", "-n", "default", "--type=merge", "-p", patch], "").await.map(drop)
}

#[test]
fn deletion_waits_for_what_knative_created_for_objects_of_users() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"))?;
        let (releases, plugins) = (releases::best(), tempfile::tempdir()?);
        let _product = Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, TEAM).await?;
        let spec = json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}});
        let mut serving = resource(Component::Serving, TEAM, "knative-serving", Some("spoke"), spec);
        let what = format!("what users deleted, and what Knative created for it: 1 {INGRESSES} to be deleted");
        for waits in [true, false] {
            let asked = if waits { json!({"operator.knative.dev/on-delete": "wait"}) } else { json!({}) };
            serving["metadata"]["annotations"] = asked;
            apply(&hub, &serving).await?;
            ready(&hub, &serving).await?;
            let installed = uids(&spoke, PLACE).await?;
            terminating(&spoke).await?;
            hub.kubectl(&["delete", "knativeserving/knative-serving", "-n", TEAM, "--wait=false"], "").await?;
            has_condition(&hub, &serving, "InstallSucceeded", "Uninstalling", &what).await?;
            assert_eq!(uids(&spoke, PLACE).await?, installed, "something was deleted");
            if waits {
                let_go(&spoke).await?;
            } else {
                // Nobody does, since Knative doesn't work: it can be uninstalled nevertheless.
                has_event(&hub, TEAM, "ObjectsOfUsersLeft", &format!("1 {INGRESSES}")).await?;
            }
            gone(&hub, &serving).await?;
        }
        let_go(&spoke).await
    });
}
