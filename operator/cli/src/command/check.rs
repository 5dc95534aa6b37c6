//! `knative-operator check`: waits until URLs answer with success. `helm test` runs it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use knative_operator_runtime::identity::user_agent;
use knative_operator_runtime::{duration::duration, error_text};
use knative_operator_shared::label::FIELD_MANAGER;

use super::output::{print, report, runtime};

/// Flags of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// URLs to request.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Time limit for all URLs.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

/// Delay before a URL is requested again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Reports each URL that answers with success, or why the first one doesn't. Exit status: 0 all
/// answer, 1 one doesn't.
pub fn run(args: &CheckArgs) -> ExitCode {
    match check(args) {
        Ok(text) => print(&text),
        Err(error) => {
            report(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn check(args: &CheckArgs) -> Result<String, String> {
    let client = reqwest::Client::builder()
        .user_agent(user_agent(FIELD_MANAGER))
        .timeout(Duration::from_secs(5))
        .build()
        .map_err(|e| error_text(&e))?;
    let runtime = runtime()?;
    let started = Instant::now();
    let mut report = String::new();
    for url in &args.urls {
        while let Err(why) = runtime.block_on(request(&client, url)) {
            if started.elapsed() > args.timeout {
                return Err(format!("{url}: {why}"));
            }
            std::thread::sleep(RETRY_DELAY);
        }
        report += url;
        report += ": ok\n";
    }
    Ok(report)
}

async fn request(client: &reqwest::Client, url: &str) -> Result<(), String> {
    let response = client.get(url).send().await.map_err(|e| error_text(&e))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    Err(format!("{status}: {}", response.text().await.unwrap_or_default()))
}
