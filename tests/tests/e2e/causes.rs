//! Workloads that are not available: their Pods tell the cause. The test plays kubelet, with the
//! statuses that kubelet writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::{Cluster, Setup};
use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::measure::{Audit, Request};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::product::{HUB_USER, Product, values};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, releases};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::status::command;
use crate::support::{
    INSTALL, apply, condition, gone, has_condition, has_event, namespace, nothing_left, ready, resource, run, status,
    step, without_ingress,
};

const PLACE: &str = "knative-serving";
const AVAILABLE: &str = "DeploymentsAvailable";
/// Time limit until a cause is in the condition.
const LIMIT: Duration = knative_operator_tests::wait::LIMIT;

/// Statuses of containers by the label `app` of their Pod. Containers of other Pods are Ready.
type Statuses = Arc<Mutex<BTreeMap<String, Value>>>;

/// Plays kubelet for the Pods of one namespace.
struct Kubelet {
    pods: Api<Pod>,
    statuses: Statuses,
    /// Whether Pods that are being deleted end.
    ends: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelet {
    fn start(cluster: &Cluster) -> Self {
        let pods: Api<Pod> = Api::namespaced(cluster.client(), PLACE);
        let (statuses, ends) = (Statuses::default(), Arc::new(AtomicBool::new(true)));
        let (api, known, end) = (pods.clone(), Arc::clone(&statuses), Arc::clone(&ends));
        let task = tokio::spawn(async move {
            let mut events = watcher(api.clone(), watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                if let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event {
                    let ends = end.load(Ordering::Relaxed);
                    // The Pod may be gone.
                    let _ = sync(&api, &pod, &known, ends).await;
                }
            }
        });
        Self { pods, statuses, ends, task }
    }

    /// Sets the status of the container of the Pods of `app`; `Null`: it is Ready.
    async fn set(&self, app: &str, status: Value) -> Result<()> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).insert(app.to_owned(), status);
        self.sync_all().await
    }

    /// Sets whether Pods that are being deleted end.
    async fn set_ends(&self, ends: bool) -> Result<()> {
        self.ends.store(ends, Ordering::Relaxed);
        self.sync_all().await
    }

    async fn sync_all(&self) -> Result<()> {
        for pod in self.pods.list(&ListParams::default()).await? {
            let _ = sync(&self.pods, &pod, &self.statuses, self.ends.load(Ordering::Relaxed)).await;
        }
        Ok(())
    }
}

/// Writes the status of `pod`, if it differs.
async fn sync(pods: &Api<Pod>, pod: &Pod, statuses: &Statuses, ends: bool) -> Result<()> {
    if pod.metadata.deletion_timestamp.is_some() {
        // Those of Jobs drain at once.
        if ends || pod.labels().contains_key("job-name") {
            pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        }
        return Ok(());
    }
    let Some(spec) = pod.spec.as_ref().filter(|spec| spec.node_name.is_some()) else { return Ok(()) };
    let app = pod.labels().get("app").cloned().unwrap_or_default();
    let given = statuses.lock().unwrap_or_else(PoisonError::into_inner).get(&app).cloned().unwrap_or_default();
    let (is_ready, since) = (given.is_null(), "2026-01-01T00:00:00Z");
    let mut container = json!({"name": spec.containers[0].name, "image": spec.containers[0].image, "imageID": "", "ready": is_ready,
        "started": is_ready, "restartCount": 0, "state": {"running": {"startedAt": since}}, "lastState": {}});
    container
        .as_object_mut()
        .unwrap()
        .extend(given.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    let is = |type_: &str, holds: bool| json!({"type": type_, "status": if holds { "True" } else { "False" }, "lastTransitionTime": since, "reason": if holds { Value::Null } else { json!("ContainersNotReady") }});
    let status = json!({"phase": if is_ready { "Running" } else { "Pending" }, "startTime": since, "podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}],
        "conditions": [is("PodScheduled", true), is("Initialized", true), is("ContainersReady", is_ready), is("Ready", is_ready)],
        "containerStatuses": [container]});
    let own = serde_json::to_value(&pod.status)?;
    let is_same = own["containerStatuses"][0]["state"] == status["containerStatuses"][0]["state"]
        && own["containerStatuses"][0]["ready"] == is_ready
        && own["containerStatuses"][0]["restartCount"] == status["containerStatuses"][0]["restartCount"];
    if !is_same {
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    }
    Ok(())
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"state": {"waiting": {"reason": reason, "message": message}}})
}

