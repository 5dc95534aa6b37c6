//! The commands of docs/operate/air-gap.md on a real node, from the first to the last: the images
//! and the chart are copied to a mirror that requires authentication, and the node gets them from
//! there only.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::{Gate, Upstream};
use knative_operator_tests::proxies::{self, Proxy};
use knative_operator_tests::real::mirror::{HOST, LOGIN, Mirror, hosts};
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{images, product, traffic};
use knative_operator_tests::registry::{self, Registry};
use knative_operator_tests::{Result, environment, releases, tools};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::document::blocks;
use crate::support::{ANSWER, NAMESPACE, Report, run};

const PAGE: &str = "docs/operate/air-gap.md";
/// In the reason of a block that other tests don't run.
const HERE: &str = "tests/tests/real/air_gap.rs runs it";
/// Where the mirror has images, as on the page.
const MIRROR: &str = "registry.example.com/knative";
/// The user's own images, which no list has: that of a Knative Service, and the release bundle.
const OWN: [&str; 2] = ["registry.example/hello:1", "registry.example/releases:test"];
/// Namespace of the user's Knative Service, as on the page.
const TEAM: &str = "team-a";
/// Time limit of a block.
const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn knative_runs_from_a_mirror_with_a_login_and_from_no_other_host() {
    run(mirrored());
}

