//! Runs the end-to-end suite of the Go operator's module (`knative.dev/operator/test/e2e`) against
//! this operator: `make test-go-suite`, which sets `GO_SUITE=yes`. Each environment variable is one
//! that the suite reads.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // these are tests

use std::path::{Path, PathBuf};
use std::process::Stdio;

use knative_operator_tests::cluster::{Cluster, Setup};
use knative_operator_tests::go_operator;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::skip::{LONG_BUILD, skip};
use knative_operator_tests::tools::project;
use knative_operator_tests::{Result, wait};
use serde_json::{Value, json};
use tokio::process::Command;

/// Compiles the suite, with the build tags that its scripts use, and the compiler's flags of
/// `tests/tools/install.sh`, whose packages are in Go's cache.
async fn compile() -> Result<PathBuf> {
    let program = project().join("target/go-suite.test");
    let done = Command::new("go")
        .current_dir(project().join("tests/tools/go-operator"))
        .args(["test", "-c", "-gcflags=all=-dwarf=false", "-tags", "e2e multicluster", "-o"])
        .arg(&program)
        .arg("knative.dev/operator/test/e2e")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await?;
    if done.success() { Ok(program) } else { Err("the suite does not compile".into()) }
}

/// Runs the tests that match `pattern`; returns the names of those that passed.
async fn suite(program: &Path, pattern: &str, environment: &[(&str, String)]) -> Result<Vec<String>> {
    // The suite reads files of its module by the path of its source.
    let done = Command::new(program)
        .args(["-test.v", "-test.timeout=20m", "-test.run", pattern])
        .envs(environment.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let output = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let results: Vec<_> = output.lines().filter(|line| line.trim().starts_with("--- ")).collect();
    eprintln!("{}", results.join("\n"));
    if !done.status.success() {
        return Err(format!("the suite failed:\n{output}").into());
    }
    let passed = results.iter().filter_map(|line| line.trim().strip_prefix("--- PASS: ")?.split(' ').next());
    Ok(passed.map(str::to_owned).collect())
}

/// Kinds of Istio, which the default ingress needs.
fn istio() -> Value {
    let definition = |group: &str, kind: &str, plural: &str| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = |name: &str, storage| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [version("v1", true), version("v1beta1", false)]}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}},
        definition("networking.istio.io", "Gateway", "gateways"),
        definition("security.istio.io", "PeerAuthentication", "peerauthentications"),
    ]})
}

#[test]
fn suite_of_the_go_operator_passes() {
    if std::env::var_os("GO_SUITE").is_none() {
        return skip(LONG_BUILD, "GO_SUITE is not set (make test-go-suite)");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(run()) {
        panic!("{error:?}");
    }
}

/// A hub with this operator, and `namespaces`.
async fn installed(hub: &Cluster, plugins: &Path, namespaces: &[&str]) -> Result<Product> {
    let product = Product::install(hub, &go_operator::releases()?, product::values(&[]), plugins).await?;
    for namespace in namespaces {
        hub.kubectl(&["create", "namespace", namespace], "").await?;
    }
    Ok(product)
}

/// Fails if a test of `wanted` is not among those that `passed`.
fn all_of(wanted: &[&str], passed: &[String]) -> Result<()> {
    let missing: Vec<_> = wanted.iter().filter(|test| !passed.iter().any(|name| name == *test)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} did not run: {passed:?}").into()) }
}

async fn run() -> Result<()> {
    let (program, plugins) = (compile().await?, tempfile::tempdir()?);
    // Without admission webhooks: Knative's own have no Pods here. The suite waits for the Pods
    // that `highAvailability` asks for, those of the activator by its HorizontalPodAutoscaler.
    let setup = Setup { webhooks: false, autoscaling: true, ..Setup::SIMULATED };
    let local = Cluster::start("suite", setup).await?;
    local.kubectl(&["apply", "-f", "-"], &istio().to_string()).await?;
    wait::established(local.client()).await?;
    let product = installed(&local, plugins.path(), &["knative-operator-testing", "knative-eventing"]).await?;
    let environment = [("KUBECONFIG", local.kubeconfig().display().to_string())];
    let passed = suite(&program, "^TestKnative", &environment).await?;
    all_of(&["TestKnativeServingDeployment", "TestKnativeEventingDeployment"], &passed)?;
    let mut count = passed.len();
    drop((product, local));

    // Here, this operator's webhook validates.
    let (hub, spoke) = tokio::try_join!(Cluster::hub("suite-hub"), Cluster::start("suite-spoke", setup))?;
    let _product = installed(&hub, plugins.path(), &["knative-serving", "knative-eventing"]).await?;
    product::register(&hub, &spoke, "spoke").await?;
    let environment = [
        ("KUBECONFIG", hub.kubeconfig().display().to_string()),
        ("SPOKE_HOST_KUBECONFIG", spoke.kubeconfig().display().to_string()),
        ("SPOKE_CLUSTER_NAME", "spoke".to_owned()),
        ("SPOKE_CLUSTER_NAMESPACE", FLEET.to_owned()),
        // On a spoke, this operator installs Serving there, for a resource in any namespace.
        ("TEST_NAMESPACE", "knative-serving".to_owned()),
    ];
    let passed = suite(&program, "^TestMulticluster", &environment).await?;
    let wanted = ["Serving", "Eventing"].map(|component| format!("TestMulticlusterKnative{component}SpokeDeployment"));
    all_of(&wanted.each_ref().map(String::as_str), &passed)?;
    count += passed.len();
    eprintln!("{count} tests and steps of the suite passed");
    Ok(())
}
