//! The operator stops at a bad time and continues; an invalid bundle is reported and recovers; the
//! CRD's own rules apply without the webhook.

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product, values};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::tools::copy;
use knative_operator_tests::{kubelet, wait};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use rustix::process::Signal;
use serde_json::json;

use crate::admission::{changes, refusal};
use crate::support::{INSTALL, apply, delete, has_condition, namespace, nothing_left, ready, resource, run, serving};

#[test]
fn killed_operator_continues_install_and_uninstalls_after_restart() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("restart"), Cluster::spoke("restart-spoke"))?;
        let bundle = tempfile::tempdir()?;
        copy(&releases::small().dir, bundle.path())?;
        let releases = Releases { dir: bundle.path().to_owned(), ..releases::small() };
        let mut values = values(&[]);
        values["knative_operator"]["releases"]["image"] = json!(format!("{}:test", kubelet::FOLDER_IMAGE));
        let mut product = Product::create(&hub, &releases, values, bundle.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "restart").await?;
        let before = objects(&spoke.client()).await?;
        let wanted = serving("restart", "ks", Some("spoke"), &releases);

        // A missing or invalid bundle is reported with its path; once repaired, it is installed
        // without a restart.
        let (there, away) = (bundle.path().join("knative-serving"), bundle.path().join("away"));
        std::fs::rename(&there, &away)?;
        apply(&hub, &wanted).await?;
        has_condition(&hub, &wanted, "InstallSucceeded", "Error", "cannot read").await?;
        std::fs::rename(&away, &there)?;
        let file = bundle.path().join("knative-serving/1.1.0/2-core.yaml");
        let whole = std::fs::read_to_string(&file)?;
        std::fs::write(&file, format!("{whole}\n---\nkind: [broken\n"))?;
        has_condition(&hub, &wanted, "InstallSucceeded", "Error", "2-core.yaml: unclosed bracket").await?;
        std::fs::write(&file, &whole)?;

        // Killed as soon as the first Deployment exists, before the Jobs can run.
        let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
        wait::until_all(&deployments, "", wait::LIMIT, "one Deployment exists", |d| !d.is_empty()).await?;
        product.restart_operator(&hub, Signal::KILL).await?;
        ready(&hub, &wanted).await?;
        let jobs = Api::<k8s_openapi::api::batch::v1::Job>::namespaced(spoke.client(), "knative-serving")
            .list(&ListParams::default())
            .await?;
        assert_eq!(jobs.items.len(), 1);

        // Without the webhook, the rules of the CRD refuse the same changes.
        for configuration in [
            "validatingwebhookconfiguration/validation.operator.knative.dev",
            "mutatingwebhookconfiguration/defaulting.operator.knative.dev",
        ] {
            hub.kubectl(&["delete", configuration], "").await?;
        }
        for component in Component::ALL {
            for (name, profile, patch, _) in changes() {
                let stored = resource(component, "restart", name, profile, json!({"version": "0.0.1"}));
                apply(&hub, &stored).await?;
                let output = refusal(&hub, &stored, &patch).await;
                let expected = if name == "changed" {
                    "spec.clusterProfileRef is immutable"
                } else {
                    "spec.clusterProfileRef cannot be added or removed after creation"
                };
                assert!(output.contains(expected), "{output}");
                delete(&hub, &stored).await?;
            }
        }

        // The operator ignores an invalid version, too: the installation is still repaired.
        let version = |version: &str| format!(r#"{{"spec":{{"version":"{version}"}}}}"#);
        hub.kubectl(&["patch", "knativeserving", "ks", "-n", "restart", "--type=merge", "-p", &version("abc")], "")
            .await?;
        has_condition(
            &hub,
            &wanted,
            "VersionMigrationEligible",
            "Error",
            "is not in a valid semantic versioning format",
        )
        .await?;
        let deployments = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
        let uid = deployments.get("controller").await?.metadata.uid;
        deployments.delete("controller", &DeleteParams::default()).await?;
        wait::until(&deployments, "controller", INSTALL, "back", |d| d.is_some_and(|d| d.metadata.uid != uid)).await?;
        hub.kubectl(
            &["patch", "knativeserving", "ks", "-n", "restart", "--type=merge", "-p", &version(releases.serving)],
            "",
        )
        .await?;
        ready(&hub, &wanted).await?;

        // A stopped operator exits cleanly; started again, it can uninstall immediately.
        product.operator.process.signal(Signal::TERM)?;
        assert_eq!(product.operator.process.wait()?, 0, "{}", product.operator.process.log());
        hub.object("knativeserving", "restart", "ks").start_deletion().await?;
        let deleted = hub
            .kubectl(
                &["get", "knativeserving", "ks", "-n", "restart", "-o", "jsonpath={.metadata.deletionTimestamp}"],
                "",
            )
            .await?;
        assert!(!deleted.is_empty());
        product.start_operator(&hub).await?;
        let resources = Api::<knative_operator_shared::api::KnativeServing>::namespaced(hub.client(), "restart");
        wait::until(&resources, "ks", wait::LIMIT, "gone", |s| s.is_none()).await?;
        nothing_left(&spoke, &before).await
    });
}
