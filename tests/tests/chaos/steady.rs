//! Faults that last: few requests, at most one each few seconds.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::future::try_join_all;
use knative_operator_tests::chaos::{Fault, Schedule, Stage, Window};
use knative_operator_tests::skip::{HOURS, skip};

use super::config::Config;
use super::world::{World, version};
use super::{run, setting};

/// Maximum number of requests to a spoke in a minute.
const REQUESTS: usize = 360;

#[test]
fn lasting_faults_cause_few_requests() {
    let Some(seconds) = setting("STEADY_SECONDS") else {
        skip(HOURS, "STEADY_SECONDS is not set");
        return;
    };
    let length = Duration::from_secs(seconds);
    run(async {
        let world = World::start(0, true).await?;
        let status = |code, stage| Fault::Status { code, retry_after: None, stage };
        let faults = [
            Fault::Status { code: 429, retry_after: Some(1), stage: Stage::Before },
            status(429, Stage::Before),
            status(401, Stage::Before),
            status(409, Stage::Before),
            status(500, Stage::Before),
            status(503, Stage::Before),
            status(504, Stage::After),
            Fault::Reset(Stage::Before),
            Fault::Reset(Stage::After),
            Fault::Cut,
            Fault::Hang,
            Fault::Stale,
            Fault::WatchCut,
            Fault::WatchExpired,
            Fault::WatchRepeat,
        ];
        let mut most = 0;
        for faults in faults.chunks(world.sites.len()) {
            for resource in &world.resources[..world.sites.len()] {
                let config = Config::random(resource.component, &mut Rng::with_seed(1));
                resource.set(&world.hub, Some(config)).await?;
            }
            try_join_all(world.sites.iter().map(|site| world.converge(site))).await?;
            let before: Vec<_> = world.sites.iter().map(|site| site.chaos.counts().0).collect();
            for (site, fault) in world.sites.iter().zip(faults) {
                let window = Window { start: Duration::ZERO, end: length, fault: *fault, percent: 100 };
                let schedule = Arc::new(Schedule { seed: 1, windows: vec![window] });
                site.chaos.start(&schedule, version(&*site.spoke.read().await).await?);
            }
            // A change, which the operator tries to make.
            for resource in &world.resources[..world.sites.len()] {
                let config = Config::random(resource.component, &mut Rng::with_seed(2));
                resource.set(&world.hub, Some(config)).await?;
            }
            tokio::time::sleep(length).await;
            for ((site, fault), before) in world.sites.iter().zip(faults).zip(before) {
                let requests = site.chaos.counts().0 - before;
                println!("{fault:?} for {seconds} s: {requests} requests");
                most = most.max(requests * 60 / usize::try_from(seconds)?);
                site.chaos.stop();
            }
            try_join_all(world.sites.iter().map(|site| world.converge(site))).await?;
        }
        assert!(most <= REQUESTS, "{most} requests a minute");
        Ok(())
    });
}
