//! Gates of a `KnativeFleet`: requests through the service proxy of a real API server, and Jobs
//! with its Job controller. The Job is the document's recipe for a webhook.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use knative_operator_shared::api::KnativeFleetStatus;
use knative_operator_shared::label::FLEET_GATE;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::site::Site;
use knative_operator_tests::{Result, http, network, recipe, releases, tools, wait};
use kube::Api;
use kube::api::ListParams;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, children, fleet, has, status, two_spokes};
use crate::support::{INSTALL, apply, has_event, namespace, run};

/// Namespace on the canary of what the gates ask.
const ASKED: &str = "asked";
const HOST: &str = "hello.default.example.com";
/// The address in the recipe for a webhook.
const WEBHOOK: &str = "https://checks.example.com";

/// The Service `site` on `spoke` in front of `site`, with a Pod that has its address: an API server
/// sends requests to Pods only.
async fn serve(site: &Site, spoke: &Cluster) -> Result<()> {
    let (address, port) = (site.address.ip().to_string(), site.address.port());
    let meta = |labels: Value| json!({"name": "site", "namespace": ASKED, "labels": labels});
    let spec = json!({"nodeSelector": {"runs": "nowhere"}, "containers": [{"name": "site", "image": "registry.example/site"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(json!({})), "spec": spec});
    spoke.put(&pod).await?;
    let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
    spoke.stored(&pod).merge_status(&status).await?;
    let of = json!({"kind": "Pod", "name": "site", "namespace": ASKED});
    let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": meta(labels),
        "subsets": [{"addresses": [{"ip": address, "targetRef": of}], "ports": [{"port": port, "protocol": "TCP"}]}]});
    spoke.put(&endpoints).await?;
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": meta(json!({"kubernetes.io/service-name": "site"})),
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "targetRef": of}],
        "ports": [{"name": "", "port": port, "protocol": "TCP"}]});
    spoke.put(&slice).await?;
    // The last one, since the gate fails without endpoints.
    let ports = json!([{"port": 80, "targetPort": port, "protocol": "TCP"}]);
    spoke
        .put(&json!({"apiVersion": "v1", "kind": "Service", "metadata": meta(json!({})), "spec": {"ports": ports}}))
        .await
}

/// A fleet with a canary that has `gates`.
fn gated(version: &str, gates: &Value, on_failure: &str) -> Value {
    let mut object = fleet(&json!({"version": version, "ingress": {"kourier": {"enabled": true}}}));
    object["spec"]["rollout"] = json!({"onFailure": on_failure, "stages": [
        {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}, "gates": gates}, {"name": "prod"}]});
    object
}

fn attention(status: &KnativeFleetStatus, reason: &str, part: &str) -> bool {
    status.attention.iter().any(|entry| entry.reason == reason && entry.message.contains(part))
}

