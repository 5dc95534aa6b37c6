//! Operator and webhook on a hub: the chart installed, its processes running, spokes registered.

mod created;
pub mod images;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Secret, Service};
use knative_operator_shared::label::{CLUSTER_PROFILE, SENT_TO};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::kubelet::{self, Images, Pod};
use crate::proxy::ServicePort;
use crate::releases::Releases;
use crate::{Result, http, tools, wait};

/// Namespace of the chart.
pub const NAMESPACE: &str = "knative-operator";
/// User of the operator on spokes.
pub const SPOKE_USER: &str = "system:serviceaccount:kube-system:knative-hub";
/// User of the operator on its hub.
pub const HUB_USER: &str = "system:serviceaccount:knative-operator:knative-operator";
/// Namespace of ClusterProfiles.
pub const FLEET: &str = "fleet-system";
/// Time limit until a process is ready.
const READY: Duration = wait::LIMIT;

/// Helm doesn't fetch the schemas of all kinds, which takes most of its time, and much of the API
/// server's. Tests of the chart and of documents run Helm without.
const UNCHECKED: &str = "--disable-openapi-validation";

/// Operator and webhook on a hub.
pub struct Product {
    /// The operator.
    pub operator: Pod,
    /// The webhook; none on a hub whose API server calls no webhooks.
    pub webhook: Option<(Pod, ServicePort)>,
    images: Images,
}

/// Values of the chart: `providers`, then the official secretreader, and the release bundle as an
/// image.
pub fn values(providers: &[Value]) -> Value {
    let mut all = providers.to_vec();
    all.push(json!({"name": "secretreader", "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/access-plugins/official/bin/secretreader-plugin",
        "provideClusterInfo": true,
    }}));
    json!({"knative_operator": {
        "multicluster": {
            "enabled": true,
            "accessProvidersConfig": {"providers": all},
            "plugins": [
                {"name": "official", "image": format!("{}:test", kubelet::PLUGIN_IMAGE), "mountPath": "/access-plugins/official"},
                {"name": "own", "image": format!("{}:test", kubelet::OWN_PLUGIN_IMAGE), "mountPath": "/access-plugins/own"},
            ],
        },
        "releases": {"image": "registry.example/releases:test"},
        "knative_operator": {"logLevel": "debug,hyper=info,hyper_util=info,rustls=info,h2=info,tower=info"},
    }})
}

/// Port of the webhook's Service: the first of these that is free. Ports below 1024 need root, and
/// webhooks of other operators often have 9443.
fn port(hub: &Cluster) -> u16 {
    let is_free = |port: &u16| TcpListener::bind((hub.subnet().address(1), *port)).is_ok();
    [443, 9443, 19443, 29443].into_iter().find(is_free).unwrap_or(443)
}

/// Values that every test needs: the release bundle as an image, and a port that this process may
/// listen on.
pub fn bundled(hub: &Cluster) -> Value {
    json!({"knative_operator": {
        "releases": {"image": "registry.example/releases:test"},
        "operator_webhook": {"servicePort": port(hub)},
    }})
}

impl Product {
    /// Installs the chart on `hub` with `values` and starts its processes. `plugins`: the folder
    /// with the test's own plugins.
    pub async fn install(hub: &Cluster, releases: &Releases, values: Value, plugins: &Path) -> Result<Self> {
        let own = [(kubelet::OWN_PLUGIN_IMAGE.to_owned(), plugins.to_owned())];
        Self::install_with(hub, releases, values, own.into()).await
    }

    /// Like [`Product::install`], with `images` in place of those of the chart.
    pub async fn install_with(hub: &Cluster, releases: &Releases, values: Value, images: Images) -> Result<Self> {
        let (chart, file) = Box::pin(prepare(hub, values)).await?;
        let arguments = [
            "install",
            "knative-operator",
            &chart,
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--values",
            &file,
            "--wait",
            "--timeout",
            "2m",
            UNCHECKED,
        ];
        hub.helm(&arguments).await?;
        Self::start(hub, releases, images).await
    }

