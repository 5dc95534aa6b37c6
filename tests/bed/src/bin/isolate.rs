//! `isolate [--machine-network] COMMAND [ARGUMENT…]` runs a command in a network of its own,
//! without the proxies, clusters and settings of the machine's user.
//!
//! Cargo runs the tests of this package with it, and those of `tests` (`.cargo/config.toml`). Where
//! the network can't be isolated, or with `--machine-network`, the command uses that of the
//! machine. Tools that it asks for are downloaded in the network and the environment of the
//! machine.

#![allow(clippy::print_stderr)]

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, geteuid, kill_process, set_parent_process_death_signal};
use test_bed::skip::{KERNEL, Needs, skip};
use test_bed::{Result, environment, memory, network, outside, tools};
use tokio::signal::unix::{SignalKind, signal};

/// The command runs in the machine's network.
const SHARED: &str = "--machine-network";
/// This process is the one that becomes the command.
const INSIDE: &str = "--inside";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let outcome = match arguments.first() {
        Some(first) if first == network::PROBE => network::isolate().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Some(first) if first == INSIDE => Err(inside(&arguments[1..])),
        Some(_) => outside(&arguments),
        None => Err("usage: isolate [--machine-network] COMMAND [ARGUMENT…]".into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("isolate: {error}");
        ExitCode::FAILURE
    })
}

/// Starts the command, provides tools for it, and waits for its end.
#[tokio::main(flavor = "current_thread")]
async fn outside(arguments: &[OsString]) -> Result<ExitCode> {
    // First: from now on, the end of the command is the end of this process.
    let (mut interrupt, mut hangup) = (signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    let mut terminate = signal(SignalKind::terminate())?;
    let folder = tools::folder("knative-outside-")?;
    outside::serve(folder.path())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(INSIDE).args(arguments).env(outside::FOLDER, folder.path());
    let mut child = tokio::process::Command::from(command).spawn()?;
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    loop {
        let signal = tokio::select! {
            status = child.wait() => return Ok(code(status?)),
            _ = interrupt.recv() => Signal::INT,
            _ = hangup.recv() => Signal::HUP,
            _ = terminate.recv() => Signal::TERM,
        };
        // It may have ended; or started after the signal of the terminal.
        let _ = pid.map(|pid| kill_process(pid, signal));
    }
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Becomes the command; returns why that failed.
fn inside(arguments: &[OsString]) -> test_bed::Error {
    let is_shared = arguments.first().is_some_and(|first| first == SHARED);
    let [program, rest @ ..] = &arguments[usize::from(is_shared)..] else { return "no COMMAND".into() };
    let isolated = || network::obstacle().map_or_else(|| network::isolate().map_err(|error| error.to_string()), Err);
    if !is_shared && let Err(error) = isolated() {
        let needs = if geteuid().is_root() { Needs::Everywhere } else { KERNEL };
        skip(needs, &format!("a network for the tests alone: {error}; they use the machine's network"));
    }
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    let mut command = Command::new(program);
    environment::clean(command.args(rest));
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = memory::threads(processors as u64, memory::available());
        command.env("RUST_TEST_THREADS", threads.to_string());
    }
    format!("{}: {}", program.display(), command.exec()).into()
}
