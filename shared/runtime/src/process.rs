//! Runs a process: logs, runtime, exit code.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use crate::error_text;
use crate::log::LogArgs;

/// Runs `serve` of `program` on this number of threads. Exits with 1 and logs the error if it
/// fails, and with 2 if `log` is invalid.
pub fn run<E: Error + 'static>(
    program: &'static str,
    log: &LogArgs,
    threads: usize,
    serve: impl Future<Output = Result<(), E>>,
) -> ExitCode {
    let mut builder = match threads {
        // No work-stealing needed.
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match builder.worker_threads(threads).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let entered = runtime.enter();
    let traces = match log.start(program) {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("{}", error_text(&error));
            return ExitCode::from(2);
        }
    };
    drop(entered);
    let outcome = runtime.block_on(serve);
    if let Err(error) = &outcome {
        tracing::error!(error = error_text(error), "the process failed");
    }
    if let Some(traces) = traces {
        // Err means that it panicked.
        let _ = runtime.block_on(runtime.spawn_blocking(move || traces.shutdown()));
    }
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
