//! The Go operator, this one, and `kubectl apply` of the same objects, one after another on nodes
//! with the same images; and the way from the Go operator to this one while requests flow.

use std::path::{Path, PathBuf};
use std::time::Instant;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator;
use knative_operator_tests::measure::{self, Audit, Request};
use knative_operator_tests::product::{HUB_USER, NAMESPACE as OPERATOR};
use knative_operator_tests::real::load::services;
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{images, product, traffic};
use knative_operator_tests::registry::Registry;
use knative_operator_tests::{Result, releases, tools};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::support::{ANSWER, NAMESPACE, Report, SERVING, apply, run, warnings};
use crate::traffic::{during, kubectl_apply, rendered, rolled_out};

/// The images of the Go operator, without their registry, and its programs.
const GO_IMAGES: [(&str, &str); 2] = [
    ("knative-releases/knative.dev/operator/cmd/operator", "operator"),
    ("knative-releases/knative.dev/operator/cmd/webhook", "webhook"),
];

/// Pushes the images of the Go operator, made from its module: program and releases.
fn push_go_operator(registry: &Registry, folder: &Path) -> Result<()> {
    for (image, program) in GO_IMAGES {
        let root = folder.join(program);
        let place = root.join("ko-app");
        std::fs::create_dir_all(&place)?;
        std::os::unix::fs::symlink(tools::go_operator(program)?.canonicalize()?, place.join(program))?;
        if program == "operator" {
            tools::copy(&go_operator::releases()?.dir, &root.join("var/run/ko"))?;
        }
        let image = format!("{image}:v{}", go_operator::VERSION);
        registry.push_program(&root, &image, &format!("/ko-app/{program}"))?;
        registry.set_environment(&image, "KO_DATA_PATH=/var/run/ko")?;
    }
    Ok(())
}

/// Installs the chart of the Go operator, until its Pods are ready.
async fn install_go_operator(hub: &Cluster) -> Result<()> {
    let folder = hub.dir().join("go-chart");
    go_operator::chart(&folder)?;
    let place = ["--namespace", OPERATOR, "--create-namespace", "--wait", "--timeout", "3m"];
    let chart = folder.display().to_string();
    if let Err(error) = hub.helm(&[&["install", "knative-operator", &chart][..], &place].concat()).await {
        return Err(format!("{error}\n{}", product::pods(hub).await).into());
    }
    Ok(())
}

/// The containers in Knative's namespace that were restarted, and how they ended: kubelet starts
/// them again after ten seconds only.
async fn restarts(cluster: &Cluster) -> Result<Vec<String>> {
    let pods = Api::<Pod>::namespaced(cluster.client(), NAMESPACE).list(&ListParams::default()).await?;
    let statuses = pods.items.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
    let text = |status: &ContainerStatus| {
        let ended = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let (code, reason) = (ended.map(|ended| ended.exit_code), ended.and_then(|ended| ended.reason.as_deref()));
        format!("{} {} times, with {code:?} {reason:?}", status.name, status.restart_count)
    };
    Ok(statuses.filter(|status| status.restart_count > 0).map(text).collect())
}

/// The process of `program` on the node of `cluster`.
fn process(cluster: &Cluster, program: &str) -> Result<i32> {
    let machine = cluster.machine().ok_or("no real node")?.cgroup().to_owned();
    let folders = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    let is_it = |folder: &PathBuf| {
        let command = std::fs::read_to_string(folder.join("cmdline")).unwrap_or_default();
        let groups = std::fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        command.split('\0').next().unwrap_or_default().ends_with(program) && groups.contains(&machine)
    };
    let found = folders.into_iter().find(is_it).ok_or_else(|| format!("no process {program}"))?;
    Ok(found.file_name().and_then(|name| name.to_str()).unwrap_or_default().parse()?)
}

/// Who installs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Installer {
    Kubectl,
    Go,
    Own,
}

