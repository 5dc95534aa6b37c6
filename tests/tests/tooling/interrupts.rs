//! Ctrl+C in each step of `make test`, whose scripts run another `cargo` here.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use knative_operator_tests::tools;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::provide::{ended, processes_of, until};

/// What runs beside the others.
const BESIDE: &str = "--test machines";
/// A part of the command of each other step.
const STEPS: [&str; 9] = [
    "--lib --bins",
    "--test conformance",
    "--test images",
    "--test chaos",
    "--exact life::",
    "-- flood::",
    "--test e2e -- --skip",
    "--test texts",
    "--test go_suite",
];
/// It knows the names of long tests, and uses Cargo's runner.
const CARGO: &str = r#"case "$*" in *--list*) sed -nE 's/^([a-z_0-9:]+) .*/\1: test/p' tests/package/long-tests.txt; exit ;; esac
runner=$(env | sed -n 's/^CARGO_TARGET_.*_RUNNER=//p')
exec $runner FOLDER/bin/tests-1 "$@""#;
/// What Cargo runs: it notes its arguments, and one step doesn't end.
const TESTS: &str = r#"echo "$*" >>FOLDER/calls
case "$*" in *"$(cat FOLDER/stop)"*) ;; *) exit 0 ;; esac
: >FOLDER/reached
while [ -d FOLDER ]; do sleep 0.05; done"#;

/// A folder with the scripts of the project and other programs.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        let root = site.path("root");
        for folder in [site.path("bin"), root.join("tests"), root.join("target/debug")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        for folder in ["tests/package", "tests/tools"] {
            symlink(tools::project().join(folder), root.join(folder)).unwrap();
        }
        symlink(tools::binary("tether").unwrap(), root.join("target/debug/tether")).unwrap();
        for (name, text) in [("cargo", CARGO), ("tests-1", TESTS), ("rustc", "echo host: a-b-c")] {
            let path = site.path("bin").join(name);
            let text = text.replace("FOLDER", &site.0.path().display().to_string());
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The steps that began, but for that beside the others.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().filter(|line| !line.contains(BESIDE)).map(str::to_owned).collect()
    }

    /// Runs the steps until that with `stop` in its command, once `is_there`, and interrupts it.
    fn interrupt(&self, stop: &str, is_there: impl Fn(&Self) -> bool) {
        for name in ["calls", "reached"] {
            let _ = std::fs::remove_file(self.path(name));
        }
        std::fs::write(self.path("stop"), stop).unwrap();
        let mut command = Command::new("env");
        // In the background of a shell, such as CI's, it is ignored.
        command.arg("--default-signal=INT").arg(self.path("root/tests/package/run-tests.sh"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_TARGET_")) {
            command.env_remove(name);
        }
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.env("KNATIVE_OPERATOR_CACHE", self.path("cache"));
        let mut child =
            command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until(stop, || self.path("reached").exists() && is_there(self));
        let before = self.calls();
        kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(!ended(&mut child).success(), "{stop}");
        until("without processes", || processes_of(self.0.path()).is_empty());
        assert_eq!(self.calls(), before, "{stop}: the next step began");
    }
}

#[test]
fn an_interrupt_in_any_step_ends_all_of_them() {
    let site = Site::new();
    for stop in STEPS {
        site.interrupt(stop, |_| true);
    }
    // The others have ended up to the one that waits for it.
    site.interrupt(BESIDE, |site| site.calls().iter().any(|call| call.contains("--test chaos")));
}
