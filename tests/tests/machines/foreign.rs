//! What belongs to the user of a machine: clusters, proxies, and folders with unusual names.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::{Result, ports, tools};

use super::machine::{LONG, Machine, SHORT, on_a_machine};

/// Counts connections to an address, and closes them.
struct Watched {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Watched {
    fn open() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (port, connections) = (listener.local_addr()?.port(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self { port, connections })
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Names the watched clusters and proxies in all ways, with a home folder in `home`.
fn belongings(machine: &mut Machine, home: &str, cluster: &Watched, proxy: &Watched) -> Result<()> {
    let text = kubeconfig("real", &format!("https://127.0.0.1:{}", cluster.port), "", "default", &User::Token("t"));
    let file = machine.folder(&format!("{home}/.kube"))?.join("config");
    std::fs::write(&file, text)?;
    machine.set("KUBECONFIG", file);
    machine.set("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    machine.set("KUBERNETES_SERVICE_PORT", cluster.port.to_string());
    machine.set("HELM_KUBEAPISERVER", format!("https://127.0.0.1:{}", cluster.port));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        machine.set(name, format!("http://127.0.0.1:{}", proxy.port));
        machine.set(&name.to_lowercase(), format!("http://127.0.0.1:{}", proxy.port));
    }
    machine.set("HELM_NAMESPACE", "production");
    Ok(())
}

#[test]
fn clusters_proxies_and_folders_of_the_user_are_not_touched() {
    on_a_machine(|machine| {
        let (cluster, proxy) = (Watched::open()?, Watched::open()?);
        let home = "a home, with spaces & more";
        let kubectl = machine.set_home(home)?.join("kubectl");
        belongings(machine, home, &cluster, &proxy)?;
        // Otherwise, each of them would be used.
        let mut plain = machine.command(&kubectl);
        plain.args(["get", "--raw", "/version"]).env_remove("HTTPS_PROXY").env_remove("https_proxy");
        assert!(!machine.run(plain, SHORT)?.0);
        assert!(cluster.count() > 0);
        let mut plain = machine.command(&kubectl);
        plain.args(["get", "--raw", "/version", "--server", "https://192.0.2.1"]);
        assert!(!machine.run(plain, SHORT)?.0);
        assert!(proxy.count() > 0);
        let before = (cluster.count(), proxy.count());

        machine.temporary("folder of a user")?;
        machine.protect(Path::new("/tmp"))?;
        // In the machine's network, where all of that can be reached.
        let output = machine.up_and_down(&["isolate", "--machine-network"], &["--product"])?;
        assert!(output.contains("folder of a user"), "{output}");
        machine.up_and_down(&[], &["--product"])?;
        assert_eq!((cluster.count(), proxy.count()), before);
        Ok(())
    });
}

/// In the network of the machine, all its users reach the ports of the clusters.
#[test]
fn without_a_certificate_nobody_reads_what_a_cluster_stores() {
    on_a_machine(|machine| {
        let kubectl = tools::control_plane("kubectl")?;
        let (well, output) = machine.cluster(&["up"], LONG)?;
        assert!(well, "{output}");
        let text = std::fs::read_to_string(machine.path("clusters/hub.kubeconfig"))?;
        let host = text.split("https://").nth(1).and_then(|rest| rest.split(':').next()).ok_or("no server")?;
        for port in [ports::ETCD, ports::ETCD_PEERS] {
            TcpStream::connect(format!("{host}:{port}"))?;
            for scheme in ["http", "https"] {
                let mut version = machine.command(&kubectl);
                version.args(["get", "--raw", "/version", "--insecure-skip-tls-verify", "--server"]);
                version.arg(format!("{scheme}://{host}:{port}")).env("HOME", machine.path("nobody"));
                let (well, output) = machine.run(version, SHORT)?;
                assert!(!well, "{scheme}, port {port}: {output}");
            }
        }
        Ok(())
    });
}

#[test]
fn without_a_writable_folder_one_line_says_so() {
    on_a_machine(|machine| {
        let nowhere = machine.folder("nowhere")?;
        machine.protect(&nowhere)?;
        machine.set("TMPDIR", nowhere);
        for before in [&[][..], &["isolate"]] {
            let (well, output) = machine.run(machine.cluster_after(before, &["up"])?, SHORT)?;
            assert!(!well, "{output}");
            assert_eq!(output.lines().count(), 1, "{output}");
            assert!(output.contains("set TMPDIR to a folder that is writable"), "{output}");
        }
        Ok(())
    });
}
