//! A fleet of a thousand clusters: time from a change to the screen, and frames while scrolling.

use std::time::{Duration, Instant};

use knative_operator_shared::api::KnativeServing;
use knative_operator_tests::cluster::{Cluster, Setup};
use knative_operator_tests::product::FLEET;
use knative_operator_tests::sim::hub::{each, name, profile};
use knative_operator_tests::{Result, picture, tools, wait};
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::page::Page;
use crate::run;

const CLUSTERS: usize = 1000;
/// Number of changes whose latency is measured.
const CHANGES: usize = 20;
const PLACE: &str = "fleet";
/// Why the resources of some clusters are not available: what their Pods tell.
const CAUSE: &str = "cannot pull image \"registry.example/activator:none\": not found";

/// The status of the resource of cluster `number`.
fn status(number: usize, change: usize) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    let ok = |type_: &str| condition(type_, "True", "", "");
    let resolved = if number % 250 == 7 {
        let message = format!("the API server of {} answers 401 Unauthorized", name(number));
        condition("TargetClusterResolved", "False", "RemoteClusterUnauthorized", &message)
    } else {
        ok("TargetClusterResolved")
    };
    let waiting = number % 100 == 42 || change % 2 == 1;
    let available = if waiting {
        condition("DeploymentsAvailable", "False", "NotReady", &format!("Waiting on deployments: activator ({CAUSE})"))
    } else {
        ok("DeploymentsAvailable")
    };
    let is_ready = resolved["status"] == "True" && !waiting;
    let ready = if is_ready { ok("Ready") } else { condition("Ready", "False", "NotReady", "") };
    json!({"status": {"observedGeneration": 1, "version": "1.22.1",
        "conditions": [available, ok("DependenciesInstalled"), ok("InstallSucceeded"), ready, resolved, ok("VersionMigrationEligible")]}})
}

async fn resource(hub: Client, number: usize) -> Result<()> {
    let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": name(number), "namespace": PLACE, "labels": {"operator.knative.dev/fleet": "prod"}},
        "spec": {"version": "1.22.1", "clusterProfileRef": {"name": name(number), "namespace": FLEET}}});
    let api = Api::<KnativeServing>::namespaced(hub, PLACE);
    api.patch(&name(number), &PatchParams::apply("test"), &Patch::Apply(&object)).await?;
    api.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(&status(number, 0))).await?;
    Ok(())
}

async fn fleet(hub: &Cluster) -> Result<()> {
    let stage = |name: &str, tier: &str| json!({"name": name, "clusterSelector": {"matchLabels": {"tier": tier}}});
    let object = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": PLACE}, "spec": {
        "placement": {"clusterSelector": {}, "namespaces": [FLEET]}, "serving": {"spec": {"version": "1.22.1"}},
        "rollout": {"stages": [stage("canary", "0"), stage("europe", "1"), stage("world", "2")]}}});
    hub.apply(&object).await?;
    let stage = |name: &str, state: &str, clusters: usize, updated: usize| {
        json!({"name": name, "state": state, "clusters": clusters, "updated": updated, "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": if state == "Complete" { json!("2026-01-01T00:09:00Z") } else { Value::Null }})
    };
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message});
    let status = json!({"status": {"observedGeneration": 1, "clusters": CLUSTERS, "updated": 700, "ready": 980, "failed": 4, "deferred": 0,
        "updateRevision": "prod-2", "currentRevision": "prod-1", "stage": "world",
        "conditions": [condition("Ready", "False", "RollingOut", "700 of 1000 clusters have the revision, 980 are Ready, 4 failed, 0 are deferred"),
            condition("Progressing", "True", "RollingOut", "Stage world: 360 of 660 clusters have revision prod-2")],
        "stages": [stage("canary", "Complete", 10, 10), stage("europe", "Complete", 330, 330), stage("world", "Progressing", 660, 360)]}});
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("operator.knative.dev", "v1alpha1", "KnativeFleet"));
    let api = Api::<DynamicObject>::namespaced_with(hub.client(), PLACE, &resource);
    api.patch_status("prod", &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

fn tier(number: usize) -> &'static str {
    match number {
        0..10 => "0",
        10..340 => "1",
        _ => "2",
    }
}

