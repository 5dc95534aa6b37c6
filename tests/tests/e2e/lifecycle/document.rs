//! Runs the commands of `docs/operate/lifecycle.md`.

use jiff::Timestamp;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases;
use serde_json::{Value, json};

use crate::document::{Shell, document, nothing_installed};
use crate::owners::{PLACE, uids};
use crate::support::{apply, condition, delete, gone, has_condition, namespace, ready, resource, run};

/// The namespace of the document.
const TEAM: &str = "team-a";

fn asking(version: &str) -> Value {
    let spec = json!({"version": version, "ingress": {"kourier": {"enabled": true}}});
    resource(knative_operator_shared::api::Component::Serving, TEAM, "knative-serving", Some("east"), spec)
}

fn time(text: &Value) -> Result<Timestamp> {
    Ok(text.as_str().ok_or("no time")?.parse()?)
}

/// Time of the last transition of condition `type_` of `resource`.
fn since(resource: &Value, type_: &str) -> Value {
    let mut all = resource["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.find(|condition| condition["type"] == type_);
    found.map(|condition| condition["lastTransitionTime"].clone()).unwrap_or_default()
}

#[test]
fn commands_of_the_document_do_what_it_says() {
    run(async {
        let (east, west) = tokio::try_join!(Cluster::spoke("east"), Cluster::spoke("west"))?;
        let (old, new) = tokio::try_join!(Cluster::hub("old"), Cluster::hub("new"))?;
        let (releases, plugins) = (releases::best(), tempfile::tempdir()?);
        let mut products = Vec::new();
        for hub in [&old, &new] {
            products.push(Product::install(hub, &releases, product::values(&[]), plugins.path()).await?);
            for (name, spoke) in [("east", &east), ("west", &west)] {
                product::register(hub, spoke, name).await?;
            }
            namespace(hub, TEAM).await?;
        }
        let mut shell = Shell::new(&[("new", &new), ("old", &old)], &json!({}))?;
        std::fs::write(shell.folder().join("resources.yaml"), asking(releases.serving).to_string())?;
        let blocks = document("docs/operate/lifecycle.md")?;
        let of = |heading: &str| -> Vec<String> {
            let own = blocks.iter().filter(|block| block.heading == heading);
            own.map(|block| block.script.clone()).collect()
        };
        apply(&old, &asking(releases.serving)).await?;
        ready(&old, &asking(releases.serving)).await?;
        let installed = uids(&east, PLACE).await?;

        let moves = of("Move to another hub");
        assert_eq!(moves.len(), 2);
        for block in moves {
            shell.run(&block, nothing_installed).await?;
            assert_eq!(uids(&east, PLACE).await?, installed, "restarted by {block}");
        }
        for block in of("Move to another spoke") {
            shell.run(&block, nothing_installed).await?;
        }
        uids(&west, PLACE).await?;
        delete(
            &new,
            &json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "knative-serving-west", "namespace": TEAM}}),
        )
        .await?;

        for block in of("Backup and restore") {
            shell.run(&block, nothing_installed).await?;
        }
        let status = ready(&new, &asking(releases.serving)).await?;
        assert!(condition(&status, "VersionMigrationEligible").is_some_and(|c| c.status == "True"));

        // A user's object, for which the deletion waits.
        let service = json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "hello", "namespace": "default"},
            "spec": {"template": {"spec": {"containers": [{"image": "example.com/hello"}]}}}});
        apply(&east, &service).await?;
        for block in of("Objects of users") {
            shell.run(&block, nothing_installed).await?;
        }
        let part = "objects of users: 1 services.serving.knative.dev";
        has_condition(&new, &asking(""), "InstallSucceeded", "Uninstalling", part).await?;
        let waiting = new.object("knativeserving", TEAM, "knative-serving").read().await?;
        // Not at the next look at the objects of users, which is ten seconds later.
        let lag = time(&since(&waiting, "InstallSucceeded"))?
            .duration_since(time(&waiting["metadata"]["deletionTimestamp"])?);
        assert!(lag.as_secs() < 6, "published {lag:?} after the deletion");
        assert_eq!(uids(&east, PLACE).await?, installed, "something was deleted");
        delete(&east, &service).await?;
        gone(&new, &asking("")).await?;

        for block in of("Uninstall the operator") {
            shell.run(&block, nothing_installed).await?;
        }
        let left = new.kubectl(&["get", "deployments", "-n", product::NAMESPACE, "-o", "name"], "").await?;
        assert_eq!(left, "");
        new.kubectl(&["get", "clusterprofile", "-n", FLEET, "-o", "name"], "").await.map(drop)
    });
}
