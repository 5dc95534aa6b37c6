//! Checks a release, with a registry and real API servers: signatures, the chart from the registry,
//! the manifests, and the images in containers. `tests/package/check.sh` runs it.
//!
//! `RELEASE` is the folder of the release. `KNATIVE_IMAGES` has its images, unpacked.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::registry::{self, Registry};
use knative_operator_tests::skip::{EMULATOR, RELEASE, skip};
use knative_operator_tests::{Result, releases, tools, wait};
use serde_json::{Value, json};

#[path = "e2e/document.rs"]
#[allow(dead_code, clippy::unused_async)] // this test uses a part of it
mod document;

use self::document::{Block, document};

const INSTALL: Duration = wait::LIMIT;

/// The release, its version, and the registry with its images.
async fn release() -> Result<Option<(PathBuf, String, &'static Registry)>> {
    let Some(folder) = std::env::var_os("RELEASE").map(PathBuf::from) else {
        skip(RELEASE, "RELEASE is not set (make release sets it)");
        return Ok(None);
    };
    let registry = registry::shared().await?.ok_or("a release is checked with its images")?;
    Ok(Some((folder, env!("CARGO_PKG_VERSION").to_owned(), registry)))
}

/// A shell with the tools and the registry's authority, in `folder`.
fn shell(registry: &Registry, folder: &Path, script: &str) -> Result<String> {
    let bin = tools::control_plane("cosign")?;
    let path = format!("{}:{}", bin.parent().unwrap_or(folder).display(), std::env::var("PATH")?);
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .env("SSL_CERT_FILE", registry.authority())
        .env("COSIGN_PASSWORD", "")
        .output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(text) } else { Err(format!("{script}\n{text}").into()) }
}