    /// Like [`Product::install`], for tests that need no Helm release: creates what `helm template`
    /// prints, which takes a fifth of the processor time.
    pub async fn create(hub: &Cluster, releases: &Releases, values: Value, plugins: &Path) -> Result<Self> {
        let (chart, file) = Box::pin(prepare(hub, values)).await?;
        let arguments =
            ["template", "knative-operator", &chart, "--namespace", NAMESPACE, "--values", &file, "--skip-tests"];
        let rendered = hub.helm(&[&arguments[..], &tools::OFFLINE[..]].concat()).await?;
        hub.namespace(NAMESPACE).await?;
        Box::pin(created::create(hub, &rendered)).await?;
        let own = [(kubelet::OWN_PLUGIN_IMAGE.to_owned(), plugins.to_owned())];
        Self::start(hub, releases, own.into()).await
    }

    /// Upgrades the Go operator's Helm release on `hub` to the chart with `values`.
    pub async fn upgrade_release(hub: &Cluster, values: &Value) -> Result<()> {
        let file = hub.dir().join("values.json");
        std::fs::write(&file, values.to_string())?;
        let chart = tools::project().join("charts/knative-operator");
        let (chart, file) = (chart.display().to_string(), file.display().to_string());
        let place = ["--namespace", NAMESPACE, "--wait", "--timeout", "2m"];
        let mut arguments = vec!["upgrade", "knative-operator", &chart, "--values", &file, UNCHECKED];
        arguments.extend(place);
        hub.helm(&arguments).await.map(drop)
    }

    /// Starts the processes of the chart on `hub`; `more`: additional images.
    pub async fn start(hub: &Cluster, releases: &Releases, more: Images) -> Result<Self> {
        let plugins = hub.dir().join("official-plugins");
        tools::official_plugins(&plugins)?;
        let mut images = images::of_chart(&plugins);
        for image in ["registry.example/releases", kubelet::FOLDER_IMAGE] {
            images.insert(image.to_owned(), releases.dir.canonicalize()?);
        }
        images.extend(more);
        let webhook = if hub.webhooks() { Some(webhook(hub, &images).await?) } else { None };
        let operator = operator(hub, &images, &[]).await?;
        Ok(Self { operator, webhook, images })
    }

    /// Stops the operator with `signal` and waits for its end.
    pub fn stop_operator(&mut self, signal: rustix::process::Signal) -> Result<()> {
        self.operator.process.signal(signal)?;
        self.operator.process.wait().map(drop)
    }

    /// Stops the operator with `signal` and starts it again.
    pub async fn restart_operator(&mut self, hub: &Cluster, signal: rustix::process::Signal) -> Result<()> {
        self.stop_operator(signal)?;
        self.start_operator(hub).await
    }

    /// Starts the webhook again after it ended.
    pub async fn start_webhook(&mut self, hub: &Cluster) -> Result<()> {
        self.webhook = None;
        self.webhook = Some(webhook(hub, &self.images).await?);
        Ok(())
    }

    /// Starts another replica of the webhook, behind the same Service port once it is ready.
    pub async fn another_webhook(&self, hub: &Cluster) -> Result<Pod> {
        let mut pod = kubelet::start(hub, NAMESPACE, "operator-webhook", &self.images, &[]).await?;
        ready(&mut pod).await?;
        Ok(pod)
    }

    /// The same, with a wall clock that is `seconds` ahead, or behind if negative.
    pub async fn webhook_with_clock(&self, hub: &Cluster, seconds: i64) -> Result<Pod> {
        let clock = Clock::new(&hub.dir().join(format!("clock{seconds}")))?;
        clock.set(seconds)?;
        let environment = clock.environment();
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        let mut pod = kubelet::start(hub, NAMESPACE, "operator-webhook", &self.images, &environment).await?;
        ready(&mut pod).await?;
        Ok(pod)
    }

    /// Makes the first webhook and `others` answer the API server in turn.
    pub fn serve_by(&self, others: &[&Pod]) {
        let first = self.webhook.iter().map(|(pod, _)| pod);
        self.only_served_by(&first.chain(others.iter().copied()).collect::<Vec<_>>());
    }

    /// Makes only `pods` answer the API server.
    pub fn only_served_by(&self, pods: &[&Pod]) {
        if let Some((_, entry)) = &self.webhook {
            entry.to(webhook_addresses(pods));
        }
    }

