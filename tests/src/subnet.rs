//! A part of the loopback network for each cluster, so that every cluster can use the well-known ports and none
//! ever meets another's.

use std::net::{Ipv4Addr, TcpListener};

use crate::Result;

/// A /24 of 127.0.0.0/8 that belongs to one cluster for as long as this value lives.
#[derive(Debug)]
pub struct Subnet {
    a: u8,
    b: u8,
    _lock: TcpListener,
}

impl Subnet {
    /// Takes a /24 that nobody on this machine has. A listener on its first address is the lock.
    pub fn take() -> Result<Self> {
        let mut seed = std::process::id();
        for _ in 0..4096 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [a, b, ..] = seed.to_be_bytes();
            let a = 64 + a % 160;
            if let Ok(lock) = TcpListener::bind((Ipv4Addr::new(127, a, b, 1), 1024)) {
                return Ok(Self { a, b, _lock: lock });
            }
        }
        Err("no free part of the loopback network".into())
    }

    /// Address `host` in it: 2 is the control plane, 64 to 127 are Pods, 128 and above Services.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.a, self.b, host)
    }

    /// The range of Service addresses, in CIDR form.
    pub fn services(&self) -> String {
        format!("{}/25", self.address(128))
    }
}
