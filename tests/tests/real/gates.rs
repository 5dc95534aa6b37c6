//! Gates of a fleet of two real spokes: a Knative Service is asked, and an event has to arrive.

use jiff::Timestamp;
use knative_operator_shared::label::FLEET_REVISION;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{FLEET, SPOKE_USER};
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{product, traffic};
use knative_operator_tests::{Result, http, releases};
use serde_json::{Value, json};

use crate::eventing::delivered;
use crate::fleet::{clusters, status};
use crate::support::{ANSWER, NAMESPACE, Report, run};

/// Name of the fleet.
const NAME: &str = "prod";
/// What the fleet creates for each cluster.
const CHILDREN: &str = "knativeservings,knativeeventings";

/// A fleet of a canary and another cluster, both with `gates`. The canary must be Ready for a
/// while, until the ingress sends all requests to the new Pods.
fn fleet(turn: &str, patches: &Value, gates: &Value, on_failure: &str) -> Value {
    let releases = releases::best();
    let [mut serving, eventing] = product::both([releases.serving, releases.eventing]);
    serving["config"]["defaults"] = json!({"revision-timeout-seconds": turn});
    serving["patches"] = patches.clone();
    let canary = json!({"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}},
        "minReadySeconds": 10, "gates": gates});
    json!({
        "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "placement": {"clusterSelector": {}, "namespaces": [FLEET]},
            "serving": {"spec": serving}, "eventing": {"spec": eventing},
            "rollout": {"stages": [canary, {"name": "prod", "gates": gates}], "onFailure": on_failure},
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

/// A patch that breaks the activator, through which all requests go: each is answered with 500, but
/// the probes of the kubelet.
fn broken() -> Value {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let env = [variable("PORT", "8012"), variable("CODE", "500"), variable("ANSWER", "broken")];
    let probe = json!({"httpGet": {"path": "/events"}});
    let container = json!({"name": "activator", "image": "registry.example/hello:1", "env": env,
        "readinessProbe": probe, "livenessProbe": probe});
    let content = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    json!([{"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "activator"},
        "patch": {"type": "strategic", "content": content.to_string()}}])
}

/// A Knative Service that gets the events of a Broker, scaled to zero. It has one Pod at most,
/// which has all events.
async fn serve(cluster: &Cluster) -> Result<()> {
    let annotations = json!({"autoscaling.knative.dev/window": "6s", "autoscaling.knative.dev/max-scale": "1"});
    cluster.kubectl(&["apply", "-f", "-"], &traffic::service("hello", &annotations).to_string()).await?;
    ready(cluster, "ksvc/hello", "default").await?;
    delivered(cluster).await?;
    traffic::scaled_to_zero(cluster, "hello").await
}

/// What kubectl prints of `what` in `namespace`.
async fn get(cluster: &Cluster, namespace: &str, what: &str, path: &str) -> Result<String> {
    let output = format!("-o=jsonpath={path}");
    let text = cluster.kubectl(&["get", what, "-n", namespace, "--sort-by=.metadata.name", &output], "").await?;
    Ok(text.trim().to_owned())
}

/// The value of a key that the fleet changes, on `cluster`.
async fn turn(cluster: &Cluster) -> Result<String> {
    let path = "-o=jsonpath={.data.revision-timeout-seconds}";
    cluster.kubectl(&["get", "configmap", "config-defaults", "-n", NAMESPACE, path], "").await
}

struct World {
    hub: Cluster,
    canary: Cluster,
    prod: Cluster,
    report: Report,
}

impl World {
    /// Applies `fleet`, and waits for `condition`.
    async fn rolled(&self, fleet: &Value, condition: &str) -> Result<()> {
        self.hub.kubectl(&["apply", "-f", "-"], &fleet.to_string()).await?;
        let generation = self.of_fleet("{.metadata.generation}").await?;
        let place = ["wait", "knativefleet/prod", "-n", NAMESPACE, "--timeout=420s"];
        let observed = format!("--for=jsonpath={{.status.observedGeneration}}={generation}");
        for what in [observed, format!("--for={condition}")] {
            if let Err(error) = self.hub.kubectl(&[&place[..], &[&what]].concat(), "").await {
                let pods = [product::pods(&self.canary).await, product::pods(&self.prod).await].join("\n");
                return Err(format!("{error}\n{}\n{pods}", status(&self.hub).await?).into());
            }
        }
        Ok(())
    }

    /// The fleet's value at `path`.
    async fn of_fleet(&self, path: &str) -> Result<String> {
        let output = format!("-o=jsonpath={path}");
        self.hub.kubectl(&["get", "knativefleet", NAME, "-n", NAMESPACE, &output], "").await
    }

    /// Rolls `fleet` out; all gates are measured on both clusters, and pass.
    async fn passes(&mut self, fleet: &Value) -> Result<()> {
        let mut audits = [Audit::of(&self.canary, SPOKE_USER)?, Audit::of(&self.prod, SPOKE_USER)?];
        self.rolled(fleet, "condition=Ready").await?;
        for (audit, cluster) in audits.iter_mut().zip([&self.canary, &self.prod]) {
            let requests = audit.take_all(&cluster.client()).await?;
            let to = |verb: &str, service: &str| {
                let target = format!("services/http:{service}:80/proxy");
                requests.iter().filter(|request| request.verb == verb && request.target == target).collect::<Vec<_>>()
            };
            let (answers, events) = (to("get", "kourier"), to("create", "broker-ingress"));
            assert!(answers.len() >= 3 && !events.is_empty(), "{answers:?} {events:?}");
            let (begin, end) = &answers[0].times;
            let first = end.parse::<Timestamp>()?.duration_since(begin.parse()?).as_secs_f64();
            self.report.line(&format!("both gates passed on {}: the first answer took {first:.2} s", cluster.name()));
        }
        Ok(())
    }

    /// Clusters that have the revision in `field` of the status.
    async fn with_revision(&self, field: &str) -> Result<String> {
        let revision = self.of_fleet(&format!("{{.status.{field}}}")).await?;
        let label = format!("{FLEET_REVISION}={revision}");
        let names = ["--sort-by=.spec.clusterProfileRef.name", "-o=jsonpath={.items[*].spec.clusterProfileRef.name}"];
        let select = ["get", "knativeservings", "-n", NAMESPACE, "-l", &label];
        self.hub.kubectl(&[&select[..], &names].concat(), "").await
    }

    /// What a write for the second cluster changes: generations of its resources on the hub, and,
    /// on the cluster, those of workloads and versions of ConfigMaps.
    async fn written(&self) -> Result<String> {
        let own = r#"{range .items[?(@.spec.clusterProfileRef.name=="prod")]}{.kind}={.metadata.generation} {end}"#;
        let mut all = vec![get(&self.hub, NAMESPACE, CHILDREN, own).await?];
        for namespace in [NAMESPACE, "knative-eventing"] {
            for (kind, field) in [("deployments", "generation"), ("configmaps", "resourceVersion")] {
                let path = format!("{{range .items[*]}}{{.metadata.name}}={{.metadata.{field}}} {{end}}");
                all.push(get(&self.prod, namespace, kind, &path).await?);
            }
        }
        Ok(all.join("\n"))
    }

    /// Prints and returns what people read of the fleet.
    async fn shown(&mut self, what: &str) -> Result<String> {
        let text = status(&self.hub).await?;
        let described = self.hub.kubectl(&["describe", "knativefleet", NAME, "-n", NAMESPACE], "").await?;
        self.report.line(&format!("{what}:\n{text}\n{described}"));
        Ok(text)
    }
}

#[test]
fn canary_that_answers_500_stops_the_rollout() {
    run(async {
        let report = Report::new();
        let (hub, [canary, prod]) = clusters("gates").await?;
        let mut world = World { hub, canary, prod, report };
        world.report.line("the chart is installed, two spokes are registered");
        let (none, gates) = (json!([]), gates());
        world.rolled(&fleet("301", &none, &none, "Pause"), "condition=Ready").await?;
        world.report.line("Serving and Eventing are Ready on both spokes");
        tokio::try_join!(serve(&world.canary), serve(&world.prod))?;
        // So the first gate measures the way from zero.
        world.report.line("the Knative Services have no Pod");
        world.passes(&fleet("302", &none, &gates, "Pause")).await?;
        assert_eq!([turn(&world.canary).await?, turn(&world.prod).await?], ["302", "302"]);

        let before = world.written().await?;
        for part in ["KnativeServing=", "KnativeEventing=", "activator=", "config-defaults=", "mt-broker-ingress="] {
            assert!(before.contains(part), "{part} is not in:\n{before}");
        }
        world.rolled(&fleet("302", &broken(), &gates, "Pause"), "condition=Paused").await?;
        let text = world.shown("the canary answers 500").await?;
        assert!(text.contains("GateFailed") && text.contains("HTTP 500, not 200: broken"), "{text}");
        let path = r#"{range .items[?(@.spec.clusterProfileRef.name=="canary")]}{.status.conditions[?(@.type=="Ready")].status} {end}"#;
        assert_eq!(get(&world.hub, NAMESPACE, CHILDREN, path).await?, "True True", "Knative is Ready on the canary");
        let (gateway, host) = (traffic::gateway(&world.canary).await?, traffic::host("hello"));
        let (code, body) = http::get_from(gateway, &host, "/").await?;
        assert_eq!(code, 500, "{body}");
        assert_eq!(world.with_revision("updateRevision").await?, "canary");
        assert_eq!(world.with_revision("currentRevision").await?, "prod");
        assert_eq!(world.written().await?, before, "the second cluster was written");

        let reason = r#"jsonpath={.status.conditions[?(@.type=="Progressing")].reason}=RolledBack"#;
        world.rolled(&fleet("302", &broken(), &gates, "Rollback"), reason).await?;
        world.shown("with Rollback, it returned").await?;
        assert_eq!(world.with_revision("currentRevision").await?, "canary prod");
        let (body, ..) = traffic::until_answer(gateway, &host, ANSWER).await?;
        assert_eq!(body.trim(), "hello from hello");
        assert_eq!(world.written().await?, before, "the second cluster was written");
        world.report.line("the canary answers as before; the second spoke was never written");
        // The next change is measured on both.
        world.passes(&fleet("303", &none, &gates, "Pause")).await?;
        assert_eq!([turn(&world.canary).await?, turn(&world.prod).await?], ["303", "303"]);
        Ok(())
    });
}
