//! A part of the loopback network for each cluster, so that all clusters can use the well-known
//! ports.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Result, ports};

/// A /24 of 127.0.0.0/8 that one cluster uses while this value lives.
#[derive(Debug)]
pub struct Subnet {
    a: u8,
    b: u8,
    _lock: TcpListener,
}

impl Subnet {
    /// Takes a /24 that no other process uses. A listener on its first address is the lock.
    pub fn take() -> Result<Self> {
        static TAKEN: AtomicU32 = AtomicU32::new(0);
        for _ in 0..4096 {
            // Never the same one again in a process: a client may still look for the previous
            // cluster. (In one that tests lend to each other, its account is gone.)
            let turn = TAKEN.fetch_add(1, Ordering::Relaxed);
            let [a, b, ..] = std::process::id().wrapping_add(turn).wrapping_mul(2_654_435_769).to_be_bytes();
            let a = 64 + a % 160;
            if let Ok(lock) = TcpListener::bind((Ipv4Addr::new(127, a, b, 1), ports::LOCK)) {
                return Ok(Self { a, b, _lock: lock });
            }
        }
        Err(ports::in_use(ports::LOCK, "locks of clusters").into())
    }

    /// Address `host`: 2 is the control plane, 64 to 127 are Pods, 128 and above Services.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.a, self.b, host)
    }

    /// The range of Service addresses, in CIDR form.
    pub fn services(&self) -> String {
        format!("{}/25", self.address(128))
    }
}
