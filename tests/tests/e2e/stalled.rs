//! A leader that stalls in the middle of its writes, and continues in the middle of those of its
//! successor: once another replica leads, it writes nothing.
//!
//! The audit logs show which replica sent a request by the id of its token. Each Pod has a token of
//! its own for the hub, and the plugin of this test gives each another one for the spoke.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::{Method, Request};
use hyper::body::Incoming;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::{Answer, Gate, Interceptor, Upstream};
use knative_operator_tests::kubelet::Pod;
use knative_operator_tests::measure::{self, Audit};
use knative_operator_tests::process::Process;
use knative_operator_tests::product::{self, HUB_USER, NAMESPACE, Product, SPOKE_USER, values};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::tools::copy;
use knative_operator_tests::{Result, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::crash::installed;
use crate::support::{INSTALL, apply, namespace, provider, run, script, serving};

/// The versions: the leader stalls in the upgrade, and continues in the downgrade.
const OLD: &str = "1.0.0";
const NEW: &str = "1.1.0";
/// Prefix of the names of additional ConfigMaps, and their number: twice as many as the operator
/// writes at once, so that answers to some are followed by writes of others.
const MAPS: &str = "config-many-";
const NUMBER: usize = 64;
/// Time without further writes, after which a replica waits for answers. Longer than the operator
/// waits before it reports progress.
const QUIET: Duration = Duration::from_secs(2);
/// Time limit until another replica has the Lease.
const TAKEOVER: Duration = wait::LIMIT;
/// User of the test.
const TEST_USER: &str = "admin";

/// Keeps the answers to writes of the additional ConfigMaps while it is shut. The API server has
/// handled these writes.
#[derive(Default)]
struct Valve {
    shut: watch::Sender<bool>,
    /// Number of answers that it has kept since it was shut.
    kept: watch::Sender<usize>,
}

impl Valve {
    fn shut(&self) {
        self.kept.send_replace(0);
        self.shut.send_replace(true);
    }

    fn open(&self) {
        self.shut.send_replace(false);
    }

    /// Waits until it keeps answers, and has got no further ones for `quiet`.
    async fn filled(&self, quiet: Duration) -> Result<()> {
        let mut kept = self.kept.subscribe();
        let first = tokio::time::timeout(INSTALL, kept.wait_for(|kept| *kept > 0)).await;
        first.map_err(|_| format!("no write of {MAPS}* after {INSTALL:?}"))??;
        let quiet = async { while tokio::time::timeout(quiet, kept.changed()).await.is_ok() {} };
        tokio::time::timeout(INSTALL, quiet).await.map_err(|_| format!("writes go on after {INSTALL:?}"))?;
        Ok(())
    }
}

impl Interceptor for Valve {
    fn answer(self: Arc<Self>, server: Upstream, request: Request<Incoming>) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let is_map = *request.method() == Method::PATCH && request.uri().path().contains(MAPS);
            let answer = server.send(request).await?;
            let mut shut = self.shut.subscribe();
            let is_shut = *shut.borrow();
            if is_map && is_shut {
                self.kept.send_modify(|kept| *kept += 1);
                // Err means that the test has ended.
                let _ = shut.wait_for(|shut| !*shut).await;
            }
            Ok(answer)
        })
    }
}

/// A process that is stopped. It continues when this value is dropped, also if the test fails.
struct Stopped<'a>(&'a Process);

impl<'a> Stopped<'a> {
    fn new(process: &'a Process) -> Result<Self> {
        process.signal(Signal::STOP)?;
        Ok(Self(process))
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // Err means that it has ended.
        let _ = self.0.signal(Signal::CONT);
    }
}

