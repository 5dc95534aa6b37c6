//! `knative-operator preflight --pull`, whose Pod a real node runs: images that it can pull, and
//! such that it can't.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::real::{images, product};
use knative_operator_tests::{Result, releases, tools};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{NAMESPACE, Report, run};

/// The check of the images of the KnativeServing with `spec`.
async fn check(cluster: &Cluster, spec: &Value) -> Result<Value> {
    let cr = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "knative-serving", "namespace": NAMESPACE}, "spec": spec});
    let file = cluster.dir().join("preflight.json");
    std::fs::write(&file, cr.to_string())?;
    let mut command = Command::new(tools::binary("knative-operator")?);
    command.args(["preflight", "--pull", "-o", "json", "-f"]).arg(&file);
    command.arg("--releases").arg(releases::best().dir).arg("--kubeconfig").arg(cluster.kubeconfig());
    let output = command.output().await?;
    let value: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {output:?}"))?;
    let mut checks = value["clusters"][0]["checks"].as_array().into_iter().flatten();
    let found = checks.find(|check| check["id"] == "image-pull");
    Ok(found.ok_or_else(|| format!("no such check: {value:#}"))?.clone())
}

/// Checks that no Pod is left.
async fn nothing_left(cluster: &Cluster) -> Result<()> {
    let label = "app.kubernetes.io/name=knative-operator-preflight";
    assert_eq!(cluster.kubectl(&["get", "pods", "-A", "-l", label, "-o", "name"], "").await?, "");
    Ok(())
}

#[test]
fn pod_tells_which_images_a_node_can_pull() {
    run(async {
        let mut report = Report::new();
        let cluster = Cluster::real("preflight", images::registry().await?).await?;
        cluster.kubectl(&["wait", "serviceaccount/default", "--for=create", "--timeout=60s"], "").await?;
        let good = product::serving(releases::best().serving);
        // The namespace does not exist yet.
        let found = check(&cluster, &good).await?;
        report.line(&format!("good images: {found}"));
        assert_eq!(found["outcome"], "passed", "{found:#}");
        nothing_left(&cluster).await?;

        cluster.kubectl(&["create", "namespace", NAMESPACE], "").await?;
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        cluster.kubectl(&["label", "namespace", NAMESPACE, restricted], "").await?;
        cluster
            .kubectl(&["wait", "serviceaccount/default", "-n", NAMESPACE, "--for=create", "--timeout=60s"], "")
            .await?;
        let mut wrong = good.clone();
        wrong["registry"] =
            json!({"default": "registry.example/knative/${NAME}:none", "imagePullSecrets": [{"name": "pull"}]});
        let found = check(&cluster, &wrong).await?;
        report.line(&format!("a wrong tag: {found}"));
        let detail = found["detail"].as_str().unwrap_or_default();
        assert!(
            found["outcome"] == "failed" && detail.contains("cannot pull image \"registry.example/knative/"),
            "{found:#}"
        );
        assert!(detail.contains(":none\": not found"), "{found:#}");
        let remedy = found["remedy"]["text"].as_str().unwrap_or_default();
        assert!(remedy.contains("spec.registry") && remedy.contains(NAMESPACE), "{found:#}");
        nothing_left(&cluster).await?;

        cluster.reach_registry(false)?;
        let found = check(&cluster, &good).await?;
        report.line(&format!("a registry that can't be reached, and images that the node has: {found}"));
        assert_eq!(found["outcome"], "warning", "{found:#}");
        assert!(found["detail"].as_str().is_some_and(|detail| detail.contains("the node has the images")), "{found:#}");
        let found = check(&cluster, &wrong).await?;
        report.line(&format!("a registry that can't be reached: {found}"));
        assert_eq!(found["outcome"], "failed", "{found:#}");
        cluster.reach_registry(true)?;
        nothing_left(&cluster).await
    });
}
