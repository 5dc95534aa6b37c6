//! The chart on a real API server: every combination of toggles is valid; install, upgrade,
//! rollback and uninstall leave only CustomResourceDefinitions; its ServiceAccounts have the needed
//! permissions only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::cluster::apply::DRY_RUN;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::remaining::{objects, remaining};
use knative_operator_tests::{Result, http, last_release, measure, releases, tools};
use serde_json::{Value, json};

use crate::support::{INSTALL, apply, delete, has_condition, namespace, nothing_to_install, ready, resource, run};

fn chart() -> String {
    tools::project().join("charts/knative-operator").display().to_string()
}

/// Custom kinds that the chart uses, with any content.
fn foreign() -> Value {
    let crd = |group: &str, kind: &str, plural: &str, version: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")}, "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [
        crd("monitoring.coreos.com", "ServiceMonitor", "servicemonitors", "v1"),
        crd("monitoring.coreos.com", "PrometheusRule", "prometheusrules", "v1"),
        crd("cert-manager.io", "Certificate", "certificates", "v1"),
        crd("cert-manager.io", "Issuer", "issuers", "v1"),
    ]})
}

/// Each toggle, each pair of toggles, none, all, and all but one.
fn combinations() -> Vec<Vec<String>> {
    let provider = r#"knative_operator.multicluster.accessProvidersConfig={"providers":[{"name":"secretreader","builtin":"secretreader"}]}"#;
    let toggles: [(&str, Vec<String>); 7] = [
        (
            "multicluster",
            vec![
                "--set-json".into(),
                provider.into(),
                "--set".into(),
                "knative_operator.multicluster.enabled=true".into(),
            ],
        ),
        ("releases", vec!["--set".into(), "knative_operator.releases.image=registry.example/r:1".into()]),
        ("network policy", vec!["--set".into(), "networkPolicy.enabled=true".into()]),
        ("monitor", vec!["--set".into(), "metrics.serviceMonitor.enabled=true,metrics.secure=true".into()]),
        ("rule", vec!["--set".into(), "metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true".into()]),
        ("budget", vec!["--set".into(), "knative_operator.operator_webhook.podDisruptionBudget.enabled=false".into()]),
        (
            "environment",
            vec!["--set-json".into(), r#"knative_operator.knative_operator.env=[{"name":"A","value":"b"}]"#.into()],
        ),
    ];
    let sources = ["self", "secret", "cert-manager"];
    let mut all = Vec::new();
    let is_tried = |mask: &usize| mask.count_ones() <= 2 || mask.count_ones() as usize >= toggles.len() - 1;
    for mask in (0..1_usize << toggles.len()).filter(is_tried) {
        let chosen = toggles
            .iter()
            .enumerate()
            .filter(|(bit, _)| mask & (1 << bit) != 0)
            .flat_map(|(_, (_, arguments))| arguments.clone());
        let mut arguments: Vec<String> = chosen.collect();
        let source = sources[mask % sources.len()];
        arguments.extend(["--set".to_owned(), format!("knative_operator.operator_webhook.certificates.source={source},knative_operator.operator_webhook.certificates.secretName=own")]);
        all.push(arguments);
    }
    all
}

#[test]
fn every_pair_of_toggles_is_valid() {
    run(async {
        let hub = Cluster::spoke("toggles").await?;
        apply(&hub, &foreign()).await?;
        namespace(&hub, NAMESPACE).await?;
        let lint = hub.helm(&[&["lint", "--strict", &chart()][..], &tools::OFFLINE[..]].concat()).await?;
        assert!(lint.contains("0 chart(s) failed"), "{lint}");
        // Each distinct object once: most are equal in several combinations.
        let mut all: BTreeMap<String, Value> = BTreeMap::new();
        let combinations = combinations();
        for arguments in &combinations {
            let mut line = vec![
                "template".to_owned(),
                "knative-operator".to_owned(),
                chart(),
                "-n".to_owned(),
                NAMESPACE.to_owned(),
            ];
            line.extend(tools::OFFLINE.map(str::to_owned));
            line.extend(arguments.iter().cloned());
            let text = hub.helm(&line.iter().map(String::as_str).collect::<Vec<_>>()).await?;
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
            all.extend(objects.into_iter().filter(|o| !o.is_null()).map(|object| (object.to_string(), object)));
        }
        for (text, object) in &all {
            let (accepted, output) = hub.try_apply(object, DRY_RUN).await;
            assert!(accepted && !output.contains("Warning"), "{output}\n{text}");
        }
        eprintln!("{} combinations, {} different objects", combinations.len(), all.len());
        // Pods follow the restricted Pod Security Standard.
        apply(&hub, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})).await?;
        for object in all.values() {
            let pod = if object["kind"] == "Pod" {
                object["spec"].clone()
            } else {
                object["spec"]["template"]["spec"].clone()
            };
            if pod.is_null() {
                continue;
            }
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "restricted"}, "spec": pod});
            pod["spec"]["serviceAccountName"] = Value::Null;
            // The namespace has no quota for critical Pods.
            pod["spec"]["priorityClassName"] = Value::Null;
            let (accepted, output) = hub.try_apply(&pod, DRY_RUN).await;
            assert!(accepted || output.contains("error looking up service account"), "{output}");
        }
        Ok(())
    });
}

