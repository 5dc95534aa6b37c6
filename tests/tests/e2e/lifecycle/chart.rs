//! `helm uninstall` with live resources, and an installation under another name afterwards.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, kubelet, project, releases};
use rustix::process::Signal;
use serde_json::json;

use super::TEAM;
use crate::go_state::current;
use crate::knative_fleet;
use crate::owners::{PLACE, state};
use crate::support::{apply, delete, eventing, namespace, nothing_left, ready, run, step};

/// Namespace of the release.
const IN_PLACE: [&str; 2] = ["--namespace", product::NAMESPACE];

/// `chart` and `file` are the chart and its values.
async fn what_would_break_is_refused(hub: &Cluster, (chart, file): (&str, &str)) -> Result<()> {
    // Disabling fleets would leave nobody to delete them.
    let disable =
        ["upgrade", "knative-operator", chart, "--values", file, "--set", "knative_operator.fleet.enabled=false"];
    let refused = hub.helm(&[&disable[..], &IN_PLACE].concat()).await.unwrap_err().to_string();
    assert!(refused.contains("KnativeFleet"), "{refused}");

    // The Pods of the webhook run, as the chart has a quota for their priority class.
    let critical = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "critical", "namespace": TEAM},
        "spec": {"priorityClassName": "system-cluster-critical", "containers": [{"name": "a", "image": "a"}]}});
    let refused = apply(hub, &critical).await.unwrap_err().to_string();
    assert!(refused.contains("insufficient quota"), "{refused}");

    // A second release would take permissions and webhooks of the first.
    let second =
        ["install", "second", chart, "--namespace", TEAM, "--values", file, "--take-ownership", "--dry-run=server"];
    let refused = hub.helm(&second).await.unwrap_err().to_string();
    assert!(refused.contains("is installed in namespace \"knative-operator\""), "{refused}");
    Ok(())
}

/// An upgrade to an operator that lacks the installed versions is refused, unless somebody allows
/// it; one that upgrades Knative says so. The operator `first` stops.
async fn upgrades_say_what_changes(hub: &Cluster, first: &mut Product, (chart, file): (&str, &str)) -> Result<()> {
    let dry = [&["upgrade", "knative-operator", chart, "--values", file, "--dry-run=server"][..], &IN_PLACE].concat();
    let own_bundle = ["--set", "knative_operator.releases.image="];
    let refused = hub.helm(&[&dry[..], &own_bundle].concat()).await.unwrap_err().to_string();
    assert!(refused.contains("KnativeEventing team/knative-eventing: 1.1.0 (archived)"), "{refused}");
    let allowed = ["--set", "knative_operator.releases.allowMissing=true"];
    hub.helm(&[&dry[..], &own_bundle, &allowed].concat()).await?;
    first.stop_operator(Signal::TERM)?;
    let local = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "local", "namespace": TEAM}, "spec": {}});
    apply(hub, &local).await?;
    let version = json!({"status": {"version": "1.22.0"}}).to_string();
    let line = ["patch", "knativeserving", "local", "-n", TEAM, "--subresource=status", "--type=merge", "-p"];
    hub.kubectl(&[&line[..], &[&version]].concat(), "").await?;
    let upgraded = hub.helm(&[&dry[..], &own_bundle, &allowed].concat()).await?;
    assert!(upgraded.contains("KnativeServing team/local: 1.22.0 to 1.23.0"), "{upgraded}");
    hub.object("knativeserving", TEAM, "local").delete().await
}

#[test]
fn chart_is_uninstalled_and_another_release_continues() {
    run(async {
        let (single, member) = tokio::try_join!(Cluster::spoke("single"), Cluster::spoke("member"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let hub = Cluster::hub("reinstalled").await?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let mut first = Product::install(&hub, &releases, values, plugins.path()).await?;
        for (name, spoke) in [("single", &single), ("member", &member)] {
            product::register(&hub, spoke, name).await?;
        }
        hub.object("clusterprofile", product::FLEET, "member").label(&json!({"env": "prod"})).await?;
        for place in [TEAM, knative_fleet::PLACE] {
            namespace(&hub, place).await?;
        }
        let before = [objects(&single.client()).await?, objects(&member.client()).await?];
        let resource = eventing(TEAM, "knative-eventing", Some("single"), &releases);
        let mut fleet =
            knative_fleet::fleet(&json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}}));
        fleet["spec"]["rollout"] = json!({});
        apply(&hub, &resource).await?;
        apply(&hub, &fleet).await?;
        ready(&hub, &resource).await?;
        knative_fleet::status(&hub, "ready", |status| status.ready == 1).await?;
        let installed = [state(&single, "knative-eventing").await?, state(&member, PLACE).await?];

        let chart = project().join("charts/knative-operator").display().to_string();
        let file = hub.dir().join("values.json").display().to_string();
        let files = (chart.as_str(), file.as_str());
        step("what would break", what_would_break_is_refused(&hub, files)).await?;
        step("upgrades", upgrades_say_what_changes(&hub, &mut first, files)).await?;

        let line = ["delete", "crd", "knativefleets.operator.knative.dev", "--wait=false"];
        let (is_deleted, output) = hub.kubectl_output(&line, "").await;
        assert!(!is_deleted && output.contains("has 1 resource"), "{output}");
        let uninstalled = hub.helm(&[&["uninstall", "knative-operator", "--wait"][..], &IN_PLACE].concat()).await?;
        eprintln!("helm uninstall: {uninstalled}");
        assert!(uninstalled.contains("kept due to the resource policy"), "{uninstalled}");
        drop(first);
        // Nothing hangs, and nothing of Knative is touched.
        assert_eq!(state(&single, "knative-eventing").await?, installed[0]);
        apply(
            &hub,
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "works", "namespace": TEAM}}),
        )
        .await?;

        let own = [(kubelet::OWN_PLUGIN_IMAGE.to_owned(), plugins.path().to_owned())];
        let install =
            ["install", "another-name", &chart, "--values", &file, "--take-ownership", "--wait", "--timeout", "2m"];
        hub.helm(&[&install[..], &IN_PLACE].concat()).await?;
        let _second = Product::start(&hub, &releases, own.into()).await?;
        let mut changed = resource.clone();
        changed["spec"]["config"] = json!({"features": {"new-trigger-filters": "enabled"}});
        apply(&hub, &changed).await?;
        current(&hub, &resource).await?;
        knative_fleet::status(&hub, "ready", |status| status.ready == 1).await?;
        assert_eq!(state(&single, "knative-eventing").await?, installed[0], "restarted");
        assert_eq!(state(&member, PLACE).await?, installed[1], "restarted");

        delete(&hub, &resource).await?;
        delete(&hub, &fleet).await?;
        nothing_left(&single, &before[0]).await?;
        nothing_left(&member, &before[1]).await
    });
}
