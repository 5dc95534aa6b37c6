//! Users delete their Knative Services, and Knative a moment later.

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, releases};
use serde_json::json;

use crate::owners::{PLACE, uids};
use crate::support::{apply, gone, has_condition, has_event, namespace, ready, resource, run};

const TEAM: &str = "team-a";
/// Kinds of objects that Knative creates for a Knative Service.
const KINDS: [(&str, &str, &str); 2] = [
    ("ingresses.networking.internal.knative.dev", "networking.internal.knative.dev/v1alpha1", "Ingress"),
    ("routes.serving.knative.dev", "serving.knative.dev/v1", "Route"),
];

/// Objects that are being deleted. Only Knative's controllers remove their finalizers, and none run
/// here.
async fn terminating(spoke: &Cluster) -> Result<()> {
    for (resources, version, kind) in KINDS {
        let meta = json!({"name": "hello", "namespace": "default", "finalizers": [resources]});
        apply(spoke, &json!({"apiVersion": version, "kind": kind, "metadata": meta, "spec": {}})).await?;
        spoke.kubectl(&["delete", resources, "hello", "-n", "default", "--wait=false"], "").await?;
    }
    Ok(())
}

/// Removes the finalizers, as the controllers do.
async fn let_go(spoke: &Cluster) -> Result<()> {
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    for (resources, ..) in KINDS {
        spoke.kubectl(&["patch", resources, "hello", "-n", "default", "--type=merge", "-p", patch], "").await?;
    }
    Ok(())
}

#[test]
fn deletion_waits_for_what_users_deleted_and_what_knative_created_for_it() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"))?;
        let (releases, plugins) = (releases::best(), tempfile::tempdir()?);
        let _product = Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, TEAM).await?;
        let spec = json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}});
        let mut serving = resource(Component::Serving, TEAM, "knative-serving", Some("spoke"), spec);
        let left = KINDS.map(|(resources, ..)| format!("1 {resources}")).join(", ");
        let what = format!("what users deleted, and what Knative created for it: {left} to be deleted");
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
                has_event(&hub, TEAM, "ObjectsOfUsersLeft", &left).await?;
            }
            gone(&hub, &serving).await?;
        }
        let_go(&spoke).await
    });
}
