//! Cost of a start of the operator: CPU time until it is ready, and 3 s later, with a new and with
//! an unchanged release bundle. Asserts nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_shared::label::RELEASES_CONFIG_MAP;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::{Result, measure, releases, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
/// Time after which the operator has nothing left to do.
const SETTLE: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<()> {
    knative_operator_runtime::install_crypto();
    let (hub, releases) = (Cluster::hub("hub").await?, releases::best());
    let plugins = hub.dir().join("own-plugins");
    std::fs::create_dir_all(&plugins)?;
    let mut values = product::values(&[]);
    values["knative_operator"]["knative_operator"]["logLevel"] = json!("info");
    let mut product = Product::install(&hub, &releases, values, &plugins).await?;
    let maps: Api<ConfigMap> = Api::namespaced(hub.client(), NAMESPACE);
    let published = |map: Option<&ConfigMap>| map.is_some_and(|m| m.data.as_ref().is_some_and(|data| !data.is_empty()));
    let map = wait::until(&maps, RELEASES_CONFIG_MAP, LIMIT, "published", published).await?;
    println!("releases: {}", releases.dir.display());
    let catalog: usize = map.and_then(|m| m.data).into_iter().flatten().map(|(_, text)| text.len()).sum();
    println!("  {:<32} {:>6} KiB", "catalog for the webhook", catalog / 1024);
    print(&product, "start with a new bundle").await?;
    for _ in 0..3 {
        product.restart_operator(&hub, Signal::TERM).await?;
        print(&product, "start with an unchanged bundle").await?;
    }
    Ok(())
}

async fn print(product: &Product, name: &str) -> Result<()> {
    let pid = product.operator.process.pid()?;
    let ready = measure::cpu(pid)?;
    tokio::time::sleep(SETTLE).await;
    println!(
        "  {name:<32} {:>6.2}s of CPU until ready, {:.2}s in all, {} KiB resident",
        ready.as_secs_f64(),
        measure::cpu(pid)?.as_secs_f64(),
        measure::resident(pid)?
    );
    Ok(())
}
