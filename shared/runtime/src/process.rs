//! Runs a process: logs, runtime, exit code.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;

use crate::error_text;
use crate::log::LogArgs;

/// Number of files and connections that a process may have open, if it is permitted.
const OPEN_FILES: u64 = 1 << 16;
/// Time that tasks and blocking threads have to end at the end of a process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs `serve` of `program` on this number of threads. Exits with 1 and logs the error if it
/// fails, and with 2 if `log` is invalid.
pub fn run<E: Error + 'static>(
    program: &'static str,
    log: &LogArgs,
    threads: usize,
    serve: impl Future<Output = Result<(), E>>,
) -> ExitCode {
    raise_file_limit();
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
    end(runtime);
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Ends `runtime`. Without a time limit, that would wait for all blocking threads: the resolution
/// of a name is in one, and takes half a minute if no name server answers.
pub fn end(runtime: Runtime) {
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
}

/// Raises the limit of open files, which many container runtimes set to 1024 for programs that
/// don't raise it: fewer than the connections that a process accepts and makes.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        // Err: the limit stays. Then connections give way earlier.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn end_does_not_wait_for_a_blocking_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (unblock, blocked) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        drop(runtime.spawn_blocking(move || {
            let _ = started.send(());
            let _ = blocked.recv();
        }));
        has_started.recv().unwrap();
        end(runtime);
        assert!(unblock.send(()).is_ok(), "it still waits");
    }
}
