//! Clients that change a resource several times in a row get no conflict with status updates, and
//! the status stays up to date.

use std::time::{Duration, Instant};

use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{HUB_USER, Product, values};
use knative_operator_tests::{Result, releases};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::existing::multicluster_is_added;
use crate::support::{INSTALL, apply, condition, delete, namespace, ready, resource, run, status};

/// Time within which the operator leaves a changed resource to others. On a loaded machine, a
/// change takes longer, and may get a conflict.
const FAST: Duration = Duration::from_millis(250);

/// Sets the ConfigMap key `number` by get and update, as a Go client does.
async fn update(api: &Api<DynamicObject>, number: usize) -> Result<()> {
    let mut found = api.get("knative-serving").await?;
    found.data["spec"]["config"] = json!({"defaults": {"number": number.to_string()}});
    api.replace("knative-serving", &PostParams::default(), &found).await?;
    Ok(())
}

#[test]
fn rapid_changes_get_no_conflict_and_a_status() {
    run(async {
        let (hub, plugins, releases) = (Cluster::hub("coalesce").await?, tempfile::tempdir()?, releases::small());
        let mut values = values(&[]);
        values["knative_operator"]["multicluster"] = json!({"enabled": false});
        let product = Product::create(&hub, &releases, values, plugins.path()).await?;
        namespace(&hub, "knative-serving").await?;
        let serving = |version: &str| {
            let spec = json!({"version": version, "ingress": {"kourier": {"enabled": true}}});
            resource(Component::Serving, "knative-serving", "knative-serving", None, spec)
        };
        let mut audit = Audit::of(&hub, HUB_USER)?;
        let mut statuses = async || {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Result::Ok(audit.take()?.iter().filter(|r| r.writes() && r.target.ends_with("/status")).count())
        };
        // One a second reports progress, on a loaded machine for longer.
        let is_few = |writes: usize, least: u64, began: Instant| writes as u64 <= least.max(began.elapsed().as_secs());
        let began = Instant::now();
        apply(&hub, &serving("1.0.0")).await?;
        ready(&hub, &serving("1.0.0")).await?;
        let install = statuses().await?;
        assert!(is_few(install, 6, began), "{install} writes of the status in an installation");

        // In a row: each change reads and updates right after the previous one.
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("operator.knative.dev", "v1beta1", "KnativeServing"));
        let api = Api::<DynamicObject>::namespaced_with(hub.client(), "knative-serving", &kind);
        let (mut conflicts, began) = (0, Instant::now());
        for row in 0..10 {
            for number in 0..3 {
                let started = Instant::now();
                match update(&api, row * 10 + number).await {
                    Err(error) if error.to_string().contains("the object has been modified") => {
                        conflicts += usize::from(started.elapsed() < FAST);
                    }
                    other => other.map_err(|error| format!("row {row}, update {number}: {error}"))?,
                }
            }
            let observed = |s: &KnativeStatus| condition(s, "Ready").is_some_and(|c| c.status == "True");
            let generation = api.get("knative-serving").await?.metadata.generation;
            let caught_up = |s: &KnativeStatus| s.observed_generation == generation && observed(s);
            status(&hub, &serving("1.0.0"), INSTALL, "Ready at the newest generation", caught_up).await?;
        }
        assert!(conflicts <= 2, "{conflicts} of 30 changes got a conflict");
        let rows = statuses().await?;
        assert!(is_few(rows, 30, began), "{rows} writes of the status in ten series of three changes");

        // Continuously: the status must not wait for the end.
        let (began, mut number, mut newest) = (Instant::now(), 1000, 0);
        let first = api.get("knative-serving").await?.metadata.generation.unwrap_or_default();
        while newest <= first + 5 {
            assert!(began.elapsed() < INSTALL, "the status is still at generation {newest}, {first} was first");
            number += 1;
            let patch = Patch::Merge(json!({"spec": {"config": {"defaults": {"number": number.to_string()}}}}));
            let stored = api.patch("knative-serving", &PatchParams::default(), &patch).await?;
            newest = stored.data["status"]["observedGeneration"].as_i64().unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        statuses().await?;

        let began = Instant::now();
        apply(&hub, &serving("1.1.0")).await?;
        let upgraded = |s: &KnativeStatus| {
            s.version.as_deref() == Some("1.1.0") && condition(s, "Ready").is_some_and(|c| c.status == "True")
        };
        status(&hub, &serving("1.1.0"), INSTALL, "upgraded", upgraded).await?;
        let upgrade = statuses().await?;
        eprintln!("writes of the status: install {install}, ten series of three changes {rows}, upgrade {upgrade}");
        assert!(is_few(upgrade, 6, began), "{upgrade} writes of the status in an upgrade");
        let stored: Value = serde_json::from_str(
            &hub.kubectl(&["get", "knativeserving", "knative-serving", "-n", "knative-serving", "-o", "json"], "")
                .await?,
        )?;
        assert_eq!(stored["status"]["version"], "1.1.0");
        delete(&hub, &serving("1.1.0")).await?;
        multicluster_is_added(&hub, &releases, product).await
    });
}
