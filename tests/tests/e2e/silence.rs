//! Networks that drop the packets of connections silently: neither side is informed. Each watch, on
//! hub and spokes, over HTTP/2 and HTTP/1.1, ends by itself, and another one reports what happened
//! meanwhile.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use knative_operator_shared::api::KnativeStatus;
use knative_operator_tests::cluster::{Cluster, Setup};
use knative_operator_tests::product::{self, Product, values};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::silence::Link;
use knative_operator_tests::{Error, Result, wait};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    apply, condition, delete, fleet, has_condition, jobs_done, namespace, ready, run, serving, status,
};

/// Time limit of a recovery, on a loaded machine: less than the 240 s after which the first watch
/// ends in any case.
const RECOVERY: Duration = Duration::from_secs(200);
/// Longer than the interval in which the operator renews its Lease.
const UNUSED: Duration = Duration::from_secs(4);
/// The watches of the operator on its hub, at least: on both kinds of resources and on
/// ClusterProfiles.
const WATCHES: usize = 3;
const PLACE: &str = "knative-serving";
const MAP: &str = "config-network";

#[test]
fn drift_and_health_are_right_again_after_a_spoke_fell_silent_over_http2() {
    run(spoke_falls_silent("silent-2", true));
}

#[test]
fn drift_and_health_are_right_again_after_a_spoke_fell_silent_over_http1() {
    run(spoke_falls_silent("silent-1", false));
}

async fn spoke_falls_silent(name: &str, http2: bool) -> Result<()> {
    let fleet = fleet().await?;
    let (hub, setup) = (&fleet.hub, Setup { webhooks: false, http2, ..Setup::SIMULATED });
    let mut spoke = Cluster::start(name, setup).await?;
    let link = Link::open(&spoke).await?;
    spoke.set_pod_endpoint(link.url(), spoke.authority().to_owned());
    product::register(hub, &spoke, name).await?;
    namespace(hub, "silence").await?;
    let wanted = serving("silence", name, Some(name), &fleet.releases);
    apply(hub, &wanted).await?;
    ready(hub, &wanted).await?;
    jobs_done(&spoke, PLACE, &format!("knativeserving-{name}-root-owner")).await?;
    // New Pods have no node.
    spoke.kubectl(&["cordon", "node-1"], "").await?;
    let (maps, pods) =
        (Api::<ConfigMap>::namespaced(spoke.client(), PLACE), Api::<Pod>::namespaced(spoke.client(), PLACE));
    let before = maps.get(MAP).await?.uid();

    let connections = link.silence(Duration::ZERO).await?;
    let silent = Instant::now();
    // Directly, not through the link.
    maps.delete(MAP, &DeleteParams::default()).await?;
    pods.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=controller")).await?;
    // Two at most: watches and requests. Without HTTP/2, each watch has its own.
    assert!(connections > 0, "the operator bypassed the link");
    assert_eq!(connections <= 2, http2, "{connections} connections");
    let repaired = async {
        let back = |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != before);
        wait::until(&maps, MAP, RECOVERY, "back", back).await?;
        Ok::<_, Error>(silent.elapsed())
    };
    let reported = async {
        has_condition(hub, &wanted, "DeploymentsAvailable", "NotReady", "controller").await?;
        Ok::<_, Error>(silent.elapsed())
    };
    let (repaired, reported) = tokio::try_join!(repaired, reported)?;
    assert!(repaired < RECOVERY && reported < RECOVERY, "repaired after {repaired:.1?}, reported after {reported:.1?}");

    spoke.kubectl(&["uncordon", "node-1"], "").await?;
    let schedulable = Instant::now();
    let is_ready = |status: &KnativeStatus| condition(status, "Ready").is_some_and(|c| c.status == "True");
    status(hub, &wanted, RECOVERY, "Ready again", is_ready).await?;
    let again = schedulable.elapsed();
    eprintln!("{name}: {connections} connections fell silent; drift was repaired after {repaired:.1?}");
    eprintln!("{name}: health was reported after {reported:.1?}; Ready {again:.1?} after its Pods could run");
    delete(hub, &wanted).await
}

#[test]
fn changes_arrive_after_the_hub_fell_silent() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let (mut hub, spoke) = tokio::try_join!(Cluster::hub("silent-hub"), Cluster::spoke("silent-hub-spoke"))?;
        let mut product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "silence").await?;
        // For the operator alone: the webhook, which is running, keeps its own connections.
        let link = Link::open(&hub).await?;
        hub.set_pod_endpoint(link.url(), hub.authority().to_owned());
        product.restart_operator(&hub, Signal::TERM).await?;
        tokio::select! {
            outcome = changes_arrive(&hub, &spoke, &link, &releases) => outcome,
            outcome = keeps_running(&mut product) => outcome,
        }
    });
}

async fn changes_arrive(hub: &Cluster, spoke: &Cluster, link: &Link, releases: &Releases) -> Result<()> {
    let wanted = serving("silence", "ks", Some("spoke"), releases);
    apply(hub, &wanted).await?;
    ready(hub, &wanted).await?;
    jobs_done(spoke, PLACE, "knativeserving-ks-root-owner").await?;
    let maps = Api::<ConfigMap>::namespaced(spoke.client(), PLACE);
    // First those on which the operator sends nothing, as with a firewall that forgets them: the
    // watches, and connections in reserve. Then all of them, also that of the Lease.
    for (which, time) in [("unused", UNUSED), ("all", Duration::ZERO)] {
        at_rest(link).await?;
        let connections = link.silence(time).await?;
        let silent = Instant::now();
        assert!(connections >= WATCHES, "{which}: {connections} connections");
        // Directly, not through the link.
        let patch = json!({"spec": {"config": {"network": {"silent": which}}}}).to_string();
        hub.kubectl(&["patch", "knativeserving", "ks", "-n", "silence", "--type=merge", "-p", &patch], "").await?;
        let there = |map: Option<&ConfigMap>| {
            map.and_then(|map| map.data.as_ref()?.get("silent")).is_some_and(|value| value == which)
        };
        wait::until(&maps, MAP, RECOVERY, "changed", there).await?;
        let took = silent.elapsed();
        eprintln!("{connections} connections ({which}) to the hub fell silent: a change arrived after {took:.1?}");
        assert!(took < RECOVERY, "{which}: {took:.1?}");
        ready(hub, &wanted).await?;
    }
    delete(hub, &wanted).await
}

/// Waits until the operator watches, and sends nothing on any connection but that of its Lease.
async fn at_rest(link: &Link) -> Result<()> {
    let started = Instant::now();
    // Polled: nothing reports rest.
    loop {
        let (all, unused) = (link.unused(Duration::ZERO), link.unused(UNUSED));
        if unused >= WATCHES && all <= unused + 1 {
            return Ok(());
        }
        if started.elapsed() > RECOVERY {
            return Err(format!("not at rest: {unused} of {all} connections are unused").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Fails if the operator ends, as it does if it can't renew its Lease in time.
async fn keeps_running(product: &mut Product) -> Result<()> {
    loop {
        if let Some(code) = product.operator.process.ended() {
            return Err(format!("the operator ended with {code}").into());
        }
        // Polled: nothing reports the end of a process.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
