//! A namespace with everything that a platform limits: Pod Security, a quota and a LimitRange, as
//! docs/operate/firewalls.md has them.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::{Result, releases, tools, wait};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::TEAM;
use crate::support::{apply, namespace, resource, run};

const LIMIT: Duration = wait::LIMIT;

fn quota(requests: &str, limits: &str) -> Value {
    let hard = json!({"requests.cpu": requests, "requests.memory": requests.replace('m', "Mi"),
        "limits.cpu": limits, "limits.memory": limits.replace('m', "Mi")});
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", "namespace": NAMESPACE}, "spec": {"hard": hard}})
}

/// Rolls the webhook out with another annotation. With `waits`, Helm waits for the Pods.
async fn roll(hub: &Cluster, turn: &str, waits: bool) -> Result<()> {
    let chart = tools::project().join("charts/knative-operator").display().to_string();
    let value = format!("knative_operator.operator_webhook.podAnnotations.turn={turn}");
    let line = ["upgrade", "knative-operator", &chart, "-n", NAMESPACE, "--reset-then-reuse-values", "--set", &value];
    let wait: &[&str] = if waits { &["--wait", "--timeout", "1m"] } else { &[] };
    hub.helm(&[&line[..], wait].concat()).await.map(drop)
}

#[test]
fn chart_runs_in_a_namespace_with_documented_limits() {
    run(async {
        let (hub, plugins) = (Cluster::hub("quotas").await?, tempfile::tempdir()?);
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let meta = json!({"name": NAMESPACE, "labels": labels});
        apply(&hub, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})).await?;
        apply(&hub, &quota("500m", "3500m")).await?;
        let limit = json!({"type": "Container", "max": {"cpu": "1", "memory": "1000Mi"}, "min": {"cpu": "100m", "memory": "100Mi"},
            "maxLimitRequestRatio": {"cpu": "10", "memory": "10"}});
        apply(&hub, &json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "team", "namespace": NAMESPACE}, "spec": {"limits": [limit]}})).await?;
        let _product = Product::install(&hub, &releases::small(), product::values(&[]), plugins.path()).await?;
        namespace(&hub, TEAM).await?;
        let spec = json!({"high-availability": {"replicas": 0}});
        let refused = resource(Component::Serving, TEAM, "bad", Some("nowhere"), spec);
        let is_answered = async || -> Result<()> {
            let error = apply(&hub, &refused).await.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("spec.high-availability.replicas: 0 is less than 1"), "{error}");
            Ok(())
        };
        is_answered().await?;
        // There is room for a rollout, and not more.
        roll(&hub, "first", true).await?;
        is_answered().await?;
        // Without room, the new Pod is refused, the running ones answer, and the ReplicaSet says
        // why.
        apply(&hub, &quota("300m", "3500m")).await?;
        roll(&hub, "second", false).await?;
        let sets = Api::<ReplicaSet>::namespaced(hub.client(), NAMESPACE);
        let refusal = |sets: &[ReplicaSet]| {
            let conditions = sets.iter().filter_map(|set| set.status.as_ref()?.conditions.as_ref()).flatten();
            conditions.filter_map(|c| c.message.clone()).any(|message| message.contains("exceeded quota: team"))
        };
        wait::until_all(&sets, "", LIMIT, "refused by the quota", refusal).await?;
        is_answered().await?;
        let deployments = Api::<Deployment>::namespaced(hub.client(), NAMESPACE);
        for deployment in deployments.list(&kube::api::ListParams::default()).await? {
            let available = deployment.status.as_ref().and_then(|status| status.available_replicas);
            assert!(available >= Some(1), "{}: {available:?}", deployment.name_any());
        }
        // With room again, the rollout ends by itself.
        apply(&hub, &quota("500m", "3500m")).await?;
        let rolled = |deployment: Option<&Deployment>| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            status.is_some_and(|status| {
                status.updated_replicas == status.replicas && status.unavailable_replicas.is_none()
            })
        };
        wait::until(&deployments, "operator-webhook", LIMIT, "rolled out", rolled).await?;
        is_answered().await
    });
}
