//! Every rule with `kubectl apply` of its valid and its invalid example, and the output.

use std::fmt::Write;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_rules::{ALL, Example, Severity};
use knative_operator_shared::label::RELEASES_CONFIG_MAP;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::cluster::apply::DRY_RUN;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::releases::Releases;
use knative_operator_tests::{Result, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{INSTALL, current_words, namespace, run};

/// Namespace of the ClusterProfiles of the examples.
const FLEET: &str = "rules-fleet";

/// A release with the names in the examples.
fn bundle(root: &std::path::Path) -> Result<()> {
    let workload = |name: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [
            {"name": name, "image": "x", "readinessProbe": {}, "livenessProbe": {}}]}}}})
    };
    let named =
        |api: &str, kind: &str, name: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    let config = |name: &str, keys: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"_example": keys}});
    let serving = [
        workload("activator"),
        workload("webhook"),
        named("v1", "Service", "activator-service"),
        named("v1", "Service", "autoscaler"),
        named("policy/v1", "PodDisruptionBudget", "activator-pdb"),
        config("config-network", "domain-template: x\ningress-class: y\nrollout-duration: 0\n"),
        config("config-features", ""),
        config("config-gc", ""),
        config("config-autoscaler", "stable-window: 60s\n"),
    ];
    let eventing = [workload("eventing-controller")];
    for (component, versions, objects) in [
        ("knative-serving", &["1.21.3", "1.22.0", "1.22.1", "1.23.0"][..], &serving[..]),
        ("knative-eventing", &["1.22.1"][..], &eventing[..]),
    ] {
        for version in versions {
            let directory = root.join(component).join(version);
            std::fs::create_dir_all(&directory)?;
            let text = objects.iter().map(|o| format!("---\n{o}\n")).collect::<String>();
            std::fs::write(directory.join("1.yaml"), text)?;
        }
    }
    Ok(())
}

/// Output of kubectl for `example`, and whether it was admitted. Nothing is stored.
async fn try_example(hub: &Cluster, example: &Example, owner: &str) -> Result<(bool, String)> {
    let text = |object: &serde_json::Value| object.to_string().replace(r#""uid":"1""#, &format!(r#""uid":"{owner}""#));
    let Some(before) = example.before else {
        // A dry run is validated like any other request.
        let new = example.object(example.after.unwrap());
        return Ok(hub.kubectl_output(&["apply", "--dry-run=server", "-f", "-"], &text(&new)).await);
    };
    let old = example.object(before);
    hub.apply(&serde_json::from_str(&text(&old))?).await?;
    let stored = hub.object(example.kind.plural(), "rules", "example");
    if !old["status"].is_null() {
        stored.merge_status(&old["status"]).await?;
    }
    let output = match example.after {
        Some(after) => hub.kubectl_output(&["apply", "-f", "-"], &text(&example.object(after))).await,
        None => hub.kubectl_output(&["delete", "-f", "-", "--wait=false"], &text(&old)).await,
    };
    let _ = stored.annotate(&json!({"operator.knative.dev/protected": null})).await;
    stored.delete_if_there().await?;
    Ok(output)
}

#[test]
fn every_rule_is_enforced_at_apply() {
    run(async {
        let (hub, root) = (Cluster::hub("rules").await?, tempfile::tempdir()?);
        bundle(root.path())?;
        let releases = Releases { dir: root.path().to_owned(), real: false, serving: "1.22.1", eventing: "1.22.1" };
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let mut product = Product::create(&hub, &releases, values, root.path()).await?;
        // The operator publishes the catalog and stops then, since nothing is to be installed.
        let maps: Api<ConfigMap> = Api::namespaced(hub.client(), NAMESPACE);
        let published = |map: Option<&ConfigMap>| {
            map.is_some_and(|m| m.data.as_ref().is_some_and(|d| d.contains_key("releases.json")))
        };
        wait::until(&maps, RELEASES_CONFIG_MAP, INSTALL, "published", published).await?;
        product.stop_operator(Signal::TERM)?;
        namespace(&hub, "rules").await?;
        namespace(&hub, FLEET).await?;
        for (name, healthy) in [("healthy", "True"), ("other", "True"), ("unhealthy", "False"), ("taken", "True")] {
            let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": name, "namespace": FLEET},
                "spec": {"displayName": name, "clusterManager": {"name": "tests"}}});
            hub.apply(&profile).await?;
            let status = json!({"conditions": [{"type": "ControlPlaneHealthy", "status": healthy, "reason": "Tests", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
            hub.stored(&profile).merge_status(&status).await?;
        }
        let resident = Example::serving("")
            .object(r#"{"metadata": {"name": "first"}, "spec": {"clusterProfileRef": {"name": "taken", "namespace": "rules-fleet"}}}"#);
        hub.apply(&resident).await?;

        // The webhook observes it a moment later.
        let mut asked = String::new();
        let absent = Example::serving("").object(r#"{"version": "0.1.0"}"#);
        let taken =
            Example::serving("").object(r#"{"clusterProfileRef": {"name": "taken", "namespace": "rules-fleet"}}"#);
        let started = Instant::now();
        while !["spec.version", "rules/first"].iter().all(|part| asked.contains(part)) {
            assert!(started.elapsed() < INSTALL, "{asked}");
            asked = hub.try_apply(&absent, DRY_RUN).await.1 + &hub.try_apply(&taken, DRY_RUN).await.1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }

        // The owner in an example.
        let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": "rules"},
            "spec": {"placement": {"clusterSelector": {}, "namespaces": [FLEET]}, "serving": {"spec": {"version": "1.22"}}}});
        hub.apply(&fleet).await?;
        let stored = hub.stored(&fleet).read().await?;
        let uid = stored["metadata"]["uid"].as_str().ok_or("no uid")?;

        let mut book = String::new();
        for rule in ALL {
            let ((valid_accepted, valid_output), (invalid_accepted, output)) =
                (try_example(&hub, &rule.valid, uid).await?, try_example(&hub, &rule.invalid, uid).await?);
            assert!(valid_accepted, "{}: the valid example is refused: {valid_output}", rule.id);
            assert_eq!(invalid_accepted, rule.severity == Severity::Warning, "{}: {output}", rule.id);
            if rule.severity == Severity::Warning {
                assert!(output.contains("Warning: "), "{}: {output}", rule.id);
            }
            // The common parts of both outputs are not about the rule.
            let lines: Vec<_> = output.lines().filter(|line| !valid_output.contains(line)).collect();
            writeln!(book, "# {}\n{}\n", rule.id, lines.join("\n"))?;
        }
        insta::assert_snapshot!("rules", current_words(&book));

        // All violations at once, each with its field.
        let bad = Example::serving("").object(
            r#"{"version": "x", "high-availability": {"replicas": 0}, "workloads": [{"name": ""}], "ingress": {}}"#,
        );
        let (_, output) = hub.kubectl_output(&["apply", "-f", "-"], &bad.to_string()).await;
        for field in ["spec.version", "spec.high-availability.replicas", "spec.workloads[0].name", "spec.ingress"] {
            assert!(output.contains(&format!("* {field}: ")), "{output}");
        }
        // Missing fields of a source get defaults; a second apply changes nothing.
        let source = Example::eventing("").object(r#"{"source": {"kafka": {"enabled": true}}}"#).to_string();
        hub.kubectl(&["apply", "-f", "-"], &source).await?;
        let (_, again) = hub.kubectl_output(&["apply", "-f", "-"], &source).await;
        assert!(again.contains("unchanged"), "{again}");
        Ok(())
    });
}
