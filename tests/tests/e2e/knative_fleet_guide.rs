//! Runs the commands of `docs/user/fleet.md` in order, against a hub and three spokes, and what the
//! CronJobs of the maintenance window do.

use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases;
use knative_operator_tests::remaining::objects;
use serde_json::{Value, json};

use crate::document::{Shell, document};
use crate::documents::minor;
use crate::support::{nothing_left, run};

/// Namespace of the maintenance window.
const WINDOW: &str = "maintenance-window";
/// The fleet, as arguments of kubectl.
const FLEET: [&str; 4] = ["knativefleet", "knative", "-n", "platform"];

/// What kubectl prints if the API server can't apply a JSON patch, as when its test fails.
const TEST_FAILED: &str = "The request is invalid: the server rejected our request due to an error in our request";

/// Does what the CronJob `name` does, as its ServiceAccount; whether it succeeds, and the output.
async fn cron_job(hub: &Cluster, name: &str) -> Result<(bool, String)> {
    let stored = hub.kubectl(&["get", "cronjob", name, "-n", WINDOW, "-o", "json"], "").await?;
    let stored: Value = serde_json::from_str(&stored)?;
    let pod = &stored["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().ok_or("no ServiceAccount")?;
    let user = format!("system:serviceaccount:{WINDOW}:{account}");
    let patch = json!({"group": "operator.knative.dev", "resource": "knativefleets", "name": "knative", "verb": "patch", "namespace": "platform"});
    hub.until_permitted(&user, &patch, true).await?;
    let container = &pod["containers"][0];
    let image = container["image"].as_str().unwrap_or_default();
    assert!(image.starts_with("registry.k8s.io/kubectl:") && container["command"].is_null(), "{container}");
    let mut arguments: Vec<&str> =
        container["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    arguments.extend(["--as", &user]);
    Ok(hub.kubectl_output(&arguments, "").await)
}

/// Whether the fleet is paused.
async fn is_paused(hub: &Cluster) -> Result<bool> {
    let paused = "-o=jsonpath={.spec.rollout.paused}";
    Ok(hub.kubectl(&[&["get"][..], &FLEET[..], &[paused]].concat(), "").await? == "true")
}

/// The CronJobs pause the fleet, and end their own pause only.
async fn window_opens_and_closes(hub: &Cluster) -> Result<()> {
    let (admitted, output) = cron_job(hub, "window-opens").await?;
    assert!(!admitted && output.contains(TEST_FAILED), "nobody closed it: {output}");
    let (admitted, output) = cron_job(hub, "window-closes").await?;
    assert!(admitted && is_paused(hub).await?, "{output}");
    let (admitted, output) = cron_job(hub, "window-opens").await?;
    assert!(admitted && !is_paused(hub).await?, "{output}");
    let patch = async |paused: bool| {
        let patch = json!({"spec": {"rollout": {"paused": paused}}}).to_string();
        hub.kubectl(&[&["patch"][..], &FLEET[..], &["--type=merge", "-p", &patch]].concat(), "").await
    };
    patch(true).await?;
    let (admitted, output) = cron_job(hub, "window-opens").await?;
    assert!(!admitted && output.contains(TEST_FAILED), "a person paused it: {output}");
    assert!(is_paused(hub).await?, "the pause of a person ended");
    patch(false).await.map(drop)
}

#[test]
fn commands_of_the_fleet_guide_work() {
    run(async {
        let (hub, a, b, c) = tokio::try_join!(
            Cluster::hub("fleet-guide"),
            Cluster::spoke("fleet-guide-1"),
            Cluster::spoke("fleet-guide-2"),
            Cluster::spoke("fleet-guide-3")
        )?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut product = Some(Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?);
        let spokes = [&a, &b, &c];
        let mut before = Vec::new();
        for (number, spoke) in spokes.into_iter().enumerate() {
            product::register(&hub, spoke, &format!("spoke-{}", number + 1)).await?;
            before.push(objects(&spoke.client()).await?);
        }
        let mut shell = Shell::new(&[("hub", &hub)], &product::values(&[]))?;
        let (mut output, mut has_window) = (Vec::new(), false);
        for block in document("docs/user/fleet.md")? {
            let script = block.script.replace("version: \"1.22\"", &format!("version: \"{}\"", minor(&releases)));
            let started = async || {
                drop(product.take());
                let own = [("registry.example/own-plugins".to_owned(), plugins.path().to_owned())];
                product = Some(Product::start(&hub, &releases, own.into()).await?);
                Ok(())
            };
            let printed = shell.run(&script, started).await?;
            eprintln!("## {}\n{script}\n{printed}", block.heading);
            if script.contains("kubectl apply -f window.yaml") {
                window_opens_and_closes(&hub).await?;
                has_window = true;
            }
            output.push((block.heading, printed));
        }
        let printed = |heading: &str| -> String {
            output.iter().filter(|(other, _)| other == heading).map(|(_, text)| text.as_str()).collect()
        };
        for (heading, part) in [
            ("Create a fleet", "canary   fleet-system/spoke-1   KnativeServing   create   version "),
            ("Create a fleet", "3 create, 0 unchanged"),
            ("Create a fleet", "AwaitingApproval"),
            ("Create a fleet", "NAME      CLUSTERS   UPDATED   READY"),
            ("Create a fleet", "3 of 3 clusters updated"),
            ("Roll out a change", "spec.config.features.kubernetes.podspec-affinity: \"enabled\" is added"),
            ("Roll out a change", "3 update, 0 unchanged"),
            ("Roll back", "current, update"),
            ("Roll back", "   Complete   prod: "),
            ("Roll back", "\nstage "),
            ("Change some clusters only", "3 of 3 clusters updated"),
            ("The limit of removals", "Warning: spec.placement.clusterSelector: selects no ClusterProfile"),
            ("Read the status", "StageComplete"),
            ("Delete a fleet", "No resources found"),
        ] {
            assert!(printed(heading).contains(part), "{heading}: {part}: {}", printed(heading));
        }
        assert!(has_window, "the document has no maintenance window");
        for (spoke, before) in spokes.into_iter().zip(&before) {
            nothing_left(spoke, before).await?;
        }
        Ok(())
    });
}
