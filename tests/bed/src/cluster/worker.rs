//! What runs on a real node: containerd, kubelet, kube-proxy and CoreDNS.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;

use super::Cluster;
use super::machine::{self, Machine};
use crate::kubeconfig::{User, kubeconfig};
use crate::pki::Authority;
use crate::process::Process;
use crate::proxy::ServicePort;
use crate::registry::{self, Registry};
use crate::{Result, ports, tools, wait};

/// Name of the node.
const NAME: &str = "node-1";
/// Its containers are started by this socket, which is in a folder of its own machine.
const SOCKET: &str = "unix:///run/containerd/containerd.sock";
/// Image of the container that keeps the namespaces of a Pod.
const PAUSE: &str = "registry.example/pause:1";
/// The engine of network policies.
const POLICIES: &str = "kube-router";
/// Time limit until the node is ready.
const READY: Duration = wait::LIMIT;

/// Time limit until containerd listens.
const LISTENS: Duration = Duration::from_secs(120);

/// Programs of a node in the order of their start: the kubelet needs containerd.
const PROGRAMS: [&str; 4] = ["containerd", "kubelet", "kube-proxy", "coredns"];

/// Path of a program of a node; `None` for one of the control plane.
pub(super) fn program(name: &str) -> Option<Result<PathBuf>> {
    match name {
        POLICIES => Some(tools::provided(POLICIES)),
        _ => PROGRAMS.contains(&name).then(|| Ok(tools::node()?.join(name))),
    }
}

/// Starts a machine for the cluster with folder `dir`, and makes `registry` reachable for it.
pub(super) async fn machine(dir: &Path, registry: &Registry) -> Result<(Machine, (ServicePort, SocketAddr))> {
    let name = dir.file_name().and_then(|name| name.to_str()).ok_or("a folder without a name")?;
    let machine = Machine::create(name, &dir.join("machine"), &[registry::NAME])?;
    let entry = ServicePort::open(SocketAddr::new(machine.net().outside().into(), ports::REGISTRY)).await?;
    let address = registry.address().parse()?;
    entry.to(vec![address]);
    Ok((machine, (entry, address)))
}

/// Writes the files of the node's programs.
pub(super) fn configure(dir: &Path, machine: &Machine, authority: &Authority, registry: &Registry) -> Result<()> {
    let (net, folder) = (machine.net(), machine.folder());
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
    let path = |name: &str| folder.join(name).display().to_string();
    let server = format!("https://{}:{}", net.node(), ports::API_SERVER);
    for (file, user, group) in [
        ("kubelet", format!("system:node:{NAME}"), "system:nodes"),
        ("kube-proxy", "system:kube-proxy".to_owned(), "system:node-proxiers"),
    ] {
        let issued = authority.issue(&user, Some(group), &[IpAddr::V4(net.node())], &[NAME])?;
        issued.write(folder, file)?;
        let user = User::Certificate(&issued);
        write(&format!("{file}.kubeconfig"), &kubeconfig(file, &server, &authority.pem(), "default", &user))?;
    }

    let runc = machine::find("runc").ok_or("runc is missing")?;
    let (root, certs, cni) = (path("containerd"), path("certs.d"), path("cni"));
    let plugins = tools::node()?.join("cni");
    let (runc, plugins) = (runc.display(), plugins.display());
    // Without CAP_SYS_RESOURCE, containerd may not lower the OOM score of a Pod.
    let toml = format!(
        r#"version = 3
root = "{root}"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{certs}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "{cni}"
"#
    );
    write("containerd.toml", &toml)?;
    // Images of all registries are in this one.
    std::fs::create_dir_all(folder.join("certs.d/_default"))?;
    let url = format!("https://{}:{}", registry::NAME, ports::REGISTRY);
    let authority = registry.authority();
    let hosts = format!(
        "server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = \"{}\"\n",
        authority.display()
    );
    write("certs.d/_default/hosts.toml", &hosts)?;
    std::fs::create_dir_all(folder.join("cni"))?;
    // With a point-to-point device for each Pod, traffic between Pods passes the node, which
    // translates addresses of Services.
    let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/cni-addresses",
            "ranges": [[{"subnet": net.pods()}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}},
    ]});
    write("cni/10-pods.conflist", &network.to_string())?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": SOCKET,
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": dir.join("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs", "cgroupRoot": machine.cgroup(), "failCgroupV1": false,
        "enforceNodeAllocatable": [], "failSwapOn": false,
        "clusterDNS": [net.node()], "clusterDomain": "cluster.local", "resolvConf": "",
        "tlsCertFile": path("kubelet.crt"), "tlsPrivateKeyFile": path("kubelet.key"),
        // Full disks of a developer are no reason to evict Pods.
        "evictionHard": {"memory.available": "50Mi"}, "imageGCHighThresholdPercent": 100,
        // Both nodes of a test are one machine, whose size neither of them has for itself.
        "localStorageCapacityIsolation": false,
        "serializeImagePulls": false,
        "registryPullQPS": 0,
    });
    write("kubelet.json", &kubelet.to_string())?;
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "nftables", "clusterCIDR": net.pods(), "hostnameOverride": NAME,
        "clientConnection": {"kubeconfig": path("kube-proxy.kubeconfig")},
        // The limits of the machine stay.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"syncPeriod": "30s", "minSyncPeriod": "100ms"},
    });
    write("kube-proxy.json", &proxy.to_string())?;
    // Names outside of the cluster don't exist.
    let names = format!(
        ".:53 {{\n  bind {}\n  errors\n  ready 127.0.0.1:8181\n  hosts {}/hosts {{\n    fallthrough\n  }}\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {}\n    ttl 5\n  }}\n  cache 5\n}}\n",
        net.node(),
        folder.display(),
        dir.join("kubeconfig").display(),
    );
    Ok(write("Corefile", &names)?)
}

