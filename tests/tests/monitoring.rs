//! Metrics, alerts and dashboard with a real Prometheus: it scrapes both processes through a short
//! life of a hub, and answers the query of each panel, and that of the recipe for a gate. promtool
//! checks names, rules and alerts, amtool the recipe for a chat.
//!
//! Prometheus is built once, which takes minutes, so this is not part of `make test`: `make
//! test-monitoring` sets `MONITORING=yes`.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

#[path = "monitoring/chat.rs"]
mod chat;
#[path = "monitoring/gate.rs"]
mod gate;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::skip::{LONG_BUILD, skip};
use knative_operator_tests::{Result, http, releases, tools};
use reqwest::{Client, Url};
use serde_json::{Value, json};

const PLACE: &str = "platform";
/// Time limit until Prometheus is ready, and until it has data.
const LIMIT: Duration = Duration::from_secs(120);

fn run(test: impl Future<Output = Result<()>>) {
    if std::env::var_os("MONITORING").is_none() {
        skip(LONG_BUILD, "make test-monitoring runs the tests with Prometheus");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(test) {
        panic!("{error:?}");
    }
}

/// Runs the tool `name`; its stdout and stderr if it succeeds.
fn tool(name: &str, arguments: &[&str], folder: &Path, stdin: &str) -> Result<(String, String)> {
    let mut process = Command::new(tools::control_plane(name)?)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    process.stdin.take().ok_or("no stdin")?.write_all(stdin.as_bytes())?;
    let output = process.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() {
        Ok((stdout, stderr))
    } else {
        Err(format!("{name} {arguments:?}: {stdout}{stderr}").into())
    }
}

/// Runs promtool; its output if it succeeds.
fn promtool(arguments: &[&str], folder: &Path, stdin: &str) -> Result<String> {
    let (stdout, stderr) = tool("promtool", arguments, folder, stdin)?;
    Ok(stdout + &stderr)
}

#[test]
fn each_alert_fires_and_is_quiet() {
    run(async {
        let folder = tempfile::tempdir()?;
        let rules = std::fs::read_to_string(tools::project().join("charts/knative-operator/files/alerts.yaml"))?;
        std::fs::write(folder.path().join("alerts.yaml"), &rules)?;
        println!("{}", promtool(&["check", "rules", "--lint=all", "alerts.yaml"], folder.path(), "")?);
        let mut plain: Value = serde_saphyr::from_str(&rules)?;
        let cases = std::fs::read_to_string(tools::project().join("tests/monitoring/alerts-test.yaml"))?;
        for rule in plain["groups"][0]["rules"].as_array_mut().ok_or("no rules")? {
            // promtool compares annotations, too.
            rule.as_object_mut().ok_or("no rule")?.remove("annotations");
            let name = rule["alert"].as_str().unwrap_or_default().to_owned();
            for case in [format!("- name: {name} fires\n"), format!("- name: {name} is quiet\n")] {
                assert!(cases.contains(&case), "there is no case {case}");
            }
        }
        std::fs::write(folder.path().join("alerts.yaml"), plain.to_string())?;
        std::fs::write(folder.path().join("alerts-test.yaml"), cases)?;
        println!("{}", promtool(&["test", "rules", "alerts-test.yaml"], folder.path(), "")?);
        Ok(())
    });
}

/// A Prometheus that scrapes `targets` each second. Dropping it stops it.
struct Prometheus {
    process: std::process::Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Err means that it ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    async fn start(targets: &[SocketAddr]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let config = json!({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "knative-operator", "static_configs": [{"targets": targets}]}]});
        std::fs::write(folder.path().join("prometheus.yml"), config.to_string())?;
        let process = Command::new(tools::control_plane("prometheus")?)
            .args([
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                &format!("--web.listen-address={address}"),
            ])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let (prometheus, deadline) = (Self { process, address, _folder: folder }, Instant::now() + LIMIT);
        // Polled: nothing reports it.
        while !matches!(http::get(address, "/-/ready").await, Ok((200, _))) {
            if Instant::now() > deadline {
                return Err(format!("Prometheus is not ready after {LIMIT:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(prometheus)
    }

    /// The answer to `query`: labels and values.
    async fn query(&self, query: &str) -> Result<Vec<(Value, f64)>> {
        let url = Url::parse_with_params(&format!("http://{}/api/v1/query", self.address), [("query", query)])?;
        let answer: Value = serde_json::from_slice(&Client::new().get(url).send().await?.bytes().await?)?;
        if answer["status"] != "success" {
            return Err(format!("{query}: {answer}").into());
        }
        let results = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        let value = |result: &Value| result["value"][1].as_str().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        Ok(results.iter().map(|result| (result["metric"].clone(), value(result))).collect())
    }
}

/// The metrics at `address` in the text format of Prometheus, which promtool reads: there, the
/// family of a counter has its suffix.
async fn metrics(address: SocketAddr) -> Result<String> {
    let (_, text) = http::get(address, "/metrics").await?;
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let line = |line: &str| {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what @ ("TYPE" | "HELP")), Some(name), Some(rest)) if counters.contains(&name) => {
                format!("# {what} {name}_total {rest}\n")
            }
            (Some("#"), Some("UNIT" | "EOF"), ..) => String::new(),
            _ => format!("{line}\n"),
        }
    };
    Ok(text.lines().map(line).collect())
}

