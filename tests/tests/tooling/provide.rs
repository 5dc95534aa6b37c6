//! Scripts that provide tools and releases: checksums of downloads, interruptions, and two at once.

use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use knative_operator_tests::tools::project;
use knative_operator_tests::wait;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::server::{Server, output_text, sha256};

/// Time limit of each wait.
const LIMIT: Duration = wait::LIMIT;
const INSTALL: &str = "tests/tools/install.sh";

/// The path of a program that is installed here.
fn which(program: &str) -> PathBuf {
    let output = Command::new("which").arg(program).output().unwrap();
    assert!(output.status.success(), "{program} is not installed");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "not {what} after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn ended(child: &mut Child) -> ExitStatus {
    until("ended", || child.try_wait().unwrap().is_some());
    child.wait().unwrap()
}

/// Processes with `folder` in their environment.
pub fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let text = |file: PathBuf| String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).replace('\0', " ");
    let own = processes.filter(|process| text(process.join("environ")).contains(&folder));
    own.map(|process| text(process.join("cmdline"))).collect()
}

/// The tools that the shell scripts need, without Go as a fallback.
const PROGRAMS: [&str; 25] = [
    "awk",
    "basename",
    "bash",
    "cat",
    "chmod",
    "curl",
    "cut",
    "date",
    "dirname",
    "env",
    "find",
    "flock",
    "grep",
    "head",
    "ln",
    "mkdir",
    "mktemp",
    "mv",
    "rm",
    "sed",
    "sha256sum",
    "sort",
    "tr",
    "uname",
    "xargs",
];

/// Provides `tools` with the downloads of `server` and the cache `cache` in `dir`, without Go.
fn download(dir: &Path, cache: &str, tools: &[&str], server: &Server) -> Output {
    let bin = dir.join("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        for program in PROGRAMS {
            symlink(which(program), bin.join(program)).unwrap();
        }
    }
    Command::new(project().join(INSTALL))
        .args(tools)
        .env_clear()
        .env("PATH", &bin)
        .env("HOME", dir)
        .env("KNATIVE_OPERATOR_CACHE", dir.join(cache))
        .env("TOOLS_MIRROR", format!("http://{}", server.address))
        .output()
        .unwrap()
}

/// Where a tool of Kubernetes is published.
fn published(tool: &str) -> String {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    format!("/dl.k8s.io/release/v1.36.3/bin/linux/{arch}/{tool}")
}

/// A published tool with a checksum.
fn files(tool: &str, binary: &[u8], checksum: String) -> HashMap<String, Vec<u8>> {
    let path = published(tool);
    HashMap::from([(format!("{path}.sha256"), checksum.into_bytes()), (path, binary.to_vec())])
}

#[test]
fn downloaded_binary_needs_right_checksum() {
    let dir = tempfile::tempdir().unwrap();
    let binary = b"#!/bin/sh\necho kubectl\n";

    let right = Server::of(files("kubectl", binary, sha256(binary)), &[]);
    let output = download(dir.path(), "right", &["kubectl"], &right);
    assert!(
        output.status.success() && output_text(&output).contains("downloading kubectl"),
        "{}",
        output_text(&output)
    );
    let kubectl = Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("kubectl");
    assert_eq!(std::fs::read(&kubectl).unwrap(), binary);
    assert!(std::fs::metadata(&kubectl).unwrap().permissions().mode() & 0o111 != 0);

    let wrong = Server::of(files("kubectl", binary, sha256(b"another")), &[]);
    let output = download(dir.path(), "wrong", &["kubectl"], &wrong);
    let text = output_text(&output);
    assert!(
        !output.status.success()
            && text.contains("does not match its published checksum")
            && text.contains("install Go"),
        "{text}"
    );
}

#[test]
fn complete_downloads_stay_when_a_later_one_breaks() {
    let dir = tempfile::tempdir().unwrap();
    let (tools, broken) = (["kube-scheduler", "kubectl"], published("kubectl"));
    let mut all = files(tools[0], b"scheduler", sha256(b"scheduler"));
    all.extend(files(tools[1], b"kubectl", sha256(b"kubectl")));

    // Also each time that curl tries again.
    let server = Server::of(all.clone(), &[broken.as_str(); 9]);
    let output = download(dir.path(), "cache", &tools, &server);
    assert!(!output.status.success(), "{}", output_text(&output));
    assert!(server.requested().iter().any(|path| path.starts_with(&published(tools[0]))), "{:?}", server.requested());

    let server = Server::of(all, &[]);
    let output = download(dir.path(), "cache", &tools, &server);
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(server.requested().iter().all(|path| path.starts_with(&broken)), "{:?}", server.requested());
    let folder = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    for (tool, binary) in tools.iter().zip(["scheduler", "kubectl"]) {
        assert_eq!(std::fs::read_to_string(folder.join(tool)).unwrap(), binary);
    }
}

/// A folder with a cache and a program that waits for [`Gate::open`], and ends with the folder.
struct Gate(TempDir);