fn crashed(code: i64, reason: &str, restarts: i64) -> Value {
    let back_off = "back-off 20s restarting failed container=webhook pod=webhook-5d9c_knative-serving(u)";
    json!({"restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": back_off}},
        "lastState": {"terminated": {"exitCode": code, "reason": reason, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z", "containerID": "containerd://c"}}})
}

/// The requests among `requests` for causes.
fn questions(requests: &[Request]) -> Vec<String> {
    let asks = |request: &&Request| {
        let resource = request.target.split('/').next().unwrap_or_default();
        !request.writes() && (resource == "pods" || resource == "events")
    };
    requests.iter().filter(asks).map(|request| format!("{} {}", request.verb, request.target)).collect()
}

/// The events with the reason `WorkloadNotReady`: note, and how often they were repeated.
async fn events(cluster: &Cluster) -> Result<Vec<(String, i32)>> {
    let events: Api<Event> = Api::namespaced(cluster.client(), PLACE);
    let all = events.list(&ListParams::default().fields("reason=WorkloadNotReady")).await?;
    Ok(all
        .into_iter()
        .map(|event| (event.message.unwrap_or_default(), event.series.and_then(|s| s.count).unwrap_or(1)))
        .collect())
}

/// The message of the condition.
async fn message(cluster: &Cluster, resource: &Value) -> Result<String> {
    let found = status(cluster, resource, LIMIT, "with conditions", |s| condition(s, AVAILABLE).is_some()).await?;
    Ok(condition(&found, AVAILABLE).and_then(|c| c.message.clone()).unwrap_or_default())
}

/// Starts a server that answers for the kubelet of the node: with the end of a log.
async fn serve_logs(cluster: &Cluster, log: &'static str) -> Result<Server> {
    let server = Server::start(&Authority::new("kubelet")?, move |_, _| {
        Answer::With("200 OK", vec!["content-type: text/plain".to_owned()], log.as_bytes().to_vec())
    })?;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": server.address.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server.address.port()}}}});
    Api::<Node>::all(cluster.client()).patch_status("node-1", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(server)
}

/// Grants the operator the permission to read logs, or not.
async fn set_log_permission(cluster: &Cluster, is_granted: bool) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let mut role = roles.get("knative-operator").await?;
    for rule in role.rules.iter_mut().flatten() {
        for resource in rule.resources.iter_mut().flatten().filter(|resource| resource.starts_with("pods/log")) {
            if is_granted { "pods/log" } else { "pods/logless" }.clone_into(resource);
        }
    }
    roles.replace("knative-operator", &PostParams::default(), &role).await?;
    Ok(())
}

/// A deletion tells until when Pods drain.
async fn draining_is_reported(cluster: &Cluster, serving: &Value, kubelet: &Kubelet) -> Result<()> {
    kubelet.set_ends(false).await?;
    let mut audit = Audit::of(cluster, HUB_USER)?;
    cluster.stored(serving).start_deletion().await?;
    let drains = |s: &KnativeStatus| {
        let message = condition(s, "InstallSucceeded").and_then(|c| c.message.clone()).unwrap_or_default();
        message.contains(" to be deleted: 2 Pods drain, until 20") && message.ends_with("Z at the latest")
    };
    let reported = status(cluster, serving, LIMIT, "draining", drains).await?;
    eprintln!("{}", condition(&reported, "InstallSucceeded").and_then(|c| c.message.clone()).unwrap_or_default());
    let mut asked = questions(&audit.take_all(&cluster.client()).await?);
    asked.dedup();
    assert_eq!(asked, ["list pods"]);
    kubelet.set_ends(true).await?;
    gone(cluster, serving).await
}

#[test]
fn causes_are_those_of_the_pods() {
    run(async {
        let setup = Setup { webhooks: false, real_namespaces: &[PLACE], ..Setup::SIMULATED };
        let cluster = Cluster::start("causes", setup).await?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let product = Product::create(&cluster, &releases, values(&[]), plugins.path()).await?;
        namespace(&cluster, PLACE).await?;
        let (before, kubelet) = (objects(&cluster.client()).await?, Kubelet::start(&cluster));
        let mut serving = resource(Component::Serving, PLACE, "ks", None, json!({"version": releases.serving}));
        without_ingress(&mut serving);
        let config = cluster.kubeconfig();
        let wait = |timeout: &'static str| ["wait", "knativeserving/ks", "-n", PLACE, "--timeout", timeout];

        // Nothing is asked while all is well.
        let (mut audit, started) = (Audit::of(&cluster, HUB_USER)?, Instant::now());
        apply(&cluster, &serving).await?;
        ready(&cluster, &serving).await?;
        let took = started.elapsed();
        let asked = questions(&audit.take_all(&cluster.client()).await?);
        eprintln!("healthy installation of {took:?}: {} questions", asked.len());
        assert!(asked.is_empty() || took > Duration::from_secs(3), "{asked:?} after {took:?}");

        // An image that does not exist, of one Deployment and of two.
        let not_found = |app: &str| {
            let image = format!("registry.example/{app}:1.1.0");
            format!(
                "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": failed to resolve image: {image}: not found"
            )
        };
        kubelet.set("webhook", waiting("ErrImagePull", &not_found("webhook"))).await?;
        let cause = "cannot pull image \"registry.example/webhook:1.1.0\": not found";
        has_condition(&cluster, &serving, AVAILABLE, "NotReady", &format!("Waiting on deployments: webhook ({cause}"))
            .await?;
        eprintln!("{}", message(&cluster, &serving).await?);
        let mut asked = questions(&audit.take_all(&cluster.client()).await?);
        eprintln!("image: {asked:?}");
        // On a loaded machine, it may be time for the next question.
        asked.dedup();
        assert_eq!(asked, ["list pods"]);
        let image = "registry.example/webhook:1.1.0";
        let back_off = format!("Back-off pulling image \"{image}\": ErrImagePull: {}", not_found("webhook"));
        kubelet.set("webhook", waiting("ImagePullBackOff", &back_off)).await?;
        let (code, text, _) = command(&config, &["status", "-n", PLACE]).await?;
        assert!(code == Some(1) && text.contains(cause) && text.contains("What to do: Check the image"), "{text}");
        let (code, _, problem) = command(&config, &wait("8s")).await?;
        assert!(code == Some(1) && problem.contains(" to be Ready: NotReady") && problem.contains(cause), "{problem}");
        kubelet.set("controller", waiting("ErrImagePull", &not_found("controller"))).await?;
        let both = "Waiting on deployments: controller, webhook (cannot pull images \"registry.example/controller:1.1.0\" and \"registry.example/webhook:1.1.0\": not found";
        has_condition(&cluster, &serving, AVAILABLE, "NotReady", both).await?;
        eprintln!("{}", message(&cluster, &serving).await?);
        kubelet.set("controller", Value::Null).await?;
        has_condition(&cluster, &serving, AVAILABLE, "NotReady", &format!("Waiting on deployments: webhook ({cause}"))
            .await?;

        // What does not end by itself ends the wait.
        kubelet.set("webhook", waiting("InvalidImageName", "Failed to apply default image tag \"A\": couldn't parse image name \"A\": invalid reference format: repository name (library/A) must be lowercase")).await?;
        has_condition(
            &cluster,
            &serving,
            AVAILABLE,
            "NotReady",
            "webhook (invalid image name \"registry.example/webhook:1.1.0\"",
        )
        .await?;
        eprintln!("{}", message(&cluster, &serving).await?);
        let started = Instant::now();
        let (code, _, problem) = command(&config, &wait("300s")).await?;
        assert_eq!(code, Some(1), "{problem}");
        assert!(
            problem
                .contains("this does not end by itself: NotReady: Waiting on deployments: webhook (invalid image name"),
            "{problem}"
        );
        assert!(problem.contains("What to do: Correct the name of the image"), "{problem}");
        assert!(started.elapsed() < LIMIT);
        eprintln!("wait: exit status 1 after {:?}: {problem}", started.elapsed());
        kubelet.set("webhook", Value::Null).await?;
        ready(&cluster, &serving).await?;

        step("a crash loop", crash_loop(&cluster, &serving, &kubelet, &mut audit)).await?;
        let log = product.operator.process.log();
        assert!(!log.contains("hunter2"), "the log of the operator has a password");

        step("draining", draining_is_reported(&cluster, &serving, &kubelet)).await?;
        nothing_left(&cluster, &before).await
    });
}

#[test]
fn job_of_a_first_installation_tells_why_it_does_not_run() {
    run(async {
        let setup = Setup { webhooks: false, real_namespaces: &[PLACE], ..Setup::SIMULATED };
        let cluster = Cluster::start("job-cause", setup).await?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let _product = Product::create(&cluster, &releases, values(&[]), plugins.path()).await?;
        namespace(&cluster, PLACE).await?;
        let kubelet = Kubelet::start(&cluster);
        // Pods of Jobs have no such label.
        kubelet.set("", crashed(1, "Error", 2)).await?;
        let mut serving = resource(Component::Serving, PLACE, "ks", None, json!({"version": releases.serving}));
        without_ingress(&mut serving);
        apply(&cluster, &serving).await?;
        // The installation does not wait for its Jobs.
        ready(&cluster, &serving).await?;
        let cause = "storage-version-migration-serving-serving-1.1.0: container \"migrate\" crashes with exit code 1";
        has_event(&cluster, PLACE, "WorkloadNotReady", cause).await
    });
}

/// A crash loop: exit code and last words, without secrets, and the same after a restart.
async fn crash_loop(cluster: &Cluster, serving: &Value, kubelet: &Kubelet, audit: &mut Audit) -> Result<()> {
    audit.take_all(&cluster.client()).await?;
    let log = "{\"severity\":\"INFO\",\"timestamp\":\"2026-01-01T00:00:00Z\",\"message\":\"start\"}\n{\"severity\":\"EMERGENCY\",\"timestamp\":\"2026-01-01T00:00:01Z\",\"logger\":\"webhook\",\"message\":\"Failed to log in\",\"error\":\"refused: password=hunter2 by 10.9.8.7\"}\n";
    let logs = serve_logs(cluster, log).await?;
    kubelet.set("webhook", crashed(1, "Error", 2)).await?;
    let words = "webhook (container \"webhook\" crashes with exit code 1; last words: \"Failed to log in: refused: password=[hidden] by POD\"";
    has_condition(cluster, serving, AVAILABLE, "NotReady", words).await?;
    let first = message(cluster, serving).await?;
    eprintln!("{first}");
    let asked = questions(&audit.take_all(&cluster.client()).await?);
    eprintln!("crash loop: {asked:?}");
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(
        asked[0] == "list pods" && asked[1].starts_with("get pods/webhook-") && asked[1].ends_with("/log"),
        "{asked:?}"
    );
    drop(logs);
    // The next question is answered by the list alone, and the message stays.
    kubelet.set("webhook", crashed(1, "Error", 3)).await?;
    let started = Instant::now();
    let mut again = Vec::new();
    // Polled: a question that changes nothing is in the audit log only.
    while again.is_empty() {
        assert!(started.elapsed() < LIMIT, "the Pods are not asked again");
        tokio::time::sleep(Duration::from_millis(500)).await;
        again.extend(questions(&audit.take_all(&cluster.client()).await?));
    }
    again.dedup();
    assert_eq!((again.as_slice(), message(cluster, serving).await?), (&["list pods".to_owned()][..], first));
    let new: Vec<_> = events(cluster).await?.into_iter().filter(|(note, _)| note.contains("exit code 1")).collect();
    eprintln!("events: {new:?}");
    assert!(
        new.len() == 1 && new[0].1 == 1 && new[0].0.starts_with("webhook: container \"webhook\" crashes"),
        "{new:?}"
    );
    kubelet.set("webhook", Value::Null).await?;
    ready(cluster, serving).await?;

    // Without the permission, the message says so.
    set_log_permission(cluster, false).await?;
    kubelet.set("webhook", crashed(2, "Error", 4)).await?;
    let denied = "crashes with exit code 2; unknown without the permission to: get pods/log in knative-serving";
    has_condition(cluster, serving, AVAILABLE, "NotReady", denied).await?;
    eprintln!("{}", message(cluster, serving).await?);
    set_log_permission(cluster, true).await?;
    kubelet.set("webhook", Value::Null).await?;
    ready(cluster, serving).await?;

    // A container that is not Ready: the answer of its probe is in an event of kubelet.
    audit.take_all(&cluster.client()).await?;
    let pods = kubelet.pods.list(&ListParams::default().labels("app=webhook")).await?;
    let pod = pods.items.first().ok_or("no Pod")?;
    let unhealthy = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "webhook.1", "namespace": PLACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "namespace": PLACE, "uid": pod.uid()}, "type": "Warning",
        "reason": "Unhealthy", "message": "Readiness probe failed: HTTP probe failed with statuscode: 503", "source": {"component": "kubelet"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 9});
    apply(cluster, &unhealthy).await?;
    kubelet
        .set("webhook", json!({"ready": false, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}))
        .await?;
    let unready = "container \"webhook\" is not ready; readiness probe: HTTP probe failed with statuscode: 503";
    has_condition(cluster, serving, AVAILABLE, "NotReady", unready).await?;
    eprintln!("{}", message(cluster, serving).await?);
    let asked = questions(&audit.take_all(&cluster.client()).await?);
    assert_eq!(asked, ["list pods", "list events"]);
    kubelet.set("webhook", Value::Null).await?;
    status(cluster, serving, INSTALL, "Ready", |s| condition(s, "Ready").is_some_and(|c| c.status == "True"))
        .await
        .map(drop)
}
