//! The chart on a real node: its Pods run from images.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::product::{FLEET, NAMESPACE};
use crate::{Result, tools};

/// Workloads of Serving and Eventing, and their containers, that request CPU.
const REQUESTS: [&[[&str; 2]]; 2] = [
    &[
        ["activator", "activator"],
        ["autoscaler", "autoscaler"],
        ["controller", "controller"],
        ["webhook", "webhook"],
        ["net-kourier-controller", "controller"],
        ["3scale-kourier-gateway", "kourier-gateway"],
    ],
    &[
        ["eventing-controller", "eventing-controller"],
        ["eventing-webhook", "eventing-webhook"],
        ["job-sink", "job-sink"],
        ["pingsource-mt-adapter", "dispatcher"],
        ["mt-broker-filter", "filter"],
        ["mt-broker-ingress", "ingress"],
        ["mt-broker-controller", "mt-broker-controller"],
    ],
];

/// Installs the chart on `hub` with `values`, and waits until its Pods are ready.
pub async fn install(hub: &Cluster, values: &Value) -> Result<()> {
    let crd = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
    hub.kubectl(&["apply", "-f", "-"], &crd).await?;
    hub.kubectl(&["create", "namespace", FLEET], "").await?;
    release(hub, values).await
}

/// Installs the chart on `hub` with `values`, without the definition of ClusterProfiles, and waits
/// until its Pods are ready.
pub async fn release(hub: &Cluster, values: &Value) -> Result<()> {
    hub.namespace(NAMESPACE).await?;
    // What the chart documents.
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    hub.kubectl(&["label", "namespace", NAMESPACE, restricted], "").await?;
    let file = hub.dir().join("values.json");
    std::fs::write(&file, values.to_string())?;
    let chart = tools::project().join("charts/knative-operator");
    let (chart, file) = (chart.display().to_string(), file.display().to_string());
    let place = ["--namespace", NAMESPACE, "--wait", "--timeout", "3m"];
    let arguments = [&["install", "knative-operator", &chart, "--values", &file], &place[..]].concat();
    if let Err(error) = hub.helm(&arguments).await {
        return Err(format!("{error}\n{}", pods(hub).await).into());
    }
    Ok(())
}

/// Values of the chart: the official secretreader and the release bundle as image volumes.
pub fn values() -> Value {
    let mut values = crate::product::values(&[]);
    let plugins = &mut values["knative_operator"]["multicluster"]["plugins"];
    *plugins = json!([plugins[0]]);
    values["knative_operator"]["fleet"] = json!({"enabled": true});
    values
}

/// The minor version of `version`, which is the tag of its images.
fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

/// A spec of a KnativeServing with Kourier that pulls everything from the registry of the node.
pub fn serving(version: &str) -> Value {
    // Envoy is the same for all.
    let image = |name: &str| format!("registry.example/knative/{name}:{}", minor(version));
    let envoy = "registry.example/knative/envoy:1.22";
    json!({
        "version": version,
        "ingress": {"kourier": {"enabled": true}},
        "registry": {
            "default": image("${NAME}"),
            "override": {"net-kourier-controller/controller": image("kourier"), "kourier-gateway": envoy},
        },
        "config": {
            "network": {"ingress-class": "kourier.ingress.networking.knative.dev"},
            "domain": {"example.com": ""},
            // By default, a Knative Service keeps its last Pod for half a minute more.
            "autoscaler": {"scale-to-zero-grace-period": "6s"},
            "deployment": {
                "queue-sidecar-image": image("queue-proxy"),
                "registries-skipping-tag-resolving": "registry.example",
            },
        },
    })
}

/// A spec of a KnativeEventing that pulls everything from the registry of the node.
pub fn eventing(version: &str) -> Value {
    json!({
        "version": version,
        "registry": {"default": format!("registry.example/eventing/${{NAME}}:{}", minor(version))},
    })
}

/// Specs of Serving and Eventing in `versions`, whose Pods request little CPU: otherwise, a node
/// with two cores has none left for the Pods that an update of both adds.
pub fn both(versions: [&str; 2]) -> [Value; 2] {
    let mut both = [serving(versions[0]), eventing(versions[1])];
    for (spec, requests) in both.iter_mut().zip(REQUESTS) {
        let small = |[workload, container]: &[&str; 2]| json!({"name": workload, "resources": [{"container": container, "requests": {"cpu": "20m"}}]});
        spec["workloads"] = requests.iter().map(small).collect();
    }
    both
}

/// All Pods of `cluster` and the last events, for an error.
pub async fn pods(cluster: &Cluster) -> String {
    let (_, pods) = cluster.kubectl_output(&["get", "pods", "-A", "-o", "wide"], "").await;
    let (_, events) = cluster.kubectl_output(&["get", "events", "-A", "--sort-by=.lastTimestamp"], "").await;
    let events: Vec<&str> = events.lines().collect();
    format!("{pods}\n{}", events[events.len().saturating_sub(40)..].join("\n"))
}

/// Waits until `resource` of `cluster` is Ready; the error has its status and all Pods.
pub async fn ready(cluster: &Cluster, resource: &str, namespace: &str) -> Result<()> {
    let timeout = format!("--timeout={}s", READY.as_secs());
    let wait = ["wait", resource, "-n", namespace, "--for=condition=Ready", &timeout];
    if let Err(error) = cluster.kubectl(&wait, "").await {
        let (_, status) = cluster.kubectl_output(&["get", resource, "-n", namespace, "-o", "yaml"], "").await;
        return Err(format!("{error}\n{status}\n{}", pods(cluster).await).into());
    }
    Ok(())
}

/// Time limit until Knative is Ready from images.
pub const READY: Duration = Duration::from_secs(180);
