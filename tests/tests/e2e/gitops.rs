//! What people write into a fleet beside Git: a pause stays, and a rollback doesn't, under
//! server-side apply, which Flux and Argo CD use, and under the merge that is Argo CD's default.

use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::knative_fleet::{self, PLACE};
use crate::status::command;
use crate::support::{namespace, run};

/// How tools apply a file of Git, each to a fleet of its own.
const WAYS: [(&str, &[&str]); 3] = [
    ("flux", &["apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", "-"]),
    ("argo-server", &["apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-"]),
    ("argo", &["apply", "-f", "-"]),
];

async fn stored(hub: &Cluster, name: &str) -> Result<Value> {
    let text = hub.kubectl(&["get", "knativefleet", name, "-n", PLACE, "-o", "json"], "").await?;
    Ok(serde_json::from_str(&text)?)
}

#[test]
fn pause_stays_and_rollback_does_not_while_git_is_applied_again() {
    run(async {
        let (hub, releases, plugins) = (Cluster::hub("gitops").await?, releases::small(), tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let mut product = Product::create(&hub, &releases, values, plugins.path()).await?;
        namespace(&hub, PLACE).await?;
        let mut git = knative_fleet::fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        for (name, way) in WAYS {
            git["metadata"]["name"] = json!(name);
            git["spec"]["rollout"]["stages"][1]["maxConcurrent"] = json!(2);
            hub.kubectl(way, &git.to_string()).await?;
            let pause = ["fleet", "pause", name, "-n", PLACE, "--reason", "by hand"];
            let (code, printed, problem) = command(&hub.kubeconfig(), &pause).await?;
            assert_eq!(code, Some(0), "{name}: {printed}{problem}");
            let other = r#"{"spec": {"serving": {"spec": {"version": "1.1.0"}}}}"#;
            let patch =
                ["patch", "knativefleet", name, "-n", PLACE, "--type=merge", "--field-manager=somebody", "-p", other];
            hub.kubectl(&patch, "").await?;

            // Another commit, and the same one again.
            git["spec"]["rollout"]["stages"][1]["maxConcurrent"] = json!(3);
            for _ in 0..2 {
                hub.kubectl(way, &git.to_string()).await?;
                let fleet = stored(&hub, name).await?;
                let (rollout, serving) = (&fleet["spec"]["rollout"], &fleet["spec"]["serving"]["spec"]);
                assert_eq!((&rollout["paused"], &rollout["stages"][1]["maxConcurrent"]), (&json!(true), &json!(3)));
                assert_eq!(serving["version"], "1.0.0", "{name}");
                let why = &fleet["metadata"]["annotations"]["operator.knative.dev/pause-reason"];
                assert_eq!(why, "by hand", "{name}");
            }
        }

        // The operator has not seen it.
        product.stop_operator(Signal::TERM)?;
        git["metadata"]["name"] = json!("new");
        hub.kubectl(&["create", "-f", "-"], &git.to_string()).await?;
        assert_eq!(stored(&hub, "new").await?["status"], json!({"observedGeneration": -1}));
        product.start_operator(&hub).await?;
        knative_fleet::status_of(&hub, "new", "seen", |status| !status.conditions.is_empty()).await?;
        Ok(())
    });
}
