//! Runs a command, and stops it when standard input closes: when the process that started it is
//! gone, even by SIGKILL.
//!
//! `tether PID_FILE GRACE_SECONDS COMMAND [ARGUMENT…]`; a grace of 0 kills immediately. Exits with
//! the status of the command. If `TETHER_REMOVE` is set, that folder is removed at the end. If the
//! command is a container runtime, `TETHER_CONTAINER` is the file with the process id of its
//! container, which is not in its process group, and `TETHER_CONTAINER_ID` its name.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

fn main() -> ExitCode {
    let code = run();
    // The runtime can't remove the container's cgroups if its state was removed before.
    if let Some(id) = std::env::var_os("TETHER_CONTAINER_ID") {
        let root = std::path::Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        controllers.chain([root.to_owned()]).for_each(|folder| drop(std::fs::remove_dir(folder.join(&id))));
    }
    if let Some(folder) = std::env::var_os("TETHER_REMOVE") {
        // Other processes may still write there for a moment.
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir_all(&folder).is_err()
            && std::path::Path::new(&folder).exists()
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    code
}

fn run() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let pid_file = arguments.next().expect("PID_FILE");
    let grace =
        arguments.next().and_then(|g| g.to_str()?.parse().ok()).map(Duration::from_secs).expect("GRACE_SECONDS");
    let program = arguments.next().expect("COMMAND");
    let mut child = match Command::new(&program).args(arguments).stdin(Stdio::null()).process_group(0).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("{}: {error}", program.display());
            return ExitCode::from(127);
        }
    };
    std::fs::write(pid_file, child.id().to_string()).expect("pid file");
    let group = Pid::from_child(&child);
    let (closed, watch) = channel::<()>();
    std::thread::spawn(move || {
        let mut sink = [0; 64];
        while matches!(std::io::stdin().read(&mut sink), Ok(n) if n > 0) {}
        drop(closed);
    });
    // The runtime ends after its container, and removes what it made.
    let container = std::env::var_os("TETHER_CONTAINER");
    let kill = || match container.as_ref().and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok()) {
        Some(id) => drop(Pid::from_raw(id).map(|id| kill_process(id, Signal::KILL))),
        None => drop(kill_process_group(group, Signal::KILL)),
    };
    let mut ending: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let _ = kill_process_group(group, Signal::KILL); // remaining children
            return ExitCode::from(u8::try_from(status.code().unwrap_or(137)).unwrap_or(1));
        }
        match ending {
            Some(since) if since.elapsed() >= grace => {
                kill();
                let _ = child.wait();
                return ExitCode::from(137);
            }
            Some(_) => std::thread::sleep(Duration::from_millis(10)),
            None => {
                if watch.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Disconnected) {
                    if grace.is_zero() {
                        kill();
                    } else {
                        let _ = kill_process_group(group, Signal::TERM);
                    }
                    ending = Some(Instant::now());
                }
            }
        }
    }
}
