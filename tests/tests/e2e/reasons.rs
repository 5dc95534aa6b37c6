//! Reasons of `TargetClusterResolved` that need a hub of their own: cause, report, and recovery.
//! (The others are in [`crate::failures`].)

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product, values};
use knative_operator_tests::{Result, http, releases, tools, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    apply, condition, has_condition, has_event, logged, namespace, nothing_to_install, provider, resource, run, script,
    status, step,
};

const LIMIT: Duration = wait::LIMIT;

fn asking(name: &str) -> Value {
    resource(Component::Serving, "reasons", name, Some(name), nothing_to_install())
}

async fn resolved(hub: &Cluster, resource: &Value) -> Result<()> {
    let resolved = |s: &KnativeStatus| condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True");
    status(hub, resource, LIMIT, "resolved", resolved).await.map(drop)
}

/// Waits for an event with each reason.
async fn has_events(hub: &Cluster, reasons: &[&str]) -> Result<()> {
    for reason in reasons {
        has_event(hub, "reasons", reason, "").await?;
    }
    Ok(())
}

/// The provider file has no providers, is invalid, and is valid again, without a restart.
async fn provider_file_changes(hub: &Cluster, product: &Product, asked: &Value) -> Result<()> {
    let right = provider_file(hub).await?;
    set_provider_file(hub, r#"{"providers": []}"#).await?;
    has_condition(hub, asked, "TargetClusterResolved", "AccessProviderNotConfigured", "names no provider").await?;
    set_provider_file(hub, &right).await?;
    resolved(hub, asked).await?;
    set_provider_file(hub, "rubbish").await?;
    invalid(product).await?;
    let ignored = "the provider file is invalid; its last valid contents stay in use";
    logged(&product.operator.process, ignored).await?;
    set_provider_file(hub, &right).await
}

/// The cluster moves to an address that never answers, and back.
async fn cluster_moves(hub: &Cluster, spoke: &Cluster, asked: &Value) -> Result<()> {
    let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let mut away = product::access(spoke, "spoke");
    away[0]["cluster"]["server"] = json!(format!("https://{}", hole.local_addr()?));
    product::status(hub, "spoke", "True", &away).await?;
    has_condition(hub, asked, "TargetClusterResolved", "RemoteClusterStale", "rebuilding the connection").await?;
    has_condition(hub, asked, "TargetClusterResolved", "RemoteClusterUnreachable", "no connection within 5s").await?;
    product::status(hub, "spoke", "True", &product::access(spoke, "spoke")).await?;
    resolved(hub, asked).await
}

/// The operator stops while it waits for the credential of `waits`, which a plugin in `plugins`
/// gives.
async fn operator_stops_while_it_waits(
    hub: &Cluster,
    spoke: &Cluster,
    (product, plugins): (&mut Product, &Path),
    waits: &Value,
) -> Result<()> {
    script(&plugins.join("slow"), "#!/bin/sh\nsleep 3600\n")?;
    let mut slow = product::access(spoke, "spoke");
    slow[0]["name"] = json!("slow");
    product::profile(hub, "slow", &slow).await?;
    apply(hub, waits).await?;
    started(product, &product.operator.path("/access-plugins/own/slow")).await?;
    product.operator.process.signal(Signal::TERM)?;
    has_condition(hub, waits, "TargetClusterResolved", "ClusterProviderClosed", "is shutting down").await?;
    assert_eq!(product.operator.process.wait()?, 0);
    script(
        &plugins.join("slow"),
        &format!("#!/bin/sh\nexec {}\n", tools::control_plane("secretreader-plugin")?.display()),
    )?;
    Ok(())
}

/// It starts without a provider file, and then with it.
async fn operator_starts_without_provider_file(
    hub: &Cluster,
    product: &mut Product,
    asked: &Value,
    waits: &Value,
) -> Result<()> {
    let patch = |operation: Value| json!([operation]).to_string();
    let argument = hub
        .kubectl(
            &[
                "get",
                "deployment",
                "knative-operator",
                "-n",
                product::NAMESPACE,
                "-o",
                "jsonpath={.spec.template.spec.containers[0].args[0]}",
            ],
            "",
        )
        .await?;
    assert!(argument.starts_with("--clusterprofile-provider-file="), "{argument}");
    let place = "/spec/template/spec/containers/0/args/0";
    let change = async |patch: String| {
        hub.kubectl(
            &["patch", "deployment", "knative-operator", "-n", product::NAMESPACE, "--type=json", "-p", &patch],
            "",
        )
        .await
    };
    change(patch(json!({"op": "remove", "path": place}))).await?;
    product.start_operator(hub).await?;
    has_condition(
        hub,
        asked,
        "TargetClusterResolved",
        "MulticlusterDisabled",
        "runs without --clusterprofile-provider-file",
    )
    .await?;
    change(patch(json!({"op": "add", "path": place, "value": argument}))).await?;
    product.restart_operator(hub, Signal::TERM).await?;
    resolved(hub, asked).await?;
    resolved(hub, waits).await
}

/// The CustomResourceDefinition of ClusterProfiles is deleted, and created again.
async fn definition_comes_back(hub: &Cluster, spoke: &Cluster, asked: &Value) -> Result<()> {
    let crd = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
    hub.kubectl(&["delete", "-f", "-"], &crd).await?;
    has_condition(hub, asked, "TargetClusterResolved", "ClusterProfileNotFound", "does not exist").await?;
    hub.kubectl(&["apply", "-f", "-"], &crd).await?;
    wait::established(hub.client()).await?;
    product::profile(hub, "spoke", &product::access(spoke, "spoke")).await?;
    resolved(hub, asked).await
}

#[test]
fn reasons_of_the_operator_itself_are_reported_and_recover() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("reasons"), Cluster::spoke("reasons-spoke"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut product = Product::create(&hub, &releases, values(&[provider("slow")]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "reasons").await?;
        let asked = asking("spoke");
        apply(&hub, &asked).await?;
        resolved(&hub, &asked).await?;

        step("the provider file", provider_file_changes(&hub, &product, &asked)).await?;
        step("the cluster moves", cluster_moves(&hub, &spoke, &asked)).await?;
        let waits = asking("slow");
        let stops = operator_stops_while_it_waits(&hub, &spoke, (&mut product, plugins.path()), &waits);
        step("the operator stops", stops).await?;
        let starts = operator_starts_without_provider_file(&hub, &mut product, &asked, &waits);
        step("the operator starts", starts).await?;
        step("the definition comes back", definition_comes_back(&hub, &spoke, &asked)).await?;
        has_events(
            &hub,
            &[
                "AccessProviderNotConfigured",
                "RemoteClusterStale",
                "RemoteClusterUnreachable",
                "MulticlusterDisabled",
                "ClusterProfileNotFound",
                "TargetClusterResolved",
            ],
        )
        .await
    });
}

