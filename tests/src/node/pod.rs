//! One Pod: its container, its status, and its end.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Volume};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::network::Network;
use super::probe;
use super::programs::Programs;
use crate::Result;
use crate::cluster::Cluster;
use crate::kubelet::container::{Mount, Spec, prepare};
use crate::kubelet::expand;
use crate::kubelet::volumes::{self, Follower, Source};
use crate::process::Process;

/// Grace period of a container.
const GRACE: Duration = Duration::from_secs(2);
/// Interval of readiness probes.
const PROBE: Duration = Duration::from_millis(500);
/// Delay before a container that ended starts again.
const RESTART: Duration = Duration::from_secs(1);
/// A container that ends so often is not started again.
const RESTARTS: u32 = 600;

/// What all Pods of a node share.
pub struct Sandbox {
    client: Client,
    network: Arc<Network>,
    programs: Programs,
    authority: String,
    dir: PathBuf,
}

/// How a container ended.
enum Outcome {
    Exited(i32),
    Deleted,
}

impl Sandbox {
    pub fn new(cluster: &Cluster, network: Arc<Network>, programs: Programs) -> Self {
        let (client, authority) = (cluster.client(), cluster.authority().to_owned());
        Self { client, network, programs, authority, dir: cluster.dir().join("pods") }
    }

    /// Runs `pod` until it is deleted, or until it is complete.
    pub async fn run(&self, pod: Pod) -> Result<()> {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let (network, connection) = (Arc::clone(&self.network), tokio::task::block_in_place(|| self.network.connect()));
        let (address, file) = connection?;
        let ran = self.containers(&api, &pod, &namespace, address, &file).await;
        if let Err(error) = &ran {
            eprintln!("Pod {namespace}/{name}: {error}");
        }
        let uid = pod.uid().unwrap_or_default();
        let is_deleted = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        await_condition(api.clone(), &name, is_deleted).await?;
        tokio::task::block_in_place(|| network.disconnect(&file));
        let preconditions = Preconditions { uid: Some(uid), ..Preconditions::default() };
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        // It may be gone.
        let _ = api.delete(&name, &now).await;
        Ok(())
    }

    async fn containers(
        &self,
        api: &Api<Pod>,
        pod: &Pod,
        namespace: &str,
        address: Ipv4Addr,
        network: &Path,
    ) -> Result<()> {
        let (name, spec) = (pod.name_any(), pod.spec.as_ref().ok_or("no spec")?);
        let container = spec.containers.first().ok_or("no container")?;
        let version = pod.labels().get("app.kubernetes.io/version").map(String::as_str).unwrap_or_default();
        let reference = container.image.as_deref().unwrap_or_default();
        let mut status = Status { api, name: &name, container: &container.name, address, restarts: 0 };
        let Some((image, further)) = self.programs.image(reference, version)? else {
            return status.running(true).await;
        };
        let dir = self.dir.join(pod.uid().unwrap_or_default());
        std::fs::create_dir_all(&dir)?;
        let environment = self.environment(pod, container, address).await?;
        let (mut mounts, _followers) = self.volumes(pod, container, namespace, &dir).await?;
        mounts.extend(further);
        let arguments: Vec<String> = container.args.iter().flatten().map(|a| expand(a, &environment)).collect();
        loop {
            let pid_file = dir.join(format!("{name}.pid"));
            let _ = std::fs::remove_dir_all(dir.join("bundle"));
            let mounts = mounts.clone();
            let spec = Spec {
                name: &name,
                pod: spec,
                container,
                image: &image,
                environment: &environment,
                arguments: &arguments,
                mounts,
                network: Some((network, &self.network.hosts)),
            };
            let runtime = tokio::task::block_in_place(|| prepare(&dir, &spec, &pid_file))?;
            let process = Process::contained(&name, &dir, &runtime.program, &runtime.arguments, &pid_file, GRACE)?;
            match status.follow(container, process).await? {
                Outcome::Deleted => return Ok(()),
                Outcome::Exited(code) if spec.pod.restart_policy.as_deref() != Some("Always") => {
                    return status.completed(code).await;
                }
                Outcome::Exited(code) if status.restarts == RESTARTS => {
                    return Err(format!("its container has ended {RESTARTS} times, with {code}").into());
                }
                Outcome::Exited(_) => tokio::time::sleep(RESTART).await,
            }
            status.restarts += 1;
        }
    }

