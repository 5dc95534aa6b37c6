//! Clusters with real nodes: Pods run in containers that containerd and the kubelet start, from
//! images in a registry. See [`crate::cluster::machine`] for what a node needs.

pub mod images;
pub mod load;
pub mod ocm;
pub mod product;
pub mod traffic;

use std::time::Instant;

use crate::cluster::machine;
use crate::registry;
use crate::skip::{LONG_BUILD, REAL_NODE, skip};

pub use test_bed::mirror;

/// Prints what happened, with the time since the beginning and since the last line.
pub struct Report {
    begin: Instant,
    last: Instant,
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl Report {
    /// A report that begins now.
    pub fn new() -> Self {
        Self { begin: Instant::now(), last: Instant::now() }
    }

    /// Prints `text`.
    pub fn line(&mut self, text: &str) {
        let (all, step) = (self.begin.elapsed().as_secs_f64(), self.last.elapsed().as_secs_f64());
        println!("{all:6.1} s  (+{step:5.1} s)  {text}");
        self.last = Instant::now();
    }
}

/// What this machine lacks for real nodes and the images on them, in one line.
pub fn obstacle() -> Option<String> {
    machine::obstacle().or_else(|| registry::layouts().err())
}

/// Whether tests with real nodes can run here; otherwise says why not.
pub fn available() -> bool {
    if std::env::var_os("REAL_NODES").is_none_or(|wanted| wanted.is_empty()) {
        skip(LONG_BUILD, "REAL_NODES is not set (make test-real)");
        return false;
    }
    let obstacle = obstacle();
    if let Some(obstacle) = &obstacle {
        skip(REAL_NODE, &format!("real nodes: {obstacle}"));
    }
    obstacle.is_none()
}
