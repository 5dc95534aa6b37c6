//! Gates of a fleet on real nodes: a Knative Service is asked, and an event has to arrive.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{product, traffic};
use knative_operator_tests::{Result, releases};
use serde_json::{Value, json};

use crate::eventing::delivered;
use crate::fleet::{clusters, status};
use crate::support::{NAMESPACE, Report, run};

/// Name of the fleet.
const NAME: &str = "prod";

/// A fleet of a canary and another cluster, which asks the Knative Service `hello` of the canary.
fn fleet(turn: &str, gates: &Value, on_failure: &str) -> Value {
    let releases = releases::best();
    let mut serving = product::serving(releases.serving);
    serving["config"]["defaults"] = json!({"revision-timeout-seconds": turn});
    let canary = json!({"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}, "gates": gates});
    json!({
        "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "placement": {"clusterSelector": {}, "namespaces": [FLEET]},
            "serving": {"spec": serving},
            "eventing": {"spec": product::eventing(releases.eventing)},
            "rollout": {"stages": [canary, {"name": "prod"}], "onFailure": on_failure},
        },
    })
}

/// An HTTP gate and an Eventing gate.
fn gates() -> Value {
    let gateway = json!({"namespace": NAMESPACE, "name": "kourier"});
    let ask = |path: &str| json!({"service": gateway, "host": traffic::host("hello"), "path": path});
    let mut answers = ask("/");
    answers["expectedBody"] = json!("hello from hello");
    let broker = json!({"namespace": "default", "name": "default"});
    json!([
        {"name": "answers", "http": answers, "count": 2, "intervalSeconds": 1},
        {"name": "events", "event": {"broker": broker, "reply": ask("/events")}, "timeoutSeconds": 20},
    ])
}

/// A Knative Service that answers with `code`, and gets the events of a Broker. `scale` are
/// annotations of its scaling, to one Pod at most, which has the events.
async fn serve(cluster: &Cluster, code: u16, scale: &Value) -> Result<()> {
    let mut annotations = scale.clone();
    annotations["autoscaling.knative.dev/max-scale"] = json!("1");
    let mut service = traffic::service("hello", &annotations);
    let container = &mut service["spec"]["template"]["spec"]["containers"][0];
    container["env"] =
        json!([{"name": "ANSWER", "value": "hello from hello"}, {"name": "CODE", "value": code.to_string()}]);
    cluster.kubectl(&["apply", "-f", "-"], &service.to_string()).await?;
    ready(cluster, "ksvc/hello", "default").await?;
    delivered(cluster).await
}

/// Applies `fleet`, and waits for `condition`.
async fn rolled(hub: &Cluster, fleet: &Value, condition: &str) -> Result<()> {
    hub.kubectl(&["apply", "-f", "-"], &fleet.to_string()).await?;
    let generation =
        hub.kubectl(&["get", "knativefleet", NAME, "-n", NAMESPACE, "-o=jsonpath={.metadata.generation}"], "").await?;
    let place = ["wait", "knativefleet/prod", "-n", NAMESPACE, "--timeout=240s"];
    for what in [format!("--for=jsonpath={{.status.observedGeneration}}={generation}"), format!("--for={condition}")] {
        if let Err(error) = hub.kubectl(&[&place[..], &[&what]].concat(), "").await {
            return Err(format!("{error}\n{}\n{}", status(hub).await?, product::pods(hub).await).into());
        }
    }
    Ok(())
}

/// The value of a key that the fleet changes, on `cluster`.
async fn turn(cluster: &Cluster) -> Result<String> {
    let path = "-o=jsonpath={.data.revision-timeout-seconds}";
    cluster.kubectl(&["get", "configmap", "config-defaults", "-n", NAMESPACE, path], "").await
}

#[test]
fn canary_that_answers_500_stops_the_rollout() {
    run(async {
        let mut report = Report::new();
        let (hub, spoke) = clusters("gates").await?;
        rolled(&hub, &fleet("301", &json!([]), "Pause"), "condition=Ready").await?;
        report.line("Serving and Eventing are Ready on both clusters of the fleet");
        serve(&spoke, 200, &json!({"autoscaling.knative.dev/window": "6s"})).await?;
        // The first gate measures the way from zero.
        traffic::scaled_to_zero(&spoke, "hello").await?;
        report.line("the Knative Service has no Pod");
        rolled(&hub, &fleet("302", &gates(), "Pause"), "condition=Ready").await?;
        assert_eq!([turn(&spoke).await?, turn(&hub).await?], ["302", "302"]);
        report.line("a change passed both gates, and is rolled out");

        serve(&spoke, 500, &json!({"autoscaling.knative.dev/min-scale": "1"})).await?;
        rolled(&hub, &fleet("303", &gates(), "Pause"), "condition=Paused").await?;
        assert_eq!([turn(&spoke).await?, turn(&hub).await?], ["303", "302"]);
        let text = status(&hub).await?;
        report.line(&format!("the canary answers 500:\n{text}"));
        assert!(text.contains("GateFailed") && text.contains("HTTP 500, not 200"), "{text}");
        report.line(&hub.kubectl(&["describe", "knativefleet", NAME, "-n", NAMESPACE], "").await?);

        let reason = r#"jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=RolledBack"#;
        rolled(&hub, &fleet("304", &gates(), "Rollback"), reason).await?;
        assert_eq!([turn(&spoke).await?, turn(&hub).await?], ["302", "302"]);
        report.line(&format!("with Rollback, it returned:\n{}", status(&hub).await?));
        Ok(())
    });
}
