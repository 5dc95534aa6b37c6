//! What tests, benches and the demo of the project share: the test bed (`tests/bed`), and on top of
//! it what knows the project, such as its binaries with the settings of the installed chart.

// A fixture that can't continue should stop the test.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic)]

pub mod api_reference;
pub mod applied;
pub mod chart_reference;
pub mod go_operator;
pub mod instances;
pub mod last_release;
pub mod newer;
pub mod package;
pub mod patch_schema;
pub mod patches;
pub mod picture;
pub mod product;
pub mod real;
pub mod recipe;
pub mod releases;
pub mod remaining;
pub mod sim;
pub mod site;
pub mod texts;

pub use test_bed::{
    Error, Result, admission, apart, audit, chaos, clock, cluster, command, direct, disk, environment, gate, http,
    https, kubeconfig, kubelet, measure, memory, network, outside, pki, plain, ports, process, project, proxies, proxy,
    registry, silence, skip, stages, subnet, tls, tools, wait, waits,
};

/// Folders with the sources of the product: those of all packages of the workspace but the tests.
pub fn sources() -> Vec<std::path::PathBuf> {
    let manifest = std::fs::read_to_string(project().join("Cargo.toml")).unwrap_or_default();
    let members = manifest.lines().find(|line| line.starts_with("members = ")).unwrap_or_default();
    let names = members.split('"').skip(1).step_by(2).filter(|name| !name.starts_with("tests"));
    names.map(|name| project().join(name).join("src")).collect()
}
