//! The images of `make images`: contents, configuration, and what is reported if they can't be
//! built, pushed or run. `make test` builds them in target/images-test.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use knative_operator_tests::https::{Answer, Server};
use knative_operator_tests::kubelet::container::{self, Spec};
use knative_operator_tests::pki::Authority;
use knative_operator_tests::registry::{self, Image, Registry, architecture, layouts};
use knative_operator_tests::skip::skip;
use knative_operator_tests::subnet::Subnet;
use knative_operator_tests::{Result, tools};
use serde_json::{Value, json};

/// The folder of the layouts, or a message that the test is skipped.
fn folder() -> Option<PathBuf> {
    layouts().inspect_err(|reason| skip(registry::needs(), &format!("images: {reason}"))).ok()
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Runs a script of tests/package with variables; returns whether it succeeded, and its output.
fn script(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(bool, String)> {
    let output = Command::new(tools::project().join("tests/package").join(name))
        .args(arguments)
        .envs(variables.iter().copied())
        .output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
}

/// The instructions of a Dockerfile.
fn instructions(file: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(tools::project().join(file)).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ').map(|(name, rest)| (name.to_owned(), rest.to_owned()))).collect()
}

#[test]
fn images_have_what_the_dockerfiles_say() -> Result<()> {
    let Some(folder) = folder() else { return Ok(()) };
    let registry = Registry::start(&folder)?;
    for (image, file, binary) in [
        (format!("knative-operator:{}", version()), "operator/Dockerfile", "knative-operator"),
        (format!("knative-operator:{}-slim", version()), "operator/Dockerfile", "knative-operator"),
        (format!("knative-operator-webhook:{}", version()), "webhook/Dockerfile", "knative-operator-webhook"),
    ] {
        let pulled = registry.pull(&format!("ghcr.io/knative-operator-rs/{image}"))?;
        for (name, rest) in instructions(file) {
            match name.as_str() {
                "USER" => assert_eq!(pulled.config["User"], rest),
                "ENTRYPOINT" => assert_eq!(pulled.config["Entrypoint"], serde_json::from_str::<Value>(&rest)?),
                "LABEL" => {
                    let (label, value) = rest.split_once('=').unwrap();
                    assert_eq!(pulled.config["Labels"][label], value.trim_matches('"'));
                }
                "COPY" => {
                    let (_, to) = rest.split_once(' ').unwrap();
                    let expected = !(to == "/var/run/ko/" && image.ends_with("-slim"));
                    let path = pulled.root.join(to.trim_matches('/'));
                    assert_eq!(path.exists(), expected, "{image}: {to}");
                }
                "FROM" | "ARG" => {}
                other => panic!("{file}: {other} is not tested"),
            }
        }
        for label in ["source", "revision", "version", "licenses", "created"] {
            assert!(pulled.config["Labels"][format!("org.opencontainers.image.{label}")].is_string(), "{label}");
        }
        let file = |path: &str| std::fs::read_to_string(pulled.root.join(path)).unwrap_or_default();
        let authorities = file("etc/ssl/certs/ca-certificates.crt").matches("BEGIN CERTIFICATE").count();
        assert!(authorities > 50, "{image} has {authorities} certificate authorities");
        assert!(file("etc/passwd").contains(":65532:65532:"), "{image} has no user 65532");
        let mode = |path: &str| std::fs::metadata(pulled.root.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("tmp"), mode(binary)), (0o1777, 0o755), "{image}");
        if image == format!("knative-operator:{}", version()) {
            assert!(pulled.root.join("var/run/ko/knative-serving").is_dir(), "the release bundle is missing");
        }
    }
    Ok(())
}

/// A container of the chart: it must not run as root.
fn spec(image: &Image, dir: &Path) -> std::result::Result<(), String> {
    let pod = PodSpec::default();
    let container: Container =
        serde_json::from_value(json!({"name": "c", "securityContext": {"runAsNonRoot": true}})).unwrap();
    let (environment, arguments) = (std::collections::BTreeMap::new(), Vec::new());
    let spec = Spec {
        name: "c",
        pod: &pod,
        container: &container,
        image,
        environment: &environment,
        arguments: &arguments,
        mounts: Vec::new(),
        network: None,
    };
    container::prepare(dir, &spec, &dir.join("pid")).map(drop).map_err(|e| e.to_string())
}

#[test]
fn unsuitable_images_are_not_run() -> Result<()> {
    if folder().is_none() {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let root = dir.path().join("root");
    std::fs::create_dir_all(&root)?;
    let with = |user: &str| Image { root: root.clone(), config: json!({"User": user, "Entrypoint": ["/x"]}) };
    for (number, user, expected) in [
        (0, "", "container has runAsNonRoot and image will run as root"),
        (1, "0:0", "container has runAsNonRoot and image will run as root"),
        (2, "operator", "image has non-numeric user (operator), cannot verify user is non-root"),
    ] {
        assert_eq!(spec(&with(user), &dir.path().join(number.to_string())), Err(expected.to_owned()));
    }
    assert_eq!(spec(&with("65532:65532"), &dir.path().join("well")), Ok(()));

    // An image for another architecture.
    let registry = Registry::empty()?;
    let other = if architecture() == "amd64" { "arm64" } else { "amd64" };
    let pushed = registry.push_folder(&tools::project().join("tests/release"))?;
    let name = format!("{}/other:1", registry.address());
    registry.crane(&["mutate", &pushed, "--set-platform", &format!("linux/{other}"), "-t", &name])?;
    let refused = registry.pull(&name).unwrap_err().to_string();
    assert!(refused.contains(&format!("is for {other}, and this machine is {}", architecture())), "{refused}");
    let missing = registry.pull(&format!("{}/nothing:1", registry.address())).unwrap_err().to_string();
    assert!(missing.contains("MANIFEST_UNKNOWN") || missing.contains("NAME_UNKNOWN"), "{missing}");
    Ok(())
}

#[test]
fn failed_pushes_are_explained() -> Result<()> {
    let Some(folder) = folder() else { return Ok(()) };
    let images = folder.display().to_string();
    let push = |registry: &str, more: &[(&str, &str)]| -> Result<String> {
        let (well, output) = script("push.sh", &[&images, registry], more)?;
        assert!(!well, "{registry}: {output}");
        Ok(output)
    };
    assert!(push("Not A Registry", &[])?.contains("REGISTRY=Not A Registry is not a registry: use host/path"));
    // Nobody listens there.
    let subnet = Subnet::take()?;
    let away = push(&format!("{}:5000/path", subnet.address(9)), &[])?;
    assert!(away.contains("the registry can't be reached"), "{away}");
    // A registry with a foreign certificate.
    let registry = Registry::empty()?;
    let to = format!("{}/path", registry.address());
    let foreign = push(&to, &[])?;
    assert!(foreign.contains("set SSL_CERT_FILE to the certificate authority of the registry"), "{foreign}");
    // A registry that refuses.
    let authority = Authority::new("refuses")?;
    let server = Server::start(&authority, |_, _| Answer::With("403 Forbidden", vec![], b"no".to_vec()))?;
    let certificate = tempfile::NamedTempFile::new()?;
    std::fs::write(certificate.path(), authority.pem())?;
    let trusts = [("SSL_CERT_FILE", certificate.path().to_str().unwrap())];
    let refused = push(&format!("{}/path", server.address), &trusts)?;
    assert!(refused.contains("log in with: crane auth login"), "{refused}");
    // Plain HTTP.
    let plain = std::net::TcpListener::bind((subnet.address(10), 0))?;
    let address = plain.local_addr()?;
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let spoken = push(&format!("{address}/path"), &[])?;
    assert!(spoken.contains("speaks plain HTTP: use INSECURE=yes"), "{spoken}");
    // A layout whose contents changed.
    let changed = tempfile::tempdir()?;
    assert!(
        Command::new("cp")
            .args(["-a", &format!("{images}/."), &changed.path().display().to_string()])
            .status()?
            .success()
    );
    let blobs = changed.path().join(format!("knative-operator-webhook-{}/blobs/sha256", version()));
    let largest = std::fs::read_dir(blobs)?.flatten().max_by_key(|e| e.metadata().map_or(0, |m| m.len())).unwrap();
    let mut bytes = std::fs::read(largest.path())?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(largest.path(), bytes)?;
    let ca = registry.authority().display().to_string();
    let (well, output) = script("push.sh", &[&changed.path().display().to_string(), &to], &[("SSL_CERT_FILE", &ca)])?;
    assert!(!well && output.contains("can't push") && output.to_lowercase().contains("digest"), "{output}");

    // And a registry that works prints the values of the chart.
    let (well, output) = script("push.sh", &[&images, &to], &[("SSL_CERT_FILE", &ca)])?;
    assert!(
        well && output.contains(&format!("knative_operator.operator_webhook.image={to}/knative-operator-webhook")),
        "{output}"
    );
    Ok(())
}

#[test]
fn versions_agree_and_wrong_ones_are_refused() -> Result<()> {
    let (well, output) = script("versions.sh", &[], &[])?;
    assert!(well, "{output}");
    for (given, expected) in [
        ("nonsense", "VERSION=nonsense is not a version"),
        ("99.0.0", "Cargo.toml (workspace.package.version) has version"),
    ] {
        let (well, output) = script("release.sh", &[], &[("VERSION", given), ("BUNDLE", "tests/release")])?;
        assert!(!well && output.contains(expected), "{output}");
        let (well, output) = script("images.sh", &[], &[("VERSION", given)])?;
        assert!(!well && output.contains(&format!("VERSION={given}")), "{output}");
    }
    Ok(())
}

/// A `crane` after whose writes another user of the machine replaces what the tag names.
const ATTACKED: &str = r#"[ "$1" != registry ] || exec CRANE "$@"
CRANE "$@" || exit
case $1 in append | mutate | index)
  while [ "$1" != -t ]; do shift; done
  CRANE append --oci-empty-base -f FOLDER/foreign.tar -t "$2" >/dev/null 2>&1 ;;
esac"#;
/// What the compiler would have built.
const BUILT: &str = r#"mkdir -p "$DIST/base/etc" "$DIST/amd64" && : >"$DIST/base/etc/passwd"
for name in knative-operator knative-operator-webhook; do echo $name >"$DIST/amd64/$name"; done"#;

/// All users of the machine reach the registry in which crane builds images.
#[test]
fn nobody_else_changes_images_while_they_are_built() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    let write = |path: &str, text: &str| -> Result<()> {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        std::fs::write(&path, format!("#!/usr/bin/env bash\n{text}\n"))?;
        Ok(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?)
    };
    let (crane, place) = (tools::control_plane("crane")?.display().to_string(), folder.path().display().to_string());
    write("tests/package/dist.sh", BUILT)?;
    write("tests/tools/install.sh", &format!("echo '{}'", root.join("tools").display()))?;
    write("tools/crane", &ATTACKED.replace("CRANE", &crane).replace("FOLDER", &place))?;
    for script in ["images.sh", "paths.sh"] {
        let script = format!("tests/package/{script}");
        std::fs::copy(tools::project().join(&script), root.join(script))?;
    }
    for name in ["Cargo.toml", "operator", "webhook"] {
        std::os::unix::fs::symlink(tools::project().join(name), root.join(name))?;
    }
    std::fs::write(folder.path().join("foreign"), "foreign")?;
    let packed =
        Command::new("tar").args(["-C", &place, "-cf", &format!("{place}/foreign.tar"), "foreign"]).status()?;
    assert!(packed.success());
    let output = Command::new(root.join("tests/package/images.sh"))
        .envs([("BUNDLE", "none"), ("PROFILE", "image-test"), ("ARCHITECTURES", "amd64"), ("VERSION", "")])
        .envs([("OUT", "images"), ("DIST", "dist"), ("GZIP_LEVEL", "-1"), ("PUSH", ""), ("CARGO_HOME", place.as_str())])
        .envs([("KNATIVE_OPERATOR_CACHE", &place), ("XDG_CACHE_HOME", &place)])
        .output()?;
    assert!(output.status.success(), "{output:?}");
    let mut files = Vec::new();
    for image in [format!("knative-operator-{}-slim", version()), format!("knative-operator-webhook-{}", version())] {
        for blob in std::fs::read_dir(root.join("images").join(image).join("blobs/sha256"))?.flatten() {
            // Some are no archives.
            let listed = Command::new("tar").arg("-tzf").arg(blob.path()).output()?;
            files.extend(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned));
        }
    }
    assert!(files.iter().any(|file| file.ends_with("knative-operator-webhook")), "{files:?}");
    assert!(!files.iter().any(|file| file.ends_with("foreign")), "{files:?}");
    Ok(())
}

