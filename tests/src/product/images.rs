//! The images of the chart, and what this machine has in place of them.

use std::path::{Path, PathBuf};

use crate::kubelet::{Images, PLUGIN_IMAGE};
use crate::tools;

/// The operator's image in the chart's default values.
pub const OPERATOR_IMAGE: &str = "ghcr.io/knative-operator-rs/knative-operator";
/// The webhook's image in the chart's default values.
pub const WEBHOOK_IMAGE: &str = "ghcr.io/knative-operator-rs/knative-operator-webhook";

/// The images of the chart: both binaries of this project, and the official credential plugin.
/// `BENCH_OPERATOR` names another operator to measure.
pub fn of_chart(plugins: &Path) -> Images {
    // Binaries that are not built are in images.
    let operator =
        std::env::var_os("BENCH_OPERATOR").map(PathBuf::from).or_else(|| tools::binary("knative-operator").ok());
    let webhook = tools::binary("knative-operator-webhook").ok();
    let all = [(OPERATOR_IMAGE, operator), (WEBHOOK_IMAGE, webhook), (PLUGIN_IMAGE, Some(plugins.to_owned()))];
    all.into_iter().filter_map(|(name, path)| Some((name.to_owned(), path?))).collect()
}
