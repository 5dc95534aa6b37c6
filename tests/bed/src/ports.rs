//! The ports of the fixture, which it uses on addresses of its own. A program that listens on all
//! addresses of the machine is in the way.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use crate::Result;

/// The lock of a part of the loopback network. See [`crate::subnet`].
pub const LOCK: u16 = 1024;
/// Clients of etcd.
pub const ETCD: u16 = 2379;
/// Peers of etcd.
pub const ETCD_PEERS: u16 = 2380;
/// The registry of images.
pub const REGISTRY: u16 = 5000;
/// The API server.
pub const API_SERVER: u16 = 6443;
/// The webhook.
pub const WEBHOOK: u16 = 8443;
/// The admin servers of operator and webhook.
pub const ADMIN: u16 = 9090;

/// All ports that are always the same, with their purpose. The webhook's Service takes another one
/// than 443 if it can't have that.
pub const ALL: [(u16, &str); 9] = [
    (LOCK, "locks of clusters"),
    (ETCD, "etcd"),
    (ETCD_PEERS, "etcd"),
    (REGISTRY, "the registry of images"),
    (API_SERVER, "kube-apiserver"),
    (WEBHOOK, "the webhook"),
    (ADMIN, "metrics of operator and webhook"),
    (10257, "kube-controller-manager"),
    (10259, "kube-scheduler"),
];

/// An error in one line if one of the ports is in use on `address`.
pub fn check(address: Ipv4Addr) -> Result<()> {
    let taken = ALL.iter().find(|(port, _)| is_taken(address, *port));
    taken.map_or(Ok(()), |(port, purpose)| Err(in_use(*port, purpose).into()))
}

/// Whether another process listens on `port` of `address`, or of all addresses.
pub fn is_taken(address: Ipv4Addr, port: u16) -> bool {
    TcpListener::bind((address, port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

/// Says who uses `port`.
pub fn in_use(port: u16, purpose: &str) -> String {
    let who = owner(port).unwrap_or_else(|| "another program".to_owned());
    format!("port {port} ({purpose}) is in use on all addresses by {who}: stop it first")
}

/// Name and id of the process that listens on `port` of all addresses, if it can be seen.
fn owner(port: u16) -> Option<String> {
    let tables = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")));
    let listeners = tables.iter().flatten().flat_map(|table| listeners(table)).filter(|listener| listener.port == port);
    let inodes: Vec<String> = listeners.map(|listener| format!("socket:[{}]", listener.inode)).collect();
    let has = |process: &PathBuf| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|target| {
            let target = target.to_string_lossy();
            inodes.iter().any(|inode| *inode == target)
        })
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let is_process =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let process = processes.filter(is_process).find(has)?;
    let name = std::fs::read_to_string(process.join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim(), process.file_name()?.to_string_lossy()))
}

/// A socket that listens.
#[derive(Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its port.
    pub port: u16,
    /// Its number.
    pub inode: u64,
}

/// The listeners in a table of `/proc/net`.
pub fn listeners(table: &str) -> impl Iterator<Item = Listener> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let listens = *fields.get(3)? == "0A";
        let inode = fields.get(9)?.parse().ok()?;
        listens.then_some(Listener { port: u16::from_str_radix(port, 16).ok()?, inode })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_listeners_and_connections() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 00000000:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n   \
            1: 0100007F:1F90 0100007F:2382 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n";
        assert_eq!(listeners(table).collect::<Vec<_>>(), [Listener { port: 9090, inode: 4711 }]);
    }

    #[test]
    fn a_port_in_use_is_reported_with_its_process() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_taken(Ipv4Addr::new(127, 3, 2, 1), port));
        let text = in_use(port, "a test");
        assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
        drop(listener);
        assert!(!is_taken(Ipv4Addr::new(127, 3, 2, 1), port));
    }
}