/// The provider file in the chart's ConfigMap.
pub async fn provider_file(hub: &Cluster) -> Result<String> {
    let map =
        Api::<ConfigMap>::namespaced(hub.client(), product::NAMESPACE).get("clusterprofile-provider-file").await?;
    Ok(map.data.unwrap_or_default().remove("config.json").ok_or("no provider file")?)
}

pub async fn set_provider_file(hub: &Cluster, text: &str) -> Result<()> {
    let patch = json!({"data": {"config.json": text}}).to_string();
    let arguments =
        ["patch", "configmap", "clusterprofile-provider-file", "-n", product::NAMESPACE, "--type=merge", "-p", &patch];
    hub.kubectl(&arguments, "").await.map(drop)
}

/// Waits until a process that mentions `marker` runs, by polling.
async fn started(product: &Product, marker: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + LIMIT;
    let runs = || {
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .any(|p| std::fs::read_to_string(p.path().join("cmdline")).is_ok_and(|line| line.contains(marker)))
    };
    while !runs() {
        if tokio::time::Instant::now() > deadline {
            return Err(format!("{marker} was not started:\n{}", product.operator.process.log()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Waits until the metric reports an invalid provider file.
pub async fn invalid(product: &Product) -> Result<()> {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !http::get(product.metrics(), "/metrics").await?.1.contains("knative_operator_provider_file_valid 0") {
        if tokio::time::Instant::now() > deadline {
            return Err("the metric reports a valid provider file".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