    /// Starts the operator again after it ended.
    pub async fn start_operator(&mut self, hub: &Cluster) -> Result<()> {
        self.operator = operator(hub, &self.images, &[]).await?;
        Ok(())
    }

    /// The same, with the wall clock `clock`.
    pub async fn start_operator_with_clock(&mut self, hub: &Cluster, clock: &Clock) -> Result<()> {
        let environment = clock.environment();
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.operator = operator(hub, &self.images, &environment).await?;
        Ok(())
    }

    /// Starts another replica of the operator.
    pub async fn another_operator(&self, hub: &Cluster) -> Result<Pod> {
        operator(hub, &self.images, &[]).await
    }

    /// Fails if the operator panicked, or ended for another reason than the loss of its Lease, on a
    /// machine that gave it no time.
    pub fn check_operator(&self) -> Result<()> {
        let log = self.operator.process.log();
        let count = |parts: [&str; 2]| log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count();
        let starts = count([r#""message":"starting""#, r#""target":"knative_operator"#]);
        let losses = count([r#""message":"the process failed""#, "lost the Lease"]);
        if log.contains("panicked at") || starts != losses + 1 {
            return Err(format!("the operator started {starts} times, and lost its Lease {losses} times").into());
        }
        Ok(())
    }

    /// Address of the operator's metrics.
    pub fn metrics(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.operator.address), 9090)
    }
}

/// Prepares `hub` for the chart: ClusterProfiles are defined. Returns the paths of the chart and of
/// a file with `values`.
async fn prepare(hub: &Cluster, mut values: Value) -> Result<(String, String)> {
    values["knative_operator"]["operator_webhook"]["servicePort"] = json!(port(hub));
    if !hub.webhooks() {
        // Nobody records authors there, whom the operator would ask about.
        values["knative_operator"]["operator_webhook"]["authorization"] = json!("off");
    }
    let crd = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
    for definition in serde_saphyr::from_multiple::<Value>(&crd)? {
        hub.put(&definition).await?;
    }
    hub.namespace(FLEET).await?;
    let file = hub.dir().join("values.json");
    std::fs::write(&file, values.to_string())?;
    let chart = tools::project().join("charts/knative-operator");
    Ok((chart.display().to_string(), file.display().to_string()))
}

/// Where `pods` of the webhook answer the API server.
pub fn webhook_addresses(pods: &[&Pod]) -> Vec<SocketAddr> {
    pods.iter().map(|pod| SocketAddr::new(IpAddr::V4(pod.address), 8443)).collect()
}

/// Starts the operator with `extra` in its environment.
async fn operator(hub: &Cluster, images: &Images, extra: &[(&str, &str)]) -> Result<Pod> {
    let mut pod = kubelet::start(hub, NAMESPACE, "knative-operator", images, extra).await?;
    ready(&mut pod).await?;
    // One that loses its Lease, on a loaded machine, ends and starts again.
    pod.process.restart_on_failure(true)?;
    Ok(pod)
}

async fn webhook(hub: &Cluster, images: &Images) -> Result<(Pod, ServicePort)> {
    let service = Api::<Service>::namespaced(hub.client(), NAMESPACE).get("operator-webhook").await?;
    let spec = service.spec.ok_or("a Service without spec")?;
    let address: IpAddr = spec.cluster_ip.as_deref().unwrap_or_default().parse()?;
    let ports = spec.ports.unwrap_or_default();
    let port = ports.iter().find(|p| p.name.as_deref() == Some("https-webhook")).ok_or("no port https-webhook")?.port;
    let entry = ServicePort::open(SocketAddr::new(address, u16::try_from(port)?)).await?;
    let mut pod = kubelet::start(hub, NAMESPACE, "operator-webhook", images, &[]).await?;
    entry.to(vec![SocketAddr::new(IpAddr::V4(pod.address), 8443)]);
    ready(&mut pod).await?;
    Ok((pod, entry))
}

async fn ready(pod: &mut Pod) -> Result<()> {
    let failed = http::ready(pod.readiness, READY).await;
    failed.map_err(|error| match pod.process.ended() {
        Some(code) => format!("it ended with {code}:\n{}", pod.process.log()).into(),
        None => format!("{error}\n{}", pod.process.log()).into(),
    })
}

/// Registers `spoke` on `hub` as ClusterProfile `name`: a ServiceAccount with all permissions on
/// the spoke, its token in a Secret in the operator's namespace for the secretreaders, bound to the
/// profile, and a healthy profile.
pub async fn register(hub: &Cluster, spoke: &Cluster, name: &str) -> Result<()> {
    register_with_role(hub, spoke, name, "cluster-admin").await
}

/// Like [`register`], with the permissions of the ClusterRole `role` on the spoke.
pub async fn register_with_role(hub: &Cluster, spoke: &Cluster, name: &str, role: &str) -> Result<()> {
    let rights = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "knative-hub", "namespace": "kube-system"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "knative-hub"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "knative-hub", "namespace": "kube-system"}]},
    ]});
    spoke.put(&rights).await?;
    let token = spoke.token("kube-system", "knative-hub", 24 * 3600).await?;
    let bound = json!({CLUSTER_PROFILE: format!("{FLEET}/{name}")});
    let meta = json!({"name": name, "namespace": NAMESPACE, "annotations": bound});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": token}});
    hub.put(&secret).await?;
    profile(hub, name, &access(spoke, name)).await
}

