//! A ClusterProfile whose server has no TLS: an administrator has to allow it.

use k8s_openapi::api::core::v1::Event;
use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::plain::Plain;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::{Result, releases, tools, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{apply, condition, delete, has_condition, namespace, nothing_to_install, resource, run, status};

/// Allows such servers, or not.
async fn allow(hub: &Cluster, product: &mut Product, is_allowed: bool) -> Result<()> {
    let chart = tools::project().join("charts/knative-operator").display().to_string();
    let file = hub.dir().join("values.json").display().to_string();
    let flag = format!("knative_operator.multicluster.allowHttpServers={is_allowed}");
    let place = ["--namespace", NAMESPACE, "--wait", "--timeout", "2m"];
    let arguments = ["upgrade", "knative-operator", &chart, "--values", &file, "--set", &flag];
    hub.helm(&[&arguments[..], &place[..]].concat()).await?;
    product.restart_operator(hub, Signal::TERM).await
}

/// Waits until the server is refused, with the setting that allows it.
async fn refused(hub: &Cluster, asked: &Value) -> Result<()> {
    for part in ["is not https", "knative_operator.multicluster.allowHttpServers"] {
        has_condition(hub, asked, "TargetClusterResolved", "RemoteClientCreationFailed", part).await?;
    }
    Ok(())
}

#[test]
fn http_server_is_used_if_an_administrator_allows_it() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("http-server"), Cluster::spoke("http-server-1"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut product = Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?;
        let server = Plain::start(&spoke.url()).await?;
        product::register(&hub, &spoke, "a").await?;
        let mut access = product::access(&spoke, "a");
        let cluster = access[0]["cluster"].as_object_mut().unwrap();
        cluster.remove("certificate-authority-data");
        cluster.insert("server".to_owned(), json!(server.url()));
        product::profile(&hub, "a", &access).await?;
        namespace(&hub, "http-server").await?;
        let asked = resource(Component::Eventing, "http-server", "asked", Some("a"), nothing_to_install());
        apply(&hub, &asked).await?;
        refused(&hub, &asked).await?;

        allow(&hub, &mut product, true).await?;
        let is_resolved = |s: &KnativeStatus| condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True");
        status(&hub, &asked, wait::LIMIT, "resolved", is_resolved).await?;
        let is_told = |events: &[Event]| {
            let text = format!("the server {}/ in ClusterProfile fleet-system/a has no TLS", server.url());
            events.iter().any(|event| event.message.as_deref().is_some_and(|message| message.contains(&text)))
        };
        let events = Api::<Event>::namespaced(hub.client(), "http-server");
        wait::until_all(&events, "", wait::LIMIT, "InsecureCluster", is_told).await?;

        allow(&hub, &mut product, false).await?;
        refused(&hub, &asked).await?;
        delete(&hub, &asked).await
    });
}
