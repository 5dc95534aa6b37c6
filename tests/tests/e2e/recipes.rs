//! The recipes of docs/operate/clouds.md and docs/operate/open-cluster-management.md: the chart
//! with the values of each, and the rights on the spoke, on a real API server. The operator can
//! read each provider file.

use knative_operator_cluster_access::provider::Providers;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::NAMESPACE;
use knative_operator_tests::{Result, recipe, tools};
use serde_json::{Value, json};

use crate::support::{apply, run};

const CLOUDS: &str = "docs/operate/clouds.md";
const OCM: &str = "docs/operate/open-cluster-management.md";
/// First provider of each recipe, in the order of the pages: EKS, GKE, AKS, Cluster API, kind, Argo
/// CD, and Open Cluster Management.
const PROVIDERS: [&str; 7] =
    ["eks-prod", "google", "aks", "kubeconfig-secretreader", "secretreader", "secretreader", "open-cluster-management"];

/// An object on `cluster`.
async fn stored(cluster: &Cluster, kind: &str, name: &str) -> Result<Value> {
    let found = cluster.kubectl(&["get", kind, name, "-n", NAMESPACE, "-o", "json"], "").await?;
    Ok(serde_json::from_str(&found)?)
}

/// Applies the chart with `values` on `hub`; returns the provider file.
async fn applied(hub: &Cluster, values: &Value) -> Result<Providers> {
    let file = hub.dir().join("recipe.json");
    std::fs::write(&file, values.to_string())?;
    let chart = tools::project().join("charts/knative-operator").display().to_string();
    let file = file.display().to_string();
    let arguments =
        ["template", "knative-operator", &chart, "--namespace", NAMESPACE, "--values", &file, "--skip-tests"];
    let rendered = hub.helm(&[&arguments[..], &tools::OFFLINE[..]].concat()).await?;
    hub.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &rendered).await?;
    // Nobody serves them, and they would refuse the next recipe.
    let webhooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    hub.kubectl(&["delete", webhooks, "--all"], "").await?;
    let map = stored(hub, "configmap", "clusterprofile-provider-file").await?;
    Ok(serde_json::from_str(map["data"]["config.json"].as_str().unwrap_or_default())?)
}

/// Checks that the Pods and the ServiceAccount on `hub` have what `values` say.
async fn check(hub: &Cluster, values: &Value) -> Result<()> {
    let settings = &values["knative_operator"];
    let deployment = stored(hub, "deployment", "knative-operator").await?;
    let (pod, labels) =
        (&deployment["spec"]["template"]["spec"], &deployment["spec"]["template"]["metadata"]["labels"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for plugin in list(&settings["multicluster"]["plugins"]) {
        let volumes = list(&pod["volumes"]);
        let volume = volumes.iter().find(|volume| volume["name"] == plugin["name"]);
        assert_eq!(volume.map(|volume| &volume["image"]["reference"]), Some(&plugin["image"]), "{plugin}");
        let mounts = list(&pod["containers"][0]["volumeMounts"]);
        assert!(mounts.iter().any(|mount| mount["mountPath"] == plugin["mountPath"]), "{plugin}");
    }
    let own = &settings["knative_operator"];
    for mount in list(&own["extraVolumeMounts"]) {
        assert!(list(&pod["containers"][0]["volumeMounts"]).contains(&mount), "{mount}");
    }
    for (name, value) in own["podLabels"].as_object().into_iter().flatten() {
        assert_eq!(&labels[name], value, "{name}");
    }
    let account = stored(hub, "serviceaccount", "knative-operator").await?;
    for (name, value) in own["serviceAccount"]["annotations"].as_object().into_iter().flatten() {
        assert_eq!(&account["metadata"]["annotations"][name], value, "{name}");
    }
    Ok(())
}

#[test]
fn values_and_rights_of_each_recipe_are_accepted() {
    run(async {
        let hub = Cluster::hub("recipes").await?;
        for namespace in [NAMESPACE, "capi-clusters"] {
            hub.namespace(namespace).await?;
        }
        let (mut names, mut rights) = (Vec::new(), 0);
        for page in [CLOUDS, OCM] {
            for block in recipe::yaml(page)? {
                if block["knative_operator"].is_object() {
                    let providers = applied(&hub, &block).await?.providers;
                    let first = providers.first().ok_or_else(|| format!("{page} has no provider: {block}"))?;
                    assert!(first.builtin.is_some() || first.exec_config.is_some(), "{page}: {block}");
                    names.push(first.name.clone());
                    check(&hub, &block).await?;
                } else if block["apiVersion"] == "rbac.authorization.k8s.io/v1" {
                    apply(&hub, &block).await?;
                    rights += 1;
                } else if block["kind"] == "ManifestWork" {
                    let manifests = &block["spec"]["workload"]["manifests"];
                    apply(&hub, &json!({"apiVersion": "v1", "kind": "List", "items": manifests})).await?;
                    rights += 1;
                }
            }
        }
        assert_eq!(names, PROVIDERS);
        // Those of EKS, GKE, AKS and Open Cluster Management; the others have the guide's.
        assert_eq!(rights, 4);
        Ok(())
    });
}
