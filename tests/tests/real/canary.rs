//! A fleet whose canary can't pull an image: the rollout stops for the cause of its Pods.

use std::time::Duration;

use knative_operator_tests::product::FLEET;
use knative_operator_tests::real::product;
use knative_operator_tests::releases;
use serde_json::json;

use crate::fleet::{clusters, status};
use crate::support::{NAMESPACE, Report, run};

/// The image that doesn't exist.
const MISSING: &str = "registry.example/knative/activator:none";
/// Time for an update, and limit until the rollout stops.
const DEADLINE: i32 = 45;
const LIMIT: Duration = Duration::from_secs(150);

#[test]
fn canary_with_a_missing_image_stops_the_rollout() {
    run(async {
        let mut report = Report::new();
        let (hub, [spoke, _prod]) = clusters("fleet").await?;
        report.line("the chart is installed, two clusters are registered");
        let mut serving = product::serving(releases::best().serving);
        serving["registry"]["override"]["activator/activator"] = json!(MISSING);
        let canary = json!({"matchLabels": {"tier": "canary"}});
        let stages = json!([{"name": "canary", "clusterSelector": canary, "progressDeadlineSeconds": DEADLINE}, {"name": "prod"}]);
        let fleet = json!({
            "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": NAMESPACE},
            "spec": {
                "placement": {"clusterSelector": {}, "namespaces": [FLEET]},
                "serving": {"spec": serving}, "rollout": {"stages": stages},
            },
        });
        hub.kubectl(&["apply", "-f", "-"], &fleet.to_string()).await?;
        let stopped = format!("--timeout={}s", LIMIT.as_secs());
        let wait = ["wait", "knativefleet/prod", "-n", NAMESPACE, "--for=condition=Paused", &stopped];
        if let Err(error) = hub.kubectl(&wait, "").await {
            return Err(format!("{error}\n{}\n{}", status(&hub).await?, product::pods(&spoke).await).into());
        }
        let text = status(&hub).await?;
        report.line(&format!("the rollout stopped:\n{text}"));
        for part in ["TooManyFailures", &format!("cannot pull image \"{MISSING}\"")] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        let names = hub
            .kubectl(&["get", "knativeservings", "-A", "-o", "jsonpath={.items[*].spec.clusterProfileRef.name}"], "");
        assert_eq!(names.await?, "canary", "the second stage was started");
        Ok(())
    });
}