#[test]
fn chart_installs_upgrades_rolls_back_and_uninstalls() {
    run(async {
        let hub = Cluster::spoke("chart").await?;
        namespace(&hub, NAMESPACE).await?;
        // Objects of the control plane itself appear a little later.
        let begun = Instant::now();
        let mut there = objects(&hub.client()).await?;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = objects(&hub.client()).await?;
            if now == there && now.contains(&format!("ServiceAccount. {NAMESPACE}/default")) {
                break;
            }
            assert!(begun.elapsed() < INSTALL, "the control plane did not finish");
            there = now;
        }
        let common = ["-n", NAMESPACE, "--wait", "--timeout", "2m"];
        let helm = async |arguments: &[&str]| hub.helm(&[arguments, &common[..]].concat()).await;
        // Its Pods of a critical class have no quota.
        let class = "knative_operator.operator_webhook.priorityClassName=";
        helm(&["install", "knative-operator", &last_release::chart(), "--set-string", class]).await?;
        helm(&[
            "upgrade",
            "knative-operator",
            &chart(),
            "--set",
            "networkPolicy.enabled=true,knative_operator.operator_webhook.replicas=3",
        ])
        .await?;
        let notes = hub.helm(&["get", "notes", "knative-operator", "-n", NAMESPACE]).await?;
        // First steps are for an installation (`documents::commands_of_the_charts_notes_work`).
        assert!(notes.contains("helm test") && !notes.contains("kubectl apply"), "{notes}");
        helm(&["rollback", "knative-operator", "1"]).await?;
        helm(&["upgrade", "knative-operator", &chart()]).await?;
        hub.helm(&["uninstall", "knative-operator", "-n", NAMESPACE, "--wait"]).await?;
        // The garbage collector deletes dependents a little later.
        let started = Instant::now();
        let mut rest = remaining(&hub, &there).await?;
        while !rest.is_empty() && started.elapsed() < INSTALL {
            tokio::time::sleep(Duration::from_millis(500)).await;
            rest = remaining(&hub, &there).await?;
        }
        assert!(rest.is_empty(), "left behind: {rest:#?}");
        hub.kubectl(
            &["get", "crd", "knativeservings.operator.knative.dev", "knativeeventings.operator.knative.dev"],
            "",
        )
        .await?;
        Ok(())
    });
}

