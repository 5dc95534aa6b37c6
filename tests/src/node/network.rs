//! The Pod network: a bridge, and a network namespace for each Pod. Pods reach the API server and
//! Services at addresses of the bridge.
//!
//! The addresses are in 10.A.B.0/24, where A and B are those of the cluster's part of the loopback
//! network: 1 is the bridge, 2 to 127 are Pods, and 128 and above Services.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Result;
use crate::cluster::Cluster;
use crate::proxy::ServicePort;

/// Port of the API server.
const API_SERVER: u16 = 6443;

/// The Pod network of a cluster. Dropping it removes it.
pub struct Network {
    bridge: String,
    /// `10.A.B`
    prefix: [u8; 3],
    /// Hosts of all Services, which Pods mount as `/etc/hosts`.
    pub hosts: PathBuf,
    next: AtomicU8,
    namespaces: Mutex<Vec<String>>,
    _api_server: ServicePort,
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("ip: {error}; install iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}

impl Network {
    /// Creates the bridge of `cluster`.
    pub async fn open(cluster: &Cluster) -> Result<Self> {
        let server = cluster.subnet().address(2);
        let [_, a, b, _] = server.octets();
        let (bridge, prefix) = (format!("kn-{a}-{b}"), [10, a, b]);
        let address = |host: u8| Ipv4Addr::new(prefix[0], prefix[1], prefix[2], host);
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("addr add {}/25 dev {bridge}", address(1)))?;
        ip(&format!("link set {bridge} up"))?;
        // Any of these addresses is local.
        ip(&format!("route add local {}/25 dev {bridge}", address(128)))?;
        let api_server = ServicePort::open(SocketAddr::new(address(1).into(), API_SERVER)).await?;
        api_server.to(vec![SocketAddr::new(server.into(), API_SERVER)]);
        let hosts = cluster.dir().join("hosts");
        std::fs::write(&hosts, "127.0.0.1 localhost\n")?;
        Ok(Self {
            bridge,
            prefix,
            hosts,
            next: AtomicU8::new(0),
            namespaces: Mutex::default(),
            _api_server: api_server,
        })
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(self.prefix[0], self.prefix[1], self.prefix[2], host)
    }

    /// Host and port of the API server for Pods.
    pub fn api_server(&self) -> (String, String) {
        (self.address(1).to_string(), API_SERVER.to_string())
    }

    /// The address for Pods of the Service with address `service` in the cluster.
    pub fn service(&self, service: Ipv4Addr) -> Ipv4Addr {
        self.address(service.octets()[3])
    }

    /// Creates a network namespace for a Pod; returns its address and its file.
    pub fn connect(&self) -> Result<(Ipv4Addr, PathBuf)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let address = self.address(2 + number % 126);
        let (name, [_, a, b, host]) = (format!("{}-{number}", self.bridge), address.octets());
        let (outside, inside) = (format!("v{a}-{b}-{host}"), format!("w{a}-{b}-{host}"));
        // An earlier Pod with this address is gone, or almost.
        let _ = ip(&format!("link del {outside}"));
        ip(&format!("netns add {name}"))?;
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        ip(&format!("link add {outside} type veth peer name {inside}"))?;
        ip(&format!("link set {outside} master {} up", self.bridge))?;
        ip(&format!("link set {inside} netns {name}"))?;
        for arguments in [
            "link set lo up".to_owned(),
            format!("link set {inside} name eth0"),
            format!("addr add {address}/25 dev eth0"),
            "link set eth0 up".to_owned(),
            format!("route add default via {}", self.address(1)),
        ] {
            ip(&format!("-n {name} {arguments}"))?;
        }
        Ok((address, Path::new("/run/netns").join(name)))
    }

    /// Removes the network namespace with `file`.
    pub fn disconnect(&self, file: &Path) {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let _ = ip(&format!("netns del {name}"));
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != name);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = ip(&format!("netns del {name}"));
        }
        let _ = ip(&format!("link del {}", self.bridge));
    }
}
