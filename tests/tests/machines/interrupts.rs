//! Ctrl+C while the fixture starts.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use knative_operator_tests::Result;
use rustix::process::{Pid, Signal, kill_process_group};

use super::machine::{LONG, SHORT, ends, on_a_machine};

/// Whether `folder` has an entry whose name has `part`, in which `file` exists.
fn has(folder: &Path, part: &str, file: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().contains(part))
        .any(|entry| entry.path().join(file).exists())
}

#[test]
fn an_interrupt_at_any_step_leaves_nothing_and_the_next_start_works() {
    on_a_machine(|machine| {
        // What exists at each step, in the folder of temporary files.
        let steps =
            [("outside", "socket"), ("hub", "ca.crt"), ("hub", "etcd.log"), ("hub", "audit.log"), ("hub", "pods")];
        for (part, file) in steps {
            let mut command = machine.cluster_after(&["isolate"], &["up", "--product"])?;
            let mut child = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            let deadline = Instant::now() + LONG;
            while !has(&machine.path("tmp"), part, file) {
                assert!(Instant::now() < deadline, "there is no {file}");
                assert!(child.try_wait()?.is_none(), "it ended before there was {file}");
                std::thread::sleep(Duration::from_millis(2));
            }
            kill_process_group(Pid::from_child(&child), Signal::INT)?;
            assert_eq!(ends(&mut child, SHORT)?, Some(false), "at {file}");
            machine.idle().map_err(|error| format!("interrupted at {file}: {error}"))?;
        }
        machine.up_and_down(&["isolate"], &[]).map(drop)
    });
}

#[test]
fn a_killed_process_leaves_nothing() {
    on_a_machine(|machine| {
        let (well, output) = machine.cluster(&["up"], LONG)?;
        assert!(well, "{output}");
        let pid = std::fs::read_to_string(machine.path("clusters/pid"))?.trim().parse::<i32>()?;
        rustix::process::kill_process(Pid::from_raw(pid).ok_or("no process")?, Signal::KILL)?;
        machine.idle()?;
        let up: Result<String> = machine.up_and_down(&[], &[]);
        up.map(drop)
    });
}
