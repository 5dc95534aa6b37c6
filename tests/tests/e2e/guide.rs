//! `docs/multicluster.md`: its commands are run in their order, against a hub and a spoke.

use std::path::Path;

use knative_operator_tests::cluster::{Cluster, objects};
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, releases, tools};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{nothing_left, run};

/// The blocks of `text` that are to be run.
fn blocks(text: &str) -> Vec<String> {
    text.split("\n```bash\n").skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned())).collect()
}

/// A kubeconfig with the contexts `hub` and `spoke`.
fn contexts(hub: &Cluster, spoke: &Cluster, file: &Path) -> Result<()> {
    let mut whole = json!({"apiVersion": "v1", "kind": "Config", "current-context": "hub", "clusters": [], "users": [], "contexts": []});
    for (name, cluster) in [("hub", hub), ("spoke", spoke)] {
        let issued = knative_operator_tests::pki::Issued {
            certificate: std::fs::read_to_string(cluster.dir().join("admin.crt"))?,
            key: std::fs::read_to_string(cluster.dir().join("admin.key"))?,
        };
        let (server, authority) = cluster.door();
        let one: Value = serde_json::from_str(&kubeconfig(name, &server, &authority, "default", &User::Certificate(&issued)))?;
        for list in ["clusters", "users", "contexts"] {
            whole[list].as_array_mut().unwrap().push(one[list][0].clone());
        }
    }
    Ok(std::fs::write(file, whole.to_string())?)
}

#[test]
fn the_guide_does_what_it_says() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("guide"), Cluster::spoke("guide-spoke"))?;
        let (releases, folder) = (releases::best(), tempfile::tempdir()?);
        let config = folder.path().join("kubeconfig");
        contexts(&hub, &spoke, &config)?;
        // What the network would bring is here: the CRD, the plugin's image, and a bundle of releases.
        let image = folder.path().join("secretreader");
        std::fs::create_dir(&image)?;
        std::os::unix::fs::symlink(tools::control_plane("secretreader-plugin")?, image.join("plugin-binary"))?;
        let extra = folder.path().join("extra.json");
        std::fs::write(&extra, product::bundled(&hub).to_string())?;
        let crd = tools::control_plane("clusterprofiles.yaml")?;
        let chart = tools::project().join("charts/knative-operator").display().to_string();
        let text = std::fs::read_to_string(tools::project().join("docs/multicluster.md"))?;
        let url = text
            .split_whitespace()
            .find(|w| w.starts_with("https://raw.") && w.ends_with("_clusterprofiles.yaml"))
            .ok_or("no URL of the CRD")?;
        let text = text
            .replace(url, &crd.display().to_string())
            .replace("charts/knative-operator", &chart)
            .replace("-f values.yaml", &format!("-f values.yaml -f {}", extra.display()))
            .replace("version: \"1.22\"", &format!("version: \"{}\"", &releases.serving[..releases.serving.rfind('.').unwrap_or_default()]))
            .replace("\"version\":\"1.22\"", &format!("\"version\":\"{}\"", releases.serving));
        let all = blocks(&text);
        assert!(all.len() > 12, "the guide has {} blocks", all.len());
        let (mut product, mut before) = (None, None);
        let mut variables = String::new();
        for block in all {
            if block.contains("kind: KnativeServing") {
                before = Some(objects(&spoke.client()).await?);
            }
            let script = format!(
                "set -euo pipefail\n[ -f variables ] && . ./variables\n{block}\ndeclare -p TOKEN CA SERVER >variables 2>/dev/null || true\n"
            );
            let path = format!("{}:{}", tools::control_plane("kubectl")?.parent().ok_or("no folder")?.display(), std::env::var("PATH")?);
            let done = Command::new("bash")
                .arg("-c")
                .arg(&script)
                .current_dir(folder.path())
                .env("KUBECONFIG", &config)
                .env("PATH", path)
                .output()
                .await?;
            let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            if !done.status.success() {
                let log = product.as_ref().map(|p: &Product| p.operator.process.log()).unwrap_or_default();
                return Err(format!("{block}\n\n{said}\n{log}").into());
            }
            variables = said;
            // Installed by Helm: nobody but the test starts what the Deployments say.
            if block.contains("upgrade --install") {
                let plugins = [("registry.k8s.io/cluster-inventory-api/secretreader".to_owned(), image.clone())];
                product = Some(Product::start(&hub, &releases, plugins.into()).await?);
            }
        }
        assert!(variables.contains("deleted"), "the guide does not end with an uninstallation: {variables}");
        assert!(product.is_some(), "the guide installs nothing");
        nothing_left(&spoke, &before.ok_or("the guide deploys nothing")?).await
    });
}
