//! A hub that manages spokes only: nothing is installed on it, and the operator's rights there are
//! few.

use k8s_openapi::api::rbac::v1::ClusterRole;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, HUB_USER, NAMESPACE, Product};
use knative_operator_tests::{releases, tools};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{apply, delete, eventing, has_condition, namespace, ready, run, serving};

const PLACE: &str = "pure";

async fn upgrade(hub: &Cluster, values: &Value) -> Result<()> {
    let (file, chart) = (hub.dir().join("pure.json"), tools::project().join("charts/knative-operator"));
    std::fs::write(&file, values.to_string())?;
    let (file, chart) = (file.display().to_string(), chart.display().to_string());
    let arguments = ["upgrade", "knative-operator", &chart, "-n", NAMESPACE, "--values", &file];
    hub.helm(&[&arguments[..], &["--wait", "--timeout", "2m"]].concat()).await.map(drop)
}

/// The rules of the operator's ClusterRole: group, resource and verb.
async fn rules(hub: &Cluster) -> Result<Vec<String>> {
    let role = Api::<ClusterRole>::all(hub.client()).get("knative-operator").await?;
    let mut all = Vec::new();
    for rule in role.rules.into_iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                let groups = rule.api_groups.iter().flatten().cloned().collect::<Vec<_>>().join(",");
                all.push(format!("{groups}/{resource} {verb}"));
            }
        }
    }
    Ok(all)
}

#[test]
fn hub_without_local_installation_has_few_rights() {
    run(async {
        let releases = releases::small();
        let (hub, spoke) = tokio::try_join!(Cluster::hub("pure-hub"), Cluster::spoke("pure-spoke"))?;
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        let mut product = Product::install(&hub, &releases, values.clone(), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, PLACE).await?;
        let before = rules(&hub).await?;

        // Stored before, it is ignored, and its installation stays.
        let local = eventing(PLACE, "local", None, &releases);
        apply(&hub, &local).await?;
        ready(&hub, &local).await?;
        values["knative_operator"]["localInstallation"] = json!(false);
        upgrade(&hub, &values).await?;
        product.restart_operator(&hub, Signal::TERM).await?;
        product.start_webhook(&hub).await?;
        has_condition(&hub, &local, "InstallSucceeded", "LocalInstallationDisabled", "localInstallation=true").await?;

        // Until the restart, the watches of the process before were forbidden.
        let audit = || std::fs::read_to_string(hub.dir().join("audit.log"));
        let so_far = audit()?.len();
        let second = serving(PLACE, "second", None, &releases);
        let (admitted, output) = hub.kubectl_output(&["apply", "-f", "-"], &second.to_string()).await;
        assert!(!admitted && output.contains("nothing is installed on this cluster itself"), "{output}");

        let after = rules(&hub).await?;
        eprintln!("the operator's rights in the whole hub: {} before, {} after: {after:#?}", before.len(), after.len());
        for word in ["escalate", "bind", "/secrets", "clusterroles", "webhookconfigurations", "/configmaps", "*"] {
            assert!(after.iter().all(|rule| !rule.contains(word)), "{word}: {after:#?}");
        }

        // Spokes are as before, and nothing that the operator needs is forbidden.
        let remote = serving(PLACE, "remote", Some("spoke"), &releases);
        apply(&hub, &remote).await?;
        ready(&hub, &remote).await?;
        delete(&hub, &remote).await?;
        let log = audit()?;
        let forbidden: Vec<_> = log
            .get(so_far..)
            .unwrap_or_default()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["user"]["username"] == HUB_USER && event["responseStatus"]["code"] == 403)
            .map(|event| format!("{} {}", event["verb"], event["requestURI"]))
            .collect();
        assert!(forbidden.is_empty(), "{forbidden:#?}");

        // With the rights again, it is uninstalled.
        values["knative_operator"]["localInstallation"] = json!(true);
        upgrade(&hub, &values).await?;
        product.restart_operator(&hub, Signal::TERM).await?;
        product.start_webhook(&hub).await?;
        delete(&hub, &local).await
    });
}
