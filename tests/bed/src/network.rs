//! A network for tests alone: a network namespace with a loopback device and nothing else. No port
//! of the machine matters there, and nothing there reaches the machine's network or is reachable.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use crate::tools;

/// An address of the network for tests that is no loopback address, for RFC 5737: API servers
/// accept no loopback addresses as endpoints.
const ENDPOINT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Where `ip netns` keeps names.
const NAMES: &str = "/run/netns";

/// Moves this thread, and the processes and threads that it starts from now on, to a network of its
/// own. Without root, that takes a user namespace, which only a process with one thread may create.
pub fn isolate() -> io::Result<()> {
    let is_root = geteuid().is_root();
    match unshare(UnshareFlags::NEWNET) {
        Err(rustix::io::Errno::PERM) if !is_root => {
            let (user, group) = (geteuid().as_raw(), getegid().as_raw());
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        other => other?,
    }
    raise_loopback()?;
    add_address(ENDPOINT)?;
    // The webhook's Service has port 443.
    let _ = std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    if is_root {
        // Names of network namespaces end with it. They don't matter where mounts are refused.
        let _ = hide_names();
    }
    Ok(())
}

/// The argument with which `isolate` only tries it.
pub const PROBE: &str = "--probe";

/// Why a process can't have a network of its own here; `None` if it can. Another process tries it:
/// where only a part of it is permitted, there is no way back.
pub fn obstacle() -> Option<String> {
    let tried = tools::binary("isolate").and_then(|isolate| Ok(Command::new(isolate).arg(PROBE).output()?));
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// The unsafe variant differs for `CLONE_FILES` only.
#[allow(deprecated)]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// Moves this thread to a mount namespace whose mounts the machine doesn't have.
pub fn isolate_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

fn hide_names() -> io::Result<()> {
    std::fs::create_dir_all(NAMES)?;
    isolate_mounts()?;
    Ok(mount("tmpfs", Path::new(NAMES), "tmpfs", MountFlags::empty(), None)?)
}

/// An address of this machine that can be an endpoint of a Service: outside of a network for tests,
/// that of the route to others.
pub fn endpoint() -> io::Result<IpAddr> {
    if UdpSocket::bind((ENDPOINT, 0)).is_ok() {
        return Ok(ENDPOINT.into());
    }
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // Sends nothing.
    socket.connect((Ipv4Addr::new(192, 0, 2, 254), 9))?;
    Ok(socket.local_addr()?.ip())
}

/// The loopback device, the first one of a network.
const LOOPBACK: u32 = 1;

/// Sets the loopback device up.
fn raise_loopback() -> io::Result<()> {
    const NEW_LINK: u16 = 16;
    const UP: u32 = 1;
    let mut message = vec![0; 4]; // family, type
    message.extend_from_slice(&LOOPBACK.to_ne_bytes());
    message.extend_from_slice(&UP.to_ne_bytes()); // flags
    message.extend_from_slice(&UP.to_ne_bytes()); // which of the flags to change
    netlink(NEW_LINK, &message)
}

/// Adds `address` to the loopback device.
fn add_address(address: Ipv4Addr) -> io::Result<()> {
    const NEW_ADDRESS: u16 = 20;
    const ATTRIBUTES: [u16; 2] = [1, 2]; // address and local address
    let mut message = vec![2, 32, 0, 0]; // family IPv4, length of the prefix, flags, scope
    message.extend_from_slice(&LOOPBACK.to_ne_bytes());
    for attribute in ATTRIBUTES {
        message.extend_from_slice(&8u16.to_ne_bytes());
        message.extend_from_slice(&attribute.to_ne_bytes());
        message.extend_from_slice(&address.octets());
    }
    netlink(NEW_ADDRESS, &message)
}

/// Sends a netlink request of type `kind` with `message`, since iproute2 may be missing.
fn netlink(kind: u16, message: &[u8]) -> io::Result<()> {
    const HEADER: usize = 16;
    const REQUEST_ACK_CREATE: u16 = 1 | 4 | 0x400;
    let length = u32::try_from(HEADER + message.len()).map_err(io::Error::other)?;
    let mut request = Vec::with_capacity(HEADER + message.len());
    request.extend_from_slice(&length.to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&REQUEST_ACK_CREATE.to_ne_bytes());
    request.extend_from_slice(&[0; 8]); // sequence, port
    request.extend_from_slice(message);
    // The protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0u8; 256];
    let (read, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // The header has 16 bytes; then an error code follows, which is 0 or negative.
    let code = answer.get(16..20).filter(|_| read >= 20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::other("no answer of netlink")),
    }
}