/// The small release in `folder`, with additional ConfigMaps that differ between the versions.
fn release(folder: &Path) -> Result<Releases> {
    copy(&releases::small().dir, folder)?;
    for version in [OLD, NEW] {
        let file = folder.join(format!("knative-serving/{version}/2-core.yaml"));
        let map = |number: usize| {
            let meta = format!("{{name: {MAPS}{number}, namespace: knative-serving}}");
            format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {meta}\ndata: {{version: \"{version}\"}}\n")
        };
        let text = std::fs::read_to_string(&file)? + &(0..NUMBER).map(map).collect::<String>();
        std::fs::write(&file, text)?;
    }
    Ok(Releases { dir: folder.to_owned(), ..releases::small() })
}

/// Writes the credential of `replica` for `spoke` to `plugins`, where the plugin reads it. Returns
/// the ids of its tokens on the hub and on the spoke.
async fn identify(replica: &Pod, spoke: &Cluster, plugins: &Path) -> Result<[String; 2]> {
    let token = spoke.token("kube-system", "knative-hub", 24 * 3600).await?;
    let credential =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}});
    std::fs::write(plugins.join(&replica.name), credential.to_string())?;
    Ok([measure::credential(&replica.token)?, measure::credential(&token)?])
}

/// Waits until `replica` has the Lease; returns its state.
async fn leads(leases: &Api<Lease>, replica: &Pod) -> Result<LeaseSpec> {
    let is_its =
        |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) == Some(&replica.name);
    let what = format!("acquired by {}", replica.name);
    let lease = wait::until(leases, "knative-operator", TAKEOVER, &what, |l| l.is_some_and(is_its)).await?;
    lease.and_then(|lease| lease.spec).ok_or_else(|| "a Lease without spec".into())
}

/// Changes `resources` to `version`.
async fn change(hub: &Cluster, resources: &mut [Value; 2], version: &str) -> Result<()> {
    for resource in resources {
        resource["spec"]["version"] = json!(version);
        apply(hub, resource).await?;
    }
    Ok(())
}

/// Waits until `version` of `resources` is installed.
async fn all_installed(hub: &Cluster, resources: &[Value; 2], version: &str) -> Result<()> {
    for resource in resources {
        installed(hub, resource, version).await?;
    }
    Ok(())
}

