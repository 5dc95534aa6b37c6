//! What users do with Serving and Eventing: an event passes from its source to a Knative Service,
//! which is scaled up and down.

use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{product, traffic};
use knative_operator_tests::{Result, http};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{ANSWER, Report};

/// Time limit until the first event arrives. After an upgrade, its source waits up to a minute for
/// the lease of the former Pod.
const EVENT: Duration = Duration::from_secs(150);
/// Time limit until a Knative Service is scaled.
const SCALED: Duration = Duration::from_secs(120);
/// The most Pods of the Knative Service that is scaled.
const PODS: usize = 5;

/// A resource in the namespace `default`.
fn resource(api: &str, kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
        .to_string()
}

/// A Broker whose events a Trigger sends to the Knative Service `hello`.
pub async fn delivered(cluster: &Cluster) -> Result<()> {
    let subscriber = json!({"ref": {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "hello"}});
    let trigger = json!({"broker": "default", "subscriber": subscriber});
    for (kind, name, spec) in [("Broker", "default", json!({})), ("Trigger", "hello", trigger)] {
        let object = resource("eventing.knative.dev/v1", kind, name, &spec);
        cluster.kubectl(&["apply", "-f", "-"], &object).await?;
    }
    for object in ["broker/default", "trigger/hello"] {
        ready(cluster, object, "default").await?;
    }
    Ok(())
}

/// An event of a PingSource passes a Broker and a Trigger to the Knative Service `hello`, whose log
/// has its content, which names `sender`.
pub async fn event(report: &mut Report, spoke: &Cluster, sender: &str) -> Result<()> {
    let data = json!({"from": sender}).to_string();
    let service = traffic::service("hello", &json!({"autoscaling.knative.dev/min-scale": "1"}));
    spoke.kubectl(&["apply", "-f", "-"], &service.to_string()).await?;
    let sink = json!({"ref": {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "name": "default"}});
    let source = json!({"schedule": "*/2 * * * * *", "contentType": "application/json", "data": data, "sink": sink});
    let source = resource("sources.knative.dev/v1", "PingSource", "ping", &source);
    ready(spoke, "ksvc/hello", "default").await?;
    delivered(spoke).await?;
    spoke.kubectl(&["apply", "-f", "-"], &source).await?;
    ready(spoke, "pingsource/ping", "default").await?;
    report.line("Broker, Trigger and PingSource are Ready");
    let begun = Instant::now();
    let logs = ["logs", "-l", "serving.knative.dev/service=hello", "-c", "user-container", "--tail=20"];
    loop {
        let text = spoke.kubectl(&logs, "").await?;
        if let Some(line) = text.lines().find(|line| line.contains("dev.knative.sources.ping") && line.ends_with(&data))
        {
            report.line(&format!("an event arrived after {:.1} s: {line}", begun.elapsed().as_secs_f64()));
            return Ok(());
        }
        if begun.elapsed() > EVENT {
            return Err(format!("no event after {EVENT:?}: {text}\n{}", product::pods(spoke).await).into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Number of running Pods of the Knative Service `busy`.
async fn pods(spoke: &Cluster) -> Result<usize> {
    let select = ["get", "pods", "-l", "serving.knative.dev/service=busy", "--field-selector=status.phase=Running"];
    let text = spoke.kubectl(&[&select[..], &["-o", "name"]].concat(), "").await?;
    Ok(text.lines().count())
}

/// A Knative Service that takes one request at a time is scaled from one Pod to five, and back.
pub async fn scaled(report: &mut Report, spoke: &Cluster) -> Result<()> {
    let scale = |key: &str| format!("autoscaling.knative.dev/{key}");
    let annotations = json!({scale("min-scale"): "1", scale("max-scale"): PODS.to_string(), scale("window"): "6s", scale("target"): "1"});
    spoke.kubectl(&["apply", "-f", "-"], &traffic::service("busy", &annotations).to_string()).await?;
    ready(spoke, "ksvc/busy", "default").await?;
    let (gateway, host) = (traffic::gateway(spoke).await?, traffic::host("busy"));
    traffic::until_answer(gateway, &host, ANSWER).await?;
    assert_eq!(pods(spoke).await?, 1);
    let begun = Instant::now();
    let mut requests = JoinSet::new();
    for _ in 0..2 * PODS {
        let host = host.clone();
        requests.spawn(async move {
            let mut failed = 0;
            loop {
                let answer = http::get_from(gateway, &host, "/?work=500ms").await;
                failed += usize::from(!matches!(answer, Ok((200, _))));
                if failed > 0 {
                    return failed;
                }
            }
        });
    }
    while pods(spoke).await? < PODS {
        assert!(begun.elapsed() < SCALED, "{}", product::pods(spoke).await);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    report.line(&format!(
        "a Knative Service is scaled from 1 to {PODS} Pods after {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    let ended = requests.try_join_next();
    assert!(ended.is_none(), "a request failed");
    requests.abort_all();
    let begun = Instant::now();
    while pods(spoke).await? > 1 {
        assert!(begun.elapsed() < SCALED, "{}", product::pods(spoke).await);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    report.line(&format!("and back to 1 after {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}
