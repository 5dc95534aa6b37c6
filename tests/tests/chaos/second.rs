//! Two resources compete for a spoke: never do both own it, and the one that waits writes nothing.

use std::time::Instant;

use knative_operator_tests::{Error, Result};

use super::REST;
use super::owners::{Claims, check_single, recorded};
use super::site::Site;
use super::world::{CONVERGENCE, INTERVAL, World};

/// Ends when `site` has two owners of a component at the same time.
pub async fn two_owners(site: Option<&Site>) -> Error {
    let Some(site) = site else { return std::future::pending().await };
    let spoke = site.spoke.read().await.client();
    loop {
        // It can't be read while etcd is suspended, or the spoke is replaced.
        if let Ok(owners) = recorded(spoke.clone()).await
            && let Err(error) = check_single(&owners)
        {
            return error;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits until the operator writes nothing to `site` any more.
async fn rest(site: &Site) -> Result<()> {
    let started = Instant::now();
    loop {
        let before = site.chaos.writes();
        tokio::time::sleep(REST).await;
        let written = site.chaos.writes() - before;
        if written == 0 {
            return Ok(());
        }
        if started.elapsed() > CONVERGENCE {
            return Err(format!("{}: {written} writes at rest", site.name).into());
        }
    }
}

impl World {
    /// Checks that nothing is written to `site` at rest, nor when the resource that waits for its
    /// owner is deleted.
    pub async fn check_waiting(&self, site: &Site) -> Result<()> {
        rest(site).await?;
        let (declared, owners) = (self.declared(site).await?, recorded(site.spoke.read().await.client()).await?);
        for resource in Claims::of(&declared, &owners).waiting {
            let before = site.chaos.writes();
            resource.set(&self.hub, None).await?;
            tokio::time::sleep(REST).await;
            let written = site.chaos.writes() - before;
            if written > 0 {
                return Err(format!("{}: {written} writes by the deletion of {}", site.name, resource.namespace).into());
            }
            self.converge(site).await?;
        }
        Ok(())
    }
}