impl Cluster {
    /// Command line of a program of the node.
    pub(super) fn worker(&self, program: &str) -> Result<Vec<String>> {
        let machine = self.machine.as_ref().ok_or("no real node")?;
        let path = |name: &str| machine.folder().join(name).display().to_string();
        Ok(match program {
            "containerd" => vec![format!("--config={}", path("containerd.toml"))],
            "kubelet" => vec![
                format!("--config={}", path("kubelet.json")),
                format!("--kubeconfig={}", path("kubelet.kubeconfig")),
                format!("--hostname-override={NAME}"),
                format!("--node-ip={}", machine.net().node()),
                format!("--root-dir={}", path("kubelet")),
            ],
            "kube-proxy" => vec![format!("--config={}", path("kube-proxy.json"))],
            "coredns" => vec![format!("-conf={}", path("Corefile"))],
            _ => return Err(format!("{program} is no program of a node").into()),
        })
    }

    /// Makes its real node get images from the server at `address`, in place of its registry. The
    /// server needs a certificate of that registry.
    pub fn pull_from(&self, address: SocketAddr) -> Result<()> {
        let (entry, _) = self.registry.as_ref().ok_or("no real node")?;
        entry.to(vec![address]);
        Ok(())
    }

    /// Makes the API server of `other` reachable from its real node and its Pods. `other` has no
    /// route to it.
    pub fn reach(&self, other: &Self) -> Result<()> {
        let (own, other) = (self.machine.as_ref(), other.machine.as_ref());
        own.ok_or("no real node")?.reach(other.ok_or("no real node")?)
    }

    /// Whether its real node has a route to that of `other`.
    pub fn has_route_to(&self, other: &Self) -> Result<bool> {
        let (own, other) = (self.machine.as_ref(), other.machine.as_ref());
        let address = other.ok_or("no real node")?.net().node();
        Ok(own.ok_or("no real node")?.sh(&format!("ip route get {address}")).is_ok())
    }

    /// Starts an engine of network policies on its real node: the firewall of kube-router. `make
    /// test-real` installs what it needs.
    pub fn enforce_policies(&mut self) -> Result<()> {
        for program in ["iptables", "iptables-save", "iptables-restore", "ipset"] {
            machine::find(program)
                .ok_or_else(|| format!("{program} is missing: run tests/package/node.sh policies"))?;
        }
        let machine = self.machine.as_ref().ok_or("no real node")?;
        let flags = [
            "--run-firewall=true".to_owned(),
            "--run-router=false".to_owned(),
            "--run-service-proxy=false".to_owned(),
            "--run-loadbalancer=false".to_owned(),
            format!("--service-cluster-ip-range={}", machine.net().services()),
            format!("--hostname-override={NAME}"),
            format!("--kubeconfig={}", self.kubeconfig().display()),
        ];
        self.run(POLICIES, &flags)
    }

    /// What the engine of network policies logged.
    pub fn log_of_policies(&self) -> String {
        self.components.get(POLICIES).map(Process::log).unwrap_or_default()
    }

    /// Kills the kubelet of its real node, until [`Cluster::restart_node`]. Containers go on.
    pub fn stop_kubelet(&mut self) -> Result<()> {
        self.components.remove("kubelet").map(drop).ok_or_else(|| "no real node".into())
    }

    /// Kills what runs of kubelet and containerd of its real node, starts them again, and waits
    /// until it is ready. Its containers go on.
    pub async fn restart_node(&mut self) -> Result<()> {
        self.machine.as_ref().ok_or("no real node")?;
        for program in ["kubelet", "containerd"] {
            drop(self.components.remove(program));
        }
        let since = Timestamp::now();
        for program in ["containerd", "kubelet"] {
            self.run(program, &self.worker(program)?)?;
        }
        self.node_ready(since).await
    }

    /// Waits until containerd listens: the kubelet does not wait for it.
    async fn containerd(&self) -> Result<()> {
        let machine = self.machine.as_ref().ok_or("no real node")?;
        let (socket, deadline) = (machine.root().join(SOCKET.trim_start_matches("unix:///")), Instant::now() + LISTENS);
        while !socket.exists() {
            if Instant::now() > deadline {
                let log = self.components.get("containerd").map(Process::log).unwrap_or_default();
                return Err(format!("containerd does not listen after {LISTENS:?}:\n{log}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Starts the programs of the node, and waits until it is ready.
    pub(super) async fn start_worker(&mut self) -> Result<()> {
        for program in PROGRAMS {
            self.run(program, &self.worker(program)?)?;
            if let Some(process) = self.components.get(program) {
                process.restart_on_failure(true)?;
            }
            if program == "containerd" {
                self.containerd().await?;
            }
        }
        self.node_ready(Timestamp::UNIX_EPOCH).await
    }

    /// Waits until the kubelet says, after `since`, that the node is ready.
    async fn node_ready(&self, since: Timestamp) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client());
        let is_ready = |node: Option<&Node>| {
            let status = node.and_then(|node| node.status.as_ref());
            let mut all = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
            all.any(|condition| {
                let is_new = condition.last_heartbeat_time.as_ref().is_some_and(|time| time.0 >= since);
                condition.type_ == "Ready" && condition.status == "True" && is_new
            })
        };
        Box::pin(wait::until(&nodes, NAME, READY, "start of real nodes", is_ready)).await.map(drop)
    }
}
