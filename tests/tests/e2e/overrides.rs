//! Overrides on a real API server: accepted by server-side apply, effective, and removed with the
//! override.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, wait};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{apply, ready};

/// Adds overrides of each kind to `serving`.
pub fn add(serving: &mut Value) {
    let overrides = json!({
        "high-availability": {"replicas": 2},
        "registry": {"override": {"webhook/webhook": "mirror.example.com/webhook:v1"}, "imagePullSecrets": [{"name": "pull"}]},
        "controller-custom-certs": {"type": "ConfigMap", "name": "certs"},
        "services": [{"name": "webhook", "annotations": {"example.com/a": "b"}}],
        "podDisruptionBudgets": [{"name": "webhook-pdb", "minAvailable": 1}],
        "workloads": [
            {
                "name": "controller",
                "replicas": 3,
                "labels": {"example.com/team": "a"},
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "resources": [{"container": "controller", "requests": {"cpu": "30m"}, "limits": {"memory": "1000Mi"}}],
                "env": [{"container": "controller", "envVars": [{"name": "EXTRA", "value": "1"}]}],
            },
            {"name": "contoller", "replicas": 3},
            {"name": "webhok", "replicas": 3},
        ],
    });
    for (field, value) in overrides.as_object().into_iter().flatten() {
        serving["spec"][field] = value.clone();
    }
}

/// Checks that the overrides of `serving` are on `spoke`, and that those without effect are
/// reported on `hub`; removes those of workloads, and checks that their effect is gone.
pub async fn check(hub: &Cluster, spoke: &Cluster, serving: &Value) -> Result<()> {
    let namespace = "knative-serving";
    let deployments = Api::<Deployment>::namespaced(spoke.client(), namespace);
    let controller = deployments.get("controller").await?;
    assert_eq!(controller.labels().get("example.com/team").map(String::as_str), Some("a"));
    let spec = controller.spec;
    assert_eq!(spec.replicas, Some(3));
    let pod = serde_json::to_value(spec.template.spec)?;
    assert_eq!(
        (&pod["nodeSelector"]["kubernetes.io/os"], &pod["imagePullSecrets"][0]["name"]),
        (&json!("linux"), &json!("pull"))
    );
    assert_eq!(
        pod["volumes"].as_array().and_then(|v| v.last()).map(|v| &v["configMap"]["name"]),
        Some(&json!("certs"))
    );
    let container = &pod["containers"][0];
    assert_eq!(
        (&container["resources"]["requests"]["cpu"], &container["resources"]["limits"]["memory"]),
        (&json!("30m"), &json!("1000Mi"))
    );
    let variables: Vec<_> =
        container["env"].as_array().into_iter().flatten().filter_map(|v| v["name"].as_str()).collect();
    assert!(
        ["EXTRA", "SSL_CERT_DIR", "KUBERNETES_MIN_VERSION"].iter().all(|name| variables.contains(name)),
        "{variables:?}"
    );

    let webhook = serde_json::to_value(deployments.get("webhook").await?)?;
    assert_eq!(webhook["spec"]["template"]["spec"]["containers"][0]["image"], "mirror.example.com/webhook:v1");
    let autoscaler = Api::<HorizontalPodAutoscaler>::namespaced(spoke.client(), namespace).get("webhook").await?;
    assert_eq!(autoscaler.spec.min_replicas, Some(2));
    let budget = Api::<PodDisruptionBudget>::namespaced(spoke.client(), namespace).get("webhook-pdb").await?;
    assert_eq!(budget.spec.and_then(|s| s.min_available), Some(IntOrString::Int(1)));
    let service = Api::<Service>::namespaced(spoke.client(), namespace).get("webhook").await?;
    assert_eq!(service.annotations().get("example.com/a").map(String::as_str), Some("b"));

    let place = serving["metadata"]["namespace"].as_str().unwrap_or_default();
    let events = Api::<Event>::namespaced(hub.client(), place).list(&ListParams::default()).await?;
    let mut notes: Vec<_> = events
        .iter()
        .filter(|e| e.reason.as_deref() == Some("OverrideIgnored"))
        .filter_map(|e| e.message.clone())
        .collect();
    let ignored = [(1, "contoller", "controller"), (2, "webhok", "webhook")];
    let expected = ignored.map(|(at, name, near)| {
        format!("spec.workloads[{at}].name: the release has no workload called \"{name}\"; the nearest is \"{near}\"")
    });
    notes.sort();
    // An attempt that is repeated reports again.
    notes.dedup();
    assert_eq!(notes, expected);

    let mut back = serving.clone();
    back["spec"].as_object_mut().map(|spec| spec.remove("workloads"));
    apply(hub, &back).await?;
    let plain = |d: Option<&Deployment>| {
        d.is_some_and(|d| !d.labels().contains_key("example.com/team") && d.spec.replicas == Some(2))
    };
    wait::until(&deployments, "controller", wait::LIMIT, "as released, but for high availability", plain).await?;
    ready(hub, &back).await.map(drop)
}
