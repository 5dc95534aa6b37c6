//! Runs a process: logs, runtime, exit code.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use crate::error_text;
use crate::log::LogArgs;

/// Runs `serve` on this number of threads. Exits with 1 and logs the error if it fails, and with 2
/// if `log` is invalid.
pub fn run<E: Error + 'static>(log: &LogArgs, threads: usize, serve: impl Future<Output = Result<(), E>>) -> ExitCode {
    if let Err(error) = log.start() {
        eprintln!("--log-level: {error}");
        return ExitCode::from(2);
    }
    let mut builder = match threads {
        // No work-stealing needed.
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match builder.worker_threads(threads).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = error_text(&error), "the process failed");
            ExitCode::FAILURE
        }
    }
}
