//! A network namespace for a process that listens on fixed ports of all addresses, so that several
//! can run on one machine. The process reaches only the given API servers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::{Result, tools};

/// Starts the loopback interface and the forwarding, and becomes the program.
const SCRIPT: &str = r#"set -euo pipefail
ip link set lo up
exec 3< <("$1" "$2")
read -r -u 3
shift 2
exec "$@" 3<&-"#;

/// Paths to API servers out of network namespaces. Dropping it closes them.
pub struct Apart {
    forwards: String,
    tasks: Vec<JoinHandle<()>>,
}

impl Apart {
    /// Paths to the API servers of `clusters`, with Unix sockets in `dir`.
    pub fn open(dir: &Path, clusters: &[&Cluster]) -> Result<Self> {
        let (mut forwards, mut tasks) = (Vec::new(), Vec::new());
        for cluster in clusters {
            let server = SocketAddr::new(cluster.subnet().address(2).into(), 6443);
            let socket = dir.join(format!("{}.sock", server.ip()));
            let listener = UnixListener::bind(&socket).map_err(|e| format!("{}: {e}", socket.display()))?;
            forwards.push(format!("{server}={}", socket.display()));
            tasks.push(tokio::spawn(async move {
                while let Ok((mut from, _)) = listener.accept().await {
                    tokio::spawn(async move {
                        if let Ok(mut to) = TcpStream::connect(server).await {
                            let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                        }
                    });
                }
            }));
        }
        Ok(Self { forwards: forwards.join(","), tasks })
    }

    /// The command that runs `program` with `arguments` in a namespace of its own.
    pub fn command(&self, program: &Path, arguments: Vec<String>) -> Result<(PathBuf, Vec<String>)> {
        let mut all = vec!["--net".to_owned()];
        if !geteuid().is_root() {
            all.push("--map-root-user".to_owned());
        }
        all.extend(["bash", "-c", SCRIPT, "apart"].map(str::to_owned));
        all.push(tools::binary("inlet")?.display().to_string());
        all.extend([self.forwards.clone(), program.display().to_string()]);
        all.extend(arguments);
        Ok((PathBuf::from("unshare"), all))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