impl Gate {
    /// `then`: what `program` does after it waited, in the language of the shell.
    fn new(program: &str, then: &str) -> Self {
        let gate = Self(tempfile::tempdir().unwrap());
        let folder = gate.0.path().display();
        let text = format!(
            "echo $$ >>'{folder}/calls'\n\
             until [ -e '{folder}/open' ]; do [ -d '{folder}' ] || exit 1; sleep 0.05; done\n{then}"
        );
        gate.add(program, &text);
        gate
    }

    /// A `go build` that writes an empty program.
    fn of_builds() -> Self {
        Self::new("go", r#"while [ "$1" != -o ]; do shift; done; : >"$2""#)
    }

    /// Adds a program in the language of the shell, which waits for nothing.
    fn add(&self, program: &str, text: &str) {
        let path = self.path(program);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self) {
        std::fs::write(self.path("open"), "").unwrap();
    }

    /// What a file in the folder has.
    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Starts a script of the project as a process group, with its output in `NAME.out` and
    /// `NAME.err`.
    fn start(&self, name: &str, script: &str, arguments: &[&str]) -> Child {
        let path = std::env::var("PATH").unwrap();
        // In the background of a shell, such as CI's, SIGINT is ignored, and can't be trapped.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT,TERM,HUP").arg(project().join(script)).args(arguments);
        command.env("PATH", format!("{}:{path}", self.0.path().display()));
        command.env("KNATIVE_OPERATOR_CACHE", self.path("cache")).env("TOOLS_DOWNLOAD", "no");
        for name in ["KUBEBUILDER_ASSETS", "KUBERNETES", "BUNDLE", "BUNDLE_MODULE", "BUNDLE_LOCK"] {
            command.env_remove(name);
        }
        let file = |kind: &str| File::create(self.path(&format!("{name}.{kind}"))).unwrap();
        command.process_group(0).stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().unwrap()
    }

    /// Runs a script twice at once: the second one waits until the first one, in the program, has
    /// ended, and prints the same.
    fn twice(&self, script: &str, arguments: &[&str]) {
        let mut first = self.start("first", script, arguments);
        until("in the program", || self.read("calls").ends_with('\n'));
        let mut second = self.start("second", script, arguments);
        until("waiting", || self.read("second.err").contains("waiting for another process that provides"));
        self.open();
        for (name, child) in [("first", &mut first), ("second", &mut second)] {
            assert!(ended(child).success(), "{name}: {}", self.read(&format!("{name}.err")));
        }
        assert!(!self.read("first.out").is_empty());
        assert_eq!(self.read("first.out"), self.read("second.out"));
    }
}

#[test]
fn two_at_once_build_a_tool_once() {
    let gate = Gate::of_builds();
    gate.twice(INSTALL, &["crane"]);
    assert!(Path::new(gate.read("second.out").trim()).join("crane").is_file());
    assert_eq!(gate.read("calls").lines().count(), 1, "{}", gate.read("second.err"));
}

#[test]
fn two_at_once_provide_the_releases_once() {
    let gate = Gate::new("go", &format!("exec '{}' \"$@\"", which("go").display()));
    gate.twice("tests/package/releases.sh", &[]);
    assert!(gate.read("first.err").contains("190 files from the Go module"), "{}", gate.read("first.err"));
    assert!(!gate.read("second.err").contains("files from"), "{}", gate.read("second.err"));
}

#[test]
fn two_at_once_build_the_last_release_once() {
    let gate = Gate::new(
        "cargo",
        r#"while [ "$1" != --target-dir ]; do shift; done
mkdir -p "$2/debug" && for name in knative-operator knative-operator-webhook; do : >"$2/debug/$name"; done"#,
    );
    // The history may be incomplete.
    gate.add("git", r#"[ "$1" != archive ] || tar -c -T /dev/null"#);
    gate.twice("tests/package/last-release.sh", &[]);
    assert!(Path::new(gate.read("second.out").trim()).join("knative-operator").is_file());
    assert_eq!(gate.read("calls").lines().count(), 1, "{}", gate.read("second.err"));
}

#[test]
fn an_interrupt_ends_a_build_and_the_next_start_works() {
    let gate = Gate::of_builds();
    // Ctrl+C, the end of CI's job, and a terminal that is closed.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let before = gate.read("calls").lines().count();
        let mut child = gate.start("first", INSTALL, &["crane"]);
        until("in go", || gate.read("calls").lines().count() > before);
        assert!(!processes_of(gate.0.path()).is_empty());
        kill_process_group(Pid::from_child(&child), signal).unwrap();
        assert_eq!(ended(&mut child).code(), Some(130), "{signal:?}: {}", gate.read("first.err"));
        until("without processes", || processes_of(gate.0.path()).is_empty());
    }

    gate.open();
    let mut child = gate.start("next", INSTALL, &["crane"]);
    assert!(ended(&mut child).success(), "{}", gate.read("next.err"));
    assert!(Path::new(gate.read("next.out").trim()).join("crane").is_file());
}
