//! Lives of an operator that is killed at its writes.

use std::sync::Arc;
use std::time::Instant;

use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::{Trap, When};
use knative_operator_tests::product::{NAMESPACE, Product};

/// The writes at which the operator is killed.
#[derive(Clone, Copy, Debug)]
pub enum KillPlan {
    /// In successive lives: at the first, third, fifth write and so on.
    Always,
    /// Once, at the write with this number.
    Once(usize, When),
}

impl KillPlan {
    /// The plans: one, or with `CRASH` one for each write.
    pub fn all() -> Vec<Self> {
        let Ok(first) = std::env::var("CRASH") else { return vec![Self::Always] };
        let first = first.parse().unwrap_or(1);
        (first..).flat_map(|n| [Self::Once(n, When::Before), Self::Once(n, When::After)]).take(400).collect()
    }

    /// The end of the life after `lives` others.
    fn next(self, lives: usize) -> Option<(usize, When)> {
        match self {
            Self::Always => Some((1 + 2 * lives, if lives.is_multiple_of(2) { When::After } else { When::Before })),
            Self::Once(nth, when) => (lives == 0).then_some((nth, when)),
        }
    }
}

/// An operator that is killed at its writes, and started again.
pub struct Lives {
    /// The hub.
    pub hub: Cluster,
    /// The operator and the webhook.
    pub product: Product,
    /// The trap for the operator.
    pub trap: Arc<Trap>,
}

impl Lives {
    /// Runs `work`, and kills the operator according to `kills` until the work is done; returns the
    /// number of kills.
    pub async fn spend(
        &mut self,
        what: &str,
        kills: KillPlan,
        work: impl AsyncFnOnce(&Cluster) -> Result<()>,
    ) -> Result<usize> {
        let (started, mut at) = (Instant::now(), Vec::new());
        let mut is_armed = arm(&self.trap, kills.next(0));
        self.trap.set_process(self.product.operator.process.pid()?);
        let work = work(&self.hub);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => break done.map_err(|e| {
                    let log = self.product.operator.process.log();
                    let last = log.lines().rev().take(20).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
                    format!("{what}, after {at:#?}: {e}\nthe operator said last:\n{last}")
                })?,
                triggered = self.trap.triggered() => at.push(triggered),
            }
            assert!(at.len() < 1000, "{what} makes no progress: {at:#?}");
            is_armed = revive(&self.hub, &mut self.product, &self.trap, kills.next(at.len())).await?;
        }
        if is_armed && !self.trap.unset() {
            // The work was done just before the kill: the operator is left alive.
            at.push(self.trap.triggered().await);
            revive(&self.hub, &mut self.product, &self.trap, None).await?;
        }
        eprintln!("{what}, {kills:?}: killed {} times in {:.1?}", at.len(), started.elapsed());
        assert!(!at.is_empty() || !matches!(kills, KillPlan::Always), "{what} was not disturbed");
        Ok(at.len())
    }
}

/// Sets the trap for `death`; returns whether there is one.
fn arm(trap: &Trap, death: Option<(usize, When)>) -> bool {
    match death {
        Some((nth, when)) => trap.set(nth, when),
        None => {
            trap.unset();
        }
    }
    death.is_some()
}

/// Starts the operator again, which was killed, with the trap set for `death`; returns whether it
/// is set.
async fn revive(hub: &Cluster, product: &mut Product, trap: &Trap, death: Option<(usize, When)>) -> Result<bool> {
    product.operator.process.wait()?;
    // The Lease of a killed process is free only after it expires.
    hub.object("lease", NAMESPACE, "knative-operator").delete_if_there().await?;
    let is_armed = arm(trap, death);
    product.start_operator(hub).await?;
    trap.set_process(product.operator.process.pid()?);
    Ok(is_armed)
}
