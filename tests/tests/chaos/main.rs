//! Random changes of resources under random faults of all API servers: afterwards, each cluster has
//! what its resource declares, as without faults. In a third of the seeds, a second resource
//! competes for a cluster: then it has what its owner declares.
//!
//! - `CHAOS_SEED` is the first seed. Seeds follow each other for `CHAOS_MINUTES`, or `CHAOS_SEEDS`
//!   of them, or one. `CHAOS_SECONDS` is the time with faults of each.
//! - `CHAOS_WORLDS` hubs with three spokes each run at the same time.
//! - `SOAK_MINUTES` is the time of the soak.
//!
//! A failure prints the faults and changes of its seed, which `CHAOS_SEED` repeats.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use knative_operator_tests::{Result, http, measure};

mod config;
mod owners;
mod second;
mod seed;
mod site;
mod soak;
mod steady;
mod undisturbed;
mod world;

use world::{CONVERGENCE, World};

/// Time at rest, in which no request is sent to a spoke.
const REST: Duration = Duration::from_secs(5);
/// Maximum growth of the number of file descriptors.
const FILES: usize = 16;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

fn run(test: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(test) {
        panic!("{error:?}");
    }
}

#[test]
fn clusters_are_as_declared_after_faults() {
    run(async {
        let next = AtomicU64::new(setting("CHAOS_SEED").unwrap_or(1));
        let worlds = usize::try_from(setting("CHAOS_WORLDS").unwrap_or(1))?;
        let mut worlds = try_join_all((0..worlds).map(|number| World::start(number, number == 0))).await?;
        let undisturbed = worlds[0].undisturbed.clone();
        worlds.iter_mut().for_each(|world| world.undisturbed.clone_from(&undisturbed));
        let begin = Instant::now();
        let seeds = try_join_all(worlds.iter().map(|world| seeds(world, begin, &next)));
        let prepare = undisturbed.iter().map(|undisturbed| undisturbed.prepare());
        tokio::select! {
            done = seeds => done.map(drop),
            Err(error) = try_join_all(prepare) => Err(error),
        }
    });
}

/// Runs seeds in `world` until the limit; then it is at rest, as at first.
async fn seeds(world: &World, begin: Instant, next: &AtomicU64) -> Result<()> {
    let first = setting("CHAOS_SEED").unwrap_or(1);
    let minutes = Duration::from_secs(60 * setting("CHAOS_MINUTES").unwrap_or_default());
    let count = setting("CHAOS_SEEDS").unwrap_or(1);
    let length = Duration::from_millis(setting("CHAOS_MILLISECONDS").unwrap_or(2000));
    let operator = &world.product.operator.process;
    let files = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
    let first_pid = operator.pid()?;
    let at_first = files(first_pid)?;
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= first + count && begin.elapsed() >= minutes {
            break;
        }
        let times = world.seed(seed, length).await?;
        let counts = world.sites.iter().map(|site| site.chaos.counts());
        let (requests, faults) = counts.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        println!(
            "seed {seed}: as declared after {:.1} s, all in {:.1} s; {requests} requests, {faults} faults so far; {} MB, {} files",
            times.converged.as_secs_f64(),
            times.all.as_secs_f64(),
            measure::resident(operator.pid()?)? / 1000,
            files(operator.pid()?)?,
        );
    }
    world.empty().await?;
    let requests = || world.sites.iter().map(|site| site.chaos.counts().0).collect::<Vec<_>>();
    let ended = Instant::now();
    loop {
        let before = requests();
        tokio::time::sleep(REST).await;
        if before == requests() {
            break;
        }
        assert!(ended.elapsed() < CONVERGENCE, "requests at rest");
    }
    world.product.check_operator()?;
    // One that lost its Lease, on a loaded machine, has those of another process.
    let pid = operator.pid()?;
    let grown = files(pid)?.saturating_sub(at_first);
    assert!(grown <= FILES || pid != first_pid, "the operator has {grown} more open files");
    let (_, metrics) = http::get(world.product.metrics(), "/metrics").await?;
    let panics: Vec<&str> =
        metrics.lines().filter(|line| line.contains("reconcile_panics_total{") && !line.ends_with(" 0")).collect();
    assert!(panics.is_empty(), "reconciles panicked: {panics:?}");
    Ok(())
}