#[test]
fn canary_that_answers_500_stops_the_rollout_and_returns() {
    run(async {
        let releases = releases::small();
        let (hub, [a, _b], product, _plugins) = two_spokes(&releases, "kfleet-gates").await?;
        hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;
        namespace(&a, ASKED).await?;
        let gates = json!([{"name": "answers", "intervalSeconds": 1, "http": {
            "service": {"namespace": ASKED, "name": "site"}, "host": HOST, "path": "/healthz?full=yes", "expectedBody": "hello"}}]);
        apply(&hub, &gated("1.0.0", &gates, "Pause")).await?;

        // Without the Service, nothing can be measured: neither success nor failure.
        let part = "gates 0/1: answers can't be measured: services \"site\" not found";
        let unknown = status(&hub, "unknown", |status| attention(status, "GateUnknown", part)).await?;
        assert_eq!((unknown.failed, unknown.updated, children(&hub).await?.len()), (0, 0, 1), "{unknown:?}");
        assert!(has(&unknown, "Progressing", "RollingOut"), "{unknown:?}");
        let code = Arc::new(AtomicU16::new(200));
        let answers = Arc::clone(&code);
        let site = Site::open(network::endpoint()?, move |_| match answers.load(Ordering::Relaxed) {
            200 => (200, "hello".to_owned()),
            code => (code, "token=hunter22hunter22 is wrong".to_owned()),
        });
        let site = site.await?;
        serve(&site, &a).await?;
        let first = status(&hub, "Ready", |status| has(status, "Ready", "Ready")).await?;
        let heads = site.take_requests();
        assert_eq!(heads.len(), 1, "{heads:?}");
        let head = heads[0].to_ascii_lowercase();
        assert!(head.starts_with("get /healthz?full=yes http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nhost: {HOST}\r\n")) && !head.contains("authorization"), "{head}");

        // Knative is Ready, and answers 500: the next stage is never written.
        code.store(500, Ordering::Relaxed);
        apply(&hub, &gated("1.1.0", &gates, "Pause")).await?;
        let failed = status(&hub, "paused", |status| has(status, "Paused", "TooManyFailures")).await?;
        let part = "gates 0/1: answers failed: HTTP 500, not 200: token=[hidden] is wrong";
        assert!(attention(&failed, "GateFailed", part), "{failed:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let versions = |a: &str| vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), "1.0.0".to_owned())];
        assert_eq!(children(&hub).await?, versions("1.1.0"));
        assert_eq!(site.take_requests().len(), 1, "it is not asked again");

        // With another policy, it returns: nothing is measured again.
        apply(&hub, &gated("1.1.0", &gates, "Rollback")).await?;
        let back = status(&hub, "rolled back", |status| has(status, "Progressing", "RolledBack")).await?;
        assert_eq!(back.current_revision, first.current_revision);
        assert_eq!(children(&hub).await?, versions("1.0.0"));
        assert_eq!(site.take_requests().len(), 0);

        for reason in ["GateUnknown", "GateFailed"] {
            has_event(&hub, PLACE, reason, "").await?;
        }
        let (_, metrics) = http::get(product.metrics(), "/metrics").await?;
        let series = r#"knative_operator_fleet_gate_measurements_total{gate_type="http",result="failure"} 1"#;
        assert!(metrics.contains(series), "{metrics}");
        Ok(())
    });
}

/// The Jobs of gates in `place` on `spoke`.
async fn jobs(spoke: &Cluster, place: &str) -> Result<Vec<Job>> {
    let jobs = Api::<Job>::namespaced(spoke.client(), place);
    Ok(jobs.list(&ListParams::default().labels(FLEET_GATE)).await?.items)
}

/// What a container of a Job gets to know.
type Variables = BTreeMap<String, String>;

/// Waits for a Pod of a Job of a gate in `place`, other than `before`, and plays its kubelet: runs
/// its container with `site` in place of the address in the document. Returns the name of the Pod,
/// and the variables of the container.
async fn run_pod(spoke: &Cluster, place: &str, before: &[String], site: &Site) -> Result<(String, Variables)> {
    let api = Api::<Pod>::namespaced(spoke.client(), place);
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    let is_new = |pod: &Pod| !before.contains(&name(pod));
    let found = wait::until_all(&api, "job-name", INSTALL, "of the gate", |pods| pods.iter().any(is_new)).await?;
    let pod = found.iter().find(|pod| is_new(pod)).ok_or("no Pod")?;
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first()).ok_or("no container")?;
    let env = container.env.iter().flatten();
    let variables: Variables = env.map(|v| (v.name.clone(), v.value.clone().unwrap_or_default())).collect();
    let ended = recipe::run(&json!(container), &variables, WEBHOOK, &site.url()).await?;
    let phase = if ended.code == 0 { "Succeeded" } else { "Failed" };
    let now = "2026-01-01T00:00:00Z";
    let state = json!({"terminated": {"exitCode": ended.code, "message": ended.log, "reason": "Error", "startedAt": now, "finishedAt": now}});
    let status = json!({"phase": phase, "containerStatuses": [{"name": container.name, "image": "i", "imageID": "", "ready": false,
        "restartCount": 0, "state": state}]});
    spoke.object("Pod", place, &name(pod)).merge_status(&status).await?;
    Ok((name(pod), variables))
}

/// The variables in the table of the document that a fleet with Serving alone has.
fn documented() -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(tools::project().join(recipe::FLEETS))?;
    let rows = text.lines().filter(|line| line.starts_with("| `KNATIVE_FLEET_"));
    let names = rows.flat_map(|row| row.split('`')).filter(|name| name.starts_with("KNATIVE_FLEET_"));
    Ok(names.filter(|name| !name.contains("EVENTING")).map(str::to_owned).collect())
}

