//! Cluster managers by their own programs, on real nodes: Open Cluster Management registers a spoke
//! to which the hub has no route, publishes its ClusterProfile and its credential, and carries the
//! requests of the operator through its tunnel. Manifests and values are those of the document.
//!
//! The programs take minutes to build, so this is not part of `make test`: `make test-managers`
//! sets `MANAGERS=yes`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

mod ocm;
mod steps;

use knative_operator_tests::Result;
use knative_operator_tests::real::{self, Report};
use knative_operator_tests::skip::{LONG_BUILD, REAL_NODE, skip};

use crate::ocm::Site;

#[test]
fn open_cluster_management_leads_to_a_spoke_without_a_route() {
    if std::env::var_os("MANAGERS").is_none() {
        return skip(LONG_BUILD, "MANAGERS is not set (make test-managers)");
    }
    if let Some(obstacle) = real::obstacle() {
        return skip(REAL_NODE, &format!("real nodes: {obstacle}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(story()) {
        panic!("{error:?}");
    }
}

async fn story() -> Result<()> {
    let mut report = Report::new();
    let site = Site::start(&mut report).await?;
    if let Err(error) = lived(&site, &mut report).await {
        return Err(format!("{error}\n{}", site.state().await).into());
    }
    drop(site);
    report.line("the clusters have stopped");
    Ok(())
}

/// The life of a cluster that Open Cluster Management manages.
async fn lived(site: &Site, report: &mut Report) -> Result<()> {
    site.install_hub(report).await?;
    site.join(report).await?;
    site.permit().await?;
    steps::published(site, report).await?;
    steps::preflight(site, report).await?;
    steps::installed(site, report).await?;
    steps::fleet(site, report).await?;
    steps::cut(site, report).await?;
    steps::rotated(site, report).await?;
    steps::published_twice(site, report).await?;
    steps::detached(site, report).await?;
    steps::deleted(site, report).await
}