/// Waits until the audit log of `cluster` has all requests that have ended.
async fn logged(cluster: &Cluster) -> Result<()> {
    let (mut audit, started) = (Audit::of(cluster, TEST_USER)?, Instant::now());
    // Requests are logged in the order of their ends.
    let last = format!("last-{}", Timestamp::now().as_nanosecond());
    Api::<ConfigMap>::namespaced(cluster.client(), "default").get_opt(&last).await?;
    // Polled: nothing reports changes of the file.
    while !audit.take()?.iter().any(|request| request.target.ends_with(&last)) {
        if started.elapsed() > INSTALL {
            return Err(format!("{}: the audit log lacks {last} after {INSTALL:?}", cluster.name()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Checks the requests to `cluster` of the replica that stalled and of the other one, given the ids
/// of their tokens: from `acquired` on, the other one leads; at `changed`, the first one was still
/// stopped.
fn check(
    cluster: &Cluster,
    requests: &[measure::Request],
    [stalled, other]: [&str; 2],
    (acquired, changed): (Timestamp, Timestamp),
) -> Result<()> {
    let (name, mut before, mut finished, mut later) = (cluster.name(), 0, 0, 0);
    for request in requests.iter().filter(|request| request.writes()) {
        let (came, ended) = (request.times.0.parse::<Timestamp>()?, request.times.1.parse::<Timestamp>()?);
        let is_renewal = request.target.starts_with("leases.");
        if request.credential == stalled {
            // The API server refuses a renewal that was on its way, since the Lease has changed.
            let is_refused_renewal = is_renewal && request.code >= 400;
            assert!(
                ended < acquired || is_refused_renewal,
                "{name}: the replica that stalled wrote, but another one leads since {acquired}: {request:#?}"
            );
            before += usize::from(!is_renewal);
        } else if !is_renewal {
            assert_eq!(request.credential, other, "{name}: a third replica wrote: {request:#?}");
            assert!(came >= acquired, "{name}: it wrote, but leads only since {acquired}: {request:#?}");
            *(if came < changed { &mut finished } else { &mut later }) += 1;
        }
    }
    eprintln!("{name}: {before} writes of the leader, then {finished} and {later} of the other replica");
    assert!(before > 0 && finished > 0 && later > 0, "{name}: a replica wrote nothing: {before}, {finished}, {later}");
    Ok(())
}

#[test]
fn stalled_leader_writes_nothing_after_its_lease() {
    run(async {
        let (mut hub, mut spoke) = tokio::try_join!(Cluster::hub("stalled"), Cluster::spoke("stalled-spoke"))?;
        let valves = [Arc::new(Valve::default()), Arc::new(Valve::default())];
        let gates = (Gate::open(&hub, &valves[0]).await?, Gate::open(&spoke, &valves[1]).await?);
        hub.set_pod_endpoint(gates.0.url.clone(), gates.0.authority.clone());
        spoke.set_pod_endpoint(gates.1.url.clone(), gates.1.authority.clone());
        let (bundle, plugins) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = release(bundle.path())?;
        let plugin = format!("#!/bin/sh\ncat \"{}/$POD_NAME\"\n", plugins.path().display());
        script(&plugins.path().join("own-token"), &plugin)?;
        let chart = values(&[provider("own-token")]);
        let mut product = Product::create(&hub, &releases, chart, plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        let mut access = product::access(&spoke, "spoke");
        access[0]["name"] = json!("own-token");
        product::status(&hub, "spoke", "True", &access).await?;

        let leases = Api::<Lease>::namespaced(hub.client(), NAMESPACE);
        leads(&leases, &product.operator).await?;
        let other = product.another_operator(&hub).await?;
        let stalled_ids = identify(&product.operator, &spoke, plugins.path()).await?;
        let other_ids = identify(&other, &spoke, plugins.path()).await?;
        let mut audits = [Audit::of(&hub, HUB_USER)?, Audit::of(&spoke, SPOKE_USER)?];
        let mut resources =
            [serving("stalled", "ks", Some("spoke"), &releases), serving("knative-serving", "ks", None, &releases)];
        for place in ["stalled", "knative-serving"] {
            namespace(&hub, place).await?;
        }
        change(&hub, &mut resources, OLD).await?;
        all_installed(&hub, &resources, OLD).await?;

        // It stops with as many writes under way as it sends at once, and others to send. Their
        // answers arrive while it is stopped, so that the others are due as soon as it continues.
        valves.iter().for_each(|valve| valve.shut());
        change(&hub, &mut resources, NEW).await?;
        tokio::try_join!(valves[0].filled(QUIET), valves[1].filled(QUIET))?;
        let stopped = Stopped::new(&product.operator.process)?;
        valves.iter().for_each(|valve| valve.open());
        let lease = leads(&leases, &other).await?;
        assert_eq!(lease.lease_transitions, Some(1));
        let acquired = lease.acquire_time.ok_or("a Lease without acquireTime")?.0;
        all_installed(&hub, &resources, NEW).await?;

        // It continues while the other replica has writes under way.
        let changed = Timestamp::now();
        valves.iter().for_each(|valve| valve.shut());
        change(&hub, &mut resources, OLD).await?;
        tokio::try_join!(valves[0].filled(Duration::ZERO), valves[1].filled(Duration::ZERO))?;
        product.operator.process.restart_on_failure(false)?;
        drop(stopped);
        let code = product.operator.process.wait()?;
        let log = product.operator.process.log();
        assert!(code == 1 && log.contains("lost the Lease"), "it ended with {code}:\n{log}");
        valves.iter().for_each(|valve| valve.open());
        all_installed(&hub, &resources, OLD).await?;

        for (number, (cluster, audit)) in [&hub, &spoke].into_iter().zip(&mut audits).enumerate() {
            logged(cluster).await?;
            let ids = [stalled_ids[number].as_str(), other_ids[number].as_str()];
            check(cluster, &audit.take()?, ids, (acquired, changed))?;
        }
        let texts = ["the Lease of this replica may be lost", "this replica may no longer write"];
        let refused: usize = texts.iter().map(|text| log.matches(text).count()).sum();
        eprintln!("{refused} writes of the replica that stalled were not sent");
        let lease = leads(&leases, &other).await?;
        assert_eq!(lease.lease_transitions, Some(1), "the Lease changed hands again");
        Ok(())
    });
}
