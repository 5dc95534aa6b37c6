//! Test fixture: real control planes (etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//! and KWOK), as many side by side as a test needs, and the project's binaries started with the
//! settings of the installed chart.
//!
//! Every process is started by [`process`], which stops it when the process that started it ends,
//! however it ends.

// A fixture that can't continue should stop the test.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic)]

pub mod admission;
pub mod apart;
pub mod api_reference;
pub mod applied;
pub mod audit;
pub mod chaos;
pub mod chart_reference;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod direct;
pub mod disk;
pub mod environment;
mod error;
pub mod gate;
pub mod go_operator;
pub mod http;
pub mod https;
pub mod instances;
pub mod kubeconfig;
pub mod kubelet;
pub mod last_release;
pub mod measure;
pub mod memory;
pub mod network;
pub mod newer;
pub mod outside;
pub mod package;
pub mod patch_schema;
pub mod patches;
pub mod picture;
pub mod pki;
pub mod plain;
pub mod ports;
pub mod process;
pub mod product;
pub mod proxies;
pub mod proxy;
pub mod real;
pub mod recipe;
pub mod registry;
pub mod releases;
pub mod remaining;
pub mod silence;
pub mod sim;
pub mod site;
pub mod skip;
pub mod stages;
pub mod subnet;
pub mod texts;
pub mod tls;
pub mod tools;
pub mod wait;
pub mod waits;

pub use error::{Error, Result};

/// Root folder of the project.
pub fn project() -> &'static std::path::Path {
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// Folders with the sources of the product: those of all packages of the workspace but this one.
pub fn sources() -> Vec<std::path::PathBuf> {
    let manifest = std::fs::read_to_string(project().join("Cargo.toml")).unwrap_or_default();
    let members = manifest.lines().find(|line| line.starts_with("members = ")).unwrap_or_default();
    let names = members.split('"').skip(1).step_by(2).filter(|name| *name != "tests");
    names.map(|name| project().join(name).join("src")).collect()
}