/// The documents' commands, for this registry and key.
fn here(block: &Block, registry: &Registry, key: &Path) -> String {
    let change = |line: &str| match line.split_once('=').map(|(name, _)| name) {
        Some("registry") => format!("registry={}/knative-operator-rs", registry.address()),
        Some("version") => format!("version={}", env!("CARGO_PKG_VERSION")),
        Some("identity") => format!("identity=\"--key={} --insecure-ignore-tlog\"", key.display()),
        _ => line.to_owned(),
    };
    block.script.lines().map(change).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_signed_and_verified_as_documented() -> Result<()> {
    let Some((folder, version, registry)) = release().await? else { return Ok(()) };
    let work = tempfile::tempdir()?;
    shell(registry, work.path(), "cosign generate-key-pair")?;
    let (private, public) = (work.path().join("cosign.key"), work.path().join("cosign.pub"));
    let publish = format!(
        "COSIGN_FLAGS='--key {} --use-signing-config=false --tlog-upload=false' HELM_FLAGS='--ca-file {}' {}/tests/package/publish.sh {version} {}/knative-operator-rs",
        private.display(),
        registry.authority().display(),
        tools::project().display(),
        registry.address(),
    );
    let published = shell(registry, work.path(), &publish)?;
    println!(
        "{}",
        published
            .lines()
            .filter(|l| l.starts_with("pushed ") || l.starts_with("Pushed"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    let blocks = document("docs/operate/verify.md")?;
    let verify = here(&blocks[0], registry, &public);
    let verified = shell(registry, work.path(), &verify)?;
    println!("{}", verified.lines().filter(|line| line.starts_with("Verification for")).collect::<Vec<_>>().join("\n"));
    shell(registry, &folder, &blocks[1].script)?;
    // Another key verifies nothing.
    shell(registry, work.path(), "mkdir other && cd other && cosign generate-key-pair")?;
    let other = here(&blocks[0], registry, &work.path().join("other/cosign.pub"));
    let refused = shell(registry, work.path(), &other).unwrap_err().to_string();
    assert!(refused.contains("failed to verify signature"), "{refused}");
    Ok(())
}

/// Starts operator and webhook from their images, and waits until a KnativeServing is Ready.
async fn works(hub: &Cluster) -> Result<()> {
    // The release bundle is in the image.
    let product = Product::start(hub, &releases::small(), [].into()).await?;
    assert!(product.operator.contained, "the operator runs in a container");
    hub.kubectl(&["create", "namespace", "knative-serving"], "").await?;
    let serving = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "knative-serving", "namespace": "knative-serving"},
        "spec": {"ingress": {"kourier": {"enabled": true}}, "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}}}});
    if hub.webhooks() {
        let mut invalid = serving.clone();
        invalid["spec"]["version"] = json!("nonsense");
        let (admitted, answer) = hub.kubectl_output(&["apply", "-f", "-"], &invalid.to_string()).await;
        assert!(!admitted && answer.contains("spec.version"), "{answer}");
        return Ok(());
    }
    hub.kubectl(&["apply", "-f", "-"], &serving.to_string()).await?;
    let timeout = format!("--timeout={}s", INSTALL.as_secs());
    let wait = ["wait", "--for=condition=Ready", &timeout, "knativeserving/knative-serving", "-n", "knative-serving"];
    hub.kubectl(&wait, "").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_is_installed_from_the_registry_by_digest() -> Result<()> {
    let Some((folder, version, registry)) = release().await? else { return Ok(()) };
    let hub = Cluster::hub("release-chart").await?;
    let authority = registry.authority().display().to_string();
    let archive = folder.join(format!("knative-operator-{version}.tgz")).display().to_string();
    let charts = format!("oci://{}/knative-operator-rs/charts", registry.address());
    let pushed = hub.helm(&["push", &archive, &charts, "--ca-file", &authority]).await?;
    println!("{}", pushed.trim());
    let port = &product::bundled(&hub)["knative_operator"]["operator_webhook"]["servicePort"];
    let port = format!("knative_operator.operator_webhook.servicePort={port}");
    // The documented command.
    let document = document("docs/operate/verify.md")?;
    let variables: Vec<String> =
        here(&document[0], registry, Path::new("")).lines().take(2).map(str::to_owned).collect();
    let flags = format!("--set {port} --ca-file {authority} --wait --timeout 2m");
    let install = format!(
        "export KUBECONFIG={}\n{}\n{} {flags}",
        hub.kubeconfig().display(),
        variables.join("\n"),
        document[2].script
    );
    let installed = shell(registry, hub.dir(), &install)?;
    println!(
        "{}",
        installed.lines().filter(|l| l.starts_with("STATUS") || l.contains("Digest")).collect::<Vec<_>>().join("\n")
    );
    let images = ["get", "deployments", "-n", product::NAMESPACE, "-o", "jsonpath={..image}"];
    let images = hub.kubectl(&images, "").await?;
    assert!(images.split(' ').all(|image| image.contains("@sha256:")), "{images}");
    works(&hub).await?;
    // By digest.
    let chart = format!("{charts}/knative-operator");
    let digest = registry.crane(&["digest", &format!("{}:{version}", chart.trim_start_matches("oci://"))])?;
    let pinned = format!("{chart}@{digest}");
    let upgrade =
        ["upgrade", "knative-operator", &pinned, "-n", product::NAMESPACE, "--set", &port, "--ca-file", &authority];
    hub.helm(&upgrade).await?;
    println!("helm upgrade knative-operator {pinned}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_install_without_helm() -> Result<()> {
    let Some((folder, version, _)) = release().await? else { return Ok(()) };
    let work = tempfile::tempdir()?;
    let archive = folder.join(format!("kustomize-{version}.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(work.path()).status()?;
    assert!(unpacked.success());
    let bases = work.path().join("kustomize");
    let manifest = |name: &str| folder.join(name).display().to_string();
    // Nothing calls webhooks there, since Knative's own have no Pods here.
    let (plain, many) = tokio::try_join!(Cluster::spoke("release-plain"), Cluster::spoke("release-many"))?;
    for (cluster, file, base) in
        [(&plain, "install.yaml", "base"), (&many, "install-multicluster.yaml", "multicluster")]
    {
        let applied = cluster.kubectl(&["apply", "--server-side", "-f", &manifest(file)], "").await?;
        let base = bases.join(base).display().to_string();
        let again = cluster.kubectl(&["diff", "--server-side", "-k", &base], "").await?;
        assert!(again.is_empty(), "the base of Kustomize differs from {file}: {again}");
        println!("{file}: {} objects applied, no difference to the base of Kustomize", applied.lines().count());
    }
    works(&plain).await?;
    let crd = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
    many.kubectl(&["apply", "-f", "-"], &crd).await?;
    works(&many).await
}

/// The command for the other architecture runs under qemu.
#[tokio::test]
async fn command_runs_on_arm64() -> Result<()> {
    let Some((folder, version, _)) = release().await? else { return Ok(()) };
    let Some(qemu) = ["qemu-aarch64-static", "qemu-aarch64"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()))
    else {
        skip(EMULATOR, "qemu-aarch64 is not installed (Debian: apt-get install qemu-user-static)");
        return Ok(());
    };
    let work = tempfile::tempdir()?;
    let archive = folder.join(format!("knative-operator-{version}-linux-arm64.tar.gz"));
    assert!(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(work.path()).status()?.success());
    for part in ["completions/knative-operator.zsh", "man/knative-operator.1", "LICENSE"] {
        assert!(work.path().join(part).is_file(), "{part}");
    }
    let run = |arguments: &[&str]| -> Result<String> {
        let output = Command::new(qemu).arg(work.path().join("knative-operator")).args(arguments).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(String::from_utf8(output.stdout)?) } else { Err(error.into()) }
    };
    let shown = run(&["--version"])?;
    assert_eq!(shown.trim(), format!("knative-operator {version}"));
    let versions = run(&["versions"])?;
    assert!(versions.contains("\nknative-serving ") && versions.contains("\nknative-eventing "), "{versions}");
    let serving = work.path().join("serving.yaml");
    std::fs::write(
        &serving,
        "apiVersion: operator.knative.dev/v1beta1\nkind: KnativeServing\nmetadata: {name: ks, namespace: ks}\n",
    )?;
    let bundle = releases::small().dir.canonicalize()?;
    let render = ["render", "-f", &serving.display().to_string(), "--releases", &bundle.display().to_string()];
    let rendered = run(&render)?;
    assert!(rendered.contains("kind: Deployment"), "{rendered}");
    println!("arm64 under {qemu}: {}; render printed {} lines", shown.trim(), rendered.lines().count());
    Ok(())
}

/// The bundle for OperatorHub names the images by digest, and has the rules of the chart.
#[tokio::test]
async fn operatorhub_bundle_is_the_chart() -> Result<()> {
    let Some((folder, version, _)) = release().await? else { return Ok(()) };
    let work = tempfile::tempdir()?;
    let archive = folder.join(format!("operatorhub-{version}.tar.gz"));
    assert!(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(work.path()).status()?.success());
    let file = work.path().join("olm/manifests/knative-operator.clusterserviceversion.yaml");
    let csv: Value = knative_operator_shared::yaml::parse(&std::fs::read_to_string(file)?)?;
    let install = &csv["spec"]["install"]["spec"];
    assert_eq!(install["deployments"].as_array().map(Vec::len), Some(2));
    assert_eq!(csv["spec"]["webhookdefinitions"].as_array().map(Vec::len), Some(2));
    assert_eq!(csv["spec"]["customresourcedefinitions"]["owned"].as_array().map(Vec::len), Some(4));
    for image in csv["spec"]["relatedImages"].as_array().unwrap() {
        assert!(image["image"].as_str().unwrap().contains("@sha256:"), "{image}");
    }
    for account in ["knative-operator", "operator-webhook"] {
        for permissions in ["permissions", "clusterPermissions"] {
            let all = install[permissions].as_array().unwrap();
            let rules = all.iter().find(|p| p["serviceAccountName"] == account).unwrap();
            assert!(!rules["rules"].as_array().unwrap().is_empty());
        }
    }
    Ok(())
}
