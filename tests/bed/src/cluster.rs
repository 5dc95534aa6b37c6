//! A control plane.

pub mod apply;
mod faults;
mod flags;
pub mod machine;
pub mod objects;
pub mod pool;
mod put;
mod state;
mod worker;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, Config};
use serde_json::json;
use tempfile::TempDir;

use self::machine::Machine;
use crate::kubeconfig::{User, kubeconfig};
use crate::pki::Issued;
use crate::process::Process;
use crate::proxy::ServicePort;
use crate::registry::Registry;
use crate::subnet::Subnet;
use crate::waits::timed;
use crate::{Result, admission, audit, command, disk, memory, pki, ports, texts, tools, wait};

/// Settings of a control plane.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Whether the API server calls admission webhooks. Knative's have no Pods on spokes.
    pub webhooks: bool,
    /// Namespaces whose Pods KWOK does not play.
    pub real_namespaces: &'static [&'static str],
    /// Whether its API server speaks HTTP/2, besides HTTP/1.1.
    pub http2: bool,
    /// Whether HorizontalPodAutoscalers scale simulated Pods: to their minimum, without metrics.
    pub autoscaling: bool,
    /// The registry of a real node, on which Pods run. Without, KWOK simulates both.
    pub real_node: Option<&'static Registry>,
}

impl Setup {
    /// Whether both are those of the same control plane with a simulated node.
    fn is(self, other: Self) -> bool {
        let parts = |setup: Self| (setup.webhooks, setup.real_namespaces, setup.http2, setup.autoscaling);
        parts(self) == parts(other) && self.real_node.is_none() && other.real_node.is_none()
    }

    /// KWOK simulates the node.
    pub const SIMULATED: Self =
        Self { webhooks: true, real_namespaces: &[], http2: true, autoscaling: false, real_node: None };
}

/// A running control plane. Dropping it stops its processes and removes its files, or lends it to
/// other tests (see [`pool`]).
pub struct Cluster {
    name: String,
    authority: String,
    client: Client,
    components: BTreeMap<&'static str, Process>,
    setup: Setup,
    /// Folder of other binaries than those of `tests/tools/install.sh`.
    binaries: Option<PathBuf>,
    pod_endpoint: Option<(String, String)>,
    server: Ipv4Addr,
    machine: Option<Machine>,
    registry: Option<(ServicePort, SocketAddr)>,
    /// What was stored at the start, if other tests may use it.
    start: Option<pool::Start>,
    dir: Arc<TempDir>,
    /// The last field: the subnet is free once no process listens there.
    subnet: Arc<Subnet>,
}

const KILL: Duration = Duration::ZERO;
/// Time limit of one request for readiness.
const ANSWER: Duration = Duration::from_secs(30);
/// A process that does nothing. When it ends, the cluster's folder is removed.
const FOLDER: &str = "folder";

impl Cluster {
    /// A cluster whose API server calls admission webhooks.
    pub async fn hub(name: &str) -> Result<Self> {
        Self::start(name, Setup::SIMULATED).await
    }

    /// A cluster whose API server calls no admission webhooks.
    pub async fn spoke(name: &str) -> Result<Self> {
        Self::start(name, Setup { webhooks: false, ..Setup::SIMULATED }).await
    }

    /// A cluster with a real node, which pulls images from `registry`. Its API server calls
    /// admission webhooks. [`machine::obstacle`] says why this machine can't have one.
    pub async fn real(name: &str, registry: &'static Registry) -> Result<Self> {
        Self::start(name, Setup { real_node: Some(registry), ..Setup::SIMULATED }).await
    }

