//! The frame of a process: logs, runtime, exit code.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use crate::chain;
use crate::log::LogArgs;

/// Threads that do the work of a process.
const THREADS: usize = 2;

/// Runs `serve` to its end. Exits with 1 if it fails, having logged why, and with 2 if `log` is of no use.
pub fn run<E: Error + 'static>(log: &LogArgs, serve: impl Future<Output = Result<(), E>>) -> ExitCode {
    if let Err(error) = log.start() {
        eprintln!("--log-level: {error}");
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = chain(&error), "ended");
            ExitCode::FAILURE
        }
    }
}
