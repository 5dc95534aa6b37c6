//! Scripts and helper programs: the release bundle, downloads of tools, processes that end with
//! their starter; and how commands connect.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

#[path = "tooling/bare.rs"]
mod bare;
#[path = "tooling/bundle.rs"]
mod bundle;
#[path = "tooling/completions.rs"]
mod completions;
#[path = "tooling/connection.rs"]
mod connection;
#[path = "tooling/failures.rs"]
mod failures;
#[path = "tooling/fleets.rs"]
mod fleets;
#[path = "tooling/interrupts.rs"]
mod interrupts;
#[path = "tooling/machine.rs"]
mod machine;
#[path = "tooling/provide.rs"]
mod provide;
#[path = "tooling/server.rs"]
mod server;
#[path = "tooling/version.rs"]
mod version;
#[path = "tooling/wrong_inputs.rs"]
mod wrong_inputs;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn process_ends_with_its_starter() {
    let dir = tempfile::tempdir().unwrap();
    let (pid_file, ended) = (dir.path().join("pid"), dir.path().join("to-remove"));
    std::fs::create_dir(&ended).unwrap();
    // The shell that starts the tether is killed, so it can't clean up.
    let tether = knative_operator_tests::tools::binary("tether").unwrap();
    let script = format!(
        "sleep 600 | TETHER_REMOVE={} {} {} 0 sleep 601",
        ended.display(),
        tether.display(),
        pid_file.display()
    );
    let mut shell = Command::new("sh").args(["-c", &script]).process_group(0).spawn().unwrap();
    let deadline = std::time::Instant::now() + knative_operator_tests::wait::LIMIT;
    let within = |what: &str| assert!(std::time::Instant::now() < deadline, "{what}");
    let pid = loop {
        if let Some(pid) = std::fs::read_to_string(&pid_file).ok().and_then(|p| p.parse::<i32>().ok()) {
            break pid;
        }
        within("it did not start");
        std::thread::yield_now();
    };
    // The tether is in the shell's process group, but what matters is its standard input: close
    // that.
    let holder = Command::new("pkill").args(["-KILL", "-x", "-P", &shell.id().to_string(), "sleep"]).status().unwrap();
    assert!(holder.success());
    while Path::new(&format!("/proc/{pid}")).exists() || ended.exists() {
        within("the process still runs, or its folder still exists");
        std::thread::yield_now();
    }
    let _ = shell.wait();
}
