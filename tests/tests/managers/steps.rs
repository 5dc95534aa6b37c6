//! What happens with a cluster that Open Cluster Management manages, and what the operator does.

use std::time::{Duration, Instant};

use knative_operator_tests::product::NAMESPACE;
use knative_operator_tests::real::product::{both, ready};
use knative_operator_tests::real::{Report, traffic};
use knative_operator_tests::{Error, Result, releases, tools};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::ocm::{ACCOUNTS, ADD_ONS, CLUSTER, Site, TEAM, apply, get, until, wait};

/// Namespace of the KnativeServing and of Serving.
const SERVING: &str = "knative-serving";
/// Namespace of the fleet.
const PLACE: &str = "platform";
/// Time for which nothing passes between the clusters.
const CUT: Duration = Duration::from_secs(30);
/// Time limit until a change of a resource is on the spoke.
const CHANGED: Duration = Duration::from_secs(300);
/// A value that the KnativeServing changes: the key of `config-defaults`.
const TIMEOUT: &str = "revision-timeout-seconds";

/// Specs of Serving, with `timeout` as a setting, and of Eventing.
fn specs(timeout: &str) -> [Value; 2] {
    let releases = releases::best();
    let mut specs = both([releases.serving, releases.eventing]);
    specs[0]["config"]["defaults"] = json!({TIMEOUT: timeout});
    specs
}

/// Applies the KnativeServing with `timeout` as a setting, for the cluster by its ClusterProfile.
async fn change(site: &Site, timeout: &str) -> Result<()> {
    let [mut spec, _] = specs(timeout);
    spec["clusterProfileRef"] = json!({"name": CLUSTER, "namespace": NAMESPACE});
    let serving = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "knative-serving", "namespace": SERVING}, "spec": spec});
    apply(&site.hub, &serving).await
}

/// Waits until the setting on the spoke is `timeout`, and the KnativeServing is Ready; returns how
/// long that took.
async fn arrives(site: &Site, timeout: &str) -> Result<Duration> {
    let begun = Instant::now();
    let setting = async || {
        let defaults = site.spoke.object("configmap", SERVING, "config-defaults").find().await?;
        Ok::<_, Error>(defaults.filter(|defaults| defaults["data"][TIMEOUT] == timeout).map(drop))
    };
    until("the change is on the spoke", CHANGED, setting).await?;
    ready(&site.hub, "knativeserving/knative-serving", SERVING).await?;
    Ok(begun.elapsed())
}

/// Reason and message of the condition that says whether the operator reaches the spoke.
async fn target(site: &Site) -> Result<(String, String)> {
    let serving = site.hub.object("knativeserving", SERVING, "knative-serving").read().await?;
    let mut conditions = serving["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == "TargetClusterResolved").cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Ok((text("reason"), text("message")))
}

/// Requests the Knative Service on the spoke.
async fn answers(site: &Site) -> Result<()> {
    let gateway = traffic::gateway(&site.spoke).await?;
    let (body, ..) = traffic::until_answer(gateway, &traffic::host("hello"), traffic::ANSWER).await?;
    assert_eq!(body.trim(), "hello from hello");
    Ok(())
}

/// Prints the ClusterProfile as the controllers of Open Cluster Management wrote it.
pub async fn published(site: &Site, report: &mut Report) -> Result<()> {
    let provider = async || {
        let profile = get(&site.hub, &["clusterprofile", CLUSTER, "-n", NAMESPACE]).await?;
        let access = &profile["status"]["accessProviders"][0];
        Ok::<_, Error>(access["cluster"]["server"].as_str().map(str::to_owned))
    };
    let server = until("the access provider is published", CHANGED, provider).await?;
    let healthy = "condition=ControlPlaneHealthy";
    wait(&site.hub, &["clusterprofile", CLUSTER, "-n", NAMESPACE], healthy).await?;
    let text = site.hub.kubectl(&["get", "clusterprofile", CLUSTER, "-n", NAMESPACE, "-o", "yaml"], "").await?;
    report.line(&format!("the ClusterProfile is published:\n{text}"));
    let expected = format!("https://cluster-proxy-addon-user.{ADD_ONS}:9092/{CLUSTER}");
    assert_eq!(server, expected, "the server is the proxy, with the cluster as path");
    Ok(())
}

/// `preflight` in the operator's Pod, as in the document.
pub async fn preflight(site: &Site, report: &mut Report) -> Result<()> {
    let profile = format!("{NAMESPACE}/{CLUSTER}");
    let file = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "knative-serving", "namespace": SERVING}, "spec": specs("300")[0]});
    let pod = ["exec", "-i", "-n", NAMESPACE, "deploy/knative-operator", "--"];
    let command = ["/knative-operator", "preflight", &profile, "--filename", "-"];
    let arguments = [&pod[..], &command[..]].concat();
    let (well, output) = site.hub.kubectl_output(&arguments, &file.to_string()).await;
    report.line(&format!("preflight:\n{output}"));
    assert!(well && output.contains("1 passed"), "{output}");
    Ok(())
}

