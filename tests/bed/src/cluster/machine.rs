//! The machine of a real node: network, mounts and processes of its own, in namespaces of the
//! kernel.
//!
//! One process keeps the namespaces and is the first one of its PID namespace. When it ends, the
//! kernel kills all other processes there, also containers and their shims, and removes mounts and
//! network devices.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::Result;
use crate::process::Process;

/// What the first process does: private copies of the machine's folders, then nothing but reaping
/// orphans. `$1` is its folder.
const INIT: &str = r#"set -eu
mount --make-rshared /
for folder in log lib; do
  mkdir -p "$1/$folder" "$1/.$folder"
  mount -t overlay overlay -o "lowerdir=/var/$folder,upperdir=$1/$folder,workdir=$1/.$folder" "/var/$folder"
done
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
mount --bind "$1/hosts" /etc/hosts
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
: >"$1/ready"
sleep infinity &
wait"#;
/// Options of `unshare`: PID 1 of the new namespace is a child.
const UNSHARE: [&str; 7] =
    ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"];
/// Time limit until the namespaces are there.
const START: Duration = Duration::from_secs(120);

/// Addresses of a real node: a small network with a number. They are those for benchmarks of
/// networks (RFC 2544), which no other network uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net(u8);

impl Net {
    /// The test process, as the node sees it.
    pub fn outside(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.0, 1)
    }

    /// The node.
    pub fn node(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.0, 2)
    }

    /// Range of node and Pods, in CIDR form.
    fn all(self) -> String {
        format!("198.18.{}.0/24", self.0)
    }

    /// Range of Pods, in CIDR form.
    pub fn pods(self) -> String {
        format!("198.18.{}.128/25", self.0)
    }

    /// Range of Services, in CIDR form.
    pub fn services(self) -> String {
        format!("198.19.{}.0/24", self.0)
    }

    /// Address of the API server's Service.
    pub fn service(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.0, 1)
    }

    /// Name of its device outside of the node.
    fn device(self) -> String {
        format!("kn-node-{}", self.0)
    }
}

/// A machine. Dropping it stops all its processes.
pub struct Machine {
    net: Net,
    pid: i32,
    cgroup: String,
    folder: PathBuf,
    process: Process,
}

/// Runs a shell script, which stops at the first failure; returns stderr as the error.
fn sh(program: &str, before: &[String], script: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.args(before).args(["-euc", script]).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().last().unwrap_or("a script failed without a message").to_owned().into())
}

impl Machine {
    /// Creates a machine with its files in `folder`, connected with the network of this process.
    /// `hosts` names further hosts outside.
    pub fn create(name: &str, folder: &Path, hosts: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("hosts"), "")?;
        let mut arguments: Vec<String> = UNSHARE.map(str::to_owned).into();
        arguments.extend(["bash", "-c", INIT, name].map(str::to_owned));
        arguments.push(folder.display().to_string());
        // The tether removes the control groups, too.
        let environment = [("TETHER_CONTAINER_ID".to_owned(), name.to_owned())];
        let unshare = Path::new("unshare");
        let mut process = Process::start("machine", folder, unshare, &arguments, &environment, Duration::ZERO)?;
        let (pid, deadline) = (process.pid()?, Instant::now() + START);
        while !folder.join("ready").exists() {
            if process.ended().is_some() || Instant::now() > deadline {
                return Err(format!("namespaces of a node: {}", process.log().trim()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        create_cgroups(name)?;
        let net = attach(pid)?;
        let machine = Self { net, pid, cgroup: format!("/{name}"), folder: folder.to_owned(), process };
        let others: Vec<String> = hosts.iter().map(|host| format!("{} {host}\n", net.outside())).collect();
        let own = format!("127.0.0.1 localhost\n{} {name}\n", net.node());
        std::fs::write(folder.join("hosts"), format!("{own}{}", others.concat()))?;
        machine.configure()?;
        Ok(machine)
    }

    /// Addresses and routes, on both sides.
    fn configure(&self) -> Result<()> {
        let (device, outside, node) = (self.net.device(), self.net.outside(), self.net.node());
        let (pods, services) = (self.net.pods(), self.net.services());
        let routes = format!(
            "ip addr add {outside}/25 dev {device}; ip link set {device} up; ip route add {pods} via {node}; ip route add {services} via {node}"
        );
        sh("sh", &[], &routes)?;
        // A Service's address is replaced after the route was chosen, so it needs one. Addresses of
        // Pods have routes of their own.
        let routes = format!(
            "ip addr add {node}/25 dev eth0; ip link set eth0 up; ip route add {services} via {outside}; ip route add blackhole {pods}; ip route add unreachable default"
        );
        self.sh(&routes)
    }

    /// Runs a shell script in it.
    pub fn sh(&self, script: &str) -> Result<()> {
        sh("nsenter", &[self.enter(), vec!["sh".to_owned()]].concat(), script)
    }

    /// Its addresses.
    pub fn net(&self) -> Net {
        self.net
    }

    /// The control group of its containers.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its root folder, as this process sees it.
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid))
    }