async fn mirrored() -> Result<()> {
    let mut report = Report::new();
    let source = images::registry().await?;
    let copies = tokio::task::block_in_place(Registry::empty)?;
    let hub = Cluster::real("mirrored", source).await?;
    sandbox_image(&hub).await?;
    // What the reader pushes and pulls is not what the node asks for.
    let [mirror, of_reader] = [Arc::new(Mirror::default()), Arc::new(Mirror::default())];
    let server = Upstream::new(format!("https://{}", copies.address()), &std::fs::read_to_string(copies.authority())?)?;
    let own = (source.certificate()?.acceptor()?, std::fs::read_to_string(source.authority())?);
    let gate = Gate::before(server.clone(), own.clone(), &mirror).await?;
    hub.pull_from(gate.address)?;
    let gate_of_reader = Gate::before(server, own, &of_reader).await?;
    let reader = Reader::new(&hub, source, &gate_of_reader).await?;
    reader.sh("helm package charts/knative-operator -d . && helm push knative-operator-*.tgz oci://ghcr.io/knative-operator-rs/charts").await?;
    hub.kubectl(&["create", "namespace", TEAM], "").await?;
    report.line("a node that gets images from the mirror only, and a machine that reaches the sources");

    for block in blocks(&std::fs::read_to_string(tools::project().join(PAGE))?) {
        if block.not_run.as_ref().is_some_and(|why| !why.contains(HERE)) {
            continue;
        }
        reader.sh(&block.script).await?;
        report.line(&format!("{}: {}", block.heading, block.script.lines().next().unwrap_or_default()));
        if block.script.contains("crane auth login") {
            for image in OWN {
                reader.sh(&format!("crane copy {image} {MIRROR}/{image}")).await?;
            }
        }
    }
    assert!(of_reader.take().iter().any(|asked| asked.status == StatusCode::CREATED), "nothing was copied");

    let mut service = traffic::service("hello", &json!({}));
    service["metadata"]["namespace"] = json!(TEAM);
    service["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("{MIRROR}/{}", OWN[0]));
    hub.kubectl(&["apply", "-f", "-"], &service.to_string()).await?;
    ready(&hub, "ksvc/hello", TEAM).await?;
    let (gateway, host) = (traffic::gateway(&hub).await?, format!("hello.{TEAM}.example.com"));
    let (body, ..) = traffic::until_answer(gateway, &host, ANSWER).await?;
    assert_eq!(body.trim(), "hello from hello");
    report.line("a Knative Service is Ready, and answers with HTTP 200");

    let images = images_of_pods(&hub).await?;
    let others: Vec<_> = images.iter().filter(|image| !image.starts_with(&format!("{MIRROR}/"))).collect();
    assert!(others.is_empty(), "images of Pods that are not in the mirror: {others:?}");
    assert!(images.iter().any(|image| image.contains("/queue-proxy:")), "no sidecar: {images:?}");
    let asked = mirror.take();
    assert_eq!(hosts(&asked), BTreeSet::from([HOST]), "the node asked for images of other hosts");
    let count = |status: StatusCode| asked.iter().filter(|asked| asked.status == status).count();
    let [pulled, anonymous] = [StatusCode::OK, StatusCode::UNAUTHORIZED].map(count);
    assert!(pulled > 0 && anonymous > 0, "{pulled} responses, and {anonymous} demands of a login");
    let found = hosts(&asked).into_iter().collect::<Vec<_>>().join(", ");
    println!("hosts asked for: {found} ({pulled} responses with 200, {anonymous} with 401)");
    println!("images of all Pods:\n  {}", images.into_iter().collect::<Vec<_>>().join("\n  "));

    // An image of another host is refused and recorded.
    hub.kubectl(&["run", "elsewhere", "--image=ghcr.io/knative-operator-rs/knative-operator:0"], "").await?;
    let reason = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull";
    hub.kubectl(&["wait", "pod/elsewhere", reason, "--timeout=90s"], "").await?;
    let mut refused = mirror.take();
    refused.retain(|asked| asked.host != HOST);
    assert!(refused.iter().all(|asked| asked.status == StatusCode::FORBIDDEN), "{refused:?}");
    assert_eq!(hosts(&refused), BTreeSet::from(["ghcr.io"]));
    report.line("an image of another host is refused");
    Ok(())
}

/// Gets the image that each Pod needs, which is a matter of the node and not of this product.
async fn sandbox_image(hub: &Cluster) -> Result<()> {
    hub.kubectl(&["wait", "serviceaccount/default", "--for=create", "--timeout=60s"], "").await?;
    hub.kubectl(&["run", "first", "--image=registry.example/pause:1"], "").await?;
    hub.kubectl(&["wait", "pod/first", "--for=condition=Ready", "--timeout=90s"], "").await?;
    hub.kubectl(&["delete", "pod/first", "--now", "--timeout=60s"], "").await.map(drop)
}

/// The images of all containers.
async fn images_of_pods(hub: &Cluster) -> Result<BTreeSet<String>> {
    let pods = Api::<Pod>::all(hub.client()).list(&ListParams::default()).await?;
    let specs = pods.items.iter().filter_map(|pod| pod.spec.as_ref());
    let containers = specs.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    Ok(containers.filter_map(|container| container.image.clone()).collect())
}

/// The machine of a reader: it reaches the sources, the mirror and the cluster.
struct Reader {
    folder: TempDir,
    proxy: Proxy,
    authority: std::path::PathBuf,
}

impl Reader {
    async fn new(hub: &Cluster, source: &Registry, gate: &Gate) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        let address = source.address().parse()?;
        let known = [("ghcr.io", address), (registry::NAME, address), (HOST, gate.address)].into();
        let proxy = Proxy::with_hosts(proxies::Protocol::Http, known).await?;
        std::fs::create_dir(path.join("bin"))?;
        for tool in ["kubectl", "helm", "crane"] {
            symlink(tools::control_plane(tool)?, path.join("bin").join(tool))?;
        }
        symlink(tools::binary("knative-operator")?, path.join("bin/knative-operator"))?;
        symlink(tools::project().join("charts"), path.join("charts"))?;
        symlink(releases::best().dir.canonicalize()?, path.join("bundle"))?;
        std::fs::copy(hub.kubeconfig(), path.join("kubeconfig"))?;
        std::fs::write(path.join("password.txt"), LOGIN.1)?;
        std::fs::write(path.join("values.yaml"), values().to_string())?;
        std::fs::write(path.join("serving.yaml"), serving().to_string())?;
        Ok(Self { folder, proxy, authority: source.authority() })
    }

    /// Runs `script`, with the words of the page filled in.
    async fn sh(&self, script: &str) -> Result<()> {
        let script = script.replace("USER", LOGIN.0).replace("VERSION", env!("CARGO_PKG_VERSION"));
        let path = |name: &str| self.folder.path().join(name);
        let mut command = std::process::Command::new("bash");
        environment::confine(command.args(["-euo", "pipefail", "-c", &script]), self.folder.path())
            .current_dir(self.folder.path())
            .env("PATH", path_with(&path("bin")))
            .env("KUBECONFIG", path("kubeconfig"))
            .env("SSL_CERT_FILE", &self.authority)
            .env("HTTPS_PROXY", format!("http://{}@{}", proxies::LOGIN, self.proxy.address))
            // Nodes and Services of clusters.
            .env("NO_PROXY", "127.0.0.0/8,198.18.0.0/15");
        let mut command = tokio::process::Command::from(command);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output =
            tokio::time::timeout(LIMIT, output).await.map_err(|_| format!("{script}: no end in {LIMIT:?}"))??;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Err(format!("{script}\n\n{}", text.concat()).into())
    }
}

fn path_with(bin: &Path) -> String {
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

/// Values of the chart: the release bundle of the tests, in the mirror, and the pull Secrets.
fn values() -> Value {
    let program = json!({"imagePullSecrets": [{"name": "mirror"}]});
    let bundle = format!("{MIRROR}/{}", OWN[1]);
    json!({"knative_operator": {"releases": {"image": bundle}, "knative_operator": program, "operator_webhook": program}})
}

/// The resource of a reader whose images are not public either.
fn serving() -> Value {
    let mut spec = product::serving(releases::best().serving);
    spec["registry"]["imagePullSecrets"] = json!([{"name": "mirror"}]);
    spec["config"]["deployment"]["registries-skipping-tag-resolving"] = json!(HOST);
    json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "knative-serving", "namespace": NAMESPACE}, "spec": spec})
}
