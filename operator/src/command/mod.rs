//! What the binary does besides running: `render`, `lint` and `versions` without a cluster, `diff` against one.

pub mod check;
pub mod diff;
pub mod lint;
mod read;
pub mod render;
pub mod rules;
mod unified;
pub mod versions;

use std::io::Write;
use std::process::ExitCode;

/// How output is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// One JSON document.
    Json,
    /// YAML.
    #[default]
    Yaml,
}

/// What asynchronous work of a subcommand runs on.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|e| format!("no thread can be started: {e}"))
}

/// Writes all of `text` to stdout.
pub fn print(text: &str) -> ExitCode {
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Tells `outcome`: its text on stdout and its warnings on stderr, or its error on stderr and nothing on stdout.
fn tell(outcome: Result<Told, String>) -> ExitCode {
    let mut stderr = std::io::stderr();
    match outcome {
        Ok(Told { text, warnings }) => {
            for warning in warnings {
                let _ = writeln!(stderr, "warning: {warning}");
            }
            print(&text)
        }
        Err(error) => {
            let _ = writeln!(stderr, "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a subcommand came to.
struct Told {
    text: String,
    warnings: Vec<String>,
}
