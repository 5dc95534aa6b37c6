//! A Kubernetes test bed without a container engine: real control planes (etcd, kube-apiserver,
//! kube-controller-manager, kube-scheduler and KWOK), as many side by side as a test needs, real
//! nodes, a registry, faults, and simulated clusters by the thousand.
//!
//! Every process is started by [`process`], which stops it when the process that started it ends,
//! however it ends.

// A fixture that can't continue should stop the test.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic)]

pub mod admission;
pub mod apart;
pub mod audit;
pub mod chaos;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod direct;
pub mod disk;
pub mod environment;
mod error;
pub mod gate;
pub mod http;
pub mod https;
pub mod kubeconfig;
pub mod kubelet;
pub mod measure;
pub mod memory;
pub mod mirror;
pub mod network;
pub mod outside;
pub mod pki;
pub mod plain;
pub mod ports;
pub mod process;
pub mod proxies;
pub mod proxy;
pub mod registry;
pub mod silence;
pub mod sim;
pub mod skip;
pub mod stages;
pub mod subnet;
pub mod texts;
pub mod tls;
pub mod tools;
pub mod wait;
pub mod waits;

pub use error::{Error, Result};

/// Root folder of the project, which has the scripts that provide tools.
pub fn project() -> &'static std::path::Path {
    let bed = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    bed.ancestors().nth(2).unwrap_or(bed)
}