    async fn environment(
        &self,
        pod: &Pod,
        container: &Container,
        address: Ipv4Addr,
    ) -> Result<BTreeMap<String, String>> {
        let namespace = pod.namespace().unwrap_or_default();
        let object = serde_json::to_value(pod)?;
        let (host, port) = self.network.api_server();
        let mut all = BTreeMap::from([
            ("KUBERNETES_SERVICE_HOST".to_owned(), host),
            ("KUBERNETES_SERVICE_PORT".to_owned(), port),
        ]);
        for variable in container.env.iter().flatten() {
            let source = variable.value_from.as_ref();
            let value = if let Some(field) = source.and_then(|source| source.field_ref.as_ref()) {
                match field.field_path.as_str() {
                    "status.podIP" => address.to_string(),
                    path => field_at(&object, path),
                }
            } else if let Some(key) = source.and_then(|source| source.config_map_key_ref.as_ref()) {
                let map = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace).get(&key.name).await?;
                map.data.and_then(|mut data| data.remove(&key.key)).unwrap_or_default()
            } else {
                variable.value.as_ref().map(|value| expand(value, &all)).unwrap_or_default()
            };
            all.insert(variable.name.clone(), value);
        }
        Ok(all)
    }

    /// The mounts of `container`, and what keeps them current.
    async fn volumes(
        &self,
        pod: &Pod,
        container: &Container,
        namespace: &str,
        dir: &Path,
    ) -> Result<(Vec<Mount>, Vec<Follower>)> {
        let volumes: &[Volume] = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let (mut mounts, mut followers) = (Vec::new(), Vec::new());
        for mount in container.volume_mounts.iter().flatten() {
            let volume = volumes.iter().find(|volume| volume.name == mount.name).ok_or("no such volume")?;
            let folder = dir.join("volumes").join(&volume.name);
            std::fs::create_dir_all(&folder)?;
            if let Some(source) = Source::of(volume) {
                volumes::write(&folder, &source.files(&self.client, namespace).await?)?;
                followers.push(source.follow(self.client.clone(), namespace, folder.clone(), |bytes| bytes));
            } else if volume.projected.is_some() {
                let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
                let token =
                    crate::cluster::token(&self.client, namespace, &account.unwrap_or_default(), 24 * 3600).await?;
                let files = [("token", token), ("ca.crt", self.authority.clone()), ("namespace", namespace.to_owned())];
                volumes::write(&folder, &files.map(|(name, text)| (name.to_owned(), text.into_bytes())).into())?;
            }
            mounts.push(Mount {
                source: folder,
                target: mount.mount_path.clone(),
                read_only: volume.empty_dir.is_none(),
            });
        }
        Ok((mounts, followers))
    }
}

/// The text at `path` in `object`, such as `metadata.labels['name']`.
fn field_at(object: &Value, path: &str) -> String {
    let (path, key) = match path.split_once("['") {
        Some((path, key)) => (path, Some(key.trim_end_matches("']"))),
        None => (path, None),
    };
    let mut value = path.split('.').fold(object, |value, part| &value[part]);
    if let Some(key) = key {
        value = &value[key];
    }
    value.as_str().unwrap_or_default().to_owned()
}

/// The status of a Pod.
struct Status<'a> {
    api: &'a Api<Pod>,
    name: &'a str,
    container: &'a str,
    address: Ipv4Addr,
    restarts: u32,
}

impl Status<'_> {
    /// Follows `process`: its readiness, its end, and the deletion of the Pod.
    async fn follow(&self, container: &Container, mut process: Process) -> Result<Outcome> {
        let is_deleted = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        let deleted = await_condition(self.api.clone(), self.name, is_deleted);
        let mut deleted = std::pin::pin!(deleted);
        self.running(false).await?;
        let mut was_ready = false;
        loop {
            tokio::select! {
                _ = &mut deleted => {
                    tokio::task::block_in_place(|| drop(process));
                    return Ok(Outcome::Deleted);
                }
                () = tokio::time::sleep(PROBE) => {}
            }
            if let Some(code) = process.ended() {
                if code != 0 {
                    let log = process.log();
                    let last: Vec<&str> = log.lines().rev().take(3).collect();
                    eprintln!("Pod {}: ended with {code}: {}", self.name, last.join(" | "));
                }
                return Ok(Outcome::Exited(code));
            }
            let is_ready = probe::is_ready(container, self.address).await;
            if is_ready != was_ready {
                self.running(is_ready).await?;
                was_ready = is_ready;
            }
        }
    }

    async fn running(&self, is_ready: bool) -> Result<()> {
        let state = json!({"running": {"startedAt": now()}});
        self.write("Running", is_ready, &state).await
    }

    async fn completed(&self, code: i32) -> Result<()> {
        let reason = if code == 0 { "Completed" } else { "Error" };
        let state =
            json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": now(), "finishedAt": now()}});
        self.write(if code == 0 { "Succeeded" } else { "Failed" }, false, &state).await
    }

    async fn write(&self, phase: &str, is_ready: bool, state: &Value) -> Result<()> {
        let text = if is_ready { "True" } else { "False" };
        let conditions = ["Initialized", "PodScheduled", "Ready", "ContainersReady"].map(|type_| {
            let status = if type_.ends_with("eady") { text } else { "True" };
            json!({"type": type_, "status": status, "lastTransitionTime": now()})
        });
        let ip = self.address.to_string();
        let patch = json!({"status": {"phase": phase, "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "127.0.0.1", "conditions": conditions,
            "containerStatuses": [{"name": self.container, "image": "", "imageID": "", "ready": is_ready, "started": true,
                "restartCount": self.restarts, "state": state}]}});
        match self.api.patch_status(self.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