/// Installs Serving by reference; a Knative Service answers.
pub async fn installed(site: &Site, report: &mut Report) -> Result<()> {
    site.hub.namespace(SERVING).await?;
    change(site, "300").await?;
    let took = arrives(site, "300").await?;
    report.line(&format!("Serving is installed through the tunnel, and Ready after {:.1} s", took.as_secs_f64()));
    let hello = traffic::service("hello", &json!({"autoscaling.knative.dev/min-scale": "1"}));
    apply(&site.spoke, &hello).await?;
    ready(&site.spoke, "ksvc/hello", "default").await?;
    answers(site).await?;
    report.line("a Knative Service answers on the spoke");
    Ok(())
}

/// Prints what `knative-operator status` says.
async fn status(site: &Site, report: &mut Report) -> Result<()> {
    let mut command = Command::new(tools::binary("knative-operator")?);
    command.args(["status", "--all-namespaces", "--kubeconfig"]);
    let output = command.arg(site.hub.kubeconfig()).output().await?;
    let text = [output.stdout, output.stderr].concat();
    report.line(&format!("status:\n{}", String::from_utf8_lossy(&text)));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    Ok(())
}

/// A fleet of the clusters of a set in `namespaces`, with Eventing, and with a setting `removal`.
fn fleet_of(namespaces: &[&str], removal: &Value) -> Value {
    let [_, eventing] = specs("300");
    let set = json!({"matchLabels": {"multicluster.x-k8s.io/clusterset": "default"}});
    let mut fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": "ocm", "namespace": PLACE},
        "spec": {"placement": {"clusterSelector": set, "namespaces": namespaces},
            "eventing": {"spec": eventing}, "rollout": {}}});
    if removal.is_object() {
        fleet["spec"]["removal"] = removal.clone();
    }
    fleet
}

/// Installs Eventing by a fleet.
pub async fn fleet(site: &Site, report: &mut Report) -> Result<()> {
    site.hub.namespace(PLACE).await?;
    apply(&site.hub, &fleet_of(&[NAMESPACE], &Value::Null)).await?;
    ready(&site.hub, "knativefleet/ocm", PLACE).await?;
    let controller = ["deployment/eventing-controller", "-n", "knative-eventing"];
    wait(&site.spoke, &controller, "condition=Available").await?;
    report.line("Eventing is installed by a fleet, which is Ready");
    status(site, report).await
}

/// For half a minute, no packet passes between the clusters; the KnativeServing changes meanwhile.
pub async fn cut(site: &Site, report: &mut Report) -> Result<()> {
    let link = site.spoke.machine().zip(site.hub.machine()).ok_or("no real nodes")?;
    link.0.cut(link.1)?;
    let begun = Instant::now();
    change(site, "301").await?;
    tokio::time::sleep(CUT.saturating_sub(begun.elapsed())).await;
    let defaults = site.spoke.object("configmap", SERVING, "config-defaults").read().await?;
    assert_eq!(defaults["data"][TIMEOUT], "300", "a request passed a link that is cut");
    let (reason, message) = target(site).await?;
    report.line(&format!("no packet passed for {CUT:?}; TargetClusterResolved: {reason}: {message}"));
    link.0.restore()?;
    let took = arrives(site, "301").await?;
    report.line(&format!("the change arrived {:.1} s after the cut", took.as_secs_f64()));
    Ok(())
}

/// The account on the spoke is deleted, so that its token is void; then, its token on the hub, so
/// that Open Cluster Management requests another one.
pub async fn rotated(site: &Site, report: &mut Report) -> Result<()> {
    let before = site.copied_token(NAMESPACE).await?.ok_or("no token")?;
    let account = site.spoke.object("serviceaccount", ACCOUNTS, "knative");
    let uid = account.read().await?["metadata"]["uid"].clone();
    account.start_deletion().await?;
    let again =
        async || Ok::<_, Error>(account.find().await?.filter(|account| account["metadata"]["uid"] != uid).map(drop));
    until("the account is there again", CHANGED, again).await?;
    site.hub.kubectl(&["delete", "secret", "knative", "-n", CLUSTER], "").await?;
    let copied =
        async || Ok::<_, Error>(site.copied_token(NAMESPACE).await?.filter(|token| *token != before).map(drop));
    until("another token is copied", CHANGED, copied).await?;
    report.line("the account and its token are replaced");
    change(site, "302").await?;
    let took = arrives(site, "302").await?;
    report.line(&format!("a change arrived with the new token after {:.1} s", took.as_secs_f64()));
    Ok(())
}