    /// Options of `nsenter`.
    fn enter(&self) -> Vec<String> {
        // The PID namespace is that of the children of `unshare`.
        [("net", "net"), ("mount", "mnt"), ("pid", "pid_for_children")]
            .map(|(option, file)| format!("--{option}=/proc/{}/ns/{file}", self.pid))
            .into()
    }

    /// The command that runs `program` with `arguments` in it.
    pub fn command(&self, program: &Path, arguments: &[String]) -> (PathBuf, Vec<String>) {
        let own = [self.enter(), vec![program.display().to_string()]].concat();
        (PathBuf::from("nsenter"), [own, arguments.to_vec()].concat())
    }

    /// Connects it with another machine: nodes and Pods of both reach each other.
    pub fn connect(&self, other: &Self) -> Result<()> {
        let (a, b) = (self.net, other.net);
        let (to_b, to_a) = (other.entry(), self.entry());
        let network = vec![format!("--net=/proc/{}/ns/net", self.pid), "sh".to_owned()];
        sh("nsenter", &network, &format!("ip link add {to_b} type veth peer name {to_a} netns {}", other.pid))?;
        let route = |device: &str, own: Net, peer: Net| {
            let (all, node, source) = (peer.all(), peer.node(), own.node());
            format!("ip link set {device} up; ip route add {all} via {node} dev {device} onlink src {source}")
        };
        self.sh(&route(&to_b, a, b))?;
        other.sh(&route(&to_a, b, a))
    }

    /// Makes the node of `other` reachable from it, and from its Pods. `other` has no route back:
    /// it sees an address of the link.
    pub fn reach(&self, other: &Self) -> Result<()> {
        let (device, peer) = (other.entry(), self.entry());
        // Of this machine alone, since its number is.
        let [own, gateway] = [1, 2].map(|host| Ipv4Addr::new(169, 254, self.net.0, host));
        let network = vec![format!("--net=/proc/{}/ns/net", self.pid), "sh".to_owned()];
        sh("nsenter", &network, &format!("ip link add {device} type veth peer name {peer} netns {}", other.pid))?;
        other.sh(&format!("ip addr add {gateway}/30 dev {peer}; ip link set {peer} up"))?;
        self.sh(&format!(
            "ip addr add {own}/30 dev {device}; ip link set {device} up; ip route add {} via {gateway} dev {device}
nft add table ip kn-reach
nft add chain ip kn-reach out '{{ type nat hook postrouting priority 100; }}'
nft add rule ip kn-reach out oifname {device} masquerade",
            other.net.node()
        ))
    }

    /// Drops all packets from and to `other`, which it reaches, until [`Machine::restore`].
    pub fn cut(&self, other: &Self) -> Result<()> {
        let device = other.entry();
        self.sh(&format!(
            "nft add table inet kn-cut
nft add chain inet kn-cut in '{{ type filter hook prerouting priority -300; }}'
nft add rule inet kn-cut in iifname {device} drop
nft add chain inet kn-cut out '{{ type filter hook postrouting priority 300; }}'
nft add rule inet kn-cut out oifname {device} drop"
        ))
    }

