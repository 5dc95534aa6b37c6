//! `knative-operator check`: waits until URLs answer with success. What `helm test` runs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use knative_operator_runtime::identity::user_agent;
use knative_operator_runtime::{duration::duration, words};
use knative_operator_shared::label::FIELD_MANAGER;

use super::{Told, runtime, tell};

/// Flags of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// URLs that are to answer.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// How long they may take.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

/// How soon a URL is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Says of each URL that it answers, or what is wrong with the first that doesn't.
pub fn run(args: &CheckArgs) -> ExitCode {
    tell(check(args).map(|text| Told { text, warnings: Vec::new() }))
}

fn check(args: &CheckArgs) -> Result<String, String> {
    let client = reqwest::Client::builder()
        .user_agent(user_agent(FIELD_MANAGER))
        .timeout(Duration::from_secs(5))
        .build()
        .map_err(|e| words(&e))?;
    let runtime = runtime()?;
    let started = Instant::now();
    let mut told = String::new();
    for url in &args.urls {
        while let Err(why) = runtime.block_on(once(&client, url)) {
            if started.elapsed() > args.timeout {
                return Err(format!("{url}: {why}"));
            }
            std::thread::sleep(PAUSE);
        }
        told += url;
        told += ": ok\n";
    }
    Ok(told)
}

async fn once(client: &reqwest::Client, url: &str) -> Result<(), String> {
    let answer = client.get(url).send().await.map_err(|e| words(&e))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    Err(format!("{status}: {}", answer.text().await.unwrap_or_default()))
}
