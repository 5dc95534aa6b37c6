//! Hours of changes without faults: memory, threads and file descriptors don't grow. A failure
//! leaves the log of the operator in target/soak.log.

use std::time::{Duration, Instant};

use fastrand::Rng;
use knative_operator_tests::skip::{HOURS, skip};
use knative_operator_tests::{measure, tools};

use super::config::Config;
use super::world::World;
use super::{run, setting};

/// Interval of changes: ten a minute.
const INTERVAL: Duration = Duration::from_secs(6);
/// Interval of figures.
const REPORT: Duration = Duration::from_secs(600);
/// Maximum growth of memory in KB, after the first figures.
const GROWTH: u64 = 4000;

#[test]
fn resources_of_the_process_do_not_grow() {
    let Some(minutes) = setting("SOAK_MINUTES") else {
        skip(HOURS, "SOAK_MINUTES is not set");
        return;
    };
    run(async {
        let world = World::start(0, false).await?;
        let pid = world.product.operator.process.pid()?;
        let count = |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}")).map(Iterator::count);
        let (mut random, begin, mut reports) = (Rng::with_seed(1), Instant::now(), Vec::new());
        let (mut changes, mut next) = (0, INTERVAL);
        while begin.elapsed() < Duration::from_secs(60 * minutes) {
            let resource = &world.resources[random.usize(..world.resources.len())];
            let config = (random.u8(..10) > 0).then(|| Config::random(resource.component, &mut random));
            resource.set(&world.hub, config).await.inspect_err(|_| {
                let _ = std::fs::write(tools::project().join("target/soak.log"), world.product.operator.process.log());
            })?;
            changes += 1;
            tokio::time::sleep(next.saturating_sub(begin.elapsed())).await;
            next += INTERVAL;
            if begin.elapsed() >= REPORT * u32::try_from(reports.len() + 1)? {
                let (memory, files, threads) = (measure::resident(pid)?, count("fd")?, count("task")?);
                let minute = begin.elapsed().as_secs() / 60;
                let memory_mb = f64::from(u32::try_from(memory)?) / 1000.0;
                println!("{minute} min, {changes} changes: {memory_mb:.1} MB, {files} files, {threads} threads");
                reports.push((memory, files));
            }
        }
        world.empty().await?;
        if let [_, (memory, files), .., (last_memory, last_files)] = reports[..] {
            assert!(last_memory <= memory + GROWTH, "memory grew from {memory} to {last_memory} KB");
            assert!(last_files <= files + 16, "open files grew from {files} to {last_files}");
        }
        Ok(())
    });
}
