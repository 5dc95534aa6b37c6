//! Whether the nodes of a cluster can pull the images of an installation, by a Pod that runs for
//! this only.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::post_as;
use knative_operator_shared::api::Component;
use kube::api::DeleteParams;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::check::{Finding, Outcome};
use super::pull_pod::{NAME, Progress, Pull, progress};
use super::refusals;
use crate::command::output::PROGRAM;
use crate::spoke_role::Covered;

/// Time limit of a Pod: large images over a slow connection need more than a minute.
const LIMIT: Duration = Duration::from_secs(120);
/// Interval at which its status is read: that needs no permission to watch.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of its creation, and of its deletion with all tries.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// Namespace of the Pod if that of the installation doesn't exist, and no pull Secret is needed.
const ELSEWHERE: &str = "default";

/// Runs Pods, and deletes each of them, also after Ctrl+C.
pub struct Pulls {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pulls {
    /// Until `stop` is canceled.
    pub fn until(stop: CancellationToken) -> Self {
        Self { tasks: TaskTracker::new(), stop }
    }

    /// Waits until all Pods are deleted.
    pub async fn end(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Whether nodes of `client`'s cluster can pull the images of `covered`. `absent`: why its
    /// namespace can't be used.
    pub async fn finding(&self, client: &Client, covered: &Covered, absent: Option<&str>) -> Finding {
        let component = covered.resource.component();
        let Some(pull) = Pull::of(&covered.plan) else {
            return Finding::skipped(format!("{component} has no images"));
        };
        let namespace = match absent {
            None => covered.resource.target_namespace(),
            Some(why) if pull.has_secrets() => {
                return Finding::skipped(format!("{component}: {why}, and the pull Secrets are there"));
            }
            Some(_) => ELSEWHERE,
        };
        let namespace = namespace.to_owned();
        let run = Run { client: client.clone(), namespace, component, pull, stop: self.stop.clone() };
        // A task of its own deletes the Pod also if nobody waits for it any more.
        let finding = self.tasks.spawn(run.run()).await;
        finding.unwrap_or_else(|error| Finding::failed(format!("{component}: {error}")))
    }
}

/// A Pod.
struct Run {
    client: Client,
    namespace: String,
    component: Component,
    pull: Pull,
    stop: CancellationToken,
}

impl Run {
    async fn run(self) -> Finding {
        // Known before the creation: its answer may be lost.
        let name = format!("{NAME}-{:x}-{:x}", std::process::id(), Timestamp::now().as_nanosecond());
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let pod = match serde_json::from_value(self.pull.pod(&self.namespace, &name)) {
            Ok(pod) => pod,
            Err(error) => return self.failed(&error.to_string()),
        };
        let parameters = post_as(PROGRAM);
        let created = tokio::time::timeout(REQUEST_LIMIT, pods.create(&parameters, &pod)).await;
        let finding = match created {
            Ok(Ok(_)) => tokio::select! {
                biased;
                () = self.stop.cancelled() => Finding::skipped(format!("{}: interrupted", self.component)),
                finding = self.follow(&pods, &name) => finding,
            },
            Ok(Err(kube::Error::Api(status))) if status.code < 500 => {
                return refusals::image_pull(self.component, &kube::Error::Api(status).into());
            }
            Ok(Err(error)) => self.failed(&error_text(&error)),
            Err(_) => self.failed(&format!("the API server did not create a Pod within {REQUEST_LIMIT:?}")),
        };
        match delete(&pods, &name).await {
            Ok(()) => finding,
            Err(why) => {
                let left = format!("Pod {}/{name} is left, because it could not be deleted: {why}", self.namespace);
                let outcome = finding.outcome.max(Outcome::Warning);
                Finding { outcome, detail: format!("{}; {left}", finding.detail) }
            }
        }
    }

    fn failed(&self, why: &str) -> Finding {
        Finding::failed(format!("{}: {why}", self.component))
    }

