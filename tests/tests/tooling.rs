//! Scripts and helper programs: the release bundle, downloads of tools, processes that end with
//! their starter; and how commands connect.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

#[path = "tooling/bare.rs"]
mod bare;
#[path = "tooling/bundle.rs"]
mod bundle;
#[path = "tooling/connection.rs"]
mod connection;
#[path = "tooling/fleets.rs"]
mod fleets;
#[path = "tooling/server.rs"]
mod server;
#[path = "tooling/wrong_inputs.rs"]
mod wrong_inputs;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use knative_operator_tests::tools::project;

use self::server::{Server, output_text, sha256};

#[test]
fn downloaded_binary_needs_right_checksum() {
    let dir = tempfile::tempdir().unwrap();
    // Only the shell's own tools: no Go as a fallback.
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let needed = [
        "bash",
        "cat",
        "chmod",
        "curl",
        "cut",
        "dirname",
        "basename",
        "env",
        "flock",
        "grep",
        "head",
        "mkdir",
        "mktemp",
        "mv",
        "rm",
        "sed",
        "sha256sum",
        "tr",
        "uname",
        "ln",
        "awk",
        "xargs",
        "date",
        "find",
        "sort",
    ];
    for tool in needed {
        let path = String::from_utf8(Command::new("which").arg(tool).output().unwrap().stdout).unwrap();
        std::os::unix::fs::symlink(path.trim(), bin.join(tool)).unwrap();
    }
    let install = |cache: &str, server: &Server| {
        Command::new(project().join("tests/tools/install.sh"))
            .arg("kubectl")
            .env_clear()
            .env("PATH", &bin)
            .env("HOME", dir.path())
            .env("KNATIVE_OPERATOR_CACHE", dir.path().join(cache))
            .env("TOOLS_MIRROR", format!("http://{}", server.address))
            .output()
            .unwrap()
    };
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let path = format!("/dl.k8s.io/release/v1.36.3/bin/linux/{arch}/kubectl");
    let binary = b"#!/bin/sh\necho kubectl\n".to_vec();

    let right =
        HashMap::from([(path.clone(), binary.clone()), (format!("{path}.sha256"), sha256(&binary).into_bytes())]);
    let output = install("right", &Server::of(right, &[]));
    assert!(output.status.success(), "{}", output_text(&output));
    let kubectl = Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("kubectl");
    assert_eq!(std::fs::read(&kubectl).unwrap(), binary);
    assert!(std::fs::metadata(&kubectl).unwrap().permissions().mode() & 0o111 != 0);

    let wrong = HashMap::from([(path.clone(), binary), (format!("{path}.sha256"), sha256(b"another").into_bytes())]);
    let output = install("wrong", &Server::of(wrong, &[]));
    let text = output_text(&output);
    assert!(
        !output.status.success()
            && text.contains("does not match its published checksum")
            && text.contains("install Go"),
        "{text}"
    );
}

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
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
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
