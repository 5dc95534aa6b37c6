//! Runs a command, and stops it when standard input closes: when the process that started it is
//! gone, even by SIGKILL.
//!
//! `tether PID_FILE GRACE_SECONDS COMMAND [ARGUMENT…]`; a grace of 0 kills immediately. Exits with
//! the status of the command. While PID_FILE with the extension `restart` exists, a command that
//! fails by itself is started again, as the kubelet does. If `TETHER_REMOVE` is set, that folder is
//! removed at the end. If the command is a container runtime, `TETHER_CONTAINER` is the file with
//! the process id of its container, which is not in its process group, and `TETHER_CONTAINER_ID`
//! its name.

#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Delay of a restart.
const BACKOFF: Duration = Duration::from_secs(1);
/// Time that a container runtime gets to remove its container.
const AFTER_KILL: Duration = Duration::from_secs(20);
/// Time in which the processes of a control group end after they were killed.
const ENDING: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let code = run();
    // The runtime can't remove the container's cgroups if its state was removed before.
    if let Some(id) = std::env::var_os("TETHER_CONTAINER_ID") {
        let root = Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        controllers.chain([root.to_owned()]).for_each(|folder| remove_group(&folder.join(&id)));
    }
    if let Some(folder) = std::env::var_os("TETHER_REMOVE") {
        // Other processes may still write there for a moment.
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir_all(&folder).is_err() && Path::new(&folder).exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    code
}

/// Removes a control group and those in it. Their processes were killed, and end within moments.
fn remove_group(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    let deadline = Instant::now() + ENDING;
    while folder.exists() && std::fs::remove_dir(folder).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn run() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let pid_file = PathBuf::from(arguments.next().expect("PID_FILE"));
    let grace =
        arguments.next().and_then(|g| g.to_str()?.parse().ok()).map(Duration::from_secs).expect("GRACE_SECONDS");
    let program = arguments.next().expect("COMMAND");
    let arguments: Vec<OsString> = arguments.collect();
    // No polling: a test run has hundreds of these.
    let (events, next) = channel::<Event>();
    let closed = events.clone();
    std::thread::spawn(move || {
        let mut sink = [0; 64];
        while matches!(std::io::stdin().read(&mut sink), Ok(n) if n > 0) {}
        let _ = closed.send(Event::Closed);
    });
    loop {
        let spawned = Command::new(&program).args(&arguments).stdin(Stdio::null()).process_group(0).spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                eprintln!("{}: {error}", program.display());
                return ExitCode::from(127);
            }
        };
        std::fs::write(&pid_file, child.id().to_string()).expect("pid file");
        let (group, exited) = (Pid::from_child(&child), events.clone());
        std::thread::spawn(move || {
            let _ = exited.send(Event::Exited(child.wait().ok().and_then(|status| status.code())));
        });
        // Remaining children, and a runtime that doesn't end.
        let kill_rest = || {
            let _ = kill_process_group(group, Signal::KILL);
        };
        if let Ok(Event::Exited(code)) = next.recv() {
            kill_rest();
            let restarts = matches!(code, Some(1..=127)) && pid_file.with_extension("restart").exists();
            if restarts && next.recv_timeout(BACKOFF).is_err() {
                continue;
            }
            return exit_code(code);
        }
        if !grace.is_zero() {
            let _ = kill_process_group(group, Signal::TERM);
            if let Ok(Event::Exited(code)) = next.recv_timeout(grace) {
                kill_rest();
                return exit_code(code);
            }
        }
        kill(group);
        let _ = next.recv_timeout(AFTER_KILL);
        kill_rest();
        return ExitCode::from(137);
    }
}

/// Kills the command. A container runtime ends after its container, and removes what it made.
fn kill(group: Pid) {
    let container = std::env::var_os("TETHER_CONTAINER");
    match container.and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok()) {
        Some(id) => {
            let _ = Pid::from_raw(id).map(|id| kill_process(id, Signal::KILL));
        }
        None => {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// What happened.
enum Event {
    /// The command exited, with its status, or by a signal.
    Exited(Option<i32>),
    /// Standard input closed.
    Closed,
}

fn exit_code(code: Option<i32>) -> ExitCode {
    ExitCode::from(u8::try_from(code.unwrap_or(137)).unwrap_or(1))
}