    /// Starts a control plane with one node and waits until its API server is ready; or takes one
    /// that another test has used (see [`pool`]).
    pub async fn start(name: &str, setup: Setup) -> Result<Self> {
        if let Some(used) = timed("start of control planes", pool::take(name, setup)).await {
            return Ok(used);
        }
        // Both providers may be installed; only the first call matters.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = Arc::new(tools::folder(&format!("knative-{name}-"))?);
        disk::check(dir.path())?;
        let subnet = Arc::new(Subnet::take()?);
        ports::check(subnet.address(2))?;
        let path = dir.path();
        let authority = pki::Authority::new(&format!("{name}-ca"))?;
        authority.write(path)?;
        let (machine, entry) = match setup.real_node {
            Some(registry) => Some(worker::machine(path, registry).await?).unzip(),
            None => (None, None),
        };
        let (server, service) = match &machine {
            Some(machine) => (machine.net().node(), machine.net().service()),
            None => (subnet.address(2), subnet.address(129)),
        };
        let [_, a, b, _] = subnet.address(2).octets();
        let for_pods = Ipv4Addr::new(10, a, b, 1);
        authority
            .issue(
                "kube-apiserver",
                None,
                &[server, service, for_pods, Ipv4Addr::LOCALHOST].map(IpAddr::V4),
                &["localhost", "kubernetes.default.svc"],
            )?
            .write(path, "server")?;
        authority.issue("admin", Some("system:masters"), &[], &[])?.write(path, "admin")?;
        state::secure(path, subnet.address(2))?;
        pki::service_account_keys(path)?;
        admission::configure(path, &authority)?;
        let url = format!("https://{server}:{}", ports::API_SERVER);
        audit::configure(path, &authority, &url)?;
        texts::keep(&path.join("audit.log"))?;
        let client = administrator(path, name, &url, &authority.pem()).await?;
        if let (Some(machine), Some(registry)) = (&machine, setup.real_node) {
            worker::configure(path, machine, &authority, registry)?;
        }
        let mut cluster = Self {
            name: name.to_owned(),
            subnet,
            authority: authority.pem(),
            client,
            components: BTreeMap::new(),
            setup,
            binaries: None,
            pod_endpoint: None,
            server,
            machine,
            registry: entry,
            start: None,
            dir,
        };
        // No destructor runs for a value that a whole test binary shares.
        let remove = ("TETHER_REMOVE".to_owned(), cluster.dir.path().display().to_string());
        let (program, forever) = (Path::new("sleep"), ["infinity".to_owned()]);
        let folder = Process::start(FOLDER, cluster.dir.path(), program, &forever, &[remove], KILL)?;
        cluster.components.insert(FOLDER, folder);
        timed("start of control planes", cluster.run_components()).await?;
        if pool::is_open() && cluster.machine.is_none() {
            cluster.start = pool::Start::of(cluster.dir()).await;
        }
        Ok(cluster)
    }

    async fn run_components(&mut self) -> Result<()> {
        self.run("etcd", &self.etcd())?;
        self.run("kube-apiserver", &self.apiserver())?;
        self.ready().await?;
        for (component, flags) in self.controllers()? {
            self.run(component, &flags)?;
        }
        if self.machine.is_some() {
            self.start_worker().await?;
        } else {
            self.node().await?;
        }
        self.check()
    }

    /// Fails if a component ended.
    pub fn check(&mut self) -> Result<()> {
        for (component, process) in &mut self.components {
            if let Some(code) = process.ended() {
                return Err(format!("{component} ended with {code}:\n{}", tail(&process.log())).into());
            }
        }
        Ok(())
    }

    fn run(&mut self, component: &'static str, flags: &[String]) -> Result<()> {
        let other = self.binaries.as_ref().map(|folder| folder.join(component)).filter(|other| other.exists());
        let mut program = other.map_or_else(|| tools::control_plane(component), Ok)?;
        let mut flags = flags.to_vec();
        if let Some(machine) = &self.machine {
            if let Some(own) = worker::program(component) {
                program = own?;
            }
            (program, flags) = machine.command(&program, &flags);
        }
        let environment = memory::of_control_planes(pool::is_open());
        let process = Process::start(component, self.dir.path(), &program, &flags, &environment, KILL)?;
        self.components.insert(component, process);
        Ok(())
    }