/// Another namespace has a binding of the set of all clusters, so the cluster is published twice:
/// a fleet of both namespaces counts it once.
pub async fn published_twice(site: &Site, report: &mut Report) -> Result<()> {
    site.hub.namespace(TEAM).await?;
    let binding = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
        "metadata": {"name": "global", "namespace": TEAM}, "spec": {"clusterSet": "global"}});
    apply(&site.hub, &binding).await?;
    let provider = "jsonpath={.status.accessProviders[0].name}=open-cluster-management";
    let profile = ["clusterprofile", CLUSTER, "-n", TEAM];
    wait(&site.hub, &profile, "create").await?;
    wait(&site.hub, &profile, provider).await?;
    let soon = json!({"maxAtOnce": 1, "gracePeriodSeconds": 1});
    apply(&site.hub, &fleet_of(&[NAMESPACE, TEAM], &soon)).await?;
    let counted = async || {
        let fleet = site.hub.object("knativefleet", PLACE, "ocm").read().await?;
        let status = &fleet["status"];
        let is_once =
            status["clusters"] == 1 && status["ready"] == 1 && status["attention"][0]["reason"] == "Duplicate";
        Ok::<_, Error>(is_once.then(|| status["attention"][0]["message"].to_string()))
    };
    let message = until("the cluster counts once", CHANGED, counted).await?;
    report.line(&format!("two sets publish the cluster, which counts once: {message}"));

    // While both are published: a ClusterProfile that is gone is no wish to uninstall, so its
    // resource would stay, and the deletion of the fleet would wait for its cluster.
    apply(&site.hub, &fleet_of(&[NAMESPACE], &soon)).await?;
    let counted = async || {
        let status = site.hub.object("knativefleet", PLACE, "ocm").read().await?["status"].clone();
        let is_one = status["clusters"] == 1 && status["ready"] == 1 && status["attention"][0].is_null();
        let of_fleet = site.hub.list("knativeeventings", PLACE).await?;
        let is_left = of_fleet.iter().any(|resource| resource["spec"]["clusterProfileRef"]["namespace"] == TEAM);
        Ok::<_, Error>((is_one && !is_left && of_fleet.len() == 1).then_some(()))
    };
    until("the fleet has one resource, for the cluster that it counts", CHANGED, counted).await?;
    let controller = ["deployment/eventing-controller", "-n", "knative-eventing"];
    wait(&site.spoke, &controller, "condition=Available").await?;
    site.hub.kubectl(&["delete", "managedclustersetbinding", "global", "-n", TEAM], "").await?;
    wait(&site.hub, &profile, "delete").await?;
    // With an hour until a cluster that isn't published any more loses its installation.
    apply(&site.hub, &fleet_of(&[NAMESPACE], &Value::Null)).await?;
    report.line("one set publishes it");
    Ok(())
}

/// The cluster is detached, and joins again.
pub async fn detached(site: &Site, report: &mut Report) -> Result<()> {
    site.detach().await?;
    wait(&site.hub, &["clusterprofile", CLUSTER, "-n", NAMESPACE], "delete").await?;
    let gone = async || Ok::<_, Error>((target(site).await?.0 == "ClusterProfileNotFound").then_some(()));
    until("the KnativeServing says that the profile is gone", CHANGED, gone).await?;
    answers(site).await?;
    report.line("the cluster is detached: ClusterProfileNotFound; Knative answers");
    site.join(report).await?;
    site.permit().await?;
    change(site, "303").await?;
    let took = arrives(site, "303").await?;
    ready(&site.hub, "knativefleet/ocm", PLACE).await?;
    answers(site).await?;
    report.line(&format!("it has joined again, and a change arrived after {:.1} s", took.as_secs_f64()));
    Ok(())
}

/// Deletes what the hub installed, through the tunnel.
pub async fn deleted(site: &Site, report: &mut Report) -> Result<()> {
    site.spoke.kubectl(&["delete", "ksvc/hello", "--timeout=60s"], "").await?;
    let serving = ["delete", "knativeserving/knative-serving", "-n", SERVING, "--timeout=240s"];
    site.hub.kubectl(&serving, "").await?;
    let fleet = json!({"metadata": {"annotations": {"operator.knative.dev/confirm-removal": "1"}}}).to_string();
    site.hub.kubectl(&["patch", "knativefleet", "ocm", "-n", PLACE, "--type=merge", "-p", &fleet], "").await?;
    site.hub.kubectl(&["delete", "knativefleet/ocm", "-n", PLACE, "--timeout=240s"], "").await?;
    for namespace in [SERVING, "knative-eventing"] {
        wait(&site.spoke, &["namespace", namespace], "delete").await?;
    }
    report.line("everything is deleted on the spoke, through the tunnel");
    Ok(())
}
