//! A hub and a spoke for manual use: `cluster up` starts them and prints their kubeconfigs,
//! `cluster down` stops them. With `--product`, it installs the chart on the hub, starts both
//! processes, and registers the spoke as `spoke-1`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, releases, tools};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// A hub and a spoke for manual use.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Starts the clusters.
    Up {
        /// Installs the operator and the webhook, too.
        #[arg(long)]
        product: bool,
    },
    /// Stops the clusters.
    Down,
    /// The background process that `up` starts.
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        product: bool,
    },
}

fn folder() -> PathBuf {
    tools::project().join("target/cluster")
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        What::Up { product } => up(product),
        What::Down => down(),
        What::Hold { product } => hold(product),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn holder() -> Option<Pid> {
    let pid = std::fs::read_to_string(folder().join("pid")).ok()?.trim().parse().ok().and_then(Pid::from_raw)?;
    test_kill_process(pid).ok().map(|()| pid)
}

fn up(product: bool) -> Result<()> {
    if holder().is_some() {
        return Err("the clusters are running; stop them with `make cluster-down`".into());
    }
    let folder = folder();
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let log = std::fs::File::create(folder.join("log"))?;
    let mut hold = Command::new(std::env::current_exe()?);
    hold.arg("hold")
        .args(product.then_some("--product"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    let mut hold = hold.spawn()?;
    std::fs::write(folder.join("pid"), hold.id().to_string())?;
    let deadline = Instant::now() + Duration::from_secs(180);
    while !folder.join("ready").exists() {
        if hold.try_wait()?.is_some() || Instant::now() > deadline {
            return Err(std::fs::read_to_string(folder.join("log"))?.into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    print!("{}", std::fs::read_to_string(folder.join("ready"))?);
    Ok(())
}

fn down() -> Result<()> {
    let Some(pid) = holder() else {
        println!("nothing is running");
        return Ok(());
    };
    kill_process(pid, Signal::TERM)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while holder().is_some() {
        if Instant::now() > deadline {
            return Err(format!("process {} does not end", pid.as_raw_nonzero()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = std::fs::remove_dir_all(folder());
    println!("ended");
    Ok(())
}

#[tokio::main]
async fn hold(product: bool) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let (hub, spoke) = tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"))?;
    let folder = folder();
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
    let _running = if product {
        let plugins = folder.join("plugins");
        std::fs::create_dir_all(&plugins)?;
        let releases = releases::best();
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = serde_json::json!({"enabled": true});
        let running = Product::install(&hub, &releases, values, &plugins).await?;
        product::register(&hub, &spoke, "spoke-1").await?;
        let product = format!(
            "operator and webhook run on the hub with the releases in {}; the spoke is ClusterProfile {}/spoke-1\nlog of the operator: {}\n",
            releases.dir.display(),
            product::FLEET,
            running.operator.dir.display(),
        );
        text.push_str(&product);
        Some(running)
    } else {
        None
    };
    std::fs::write(folder.join("ready.new"), text)?;
    std::fs::rename(folder.join("ready.new"), folder.join("ready"))?;
    terminate.recv().await;
    Ok(())
}
