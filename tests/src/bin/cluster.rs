//! A hub and a spoke for manual use: `cluster up` starts them and prints their kubeconfigs,
//! `cluster down` stops them. With `--product`, it installs the chart on the hub, starts both
//! processes, and registers the spoke as `spoke-1`. With `--real`, both have real nodes.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::real::{self, images, traffic};
use knative_operator_tests::{Result, environment, releases, tools};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// Time limit of the start of the clusters, with the product: it ends what hangs.
const START: Duration = Duration::from_secs(540);
/// Time limit of their end.
const END: Duration = Duration::from_secs(180);

/// A hub and a spoke for manual use.
#[derive(Parser)]
struct Args {
    /// Where kubeconfigs and the log are. Each folder has its own clusters.
    #[arg(long, global = true)]
    folder: Option<PathBuf>,
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Starts the clusters.
    Up {
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Stops the clusters.
    Down,
    /// The background process that `up` starts.
    #[command(hide = true)]
    Hold {
        #[command(flatten)]
        wanted: Wanted,
    },
}

/// What to start.
#[derive(clap::Args, Clone, Copy)]
struct Wanted {
    /// Installs the operator and the webhook, too.
    #[arg(long)]
    product: bool,
    /// Starts real nodes, on which Pods run, if this machine can have them.
    #[arg(long)]
    real: bool,
}

impl Wanted {
    fn arguments(self) -> impl Iterator<Item = &'static str> {
        [(self.product, "--product"), (self.real, "--real")]
            .into_iter()
            .filter_map(|(is_wanted, flag)| is_wanted.then_some(flag))
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let folder = args.folder.unwrap_or_else(|| tools::project().join("target/cluster"));
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let outcome = match args.command {
        What::Up { wanted } => up(&folder, wanted),
        What::Down => down(&folder),
        What::Hold { wanted } => hold(&folder, wanted),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The process in the background. One that was killed may remain without a command line.
fn holder(folder: &Path) -> Option<Pid> {
    let pid = std::fs::read_to_string(folder.join("pid")).ok()?.trim().parse().ok().and_then(Pid::from_raw)?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    is_holder(&command, folder).then_some(pid)
}

/// Whether a command line is that of the process for `folder`. The number of one that was killed
/// may be that of another process by now, also of another clone.
fn is_holder(command: &[u8], folder: &Path) -> bool {
    let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
    words.windows(3).any(|three| three == [&b"hold"[..], b"--folder", folder.as_os_str().as_bytes()])
}

fn up(folder: &Path, mut wanted: Wanted) -> Result<()> {
    if holder(folder).is_some() {
        return Err("the clusters are running; stop them with `make cluster-down`".into());
    }
    // With the proxies of the environment.
    tools::control_plane("kubectl")?;
    if wanted.product {
        releases::best();
    }
    if wanted.real {
        if let Some(obstacle) = real::obstacle() {
            eprintln!("no real nodes: {obstacle}; KWOK simulates nodes and Pods");
            wanted.real = false;
        } else {
            images::prepare()?;
            images::prepare_eventing()?;
        }
    }
    let is_other = |mut entries: std::fs::ReadDir| !folder.join("log").is_file() && entries.next().is_some();
    if std::fs::read_dir(folder).is_ok_and(is_other) {
        return Err(format!("{} is not a folder of clusters: name an empty one", folder.display()).into());
    }
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let log = std::fs::File::create(folder.join("log"))?;
    let mut hold = Command::new(std::env::current_exe()?);
    hold.arg("hold")
        .arg("--folder")
        .arg(folder)
        .args(wanted.arguments())
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    let mut hold = environment::clean(&mut hold).spawn()?;
    let mut line = hold.stdin.take().ok_or("no stdin")?;
    std::fs::write(folder.join("pid"), hold.id().to_string())?;
    let deadline = Instant::now() + START;
    while !folder.join("ready").exists() {
        let ended = hold.try_wait()?.is_some();
        if ended || Instant::now() > deadline {
            let log = std::fs::read_to_string(folder.join("log"))?;
            let what = if ended { String::new() } else { format!("the clusters are not ready after {START:?}\n") };
            return Err(format!("{what}{}", log.trim_end()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    line.write_all(READY)?;
    print!("{}", std::fs::read_to_string(folder.join("ready"))?);
    Ok(())
}

fn down(folder: &Path) -> Result<()> {
    let Some(pid) = holder(folder) else {
        println!("nothing is running");
        return Ok(());
    };
    kill_process(pid, Signal::TERM)?;
    let deadline = Instant::now() + END;
    while holder(folder).is_some() {
        if Instant::now() > deadline {
            return Err(format!("process {} does not end", pid.as_raw_nonzero()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = std::fs::remove_dir_all(folder);
    println!("ended");
    Ok(())
}

/// What `up` writes to the process in the background once it is ready. If `up` ends before, as by
/// Ctrl+C, everything ends.
const READY: &[u8] = b"ready";

#[tokio::main]
async fn hold(folder: &Path, wanted: Wanted) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let (left, abandoned) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        if std::io::stdin().read_exact(&mut [0; READY.len()]).is_err() {
            let _ = left.send(());
        }
    });
    // Its processes end with the future.
    tokio::select! {
        outcome = Box::pin(clusters(folder, wanted)) => outcome,
        _ = terminate.recv() => Ok(()),
        Ok(()) = abandoned => {
            let _ = std::fs::remove_dir_all(folder);
            Ok(())
        }
    }
}

async fn clusters(folder: &Path, wanted: Wanted) -> Result<()> {
    let (hub, spoke) = if wanted.real {
        let registry = images::registry_with_eventing().await?;
        let (hub, spoke) = tokio::try_join!(Cluster::real("hub", registry), Cluster::real("spoke", registry))?;
        hub.connect(&spoke)?;
        (hub, spoke)
    } else {
        tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"))?
    };
    let kubeconfig = |cluster: &Cluster| -> Result<PathBuf> {
        let path = folder.join(format!("{}.kubeconfig", cluster.name()));
        std::fs::copy(cluster.kubeconfig(), &path)?;
        Ok(path)
    };
    let (hub_config, spoke_config) = (kubeconfig(&hub)?, kubeconfig(&spoke)?);
    let mut text = format!(
        "kubectl --kubeconfig {}   # the hub\nkubectl --kubeconfig {}   # the spoke\nkubectl and helm: {}\n",
        hub_config.display(),
        spoke_config.display(),
        tools::control_plane("kubectl")?.parent().unwrap_or(Path::new("/")).display(),
    );
    let mut running = None;
    match wanted {
        Wanted { product: false, .. } => {}
        Wanted { real: true, .. } => {
            real::product::install(&hub, &real::product::values()).await?;
            product::register(&hub, &spoke, "spoke-1").await?;
            text.push_str(&examples(folder)?);
        }
        Wanted { real: false, .. } => {
            let product = install(folder, &hub, &spoke).await?;
            let more = format!(
                "operator and webhook run on the hub with the releases in {}; the spoke is ClusterProfile {}/spoke-1\ninstall Knative on the spoke (clusterProfileRef): on the hub, Knative's own webhooks are simulated, and it does not become Ready\nlogs of the operator: {}\n",
                releases::best().dir.display(),
                product::FLEET,
                product.operator.dir.display(),
            );
            text.push_str(&more);
            running = Some(product);
        }
    }
    std::fs::write(folder.join("ready.new"), text)?;
    std::fs::rename(folder.join("ready.new"), folder.join("ready"))?;
    let _running = running;
    std::future::pending().await
}

/// Installs the chart on the hub, starts its processes, and registers the spoke.
async fn install(folder: &Path, hub: &Cluster, spoke: &Cluster) -> Result<Product> {
    let plugins = folder.join("plugins");
    std::fs::create_dir_all(&plugins)?;
    let mut values = product::values(&[]);
    values["knative_operator"]["fleet"] = serde_json::json!({"enabled": true});
    let running = Product::install(hub, &releases::best(), values, &plugins).await?;
    product::register(hub, spoke, "spoke-1").await?;
    Ok(running)
}

/// Writes resources to try, and says how.
fn examples(folder: &Path) -> Result<String> {
    let mut spec = real::product::serving(releases::best().serving);
    spec["clusterProfileRef"] = json!({"name": "spoke-1", "namespace": product::FLEET});
    let (namespace, meta) = ("knative-serving", json!({"name": "knative-serving", "namespace": "knative-serving"}));
    let serving = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": meta, "spec": spec},
    ]});
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("serving.json"), serde_json::to_vec_pretty(&serving)?)?;
    std::fs::write(path("hello.json"), serde_json::to_vec_pretty(&traffic::service("hello", &json!({})))?)?;
    let (hub, spoke) = (path("hub.kubeconfig"), path("spoke.kubeconfig"));
    Ok(format!(
        "operator and webhook run as Pods on the hub; the spoke is ClusterProfile {fleet}/spoke-1\n\
        to install Knative Serving on the spoke, and send a request to a Knative Service:\n  \
        kubectl --kubeconfig {hub} apply -f {serving}\n  \
        kubectl --kubeconfig {hub} wait knativeserving/knative-serving -n {namespace} --for=condition=Ready --timeout=180s\n  \
        kubectl --kubeconfig {spoke} apply -f {hello}\n  \
        kubectl --kubeconfig {spoke} wait ksvc/hello --for=condition=Ready\n  \
        curl -H 'Host: {host}' http://$(kubectl --kubeconfig {spoke} get service kourier -n knative-serving -o 'jsonpath={{.spec.clusterIP}}')\n",
        fleet = product::FLEET,
        serving = path("serving.json"),
        hello = path("hello.json"),
        host = traffic::host("hello"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_other_folders_are_not_stopped() {
        let is_holder = |command: &str| is_holder(command.replace(' ', "\0").as_bytes(), Path::new("/a/target"));
        assert!(is_holder("/a/cluster hold --folder /a/target --product "));
        for other in ["/b/cluster hold --folder /b/target ", "/b/cluster hold --folder /a/target2 ", "make hold ", ""] {
            assert!(!is_holder(other), "{other}");
        }
    }
}
