//! The real Go operator (knative/operator): the chart and the processes of its Go module, on a hub.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knative_operator_shared::api::Component;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::apart::Apart;
use crate::cluster::Cluster;
use crate::kubelet::{self, Images, Pod};
use crate::product::{FLEET, NAMESPACE};
use crate::releases::Releases;
use crate::{Result, tools, wait};

/// User of its operator on the hub.
pub const USER: &str = "system:serviceaccount:knative-operator:knative-operator";
/// Prefix of the Leases of its reconcilers.
const LEASES: &str = "knative-operator.knative.dev.operator.pkg.reconciler.";
/// One of its Leases.
pub const LEASE: &str = "knative-operator.knative.dev.operator.pkg.reconciler.knativeserving.reconciler.00-of-01";
/// Its version, which its chart and its images have.
pub const VERSION: &str = "1.23.0";
/// Time limit until its processes work.
const READY: Duration = wait::LIMIT;
/// Its images, in the default values of its chart.
const IMAGES: [&str; 2] = [
    "gcr.io/knative-releases/knative.dev/operator/cmd/operator",
    "gcr.io/knative-releases/knative.dev/operator/cmd/webhook",
];

/// Knative's releases in its module.
pub fn releases() -> Result<Releases> {
    let dir = tools::go_operator_module()?.join("cmd/operator/kodata").canonicalize()?;
    Ok(Releases { dir, real: true, serving: "1.22.1", eventing: "1.22.2" })
}

/// Text of the default values of its chart, as released.
pub fn default_values() -> Result<String> {
    let file = tools::go_operator_module()?.join("config/charts/knative-operator/values.yaml");
    Ok(std::fs::read_to_string(file)?.replace("{{ tag }}", &format!("v{VERSION}")))
}

/// Values of its chart: multi-cluster support with the official credential plugin.
pub fn multicluster_values() -> Value {
    json!({"knative_operator": {"multicluster": {
        "enabled": true,
        "accessProvidersConfig": {"providers": [{"name": "secretreader", "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/access-plugins/secretreader/bin/secretreader-plugin",
            "interactiveMode": "Never",
            "provideClusterInfo": true,
        }}]},
        "plugins": [{"name": "secretreader", "image": format!("{}:test", kubelet::PLUGIN_IMAGE), "mountPath": "/access-plugins/secretreader"}],
        // Half a second instead of ten.
        "remoteDeploymentsPollInterval": "500ms",
    }}})
}

/// Writes its chart into `folder` as its release script does: with version and tag.
pub fn chart(folder: &Path) -> Result<()> {
    tools::copy(&tools::go_operator_module()?.join("config/charts/knative-operator"), folder)?;
    std::fs::write(folder.join("values.yaml"), default_values()?)?;
    let file = folder.join("Chart.yaml");
    let text = std::fs::read_to_string(&file)?.replace("{{ version }}", VERSION);
    Ok(std::fs::write(file, text)?)
}

/// The objects of its chart, as in its released manifest. `multicluster`: with multi-cluster
/// support.
pub fn objects(multicluster: bool) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    chart(folder.path())?;
    let values = folder.path().join("more.json");
    let more = if multicluster { multicluster_values() } else { json!({}) };
    std::fs::write(&values, more.to_string())?;
    let output = Command::new(tools::control_plane("helm")?)
        .args(["template", "knative-operator", "--namespace", NAMESPACE])
        .arg(folder.path())
        .arg("--values")
        .arg(values)
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let mut all: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?;
    all.retain(Value::is_object);
    Ok(all)
}

