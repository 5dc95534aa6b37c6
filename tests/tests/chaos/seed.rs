//! One seed: changes under faults, until all is as declared.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::future::try_join_all;
use knative_operator_tests::chaos::Schedule;
use knative_operator_tests::{Result, tools};
use tokio::sync::Mutex;

use super::config::Config;
use super::second::two_owners;
use super::site::{Resource, Site};
use super::world::{Uids, World, version};

/// Maximum number of requests to a spoke in a seed, besides one for each object and change.
const REQUESTS: usize = 1500;

type Error = knative_operator_tests::Error;

/// What a seed took.
pub struct Times {
    /// From the end of the faults until all is as declared.
    pub converged: Duration,
    pub all: Duration,
}

/// What happens in a seed, besides faults of requests.
#[derive(Debug)]
struct Disturbances {
    /// etcd of this cluster (the hub, or a site) is suspended for a while.
    etcd: Option<usize>,
    /// The operator's clock steps by these seconds.
    clock: Option<i64>,
    /// The spoke of this site is replaced by an empty one.
    replaced: Option<usize>,
    /// The second resource of this site is changed, too.
    second: Option<usize>,
}

impl Disturbances {
    fn random(random: &mut Rng, sites: usize) -> Self {
        Self {
            etcd: (random.u8(..4) == 0).then(|| random.usize(..=sites)),
            clock: (random.u8(..4) == 0).then(|| [3600, -3600][random.usize(..2)]),
            replaced: (random.u8(..16) == 0).then(|| random.usize(..sites)),
            second: (random.u8(..3) == 0).then(|| random.usize(..sites)),
        }
    }
}

impl World {
    /// Runs `seed` with faults for `length`.
    pub async fn seed(&self, seed: u64, length: Duration) -> Result<Times> {
        let (started, log) = (Instant::now(), Mutex::new(String::new()));
        let done = self.steps(seed, length, &log).await;
        let converged = done.map_err(|error| -> Error {
            let log = log.try_lock().map(|log| log.clone()).unwrap_or_default();
            let file = tools::project().join(format!("target/chaos-{seed}.log"));
            let _ = std::fs::write(&file, self.product.operator.process.log());
            let chaos = self.sites.iter().map(|site| &site.chaos).chain([&self.chaos]);
            let pending: Vec<_> = chaos.flat_map(|chaos| chaos.pending()).collect();
            format!("seed {seed}: {error}\n{log}pending: {pending:?}\nlog of the operator: {}", file.display()).into()
        })?;
        Ok(Times { converged, all: started.elapsed() })
    }

    async fn steps(&self, seed: u64, length: Duration, log: &Mutex<String>) -> Result<Duration> {
        let random = |number: u64| Rng::with_seed(seed * 32 + number);
        let disturbances = Disturbances::random(&mut random(31), self.sites.len());
        let _ = writeln!(log.lock().await, "{disturbances:?}");
        let second = disturbances.second.map(|number| &self.sites[number]);
        // None has a second owner before the faults, so the first one keeps what it owns.
        try_join_all(self.sites.iter().map(|site| site.second.set(&self.hub, None))).await?;
        // Some resources exist before the faults, regardless of the previous seed.
        try_join_all((16..).zip(&self.resources).map(async |(number, resource)| {
            let mut random = random(number);
            let initial = random.bool().then(|| Config::random(resource.component, &mut random));
            let _ = writeln!(log.lock().await, "  {}: at first {initial:?}", resource.namespace);
            resource.set(&self.hub, initial).await?;
            *resource.history.lock().await = vec![initial];
            Ok::<_, Error>(())
        }))
        .await?;
        let uids = try_join_all(self.sites.iter().map(|site| self.uids(site))).await?;

        let counts = || self.sites.iter().map(|site| site.chaos.counts().0).collect::<Vec<_>>();
        let before = counts();
        self.start_faults(seed, length, log).await?;
        let changes = async {
            let resources = self.resources.iter().chain(second.map(|site| &site.second));
            let changes = (24..).zip(resources).map(|(number, resource)| {
                let random = random(number);
                async move { self.change(resource, random, length, log).await }
            });
            try_join_all(changes).await
        };
        let end = async {
            tokio::time::sleep(length).await;
            self.chaos.stop();
            self.sites.iter().for_each(|site| site.chaos.stop());
            Ok::<_, Error>(())
        };
        let disturbed = async { tokio::try_join!(changes, self.disturb(&disturbances, length), end) };
        tokio::select! {
            done = disturbed => done.map(drop)?,
            error = two_owners(second) => return Err(error),
        }
        let converged = try_join_all(self.sites.iter().map(|site| self.converge(site))).await?;
        for (number, (before, after)) in before.into_iter().zip(counts()).enumerate() {
            // The second owner installs everything again.
            let owners = if disturbances.second == Some(number) { 2 } else { 1 };
            if after - before > owners * REQUESTS {
                return Err(format!("{}: {} requests", self.sites[number].name, after - before).into());
            }
        }
        for (number, (site, (uids, (_, after)))) in self.sites.iter().zip(uids.iter().zip(&converged)).enumerate() {
            if disturbances.replaced != Some(number) {
                self.check_uids(site, uids, after).await?;
            }
        }
        if let Some(site) = second {
            self.check_waiting(site).await?;
        }
        self.clock.set(0)?;
        Ok(converged.into_iter().map(|(time, _)| time).max().unwrap_or_default())
    }