struct Scene {
    hub: Cluster,
    spoke: Cluster,
    _product: Product,
    _plugins: tempfile::TempDir,
}

impl Scene {
    async fn apply(&self, object: &Value) -> Result<()> {
        self.hub.apply(object).await
    }

    async fn wait(&self, resource: &str, what: &str) -> Result<()> {
        let what = format!("--for={what}");
        self.hub.kubectl(&["wait", resource, "-n", PLACE, &what, "--timeout=120s"], "").await.map(drop)
    }

    /// A short life: installations, a rollout, one that waits, drift, a spoke that can't be
    /// reached, and refused resources.
    async fn live(&self) -> Result<()> {
        for name in ["a", "b"] {
            product::register(&self.hub, &self.spoke, name).await?;
        }
        product::profile(&self.hub, "gone", &product::access(&self.spoke, "nowhere")).await?;
        self.hub.object("clusterprofile", FLEET, "a").label(&json!({"env": "prod"})).await?;
        self.apply(&fleet("1.0.0", false)).await?;
        self.wait("knativefleet/prod", "condition=Ready").await?;
        // The series of the first rollout is there before the second.
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.apply(&fleet("1.1.0", false)).await?;
        self.wait("knativefleet/prod", "jsonpath={.status.observedGeneration}=2").await?;
        self.wait("knativefleet/prod", "condition=Ready").await?;
        self.apply(&serving("gone", Some("gone"))).await?;
        self.apply(&serving("local", None)).await?;
        self.wait("knativeserving/local", "condition=Ready").await?;
        for replicas in ["2", "3"] {
            let scale = format!("--replicas={replicas}");
            self.spoke.kubectl(&["scale", "deployment/controller", &scale, "-n", "knative-serving"], "").await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let mut refused = serving("refused", None);
            refused["spec"]["version"] = json!("one");
            assert!(self.apply(&refused).await.is_err());
        }
        self.apply(&fleet("1.1.0", true)).await?;
        self.wait(
            "knativefleet/prod",
            "jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}=AwaitingApproval",
        )
        .await
    }
}

fn serving(name: &str, profile: Option<&str>) -> Value {
    let mut spec = json!({"version": "1.1.0", "ingress": {"istio": {"enabled": false}, "kourier": {"enabled": true}}});
    if let Some(profile) = profile {
        spec["clusterProfileRef"] = json!({"name": profile, "namespace": FLEET});
    }
    json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": name, "namespace": PLACE}, "spec": spec})
}

fn fleet(version: &str, awaits: bool) -> Value {
    let mut stage = json!({"name": "all", "maxConcurrent": "100%"});
    let mut spec = json!({"version": version, "ingress": {"kourier": {"enabled": true}}});
    if awaits {
        stage["approval"] = json!("Required");
        spec["config"] = json!({"defaults": {"revision-timeout-seconds": "301"}});
    }
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": PLACE}, "spec": {
        "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}, "namespaces": [FLEET]},
        "serving": {"spec": spec}, "rollout": {"stages": [stage]}}})
}

#[test]
fn prometheus_answers_the_query_of_each_panel() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("prom-hub"), Cluster::spoke("prom-spoke"))?;
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let product = Product::install(&hub, &releases::small(), values, plugins.path()).await?;
        hub.namespace(PLACE).await?;
        let (webhook, _) = product.webhook.as_ref().ok_or("no webhook")?;
        let targets = [product.metrics(), (webhook.address, 9090).into()];
        let prometheus = Prometheus::start(&targets).await?;
        let scene = Scene { hub, spoke, _product: product, _plugins: plugins };
        scene.live().await?;

        // Each panel has data.
        let file = tools::project().join("charts/knative-operator/files/dashboard.json");
        let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        let mut missing: Vec<(String, String)> = Vec::new();
        for panel in dashboard["panels"].as_array().into_iter().flatten() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                missing.push((text(&panel["title"]), text(&target["expr"])));
            }
        }
        let (count, deadline) = (missing.len(), Instant::now() + LIMIT);
        while !missing.is_empty() {
            let mut still = Vec::new();
            for (title, query) in missing {
                let answer = prometheus.query(&query).await?;
                match answer.iter().find(|(_, value)| !value.is_nan()) {
                    Some((labels, value)) => println!("{title}: {query} => {labels} {value:.4}"),
                    None => still.push((title, query)),
                }
            }
            missing = still;
            if Instant::now() > deadline {
                return Err(format!("no data: {missing:#?}").into());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        println!("{count} queries of the dashboard have data");
        let up = prometheus.query("up").await?;
        assert!(up.len() == 2 && up.iter().all(|(_, value)| (*value - 1.0).abs() < f64::EPSILON), "{up:?}");
        let series = prometheus.query("count({job=\"knative-operator\"})").await?;
        println!("series of a hub with 4 resources: {}", series[0].1);

        // The names are those of Prometheus' conventions.
        let folder = tempfile::tempdir()?;
        for target in targets {
            let text = metrics(target).await?;
            let found = promtool(&["check", "metrics"], folder.path(), &text)?;
            println!("promtool check metrics: {} families, {:?}", text.matches("# TYPE ").count(), found.trim());
        }
        Ok(())
    });
}
