//! Cost of `spec.patches`: CPU time of installations with and without twenty patches, in turn.
//! Asserts nothing.

#![allow(clippy::large_futures)] // a bench runs once

use std::time::Duration;

use knative_operator_shared::api::{KnativeServing, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::{Result, measure, patches, releases, wait};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(120);
/// Time after which the operator has nothing left to do.
const SETTLE: Duration = Duration::from_secs(2);
/// Installations of each kind.
const TIMES: u32 = 8;

#[tokio::main]
async fn main() -> Result<()> {
    knative_operator_runtime::install_crypto();
    let releases = releases::best();
    let (hub, spoke) = tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"))?;
    let plugins = hub.dir().join("own-plugins");
    std::fs::create_dir_all(&plugins)?;
    let mut values = product::values(&[]);
    values["knative_operator"]["knative_operator"]["logLevel"] = json!("info");
    let product = Product::install(&hub, &releases, values, &plugins).await?;
    product::register(&hub, &spoke, "spoke").await?;
    hub.kubectl(&["create", "namespace", "bench"], "").await?;
    let api = Api::<KnativeServing>::namespaced(hub.client(), "bench");
    let pid = product.operator.process.pid()?;
    let mut total = [Duration::ZERO; 2];
    // The first round is not counted: it parses the release.
    for round in 0..=TIMES {
        for (kind, list) in [json!([]), json!(patches::twenty(&releases))].iter().enumerate() {
            let before = measure::cpu(pid)?;
            let resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": "bench", "namespace": "bench"}, "spec": {
                "version": releases.serving, "ingress": {"kourier": {"enabled": true}}, "patches": list,
                "clusterProfileRef": {"name": "spoke", "namespace": FLEET}}});
            api.create(&PostParams::default(), &serde_json::from_value(resource)?).await?;
            let ready = |status: Option<&KnativeStatus>| {
                status.is_some_and(|s| s.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
            };
            wait::until(&api, "bench", LIMIT, "ready", |s| ready(s.and_then(|s| s.status.as_ref()))).await?;
            tokio::time::sleep(SETTLE).await;
            if round > 0 {
                total[kind] += measure::cpu(pid)?.saturating_sub(before);
            }
            api.delete("bench", &DeleteParams::default()).await?;
            wait::until(&api, "bench", LIMIT, "gone", |s| s.is_none()).await?;
        }
    }
    let [without, with] = total.map(|total| total.as_secs_f64() / f64::from(TIMES));
    println!("releases: {}", releases.dir.display());
    println!("  install without patches       {without:.3}s of CPU, mean of {TIMES}");
    println!("  install with twenty patches   {with:.3}s of CPU, mean of {TIMES}: {:.2} times as much", with / without);
    Ok(())
}