#[test]
fn job_of_the_document_stops_the_rollout_with_its_last_words() {
    run(async {
        let releases = releases::small();
        let (hub, [a, _b], mut product, _plugins) = two_spokes(&releases, "kfleet-jobs").await?;
        hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;
        let code = Arc::new(AtomicU16::new(200));
        let answers = Arc::clone(&code);
        let site = Site::open(network::endpoint()?, move |_| (answers.load(Ordering::Relaxed), String::new())).await?;
        let mut gate = recipe::gate("business-check")?;
        let place = gate["job"]["namespace"].as_str().ok_or("no namespace")?.to_owned();
        namespace(&a, &place).await?;
        // No node runs it: the test does.
        gate["job"]["spec"]["template"]["spec"]["nodeSelector"] = json!({"runs": "nowhere"});
        let gates = json!([gate]);
        apply(&hub, &gated("1.0.0", &gates, "Pause")).await?;
        let pending =
            |status: &KnativeFleetStatus| attention(status, "GatePending", "gates 0/1: business-check is measured");
        status(&hub, "measured", pending).await?;
        let api = Api::<Job>::namespaced(a.client(), &place);
        wait::until_all(&api, FLEET_GATE, INSTALL, "started", |jobs| jobs.len() == 1).await?;

        // An operator that is killed meanwhile starts no second Job.
        product.restart_operator(&hub, Signal::KILL).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(jobs(&a, &place).await?.len(), 1);
        assert_eq!(children(&hub).await?.len(), 1);
        let asked = |version: &str| format!("GET /fine?cluster=fleet-system/a&version={version} HTTP/1.1\r\n");
        let (pod, _) = run_pod(&a, &place, &[], &site).await?;
        let requests = site.take_requests();
        assert!(requests.len() == 1 && requests[0].starts_with(&asked("1.0.0")), "{requests:?}");
        let first = status(&hub, "Ready", |status| has(status, "Ready", "Ready")).await?;
        assert_eq!(jobs(&a, &place).await?.len(), 1);

        // The next one fails.
        code.store(500, Ordering::Relaxed);
        apply(&hub, &gated("1.1.0", &gates, "Pause")).await?;
        let (_, variables) = run_pod(&a, &place, &[pod], &site).await?;
        let requests = site.take_requests();
        assert!(requests.len() == 1 && requests[0].starts_with(&asked("1.1.0")), "{requests:?}");
        assert_eq!(variables.keys().cloned().collect::<BTreeSet<_>>(), documented()?);
        for (name, expected) in [
            ("NAME", Some("prod")),
            ("STAGE", Some("canary")),
            ("CLUSTER", Some("fleet-system/a")),
            ("PREVIOUS_REVISION", first.current_revision.as_deref()),
            ("SERVING_VERSION", Some("1.1.0")),
            ("PREVIOUS_SERVING_VERSION", Some("1.0.0")),
        ] {
            let value = variables.get(&format!("KNATIVE_FLEET_{name}")).map(String::as_str);
            assert_eq!(value, expected, "{name}");
        }
        let failed = status(&hub, "paused", |status| has(status, "Paused", "TooManyFailures")).await?;
        let part = "failed: container ask exited with code 22: curl: (22) The requested URL returned error: 500";
        assert!(attention(&failed, "GateFailed", part), "{failed:?}");
        let text = hub.kubectl(&["get", "kfleet", "prod", "-n", PLACE, "-o", "jsonpath={.status.attention}"], "");
        assert!(text.await?.contains(&format!("gates 0/1: business-check failed: Job {place}/gate-business-check-")));
        assert_eq!(children(&hub).await?.iter().filter(|(_, version)| version == "1.1.0").count(), 1);
        // Also after a restart, the status has the last words.
        product.restart_operator(&hub, Signal::KILL).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let same = status(&hub, "still paused", |status| has(status, "Paused", "TooManyFailures")).await?;
        assert!(attention(&same, "GateFailed", part), "{same:?}");
        assert_eq!(jobs(&a, &place).await?.len(), 2);
        Ok(())
    });
}
