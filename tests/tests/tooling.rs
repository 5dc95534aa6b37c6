//! The scripts that download files, tested with a local server.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use knative_operator_tests::tools::project;

/// A file server that interrupts some responses in the middle, once.
struct Server {
    address: SocketAddr,
    requested: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn of(files: HashMap<String, Vec<u8>>, breaks: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requested: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, breaks) =
            (Arc::clone(&requested), Mutex::new(breaks.iter().map(|b| (*b).to_owned()).collect::<Vec<_>>()));
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &files, &log, &breaks);
            }
        });
        Self { address, requested }
    }

    fn requested(&self) -> Vec<String> {
        self.requested.lock().unwrap().clone()
    }
}

fn answer(
    mut stream: TcpStream,
    files: &HashMap<String, Vec<u8>>,
    log: &Mutex<Vec<String>>,
    breaks: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut from = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    log.lock().unwrap().push(format!("{path}@{from}"));
    let Some(body) = files.get(&path) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    if from > body.len() {
        return stream
            .write_all(b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let rest = &body[from..];
    let status = if from > 0 {
        format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{}", body.len() - 1, body.len())
    } else {
        "200 OK".to_owned()
    };
    stream.write_all(
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\nConnection: close\r\n\r\n",
            rest.len()
        )
        .as_bytes(),
    )?;
    let mut breaks = breaks.lock().unwrap();
    if let Some(place) = breaks.iter().position(|b| *b == path) {
        breaks.remove(place);
        return stream.write_all(&rest[..rest.len() / 2]);
    }
    stream.write_all(rest)
}

fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()[..64].to_owned()
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn bundle(out: &Path, lock: &Path, server: &Server, versions: &[&str]) -> Output {
    Command::new(project().join("operator/bundle/build.sh"))
        .arg(out)
        .args(versions)
        .env("BUNDLE_LOCK", lock)
        .env("BUNDLE_SOURCE", format!("http://{}", server.address))
        .output()
        .unwrap()
}

#[test]
fn bundle_is_built_verified_and_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (out, lock) = (dir.path().join("out"), dir.path().join("lock"));
    let file = |name: &str| format!("# {name}\n").repeat(2000).into_bytes();
    let places = [
        ("knative-serving/1.1.0/1-a.yaml", "/k/serving/a.yaml"),
        ("knative-serving/1.1.0/2-b.yaml", "/k/serving/b.yaml"),
        ("ingress/1.1/kourier/kourier.yaml", "/k/kourier.yaml"),
        ("knative-serving/1.0.0/1-old.yaml", "/k/serving/old.yaml"),
    ];
    let rows: String =
        places.iter().map(|(place, path)| format!("{}  {place}  {}\n", sha256(&file(path)), &path[1..])).collect();
    std::fs::write(&lock, format!("# comment\n{rows}")).unwrap();
    let mut files: HashMap<String, Vec<u8>> = places.iter().map(|(_, path)| ((*path).to_owned(), file(path))).collect();

    // One file is modified, one is interrupted: the first is refused, the second resumed.
    files.insert("/k/serving/b.yaml".to_owned(), b"tampered".to_vec());
    let server = Server::of(files.clone(), &["/k/serving/a.yaml"]);
    let output = bundle(&out, &lock, &server, &["1.1.0"]);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("[2/3] knative-serving/1.1.0/2-b.yaml: FAILED: its checksum is"), "{text}");
    assert!(text.contains("1 of 3 files are missing") && text.contains("run the same command again"), "{text}");
    assert_eq!(std::fs::read(out.join(places[0].0)).unwrap(), file(places[0].1));
    assert!(
        server.requested().iter().any(|a| a.starts_with("/k/serving/a.yaml@") && !a.ends_with("@0")),
        "not continued: {:?}",
        server.requested()
    );
    assert!(!out.join(places[1].0).exists() && !out.join(places[3].0).exists());

    // Repeated, the same command downloads only what is missing.
    files.insert("/k/serving/b.yaml".to_owned(), file("/k/serving/b.yaml"));
    let server = Server::of(files, &[]);
    let output = bundle(&out, &lock, &server, &["1.1.0"]);
    let text = output_text(&output);
    assert!(output.status.success() && text.contains("is complete: 3 files"), "{text}");
    assert!(server.requested().iter().all(|a| a.starts_with("/k/serving/b.yaml")), "{:?}", server.requested());

    let output = bundle(&out, &lock, &server, &["9.9.9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_text(&output).contains("has nothing for version 9.9.9; it has 1.0.0 1.1.0"),
        "{}",
        output_text(&output)
    );
}

#[test]
fn locked_checksums_match_releases() {
    let releases = project().join("../shared/releases");
    if !releases.is_dir() {
        // Not `eprintln!`, whose output a passing test hides.
        let _ = writeln!(std::io::stderr(), "skipped: {} is not there", releases.display());
        return;
    }
    let lock = std::fs::read_to_string(project().join("operator/bundle/releases.lock")).unwrap();
    let rows: Vec<Vec<&str>> =
        lock.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().collect()).collect();
    assert!(rows.len() > 150);
    for row in rows.iter().step_by(20) {
        assert_eq!(sha256(&std::fs::read(releases.join(row[1])).unwrap()), row[0], "{}", row[1]);
    }
}

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