/// Alerts and dashboard use metrics that `product` exports.
async fn check_monitoring(product: &Product) -> Result<()> {
    let (webhook, _) = product.webhook.as_ref().ok_or("no webhook")?;
    let mut output = String::new();
    for pod in [&product.operator, webhook] {
        output += &http::get((pod.address, 9090).into(), "/metrics").await?.1;
    }
    let folder = tools::project().join("charts/knative-operator/files");
    let asked: String =
        ["alerts.yaml", "dashboard.json"].iter().map(|f| std::fs::read_to_string(folder.join(f)).unwrap()).collect();
    let words = asked.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = |word: &&str| {
        ["knative_operator_", "webhook_", "admission_"].iter().any(|p| word.starts_with(p))
            && word.matches('_').count() > 1
            // `e2e::knative_fleet` checks those.
            && !word.starts_with("knative_operator_fleet_")
    };
    let metrics: BTreeSet<&str> = words.filter(ours).collect();
    assert!(metrics.len() > 12, "{metrics:?}");
    for metric in metrics {
        let family = ["_bucket", "_total"].iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
        assert!(output.contains(&format!("# TYPE {family} ")), "no process has the metric {metric}");
    }
    Ok(())
}

/// Rules of a role, split by group, resource and verb.
fn granted(role: &Value) -> BTreeSet<(String, String, String)> {
    let words = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                all.extend(words(&rule["verbs"]).into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    all
}

#[test]
fn permissions_are_used() {
    run(async {
        let (hub, plugins, releases) = (Cluster::hub("rights").await?, tempfile::tempdir()?, releases::small());
        let product = Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?;
        // A resource for a spoke without credential.
        let access = json!([{"name": "secretreader", "cluster": {"server": "https://127.0.0.1:1",
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "nobody"}}]}}]);
        product::profile(&hub, "elsewhere", &access).await?;
        namespace(&hub, "elsewhere").await?;
        let elsewhere =
            resource(Component::Eventing, "elsewhere", "elsewhere", Some("elsewhere"), nothing_to_install());
        apply(&hub, &elsewhere).await?;
        has_condition(&hub, &elsewhere, "TargetClusterResolved", "AccessProviderFailed", "").await?;
        for component in Component::ALL {
            namespace(&hub, component.canonical()).await?;
            let version = if component == Component::Serving { releases.serving } else { releases.eventing };
            let installed =
                resource(component, component.canonical(), component.canonical(), None, json!({"version": version}));
            apply(&hub, &installed).await?;
            ready(&hub, &installed).await?;
            check_monitoring(&product).await?;
            delete(&hub, &installed).await?;
        }
        delete(&hub, &elsewhere).await?;
        drop(product);
        measure::complete(&hub.client(), &hub.dir().join("audit.log")).await?;
        let log = std::fs::read_to_string(hub.dir().join("audit.log"))?;
        for (account, roles) in [
            ("knative-operator", ["knative-operator", "knative-operator"]),
            ("operator-webhook", ["operator-webhook", "operator-webhook"]),
        ] {
            let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
            let asked: Vec<Value> = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .filter(|e| e["user"]["username"] == user.as_str())
                .collect();
            let forbidden: Vec<_> = asked
                .iter()
                .filter(|e| e["responseStatus"]["code"] == 403)
                .map(|e| e["requestURI"].to_string())
                .collect();
            assert!(forbidden.is_empty(), "{user} is refused: {forbidden:?}");
            let mut unused = BTreeSet::new();
            for (kind, name) in ["role", "clusterrole"].into_iter().zip(roles) {
                let role: Value = hub.object(kind, NAMESPACE, name).read().await?;
                unused.extend(granted(&role));
            }
            for event in &asked {
                let reference = &event["objectRef"];
                let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
                let sub = text("subresource");
                let resource = if sub.is_empty() { text("resource") } else { format!("{}/{sub}", text("resource")) };
                unused.remove(&(text("apiGroup"), resource, event["verb"].as_str().unwrap_or_default().to_owned()));
            }
            let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (group, resource, verb) in unused {
                shown
                    .entry(if group.is_empty() { resource } else { format!("{resource}.{group}") })
                    .or_default()
                    .push(verb);
            }
            let lines: Vec<_> =
                shown.iter().map(|(resource, verbs)| format!("  {resource}: {}", verbs.join(" "))).collect();
            eprintln!("granted to {account} and not needed by this run:\n{}", lines.join("\n"));
        }
        Ok(())
    });
}