/// Deletes the Leases of a webhook that was killed, which would stay valid for a minute.
async fn forget_webhook(hub: &Cluster) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(hub.client(), NAMESPACE);
    let names = leases.list(&ListParams::default()).await?.into_iter().map(|lease| lease.name_any());
    for name in names.filter(|name| !name.starts_with("knative-operator")) {
        leases.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Its installation on a hub, and its processes.
pub struct GoOperator {
    apart: Apart,
    images: Images,
    kodata: String,
    operator: Option<Pod>,
    webhook: Option<Pod>,
}

impl GoOperator {
    /// Installs its chart on `hub` and starts its processes; for `spokes`, with multi-cluster
    /// support.
    pub async fn install(hub: &Cluster, spokes: &[&Cluster]) -> Result<Self> {
        let folder = hub.dir().join("go-chart");
        chart(&folder)?;
        let values = folder.join("more.json");
        let more = if spokes.is_empty() { json!({}) } else { multicluster_values() };
        std::fs::write(&values, more.to_string())?;
        if !spokes.is_empty() {
            let crd = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
            hub.kubectl(&["apply", "-f", "-"], &crd).await?;
            hub.namespace(FLEET).await?;
        }
        let (folder, values) = (folder.display().to_string(), values.display().to_string());
        let place = ["--namespace", NAMESPACE, "--create-namespace"];
        let mut arguments = vec!["install", "knative-operator", &folder, "--values", &values];
        arguments.extend(place);
        arguments.extend(["--wait", "--timeout", "2m"]);
        hub.helm(&arguments).await?;
        Self::start_on(hub, spokes).await
    }

    /// Starts the processes of its installation on `hub`, which reach `spokes`.
    pub async fn start_on(hub: &Cluster, spokes: &[&Cluster]) -> Result<Self> {
        let plugins = hub.dir().join("official-plugins");
        tools::official_plugins(&plugins)?;
        let mut images: Images = [(kubelet::PLUGIN_IMAGE.to_owned(), plugins)].into();
        for (image, program) in IMAGES.into_iter().zip(["operator", "webhook"]) {
            images.insert(image.to_owned(), tools::go_operator(program)?.canonicalize()?);
        }
        let mut clusters = vec![hub];
        clusters.extend(spokes);
        let apart = Apart::open(hub.dir(), &clusters)?;
        let kodata = releases()?.dir.display().to_string();
        let mut started = Self { apart, images, kodata, operator: None, webhook: None };
        started.start(hub).await?;
        Ok(started)
    }

    /// Starts the processes and waits until they work: until the operator has its Leases and the
    /// definitions have the authority of the webhook.
    pub async fn start(&mut self, hub: &Cluster) -> Result<()> {
        forget_webhook(hub).await?;
        let began = k8s_openapi::jiff::Timestamp::now();
        self.webhook = Some(self.pod(hub, "operator-webhook").await?);
        self.operator = Some(self.pod(hub, "knative-operator").await?);
        self.working(hub, began).await.map_err(|error| {
            let log = |pod: &Option<Pod>| pod.as_ref().map(|pod| pod.process.log()).unwrap_or_default();
            format!("{error}\n{}\n{}", log(&self.operator), log(&self.webhook)).into()
        })
    }

    async fn working(&self, hub: &Cluster, began: k8s_openapi::jiff::Timestamp) -> Result<()> {
        let renewed = |spec: &LeaseSpec| spec.renew_time.as_ref().is_some_and(|time| time.0 >= began);
        let leads = |lease: Option<&Lease>| {
            let spec = lease.and_then(|lease| lease.spec.as_ref());
            spec.is_some_and(|s| renewed(s) && s.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty()))
        };
        let converts = |definition: Option<&CustomResourceDefinition>| {
            let conversion = definition.and_then(|d| d.spec.conversion.as_ref());
            let config = conversion.and_then(|c| c.webhook.as_ref()?.client_config.as_ref());
            config.is_some_and(|config| config.ca_bundle.is_some())
        };
        for component in Component::ALL {
            let name = component.kind().to_lowercase();
            let lease = format!("{LEASES}{name}.reconciler.00-of-01");
            wait::until(&Api::namespaced(hub.client(), NAMESPACE), &lease, READY, "acquired", leads).await?;
            let definition = format!("{}.operator.knative.dev", component.plural());
            wait::until(&Api::all(hub.client()), &definition, READY, "with its authority", converts).await?;
        }
        Ok(())
    }

    async fn pod(&self, hub: &Cluster, name: &str) -> Result<Pod> {
        // By default, its client sends at most 10 requests per second.
        let more = [("KO_DATA_PATH", self.kodata.as_str()), ("KUBE_API_QPS", "500"), ("KUBE_API_BURST", "500")];
        kubelet::start_apart(hub, NAMESPACE, name, &self.images, &more, &self.apart).await
    }

    /// Ends the processes as Kubernetes does: the operator releases its Leases.
    pub fn stop(&mut self) -> Result<()> {
        self.webhook = None;
        if let Some(mut operator) = self.operator.take() {
            operator.process.signal(Signal::TERM)?;
            operator.process.wait()?;
        }
        Ok(())
    }

    /// Log of the operator.
    pub fn log(&self) -> String {
        self.operator.as_ref().map(|pod| pod.process.log()).unwrap_or_default()
    }

    /// Makes the processes that start from now on use the releases in `folder`.
    pub fn use_releases(&mut self, folder: &Path) {
        self.kodata = folder.display().to_string();
    }

    /// Waits until the operator ends by itself; returns its exit code.
    pub async fn ends(&mut self, limit: Duration) -> Result<i32> {
        let (started, pod) = (Instant::now(), self.operator.as_mut().ok_or("it does not run")?);
        // Polled: a process of another process can't be waited for.
        loop {
            match pod.process.ended() {
                Some(code) => return Ok(code),
                None if started.elapsed() > limit => return Err(format!("it runs after {limit:?}").into()),
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}