    /// Ends [`Machine::cut`].
    pub fn restore(&self) -> Result<()> {
        self.sh("nft delete table inet kn-cut")
    }

    /// Name of the devices of other machines that lead to it.
    fn entry(&self) -> String {
        format!("kn-to-{}", self.net.0)
    }

    /// Begins to stop it. Dropping waits until it has stopped.
    pub fn stop(&mut self) {
        self.process.stop();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
        // The kernel removes it with the network, which sockets without a process keep for a while.
        let _ = sh("sh", &[], &format!("ip link del {}", self.net.device()));
    }
}

/// Connects the network of process `pid` with that of this process. The name of the device is the
/// lock of the addresses.
fn attach(pid: i32) -> Result<Net> {
    let (first, mut last) = (u8::try_from(std::process::id() % 254).unwrap_or_default(), String::new());
    for turn in 0..=253 {
        let net = Net(1 + u8::try_from((u16::from(first) + turn) % 254).unwrap_or_default());
        let device = net.device();
        match sh("sh", &[], &format!("ip link add {device} type veth peer name eth0 netns {pid}")) {
            Ok(()) => return Ok(net),
            Err(error) if error.to_string().contains("exists") => last = error.to_string(),
            Err(error) => return Err(format!("a network device: {error}").into()),
        }
    }
    Err(format!("no free addresses for a node: {last}").into())
}

/// Folders of the hierarchies of control groups: several of version 1, or one of version 2.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    let below = std::fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_unified = root.join("cgroup.controllers").exists();
    let all: Vec<PathBuf> = if is_unified { vec![root] } else { below.collect() };
    all.into_iter().filter(|folder| folder.join("cgroup.procs").exists()).collect()
}

/// The control group of the node in each hierarchy, so that kubelets don't see each other's Pods.
fn create_cgroups(name: &str) -> Result<()> {
    for folder in hierarchies() {
        std::fs::create_dir_all(folder.join(name)).map_err(|error| format!("control groups: {error}"))?;
    }
    Ok(())
}

/// What this machine lacks for a real node, in one line.
pub fn obstacle() -> Option<String> {
    if !geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    for (program, package) in [
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("mount", "mount"),
        ("ip", "iproute2"),
        ("nft", "nftables"),
        ("runc", "runc"),
    ] {
        if find(program).is_none() {
            return Some(format!("{program} is missing (Debian: apt-get install {package})"));
        }
    }
    let seccomp = Command::new("runc").arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&seccomp.stdout).contains("libseccomp") {
        return Some("this runc is built without seccomp".to_owned());
    }
    if hierarchies().is_empty() {
        return Some("there are no control groups in /sys/fs/cgroup".to_owned());
    }
    let probe = r#"d=$(mktemp -d); mount -t tmpfs tmpfs "$d"; mkdir "$d/u" "$d/w"
mount -t overlay overlay -o "lowerdir=/var/log,upperdir=$d/u,workdir=$d/w" /var/log
ip link add probe type veth peer name probe2
nft add table ip probe; nft add chain ip probe c '{ type nat hook prerouting priority 0; }'"#;
    let mut arguments: Vec<String> = UNSHARE.map(str::to_owned).into();
    arguments.push("sh".to_owned());
    let tried = sh("unshare", &arguments, probe);
    tried.err().map(|error| format!("the kernel refuses namespaces, overlayfs, veth or nftables: {error}"))
}

/// The program in `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::Net;

    #[test]
    fn ranges_of_a_node_are_disjoint() {
        let net = Net(7);
        assert_eq!((net.node().to_string(), net.outside().to_string()), ("198.18.7.2".into(), "198.18.7.1".into()));
        assert_eq!((net.pods(), net.services()), ("198.18.7.128/25".into(), "198.19.7.0/24".into()));
        assert!(net.device().len() < 16, "a name of a device has at most 15 bytes");
    }
}