#[test]
fn thousand_clusters_are_live_and_smooth() {
    run(async {
        let hub =
            Cluster::start("ui-large", Setup { webhooks: false, real_namespaces: &[], http2: true, real_node: None })
                .await?;
        let crds = std::process::Command::new(tools::binary("knative-operator")?).arg("crds").output()?;
        hub.kubectl(&["apply", "-f", "-"], &String::from_utf8_lossy(&crds.stdout)).await?;
        for file in ["knativefleets", "knativefleetapprovals"] {
            let path = tools::project().join(format!("charts/knative-operator/files/crds/{file}.yaml"));
            hub.kubectl(&["apply", "-f", "-"], &std::fs::read_to_string(path)?).await?;
        }
        hub.kubectl(&["apply", "-f", "-"], &std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?)
            .await?;
        wait::established(hub.client()).await?;
        for namespace in [FLEET, PLACE] {
            hub.namespace(namespace).await?;
        }
        let all: Vec<usize> = (0..CLUSTERS).collect();
        let access = json!([{"name": "secretreader", "cluster": {"server": "https://spoke.example:6443"}}]);
        each(&all, |number| profile(hub.client(), number, json!({"tier": tier(number)}), access.clone())).await?;
        each(&all, |number| resource(hub.client(), number)).await?;
        fleet(&hub).await?;

        let page = Page::start(&hub.kubeconfig(), &[]).await?;
        let browser = Browser::start("light").await?;
        browser.resize(1280, 900).await?;
        let started = Instant::now();
        browser.open(&page.url).await?;
        browser.shows("1000 clusters").await?;
        let cells = browser.run("return document.querySelectorAll('.cell').length").await?;
        println!(
            "1,000 clusters: {cells} cells on the page {:.1} s after it was opened",
            started.elapsed().as_secs_f64()
        );
        assert_eq!(cells, json!(CLUSTERS));
        let violations = browser.violations().await?;
        assert!(violations.is_empty(), "{violations:#?}");
        browser.picture("fleet", true).await?;
        for (name, arguments) in
            [("status", format!("status -n {PLACE}")), ("fleet-status", format!("fleet status prod -n {PLACE}"))]
        {
            let terminal = picture::of_command(&hub.kubeconfig(), name, &arguments).await?;
            assert!(terminal.contains("canary") && terminal.contains("europe"), "{terminal}");
        }

        changes_are_on_the_screen_soon(&hub, &browser).await?;
        scrolling_is_smooth(&browser).await?;
        cause_is_shown(&browser).await?;

        // Filters.
        browser.click("? Unreachable").await?;
        let shown = browser.run("return document.querySelectorAll('.cell').length").await?;
        assert_eq!(shown, json!(4));
        Ok(())
    });
}

async fn changes_are_on_the_screen_soon(hub: &Cluster, browser: &Browser) -> Result<()> {
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    let mut latencies = Vec::new();
    for change in 1..=CHANGES {
        let number = 100;
        let expected = if change % 2 == 1 { "Degraded" } else { "Ready" };
        let script = format!(
            "const cell = document.querySelector('[data-id=\"{FLEET}/{}\"]'); \
             await new Promise((resolve) => {{ const check = () => cell.classList.contains('{expected}') && (observer.disconnect(), requestAnimationFrame(resolve)); \
             const observer = new MutationObserver(check); observer.observe(cell, {{attributes: true}}); check(); }}); return Date.now();",
            name(number)
        );
        let write = async {
            // The observer is there first.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let at = jiff::Timestamp::now().as_millisecond();
            api.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(&status(number, change))).await?;
            Ok::<i64, knative_operator_tests::Error>(at)
        };
        let (shown, written) = tokio::try_join!(browser.run_async(&script), write)?;
        latencies.push(shown.as_i64().ok_or("no time")? - written);
    }
    latencies.sort_unstable();
    println!(
        "a change is on the screen after {} ms (median), {} ms at most, of {CHANGES}",
        latencies[CHANGES / 2],
        latencies[CHANGES - 1]
    );
    Ok(())
}

/// The page of a cluster has the cause of the Pods, and what to do about it.
async fn cause_is_shown(browser: &Browser) -> Result<()> {
    browser.run(&format!("location.hash = '#/cluster/{FLEET}/{}'", name(42))).await?;
    browser.shows(CAUSE).await?;
    browser.shows("What to do: Check the image").await?;
    browser.run("location.hash = '#/'").await?;
    browser.shows("1000 clusters").await
}

async fn scrolling_is_smooth(browser: &Browser) -> Result<()> {
    browser.resize(400, 700).await?;
    let frames = browser
        .run_async(
            "const times = []; const begin = performance.now(); \
             await new Promise((resolve) => { const step = (now) => { times.push(now); scrollBy(0, 12); \
             if (now - begin < 3000) requestAnimationFrame(step); else resolve(); }; requestAnimationFrame(step); }); \
             const gaps = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b); \
             return {frames: times.length, seconds: (times.at(-1) - times[0]) / 1000, slowest: gaps.at(-1), p95: gaps[Math.floor(gaps.length * 0.95)], height: document.documentElement.scrollHeight};",
        )
        .await?;
    let number = |key: &str| frames[key].as_f64().unwrap_or_default();
    println!(
        "scrolling: {:.0} frames a second, 95 % of frames within {:.1} ms, slowest {:.1} ms, page of {} pixels",
        number("frames") / number("seconds"),
        number("p95"),
        number("slowest"),
        frames["height"]
    );
    browser.resize(1280, 900).await
}
