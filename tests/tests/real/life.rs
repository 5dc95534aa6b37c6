//! The life of an installation on a hub, and on a spoke.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::process::Process;
use knative_operator_tests::product::{FLEET, register};
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{images, product, traffic};
use knative_operator_tests::{Result, releases, remaining, tools};
use serde_json::{Value, json};

use crate::support::{ANSWER, NAMESPACE, Report, apply, install, millis, run};

#[test]
fn knative_service_answers_from_zero() {
    run(local());
}

/// The hub installs Knative on itself.
async fn local() -> Result<()> {
    let mut report = Report::new();
    let registry = images::registry().await?;
    report.line("registry with all images");
    let hub = Cluster::real("hub", registry).await?;
    report.line("control plane and node are ready");
    product::install(&hub, &product::values()).await?;
    report.line("the chart is installed, its Pods are ready");
    let before = remaining::objects(&hub.client()).await?;
    let healthy = install(&mut report, &hub, &Value::Null).await?;
    from_zero(&mut report, &hub).await?;
    debug(&mut report, &hub).await?;
    uninstall(&mut report, (&hub, &hub), &before).await?;
    healthy.assert(&hub, "a life").await?;
    drop(hub);
    report.line("the cluster has stopped");
    Ok(())
}

#[test]
fn certificate_is_applied_while_the_activator_waits_for_it() {
    run(encrypted());
}

/// With encrypted internal traffic, the activator needs a certificate that a webhook of Knative
/// admits. Here, nobody issues it: that needs cert-manager.
async fn encrypted() -> Result<()> {
    let mut report = Report::new();
    let hub = Cluster::real("encrypted", images::registry().await?).await?;
    product::install(&hub, &product::values()).await?;
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    let mut spec = product::serving(releases::best().serving);
    spec["config"]["network"]["system-internal-tls"] = json!("Enabled");
    apply(&hub, &spec).await?;
    let defined = ["wait", "crd/certificates.networking.internal.knative.dev", "--for=create", "--timeout=60s"];
    hub.kubectl(&defined, "").await?;
    let certificate = "certificates.networking.internal.knative.dev/routing-serving-certs";
    hub.kubectl(&["wait", certificate, "-n", NAMESPACE, "--for=create", "--timeout=90s"], "").await?;
    report.line("the certificate is applied, although the activator is not available");
    Ok(())
}

#[test]
fn hub_installs_knative_on_a_real_spoke() {
    run(remote());
}

/// The hub installs Knative on a spoke, with the official secretreader from an image volume.
async fn remote() -> Result<()> {
    let mut report = Report::new();
    let registry = images::registry().await?;
    report.line("registry with all images");
    let (hub, spoke) = tokio::try_join!(Cluster::real("hub", registry), Cluster::real("spoke", registry))?;
    hub.connect(&spoke)?;
    report.line("two control planes and nodes are ready, and connected");
    product::install(&hub, &product::values()).await?;
    register(&hub, &spoke, "spoke-1").await?;
    report.line("the chart is installed, its Pods are ready, the spoke is registered");
    let before = remaining::objects(&spoke.client()).await?;
    let healthy = install(&mut report, &hub, &json!({"name": "spoke-1", "namespace": FLEET})).await?;
    from_zero(&mut report, &spoke).await?;
    uninstall(&mut report, (&hub, &spoke), &before).await?;
    healthy.assert(&hub, "a life").await?;
    drop((hub, spoke));
    report.line("the clusters have stopped");
    Ok(())
}

/// A Knative Service on `cluster` answers, is scaled to zero, and answers again.
async fn from_zero(report: &mut Report, cluster: &Cluster) -> Result<()> {
    let annotations = json!({"autoscaling.knative.dev/window": "6s"});
    cluster.kubectl(&["apply", "-f", "-"], &traffic::service("hello", &annotations).to_string()).await?;
    ready(cluster, "ksvc/hello", "default").await?;
    report.line("a Knative Service is Ready");
    let (gateway, host) = (traffic::gateway(cluster).await?, traffic::host("hello"));
    let (body, time, failed) = traffic::until_answer(gateway, &host, ANSWER).await?;
    assert_eq!(body.trim(), "hello from hello");
    report.line(&format!("HTTP 200 through Kourier in {:.1} ms, after {failed} failed requests", millis(time)));
    traffic::scaled_to_zero(cluster, "hello").await?;
    report.line("the Knative Service is scaled to zero");
    let (body, time, failed) = traffic::until_answer(gateway, &host, ANSWER).await?;
    assert_eq!((body.trim(), failed), ("hello from hello", 0));
    report.line(&format!("HTTP 200 from zero in {:.2} s", time.as_secs_f64()));
    let (_, time, _) = traffic::until_answer(gateway, &host, ANSWER).await?;
    report.line(&format!("HTTP 200 in {:.1} ms", millis(time)));
    Ok(())
}

/// What a user does with kubectl and Pods.
async fn debug(report: &mut Report, cluster: &Cluster) -> Result<()> {
    let logs = cluster.kubectl(&["logs", "deployment/activator", "-n", NAMESPACE, "--tail=1"], "").await?;
    assert!(logs.contains("activator"), "{logs}");
    let place = ["exec", "-n", NAMESPACE, "deployment/3scale-kourier-gateway", "--"];
    let output = cluster.kubectl(&[&place[..], &["/bin/sh", "-c", "echo from a Pod"]].concat(), "").await?;
    assert_eq!(output.trim(), "from a Pod");
    let (kubectl, local) = (tools::control_plane("kubectl")?, SocketAddr::from(([127, 0, 0, 1], 18080)));
    let arguments = ["port-forward", "-n", NAMESPACE, "service/kourier", "18080:80"].map(str::to_owned);
    let environment = [("KUBECONFIG".to_owned(), cluster.kubeconfig().display().to_string())];
    let _forward = Process::start("port-forward", cluster.dir(), &kubectl, &arguments, &environment, Duration::ZERO)?;
    let (body, ..) = traffic::until_answer(local, &traffic::host("hello"), ANSWER).await?;
    assert_eq!(body.trim(), "hello from hello");
    report.line("kubectl logs, exec and port-forward work");
    Ok(())
}

/// Deletes everything that `hub` installed on `cluster`; nothing is left but what was there
/// `before`.
async fn uninstall(report: &mut Report, (hub, cluster): (&Cluster, &Cluster), before: &BTreeSet<String>) -> Result<()> {
    cluster.kubectl(&["delete", "ksvc/hello", "--timeout=60s"], "").await?;
    let delete = ["delete", "knativeserving/knative-serving", "-n", NAMESPACE, "--timeout=180s"];
    if let Err(error) = hub.kubectl(&delete, "").await {
        return Err(format!("{error}\n{}", product::pods(cluster).await).into());
    }
    hub.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=60s"], "").await?;
    report.line("Knative is deleted");
    let left = remaining::remaining(cluster, before).await?;
    assert!(left.is_empty(), "{left:?}");
    report.line("nothing but CRDs is left");
    Ok(())
}