    async fn start_faults(&self, seed: u64, length: Duration, log: &Mutex<String>) -> Result<()> {
        let schedule = |number: u64, windows: usize| Arc::new(Schedule::new(seed * 32 + number, windows, length));
        let hub = schedule(15, 2);
        let mut text = format!("faults of the hub:\n{hub}");
        self.chaos.start(&hub, version(&self.hub).await?);
        for (number, site) in (0..).zip(&self.sites) {
            let schedule = schedule(number, 4);
            site.chaos.start(&schedule, version(&*site.spoke.read().await).await?);
            let _ = write!(text, "faults of {}:\n{schedule}", site.name);
        }
        log.lock().await.push_str(&text);
        Ok(())
    }

    /// Changes `resource` in random steps within `length`.
    async fn change(&self, resource: &Resource, mut random: Rng, length: Duration, log: &Mutex<String>) -> Result<()> {
        // Two a second.
        let count = random.u32(1..=u32::try_from(length.as_millis() / 500)?.max(1));
        for _ in 0..count {
            let is_deletion = resource.declared.lock().await.is_some() && random.u8(..5) == 0;
            let next = (!is_deletion).then(|| Config::random(resource.component, &mut random));
            let _ = writeln!(log.lock().await, "  {}: {next:?}", resource.namespace);
            resource.set(&self.hub, next).await?;
            tokio::time::sleep(length.mul_f64(random.f64() / f64::from(count))).await;
        }
        Ok(())
    }

    async fn disturb(&self, disturbances: &Disturbances, length: Duration) -> Result<()> {
        let (step, replaced) = (length / 4, disturbances.replaced.map(|number| &self.sites[number]));
        tokio::time::sleep(step).await;
        if let Some(seconds) = disturbances.clock {
            self.clock.set(seconds)?;
        }
        if let Some(number) = disturbances.etcd {
            let suspend = async |suspended| match self.sites.get(number) {
                Some(site) => site.spoke.read().await.suspend_etcd(suspended),
                None => self.hub.suspend_etcd(suspended),
            };
            suspend(true).await?;
            tokio::time::sleep(step).await;
            suspend(false).await?;
        }
        if let Some(site) = replaced {
            site.replace(&self.hub).await?;
        }
        Ok(())
    }

    /// Checks that no object of `site` was replaced that all configurations have.
    async fn check_uids(&self, site: &Site, before: &Uids, after: &Uids) -> Result<()> {
        let kept = self.kept(site).await?;
        let is_replaced = |name: &&String| before.get(*name).is_some_and(|uid| after.get(*name) != Some(uid));
        let replaced: Vec<_> = kept.iter().filter(is_replaced).filter(|name| !name.starts_with("Job ")).collect();
        if replaced.is_empty() {
            return Ok(());
        }
        Err(format!("{}: deleted and created again: {replaced:?}", site.name).into())
    }
}