/// Access to `spoke`: the official secretreader, with the token in Secret `secret`.
pub fn access(spoke: &Cluster, secret: &str) -> Value {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let (server, authority) = spoke.pod_endpoint();
    json!([{"name": "secretreader", "cluster": {
        "server": server,
        "certificate-authority-data": BASE64_STANDARD.encode(authority),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": secret}}],
    }}])
}

/// Creates ClusterProfile `name` on `hub`, healthy, with `access`, and permits it to use the Secret
/// that it names.
pub async fn profile(hub: &Cluster, name: &str, access: &Value) -> Result<()> {
    Box::pin(permit(hub, name, access)).await?;
    profile_in(hub, FLEET, name, access).await?;
    Box::pin(permit(hub, name, access)).await
}

/// Creates ClusterProfile `name` in `namespace` on `hub`, healthy, with `access`, as its author
/// does.
pub async fn profile_in(hub: &Cluster, namespace: &str, name: &str, access: &Value) -> Result<()> {
    let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": namespace, "labels": {"x-k8s.io/cluster-manager": "tests"}},
        "spec": {"displayName": name, "clusterManager": {"name": "tests"}}});
    hub.put(&profile).await?;
    status_in(hub, namespace, name, "True", access).await
}

/// Sets the status of ClusterProfile `name`, and permits it to use the Secret that it names.
pub async fn status(hub: &Cluster, name: &str, healthy: &str, access: &Value) -> Result<()> {
    Box::pin(permit(hub, name, access)).await?;
    status_in(hub, FLEET, name, healthy, access).await?;
    // Again: the operator may have connected to the former server meanwhile.
    Box::pin(permit(hub, name, access)).await
}

/// Binds the Secret that `access` names to ClusterProfile `name`, for any server, as an
/// administrator does. A Secret that names no ClusterProfile stays as it is.
async fn permit(hub: &Cluster, name: &str, access: &Value) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(hub.client(), NAMESPACE);
    let extension = &access[0]["cluster"]["extensions"][0]["extension"];
    let Some(secret) = extension["clusterName"].as_str() else { return Ok(()) };
    let Some(stored) = secrets.get_metadata_opt(secret).await? else { return Ok(()) };
    let Some(bound) = stored.annotations().get(CLUSTER_PROFILE) else { return Ok(()) };
    let own = format!("{FLEET}/{name}");
    let bound = if bound.split(',').any(|profile| profile == own) { bound.clone() } else { format!("{bound},{own}") };
    let patch = json!({"metadata": {"annotations": {CLUSTER_PROFILE: bound, SENT_TO: null}}});
    secrets.patch_metadata(secret, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop).map_err(Into::into)
}

/// Sets the status of ClusterProfile `name` in `namespace`, as its author does.
pub async fn status_in(hub: &Cluster, namespace: &str, name: &str, healthy: &str, access: &Value) -> Result<()> {
    let condition = json!({"type": "ControlPlaneHealthy", "status": healthy, "reason": "Tests",
        "message": format!("set to {healthy} by a test"), "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": namespace},
        "status": {"accessProviders": access, "conditions": [condition]}});
    hub.stored(&profile).merge_status(&profile["status"]).await
}