    /// Waits until the API server is ready. It is polled, since nothing can be watched before that.
    async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + wait::LIMIT;
        loop {
            let request = http_get("/readyz");
            let answer = tokio::time::timeout(ANSWER, self.client.request_text(request)).await;
            if matches!(answer, Ok(Ok(text)) if text == "ok") {
                return Ok(());
            }
            // Without etcd, the API server would end later.
            self.check()?;
            if Instant::now() > deadline {
                let log = self.components.get("kube-apiserver").map(Process::log).unwrap_or_default();
                return Err(format!("kube-apiserver of {} is not ready:\n{}", self.name, tail(&log)).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn node(&self) -> Result<()> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": "node-1",
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"kubernetes.io/hostname": "node-1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            },
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"}, "capacity": {"cpu": "64", "memory": "256Gi", "pods": "500"}},
        }))?;
        Api::<Node>::all(self.client.clone()).create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its API server calls admission webhooks.
    pub fn webhooks(&self) -> bool {
        self.setup.webhooks
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig with all permissions.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Its folder: kubeconfig, certificates, logs, and the API server's audit log (`audit.log`).
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The machine of its real node.
    pub fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// Connects its real node with that of `other`: nodes and Pods of both reach each other.
    pub fn connect(&self, other: &Self) -> Result<()> {
        let (own, other) = (self.machine.as_ref(), other.machine.as_ref());
        own.ok_or("no real node")?.connect(other.ok_or("no real node")?)
    }

    /// Makes the registry of its real node reachable, or not.
    pub fn reach_registry(&self, reachable: bool) -> Result<()> {
        let (entry, address) = self.registry.as_ref().ok_or("no real node")?;
        entry.to(if reachable { vec![*address] } else { Vec::new() });
        Ok(())
    }

    /// Its part of the loopback network.
    pub fn subnet(&self) -> &Subnet {
        &self.subnet
    }

    /// Makes Pods connect to its API server through the proxy at `url` with `authority` (PEM).
    pub fn set_pod_endpoint(&mut self, url: String, authority: String) {
        self.pod_endpoint = Some((url, authority));
    }

    /// URL and authority (PEM) of its API server for Pods.
    pub fn pod_endpoint(&self) -> (String, String) {
        self.pod_endpoint.clone().unwrap_or_else(|| (self.url(), self.authority.clone()))
    }

    /// URL of its API server.
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.server, ports::API_SERVER)
    }

    /// The authority of its API server, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A token of ServiceAccount `name`, valid for `seconds`.
    pub async fn token(&self, namespace: &str, name: &str, seconds: i64) -> Result<String> {
        token(&self.client, namespace, name, seconds).await
    }

    /// Runs kubectl on it; returns stdout, or stderr as the error.
    pub async fn kubectl(&self, arguments: &[&str], stdin: &str) -> Result<String> {
        timed("kubectl", self.tool("kubectl", arguments, stdin)).await
    }

    /// Runs kubectl on it; returns whether it succeeded, and all output.
    pub async fn kubectl_output(&self, arguments: &[&str], stdin: &str) -> (bool, String) {
        match command::run("kubectl", arguments, stdin, self.dir()).await {
            Ok((well, out, err)) => (well, format!("{err}{out}")),
            Err(error) => (false, error.to_string()),
        }
    }

    /// Runs helm on it.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String> {
        timed("helm", self.tool("helm", arguments, "")).await
    }

    async fn tool(&self, tool: &str, arguments: &[&str], stdin: &str) -> Result<String> {
        let (well, out, err) = command::run(tool, arguments, stdin, self.dir()).await?;
        if well { Ok(out) } else { Err(err.trim().to_owned().into()) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(start) = self.start.take()
            && self.components.contains_key("kube-apiserver")
            && self.check().is_ok()
            && pool::lend(self, start)
        {
            return;
        }
        // All end at the same time. Then the fields wait for one after the other.
        self.components.values_mut().for_each(Process::stop);
        self.machine.iter_mut().for_each(Machine::stop);
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn http_get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).unwrap()
}

/// A token of ServiceAccount `name`, valid for `seconds`.
pub async fn token(client: &Client, namespace: &str, name: &str, seconds: i64) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec { expiration_seconds: Some(seconds), ..Default::default() }),
        ..Default::default()
    };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    answer.status.and_then(|s| s.token).ok_or_else(|| "no token".into())
}

/// Writes the kubeconfig of the administrator into the cluster's folder, where the certificate is;
/// returns a client for it.
async fn administrator(dir: &Path, name: &str, url: &str, authority: &str) -> Result<Client> {
    let read = |file: &str| std::fs::read_to_string(dir.join(file));
    let admin = Issued { certificate: read("admin.crt")?, key: read("admin.key")? };
    let path = dir.join("kubeconfig");
    std::fs::write(&path, kubeconfig(name, url, authority, "default", &User::Certificate(&admin)))?;
    client(&path).await
}

/// A client for the kubeconfig at `path`.
pub async fn client(path: &Path) -> Result<Client> {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None; // that of the environment
    Ok(Client::try_from(config)?)
}
