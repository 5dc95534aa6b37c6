//! Runs the commands of `docs/user/multicluster.md` in order, against a hub and a spoke.

use k8s_openapi::api::core::v1::Event;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{releases, tools};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::document::{Shell, document, nothing_installed};
use crate::support::{gone, has_condition, nothing_left, resource, run};

#[test]
fn commands_of_the_multicluster_guide_work() {
    run(async {
        let (hub, mut spoke) = tokio::try_join!(Cluster::hub("guide"), Cluster::spoke("guide-spoke"))?;
        let releases = releases::small();
        let mut shell = Shell::new(&[("hub", &hub), ("spoke", &spoke)], &product::bundled(&hub))?;
        // Local replacements for downloads: the CRD, the plugin's image, and a bundle of releases.
        let image = shell.folder().join("secretreader");
        tools::official_plugins(&image)?;
        let crd = tools::control_plane("clusterprofiles.yaml")?.display().to_string();
        let minor = releases.serving.rsplit_once('.').map_or("", |(minor, _)| minor);
        let mut all = document("docs/user/multicluster.md")?;
        for block in &mut all {
            let url = block
                .script
                .split_whitespace()
                .find(|w| w.starts_with("https://raw.") && w.ends_with("_clusterprofiles.yaml"));
            if let Some(url) = url.map(str::to_owned) {
                block.script = block.script.replace(&url, &crd);
            }
            for form in ["version: \"VERSION\"", "\"version\":\"VERSION\""] {
                block.script = block.script.replace(&form.replace("VERSION", "1.22"), &form.replace("VERSION", minor));
            }
        }
        assert!(all.len() > 14, "the guide has {} blocks", all.len());
        let (lost, all): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|block| block.heading == "Remove a resource whose spoke is gone");
        let (mut product, mut before, mut printed) = (None, None, String::new());
        for block in &all {
            if before.is_none() && block.heading == "Deploy" {
                before = Some(objects(&spoke.client()).await?);
            }
            let started = async || {
                let plugins = [("registry.k8s.io/cluster-inventory-api/secretreader".to_owned(), image.clone())];
                drop(product.take());
                product = Some(Product::start(&hub, &releases, plugins.into()).await?);
                Ok(())
            };
            printed = shell.run(&block.script, started).await.map_err(|error| {
                let log = product.as_ref().map(|p: &Product| p.operator.process.log()).unwrap_or_default();
                format!("{error}\n{log}")
            })?;
        }
        assert!(printed.contains("deleted"), "the guide does not end with an uninstallation: {printed}");
        let _product = product.ok_or("the guide installs nothing")?;
        nothing_left(&spoke, &before.ok_or("the guide deploys nothing")?).await?;

        // Again, with the spoke unreachable before the deletion.
        for block in
            all.iter().filter(|block| block.heading == "Deploy" && block.script.contains("kubectl --context hub apply"))
        {
            let again = block.script.replace("create namespace", "get namespace");
            shell.run(&again, nothing_installed).await?;
        }
        spoke.stop_apiserver();
        assert_eq!(lost.len(), 2, "one way with a record, one without");
        for (block, component) in lost.iter().zip(Component::ALL) {
            let (place, resource) = (
                component.canonical(),
                resource(component, component.canonical(), component.canonical(), None, json!({})),
            );
            hub.object(component.plural(), place, place).start_deletion().await?;
            has_condition(
                &hub,
                &resource,
                "TargetClusterResolved",
                "RemoteClusterUnreachable",
                "on-unreachable=orphan",
            )
            .await?;
            shell.run(&block.script, nothing_installed).await?;
            gone(&hub, &resource).await?;
        }
        let events = Api::<Event>::namespaced(hub.client(), "knative-serving").list(&ListParams::default()).await?;
        assert!(events.iter().any(|e| e.reason.as_deref() == Some("Orphaned")), "there is no event about it");
        Ok(())
    });
}
