use std::time::Instant;

use knative_operator_apply::watch::WatchTarget;
use knative_operator_cluster_access::connection_report::ConnectionState;
use knative_operator_objects::Kind;
use knative_operator_rules as rules;
use knative_operator_shared::api::Component;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use super::*;

fn diagnostics() -> (Diagnostics, Fence) {
    let fence = Fence::default();
    (Diagnostics::new(true, "operator-0", &fence), fence)
}

fn resource(name: &str) -> Knative {
    let resource = json!({
        "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": name, "namespace": "n", "uid": "1", "annotations": {"note": "hunter2"}},
        "spec": {"clusterProfileRef": {"name": "c", "namespace": "fleet"}},
    });
    rules::parse(Component::Serving, &resource).unwrap()
}

/// `report` without the times, which must be there.
fn without_times(mut report: Value) -> Value {
    const TIMES: [&str; 8] =
        ["startedAt", "now", "since", "requeueAt", "renewedAt", "lastEventAt", "lastPassAt", "usedAt"];
    match &mut report {
        Value::Object(fields) => {
            for time in TIMES {
                let time = fields.remove(time);
                assert!(time.is_none_or(|time| time.as_str().unwrap().parse::<Timestamp>().is_ok()));
            }
            fields.values_mut().for_each(|value| *value = without_times(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_times(item.take())),
        _ => {}
    }
    report
}

#[test]
fn report_has_what_the_process_does() {
    let (diagnostics, fence) = diagnostics();
    fence.renewed(Some(Instant::now()));
    diagnostics.leases().renewed("knative-operator".to_owned(), "operator-0", true);
    diagnostics.leases().renewed("knative-operator".to_owned(), "operator-0", true);
    diagnostics.hub_watch("KnativeServing").begin();
    diagnostics.ask(|| {
        let connection = ConnectionReport {
            cluster: "fleet/c".to_owned(),
            state: ConnectionState::Connected,
            provider: Some("secretreader".to_owned()),
            ..ConnectionReport::default()
        };
        Some(Live {
            reconciles: Reconciles { waiting: 0, running: 1, limit: 32, limit_per_spoke: 8 },
            connections: vec![connection],
            objects: HashMap::from([("KnativeServing", 1)]),
        })
    });
    let observed = Arc::<ObservedState>::default();
    let resource_of = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let kind = Kind { resource: resource_of, namespaced: true };
    observed.watches.add(&Arc::new(WatchTarget::labeled(kind, "knative-serving"))).begin();
    let actor = diagnostics.actor();
    actor.reconciling(&resource("ks"));
    actor.waiting(|| Rest {
        requeue: Some(Duration::from_secs(8)),
        failures: 2,
        waiting: Waiting { refused: 3, contended: 1 },
        to_delete: None,
        observed: Some(Arc::downgrade(&observed)),
    });
    let fleet = ("n".to_owned(), "prod".to_owned());
    diagnostics.passed(&fleet, Duration::from_millis(30), None);
    diagnostics.passed(&fleet, Duration::from_millis(12), Some(Duration::from_secs(5)));
    let expected = json!({
        "version": env!("CARGO_PKG_VERSION"), "replica": "operator-0", "writesPass": true,
        "leases": [{"name": "knative-operator", "holder": "operator-0", "isOwn": true, "renewals": 2}],
        "reconciles": {"waiting": 0, "running": 1, "limit": 32, "limitPerSpoke": 8},
        "actors": {"total": 1, "items": [{
            "resource": "KnativeServing n/ks", "cluster": "fleet/c", "state": "Waiting", "failures": 2,
            "isTerminating": false, "refusedObjects": 3, "contendedObjects": 1,
        }]},
        "watches": {"total": 2, "items": [
            {"kind": "KnativeServing", "objects": 1, "restarts": 0},
            {"resource": "KnativeServing n/ks", "kind": "Deployment", "namespace": "knative-serving", "objects": 0, "restarts": 0},
        ]},
        "connections": {"total": 1, "items": [{"cluster": "fleet/c", "state": "Connected", "provider": "secretreader"}]},
        "fleets": {"total": 1, "items": [{
            "fleet": "n/prod", "passes": 2, "lastPassMilliseconds": 12, "allPassesMilliseconds": 42,
            "nextPassInMilliseconds": 5000,
        }]},
    });
    let report = diagnostics.report();
    assert!(!report.to_string().contains("hunter2"), "{report}");
    assert!(report["actors"]["items"][0]["requeueAt"].is_string() && report["now"].is_string());
    assert_eq!(without_times(report), expected);
}

#[test]
fn records_end_with_their_actor_and_fleet() {
    let (diagnostics, _) = diagnostics();
    let (ending, next) = (diagnostics.actor(), diagnostics.actor());
    // Two of one name: the second one waits for the first one.
    ending.reconciling(&resource("ks"));
    next.reconciling(&resource("ks"));
    diagnostics.passed(&("n".to_owned(), "f".to_owned()), Duration::ZERO, None);
    let totals = || {
        let report = diagnostics.report();
        [&report["actors"]["total"], &report["fleets"]["total"]].map(Value::to_string)
    };
    assert_eq!(totals(), ["2", "1"]);
    drop(ending);
    diagnostics.keep_fleets(|_| false);
    assert_eq!(totals(), ["1", "0"]);
}

#[test]
fn report_is_bounded_and_shows_failing_resources_first() {
    let (diagnostics, _) = diagnostics();
    let actors: Vec<_> = (0..MAX_ENTRIES + 5).map(|number| (number, diagnostics.actor())).collect();
    for (number, actor) in &actors {
        actor.reconciling(&resource(&format!("r{number}")));
        let failures = if *number == MAX_ENTRIES { 7 } else { 0 };
        actor.waiting(|| Rest { failures, ..Rest::default() });
    }
    actors[3].1.reconciling(&resource("r3"));
    let report = diagnostics.report();
    let items = report["actors"]["items"].as_array().unwrap();
    assert_eq!((&report["actors"]["total"], items.len()), (&json!(MAX_ENTRIES + 5), MAX_ENTRIES));
    let first: Vec<_> = items.iter().take(2).map(|item| item["resource"].as_str().unwrap()).collect();
    assert_eq!(first, [format!("KnativeServing n/r{MAX_ENTRIES}").as_str(), "KnativeServing n/r3"]);
}

#[test]
fn nothing_is_recorded_where_it_is_off() {
    let diagnostics = Diagnostics::default();
    let actor = diagnostics.actor();
    actor.reconciling(&resource("ks"));
    actor.waiting(|| unreachable!("it costs nothing"));
    diagnostics.passed(&("n".to_owned(), "f".to_owned()), Duration::ZERO, None);
    diagnostics.leases().renewed("a".to_owned(), "b", true);
    assert_eq!((diagnostics.report(), diagnostics.leases().states()), (Value::Null, Vec::new()));
}
