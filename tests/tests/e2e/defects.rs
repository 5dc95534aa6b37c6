//! Defects of the Go operator (docs/user/compatibility.md), reproduced with its real processes:
//! what it writes without need. Each row of the document prints what was seen.

use std::collections::BTreeMap;

use knative_operator_shared::api::Component;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::VERSION;
use serde_json::{Value, json};

use crate::go_site::{Site, Writes, asked_for, row};
use crate::go_state::installed_by_go;
use crate::no_spec::istio;
use crate::support::{ready, run};

fn count(writes: &Writes) -> usize {
    writes.values().map(Vec::len).sum()
}

/// The writes of a reconcile that only a touch caused, after `touches` others.
async fn settled(site: &mut Site, resource: &Value, touches: usize) -> Result<Writes> {
    for _ in 0..touches {
        site.touch(resource).await?;
    }
    let span = site.touch(resource).await?;
    site.writes(span).await
}

fn names(writes: &Writes, resource: &str) -> Vec<String> {
    let mut all: Vec<String> = writes.get(resource).cloned().unwrap_or_default();
    all.sort_unstable();
    all
}

#[test]
fn go_operator_writes_serving_without_need() {
    if !asked_for() {
        return;
    }
    run(async {
        let hub = Cluster::spoke("defects").await?;
        hub.apply(&istio()).await?;
        let mut site = Site::start(hub, &[]).await?;
        let mut serving = installed_by_go(Component::Serving, "knative-serving", None, VERSION);
        serving["spec"]["ingress"]["istio"] = json!({"enabled": true});
        site.apply(&serving).await?;
        ready(&site.hub, &serving).await?;
        site.touch(&serving).await?;
        let spans = site.reconciles(&serving);
        let (first, second) = (site.writes(spans[0]).await?, site.writes(spans[1]).await?);
        let (created, again) = (count(&first), count(&second));
        row(1, &format!("{created} writes in the first reconcile, {again} in the second, which nothing required"));
        assert!(again > created / 2, "{second:?}");
        let idle = settled(&mut site, &serving, 2).await?;
        let budgets = names(&idle, "poddisruptionbudgets.policy");
        row(2, &format!("{} writes in a reconcile without a change, of {budgets:?}", count(&idle)));
        assert_eq!(budgets.len(), 3, "{idle:?}");
        let namespaces = names(&idle, "namespaces");
        row(4, &format!("in a reconcile without a change: {namespaces:?}"));
        assert!(namespaces.len() > 1, "{idle:?}");

        // The time to live of a Job has passed.
        let jobs = async |site: &Site| -> Result<BTreeMap<String, String>> {
            let path = "jsonpath={range .items[*]}{.metadata.name}={.metadata.uid} {end}";
            let all = site.hub.kubectl(&["get", "jobs", "-n", "knative-serving", "-o", path], "").await?;
            Ok(all.split_whitespace().filter_map(|j| j.split_once('=')).map(|(n, u)| (n.into(), u.into())).collect())
        };
        let before = jobs(&site).await?;
        site.hub.delete_all("jobs", "knative-serving").await?;
        site.touch(&serving).await?;
        let again = jobs(&site).await?;
        row(8, &format!("{} Jobs were gone, and {} are new", before.len(), again.len()));
        assert!(before.len() == 2 && before.keys().eq(again.keys()), "{before:?} {again:?}");
        assert!(before.iter().all(|(name, uid)| again[name] != *uid), "{before:?} {again:?}");
        Ok(())
    });
}

#[test]
fn go_operator_writes_eventing_without_need() {
    if !asked_for() {
        return;
    }
    run(async {
        let mut site = Site::start(Cluster::spoke("defects-eventing").await?, &[]).await?;
        let mut eventing = installed_by_go(Component::Eventing, "knative-eventing", None, VERSION);
        let (on, off) = (json!({"enabled": true}), json!({"enabled": false}));
        // Its definition requires all of them.
        eventing["spec"]["source"] =
            json!({"ceph": off, "github": on, "gitlab": off, "kafka": on, "rabbitmq": off, "redis": on});
        site.apply(&eventing).await?;
        ready(&site.hub, &eventing).await?;
        let idle = settled(&mut site, &eventing, 3).await?;
        let sets = names(&idle, "statefulsets.apps");
        row(3, &format!("in a reconcile without a change: {sets:?}"));
        assert!(sets.len() > 1, "{idle:?}");
        let maps = names(&idle, "configmaps");
        row(5, &format!("in a reconcile without a change: {maps:?}"));
        assert!(maps.windows(2).any(|two| two[0] == two[1]), "{idle:?}");

        // Eventing's controller writes to its adapter.
        let patch = json!([{"op": "add", "path": "/spec/template/spec/containers/0/env", "value": [{"name": "K_LOGGING_CONFIG", "value": "{}"}]},
            {"op": "replace", "path": "/spec/replicas", "value": 1}]);
        let adapter = ["deployment", "pingsource-mt-adapter"];
        site.patch("knative-eventing", adapter, "controller", &patch).await?;
        site.touch(&eventing).await?;
        let after = site.get("knative-eventing", adapter).await?;
        let (replicas, spec) = (&after["spec"]["replicas"], &after["spec"]["template"]["spec"]["containers"][0]);
        let written = spec["env"].as_array().map_or(0, Vec::len);
        row(17, &format!("replicas 1 became {replicas}, and 1 variable became {written}"));
        assert!(*replicas == json!(0) && written > 1, "{after}");
        Ok(())
    });
}
