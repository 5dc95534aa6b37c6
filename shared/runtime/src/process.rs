//! The frame of a process: logs, runtime, exit code.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use crate::log::LogArgs;
use crate::words;

/// Runs `serve` to its end, on so many threads. Exits with 1 if it fails, having logged why, and with 2 if `log` is of no use.
pub fn run<E: Error + 'static>(log: &LogArgs, threads: usize, serve: impl Future<Output = Result<(), E>>) -> ExitCode {
    if let Err(error) = log.start() {
        eprintln!("--log-level: {error}");
        return ExitCode::from(2);
    }
    let mut builder = match threads {
        // Nothing is handed from one to the other.
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match builder.worker_threads(threads).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = words(&error), "ended");
            ExitCode::FAILURE
        }
    }
}