    /// What the status of the Pod `name` tells in time.
    async fn follow(&self, pods: &Api<Pod>, name: &str) -> Finding {
        let (deadline, component) = (Instant::now() + LIMIT, self.component);
        let mut last = String::new();
        loop {
            match tokio::time::timeout_at(deadline, pods.get_opt(name)).await {
                Ok(Ok(None)) => return self.failed("somebody deleted the Pod that pulls the images"),
                Ok(Ok(Some(pod))) => match read(&pod) {
                    Ok(Progress::Pulled) => {
                        return Finding::passed(format!("a node can pull for {component} {}", self.pull.images()));
                    }
                    Ok(Progress::Present(why)) => {
                        let why = why.join("; ");
                        return Finding::warning(format!(
                            "{component}: the node has the images, but can't pull them, as another node has to: {why}"
                        ));
                    }
                    Ok(Progress::Failed(why)) => return self.failed(&why.join("; ")),
                    Ok(Progress::Waiting(why)) => last = why,
                    Err(error) => last = error.to_string(),
                },
                Ok(Err(error)) => last = error_text(&error),
                Err(_) => {}
            }
            if Instant::now() + INTERVAL >= deadline {
                let why = if last.is_empty() { String::new() } else { format!(": {last}") };
                return self.failed(&format!("no node pulled {} within {LIMIT:?}{why}", self.pull.images()));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

fn read(pod: &Pod) -> serde_json::Result<Progress> {
    Ok(progress(&serde_json::from_value(serde_json::to_value(pod)?)?, Timestamp::now()))
}

/// Deletes the Pod `name` at once: nothing of it runs. The error is the last one.
async fn delete(pods: &Api<Pod>, name: &str) -> Result<(), String> {
    let deadline = Instant::now() + REQUEST_LIMIT;
    let mut last = format!("no answer within {REQUEST_LIMIT:?}");
    while let Ok(answer) =
        tokio::time::timeout_at(deadline, pods.delete(name, &DeleteParams::default().grace_period(0))).await
    {
        match answer {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => last = error_text(&error),
        }
        if Instant::now() + INTERVAL >= deadline {
            break;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use knative_operator_objects::plan::{Plan, Rendered};
    use knative_operator_objects::{CompactObject, Owner};
    use knative_operator_shared::api::{Knative, KnativeServing};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A cluster whose node reports the state of a container, or a list of states of several, with
    /// what was asked of it.
    #[derive(Clone)]
    struct Asked(Arc<Mutex<Vec<Method>>>, Value, u16);

    impl Asked {
        fn client(&self) -> Client {
            let asked = self.clone();
            let answer = move |request: Request<Body>| std::future::ready(asked.clone().answer(&request));
            Client::new(tower::service_fn(answer), "n")
        }

        fn answer(self, request: &Request<Body>) -> Result<Response<Body>, Infallible> {
            let Self(log, state, created) = self;
            let method = request.method().clone();
            log.lock().unwrap().push(method.clone());
            let code = if method == Method::POST { created } else { 200 };
            let states = state.as_array().cloned().unwrap_or_else(|| vec![state]);
            let named = || ["pull-0", "present-0"].into_iter().zip(&states);
            let statuses: Vec<Value> = named()
                .map(|(name, state)| json!({"name": name, "image": "r.io/a:1", "imageID": "", "ready": false, "restartCount": 0, "state": state}))
                .collect();
            let containers: Vec<Value> = named().map(|(name, _)| json!({"name": name, "image": "r.io/a:1"})).collect();
            let status = json!({"phase": "Pending", "containerStatuses": statuses});
            let spec = json!({"nodeName": "node-1", "containers": containers});
            let body = if code < 300 {
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec, "status": status})
            } else {
                json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "pods \"p\" is forbidden: User \"u\" cannot create resource \"pods\"", "reason": "Forbidden", "code": code})
            };
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = code.try_into().unwrap();
            Ok(response)
        }

        fn methods(&self) -> Vec<Method> {
            self.0.lock().unwrap().clone()
        }
    }

    async fn found(cluster: &Asked, stop: &CancellationToken, secrets: &Value, absent: Option<&str>) -> Finding {
        let pod = json!({"imagePullSecrets": secrets, "containers": [{"name": "c", "image": "r.io/a:1"}]});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"template": {"spec": pod}}});
        let resource = Knative::Serving(KnativeServing::default());
        let rendered = Arc::new(Rendered::new(vec![CompactObject::new(&object)]));
        let plan = Plan::new(rendered, &Owner::of(&resource, ""));
        let covered = Covered { resource, version: "1.22.1".parse().unwrap(), plan };
        let pulls = Pulls::until(stop.clone());
        let finding = pulls.finding(&cluster.client(), &covered, absent).await;
        pulls.end().await;
        finding
    }

    fn cluster(state: Value, created: u16) -> Asked {
        Asked(Arc::default(), state, created)
    }

    #[tokio::test]
    async fn pod_is_deleted_after_each_outcome() {
        let ended = json!({"terminated": {"exitCode": 128, "reason": "StartError"}});
        let refused = json!({"waiting": {"reason": "ErrImagePull", "message": "r.io/a:1: not found"}});
        let has = "the node has the images, but can't pull them, as another node has to";
        let present = format!("KnativeServing: {has}: cannot pull image \"r.io/a:1\": not found");
        let (open, stopped) = (CancellationToken::new(), CancellationToken::new());
        stopped.cancel();
        let all = [Method::POST, Method::GET, Method::DELETE];
        let unread = [Method::POST, Method::DELETE];
        for (state, stop, expected, methods) in [
            (ended.clone(), &open, Finding::passed("a node can pull for KnativeServing r.io/a:1"), &all[..]),
            (json!([refused, ended]), &open, Finding::warning(present), &all[..]),
            (refused, &open, Finding::failed("KnativeServing: cannot pull image \"r.io/a:1\": not found"), &all[..]),
            (json!({}), &stopped, Finding::skipped("KnativeServing: interrupted"), &unread[..]),
        ] {
            let cluster = cluster(state, 201);
            assert_eq!(found(&cluster, stop, &Value::Null, None).await, expected);
            assert_eq!(cluster.methods(), methods);
        }
        // Its creation may have succeeded nevertheless.
        let lost = cluster(json!({}), 504);
        assert_eq!(found(&lost, &open, &Value::Null, None).await.outcome, Outcome::Failed);
        assert_eq!(lost.methods(), [Method::POST, Method::DELETE]);
        let forbidden = cluster(json!({}), 403);
        let finding = found(&forbidden, &open, &Value::Null, None).await;
        assert!(finding.outcome == Outcome::Skipped && finding.detail.contains("may not create Pods"), "{finding:?}");
        assert_eq!(forbidden.methods(), [Method::POST]);
    }

    #[tokio::test]
    async fn pod_runs_elsewhere_if_it_needs_nothing_of_its_namespace() {
        let running = cluster(json!({"running": {}}), 201);
        let open = CancellationToken::new();
        let absent = Some("namespace n does not exist yet");
        assert_eq!(found(&running, &open, &Value::Null, absent).await.outcome, Outcome::Passed);
        let finding = found(&running, &open, &json!([{"name": "pull"}]), absent).await;
        let expected = "KnativeServing: namespace n does not exist yet, and the pull Secrets are there";
        assert_eq!(finding, Finding::skipped(expected));
        assert_eq!(running.methods().len(), 3);
    }
}