/// Installs Knative Serving with Kourier on a new cluster, until a Knative Service answers; prints
/// a row.
async fn measure_one(report: &mut Report, registry: &'static Registry, installer: Installer) -> Result<f64> {
    let cluster = Cluster::real("compare", registry).await?;
    let spec = product::serving(releases::best().serving);
    match installer {
        Installer::Kubectl => {}
        Installer::Go => install_go_operator(&cluster).await?,
        Installer::Own => product::install(&cluster, &product::values()).await?,
    }
    let mut audit = Audit::of(&cluster, HUB_USER)?;
    let objects = rendered(&cluster, &spec).await?;
    if installer != Installer::Kubectl {
        cluster.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    }
    let begun = Instant::now();
    let name = match installer {
        Installer::Kubectl => {
            kubectl_apply(&cluster, &objects).await?;
            "kubectl apply"
        }
        Installer::Go | Installer::Own => {
            apply(&cluster, &spec).await?;
            ready(&cluster, SERVING, NAMESPACE).await?;
            if installer == Installer::Go { "the Go operator" } else { "this operator" }
        }
    };
    let is_ready = begun.elapsed().as_secs_f64();
    cluster.kubectl(&["apply", "-f", "-"], &traffic::service("hello", &json!({})).to_string()).await?;
    let gateway = traffic::gateway(&cluster).await?;
    traffic::until_answer(gateway, &traffic::host("hello"), ANSWER).await?;
    let answers = begun.elapsed().as_secs_f64();
    let requests = audit.take_all(&cluster.client()).await?;
    let writes = requests.iter().filter(|request: &&Request| request.writes()).count();
    let used = match installer {
        Installer::Kubectl => String::new(),
        Installer::Go | Installer::Own => {
            let id = process(&cluster, if installer == Installer::Go { "/operator" } else { "knative-operator" })?;
            let (cpu, memory) = (measure::cpu(id)?.as_secs_f64(), measure::resident(id)? / 1024);
            format!(", {} requests ({writes} writes), {cpu:.2} s CPU, {memory} MiB", requests.len())
        }
    };
    let (restarts, warnings) = (restarts(&cluster).await?, warnings(&cluster).await?);
    report.line(&format!(
        "{name}: Ready after {is_ready:.1} s, HTTP 200 after {answers:.1} s{used}, restarts: {restarts:?}, warnings: {warnings:?}"
    ));
    Ok(is_ready)
}

#[test]
fn installation_takes_as_long_as_kubectl_apply() {
    run(async {
        let mut report = Report::new();
        let registry = images::registry().await?;
        let folder = tempfile::tempdir()?;
        push_go_operator(registry, folder.path())?;
        let rounds = std::env::var("REAL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
        for round in 1..=rounds {
            report.line(&format!("round {round}"));
            let floor = measure_one(&mut report, registry, Installer::Kubectl).await?;
            measure_one(&mut report, registry, Installer::Go).await?;
            let own = measure_one(&mut report, registry, Installer::Own).await?;
            report.line(&format!("this operator takes {:.2} times as long as kubectl apply", own / floor));
        }
        Ok(())
    });
}

/// UIDs of the Pods of Knative.
async fn pods(cluster: &Cluster) -> Result<Vec<Option<String>>> {
    let pods = Api::<Pod>::namespaced(cluster.client(), NAMESPACE).list(&ListParams::default()).await?;
    Ok(pods.items.into_iter().map(|pod| pod.metadata.uid).collect())
}

#[test]
fn go_operator_is_replaced_while_requests_flow() {
    run(async {
        let mut report = Report::new();
        let registry = images::registry().await?;
        let folder = tempfile::tempdir()?;
        push_go_operator(registry, folder.path())?;
        let hub = Cluster::real("replaced", registry).await?;
        install_go_operator(&hub).await?;
        hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
        apply(&hub, &product::serving(releases::best().serving)).await?;
        ready(&hub, SERVING, NAMESPACE).await?;
        let gateway = services(&hub).await?;
        let before = pods(&hub).await?;
        report.line("with the Go operator: the Knative Services are Ready");
        let failed = during(&mut report, gateway, "helm upgrade to this operator", async {
            let file = hub.dir().join("values.json");
            let values: Value = json!({"knative_operator": {"releases": {"image": "registry.example/releases:test"}}});
            std::fs::write(&file, values.to_string())?;
            let chart = tools::project().join("charts/knative-operator").display().to_string();
            let file = file.display().to_string();
            let place = ["--namespace", OPERATOR, "--values", &file, "--wait", "--timeout", "3m"];
            if let Err(error) = hub.helm(&[&["upgrade", "knative-operator", &chart][..], &place].concat()).await {
                return Err(format!("{error}\n{}", product::pods(&hub).await).into());
            }
            rolled_out(&hub).await
        });
        assert_eq!(failed.await?, 0);
        assert_eq!(pods(&hub).await?, before, "Pods of Knative were replaced");
        report.line("no Pod of Knative was replaced");
        Ok(())
    });
}