/// Whether Cargo sets the variable `name` for the package that it runs.
fn is_of_a_package(name: &str) -> bool {
    let starts = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_"];
    starts.iter().any(|start| name.starts_with(start))
        || matches!(name, "CARGO" | "CARGO_CRATE_NAME" | "LD_LIBRARY_PATH")
}

/// A disk that becomes full leaves nothing behind.
#[test]
fn nothing_remains_of_an_interrupted_build() -> Result<()> {
    if folder().is_none() {
        return Ok(());
    }
    let disk = tempfile::tempdir()?;
    let build = "mount -t tmpfs -o size=6m tmpfs \"$1\" && { tests/package/images.sh && echo complete; ls -A \"$1\"; }";
    let mut command = Command::new("unshare");
    // What Cargo sets for tests would make it build dependencies again, now and in the next run.
    for (name, _) in std::env::vars().filter(|(name, _)| is_of_a_package(name)) {
        command.env_remove(name);
    }
    let output = command
        .args(["--mount", "bash", "-c", build, "x"])
        .arg(disk.path())
        .current_dir(tools::project())
        .env("OUT", disk.path().join("images"))
        .env("DIST", tools::project().join("target/images-disk-dist"))
        .envs([
            ("PROFILE", "image-test"),
            ("ARCHITECTURES", architecture()),
            ("GZIP_LEVEL", "-1"),
            ("BUNDLE", "none"),
            ("VERSION", ""),
        ])
        .output()?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(err.contains("No space left on device"), "{out}{err}");
    assert!(
        !out.contains("complete") && out.trim_end().lines().last().is_none_or(|last| !last.contains("images")),
        "{out}"
    );
    std::fs::remove_dir_all(tools::project().join("target/images-disk-dist"))?;
    Ok(())
}
