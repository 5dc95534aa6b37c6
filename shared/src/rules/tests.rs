//! Every rule by its own examples, ratcheting, and that nothing whatever makes a rule panic.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::api::Component;

fn object(component: Component, example: &str) -> Value {
    Example { component, before: None, after: None }.object(example)
}

fn releases() -> Releases {
    let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    let container = |probes| Container { env: set(&["QUEUE_IMAGE"]), readiness: probes, liveness: probes };
    let workload = |name: &str, replicas| {
        let containers = BTreeMap::from([(name.to_owned(), container(true))]);
        (name.to_owned(), Workload { containers, overridable: true, replicas })
    };
    let names = Names {
        workloads: BTreeMap::from([
            workload("activator", true),
            workload("webhook", true),
            workload("migration-", false),
            workload("kafka-source-dispatcher", false),
        ]),
        autoscalers: set(&["broker-filter-hpa"]),
        services: set(&["activator-service", "autoscaler"]),
        budgets: set(&["activator-pdb"]),
        configs: BTreeMap::from([
            ("config-network".to_owned(), set(&["domain-template", "ingress-class"])),
            ("config-features".to_owned(), set(&[])),
            ("config-gc".to_owned(), set(&[])),
            ("config-autoscaler".to_owned(), set(&["stable-window"])),
        ]),
        images: set(&["queue-proxy"]),
    };
    let of = |kind: &str| {
        (kind.to_owned(), BTreeMap::from([("1.22".to_owned(), names.clone()), ("1.23".to_owned(), names.clone())]))
    };
    let versions =
        |kind: &str| (kind.to_owned(), ["1.21.3", "1.22.0", "1.22.1", "1.23.0"].map(|v| v.parse().unwrap()).to_vec());
    Releases {
        versions: BTreeMap::from([versions("KnativeServing"), versions("KnativeEventing")]),
        names: BTreeMap::from([of("KnativeServing"), of("KnativeEventing")]),
    }
}

/// The rules that `example` breaks.
fn broken(example: &Example, releases: &Releases) -> Vec<String> {
    let new = example.after.map(|text| read(example.component, &object(example.component, text)));
    let old = example.before.map(|text| read(example.component, &object(example.component, text)).unwrap());
    let problems = match (new, old) {
        (Some(Err(problem)), _) => vec![problem],
        (Some(Ok(new)), old) => {
            let name = new.common().cluster_profile_ref.as_ref().map(|r| r.name.as_str());
            let profile = name.map(|name| match name {
                "missing" => Profile::Missing,
                "unhealthy" => Profile::Unhealthy,
                _ => Profile::Healthy,
            });
            let around = Surroundings {
                releases: Some(releases),
                profile,
                rival: (name == Some("taken")).then_some("rules/first"),
            };
            judge(&new, old.as_ref(), &around)
        }
        (None, Some(old)) => deletion(&old).into_iter().collect(),
        (None, None) => Vec::new(),
    };
    problems.into_iter().map(|p| p.rule.id.to_owned()).collect()
}

#[test]
fn every_rule_has_an_example_that_keeps_it_and_one_that_breaks_it() {
    let releases = releases();
    let mut ids = HashSet::new();
    for rule in ALL {
        assert!(ids.insert(rule.id), "{} is there twice", rule.id);
        let (kept, broken) = (broken(&rule.kept, &releases), broken(&rule.broken, &releases));
        assert!(!kept.contains(&rule.id.to_owned()), "{} is not kept: {kept:?}", rule.id);
        assert!(broken.contains(&rule.id.to_owned()), "{} is not broken: {broken:?}", rule.id);
        // A good example is good altogether.
        let errors: Vec<_> =
            kept.iter().filter(|id| ALL.iter().any(|r| r.id == **id && r.severity == Severity::Error)).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", rule.id);
    }
}

fn serving(spec: &Value) -> Knative {
    read(Component::Serving, &object(Component::Serving, &spec.to_string())).unwrap()
}

#[test]
fn an_update_is_not_refused_for_what_was_wrong_before() {
    let told = |old: Value, new: Value| -> Vec<String> {
        let problems = judge(&serving(&new), Some(&serving(&old)), &Surroundings::default());
        problems.into_iter().filter(Problem::is_error).map(|p| p.field).collect()
    };
    let wrong = json!({"name": "webhook", "replicas": -1});
    // Another field, another place in the list, even less of it.
    assert!(told(json!({"workloads": [wrong]}), json!({"workloads": [wrong], "version": "1.22"})).is_empty());
    assert!(told(json!({"workloads": [wrong]}), json!({"workloads": [{"name": "activator"}, wrong]})).is_empty());
    // The fault itself was touched, or made once more.
    assert_eq!(
        told(json!({"workloads": [wrong]}), json!({"workloads": [{"name": "webhook", "replicas": -2}]})),
        ["spec.workloads[0].replicas"]
    );
    let other = json!({"name": "activator", "replicas": -1});
    assert_eq!(told(json!({"workloads": [wrong]}), json!({"workloads": [wrong, other]})).len(), 1);
    // Warnings are told each time.
    let old = json!({"deployments": [{"name": "webhook"}]});
    assert_eq!(judge(&serving(&old), Some(&serving(&old)), &Surroundings::default()).len(), 1);
}

#[test]
fn every_fault_is_told_at_once() {
    let spec = json!({
        "version": "x", "high-availability": {"replicas": 0}, "manifests": [{"URL": "ftp://a/b"}],
        "workloads": [{"name": "a", "env": [{"container": "c", "envVars": [{"name": ""}]}]}, {"name": "a"}],
    });
    let fields: Vec<_> = faults(&serving(&spec), &Surroundings::default()).into_iter().map(|p| p.field).collect();
    for field in [
        "spec.version",
        "spec.manifests[0].URL",
        "spec.high-availability.replicas",
        "spec.workloads[1].name",
        "spec.workloads[0].env[0].envVars[0].name",
    ] {
        assert!(fields.iter().any(|f| f == field), "{field} is not in {fields:?}");
    }
}

#[test]
fn what_is_not_in_the_release_is_told_with_the_nearest() {
    let releases = releases();
    let around = Surroundings { releases: Some(&releases), ..Surroundings::default() };
    for (spec, expected) in [
        (
            json!({"workloads": [{"name": "activater"}]}),
            "spec.workloads[0].name: no workload is called \"activater\"; the nearest is \"activator\"",
        ),
        (
            json!({"workloads": [{"name": "migration"}]}),
            "spec.workloads[0].name: no workload is called \"migration\"; the nearest is \"migration-\"",
        ),
        (
            json!({"workloads": [{"name": "activator", "livenessProbes": [{"container": "activ"}]}]}),
            "spec.workloads[0].livenessProbes[0].container: no container of this workload is called \"activ\"; the nearest is \"activator\"",
        ),
        (
            json!({"workloads": [{"name": "kafka-source-dispatcher", "replicas": 2}]}),
            "spec.workloads[0].replicas: has no effect, for nothing but kafka-source-dispatcher itself sets its replicas; remove it",
        ),
        (
            json!({"podDisruptionBudgets": [{"name": "x", "minAvailable": 1}]}),
            "spec.podDisruptionBudgets[0].name: no PodDisruptionBudget is called \"x\"; the nearest is \"activator-pdb\"",
        ),
        (
            json!({"config": {"feature": {}}}),
            "spec.config.feature: no ConfigMap is called \"feature\"; the nearest is \"features\"",
        ),
        (
            json!({"registry": {"override": {"QUEUE_IMAG": "a/b"}}}),
            "spec.registry.override.QUEUE_IMAG: no container, workload/container, environment variable or cached image is called \"QUEUE_IMAG\"; the nearest is \"QUEUE_IMAGE\"",
        ),
    ] {
        let told: Vec<_> = faults(&serving(&spec), &around).iter().map(ToString::to_string).collect();
        assert_eq!(told, [expected]);
    }
    let fine = json!({"workloads": [{"name": "mt-broker-filter", "replicas": 2}], "registry": {"override": {"QUEUE_IMAGE": "a/b", "activator/activator": "a/b"}}});
    assert!(faults(&serving(&fine), &around).is_empty());
}

/// Anything that could stand in a spec: its own fields with values of any form, deeply.
fn anything() -> impl Strategy<Value = Value> {
    let words = prop_oneof![
        Just("name"),
        Just("container"),
        Just("value"),
        Just("operator"),
        Just("key"),
        Just("values"),
        Just("URL"),
        Just("cpu"),
        Just("limits"),
        Just("requests"),
        Just("servers"),
        Just("port"),
        Just("number"),
        Just("network"),
        Just("ingress-class"),
        Just("enabled"),
        Just("env"),
        Just("affinity"),
        Just("nodeAffinity"),
        Just("requiredDuringSchedulingIgnoredDuringExecution"),
        Just("minAvailable"),
        Just("envVars"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[-+.a-z0-9%/:@${}\\[\\] ]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(
                prop_oneof![words.clone().prop_map(str::to_owned), any::<String>()],
                inner,
                0..4
            )
            .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_spec() -> impl Strategy<Value = Value> {
    let fields = [
        "version",
        "manifests",
        "additionalManifests",
        "config",
        "registry",
        "high-availability",
        "workloads",
        "deployments",
        "resources",
        "services",
        "podDisruptionBudgets",
        "ingress",
        "controller-custom-certs",
        "namespace",
        "clusterProfileRef",
        "source",
        "defaultBrokerClass",
    ];
    prop::collection::hash_map(prop::sample::select(fields.to_vec()).prop_map(str::to_owned), anything(), 0..5)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

/// Valid in its types, anything in its values.
fn typed_spec() -> impl Strategy<Value = Value> {
    let text = "[-+._a-zA-Z0-9%/:@${}\\[\\]= ]{0,10}";
    (text, text, text, any::<i32>(), anything(), anything()).prop_map(|(a, b, c, n, x, y)| {
        json!({
            "version": a, "manifests": [{"URL": b}], "high-availability": {"replicas": n},
            "config": {a.clone(): {b.clone(): c}, "autoscaler": {"stable-window": b, "max-scale": c}, "features": {"x": a}},
            "registry": {"default": a, "override": {b.clone(): c}, "imagePullSecrets": [x]},
            "workloads": [{"name": a, "replicas": n, "labels": {a.clone(): b}, "tolerations": [x], "topologySpreadConstraints": [y], "affinity": x,
                "resources": [{"container": b, "limits": {"cpu": x, "memory": a}, "requests": {"cpu": y, "memory": b}}],
                "env": [{"container": a, "envVars": [x, y]}], "livenessProbes": [{"container": b, "periodSeconds": n}]}],
            "services": [{"name": b, "selector": {c.clone(): a}}], "podDisruptionBudgets": [{"name": c, "minAvailable": n, "maxUnavailable": b}],
            "ingress": {"kourier": {"enabled": true, "service-type": c, "http-port": n}, "istio": {"enabled": n > 0, "knative-ingress-gateway": {"servers": [{"port": {"number": n, "protocol": a}, "hosts": [b]}]}}},
            "clusterProfileRef": {"name": a, "namespace": b},
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_spec_makes_a_rule_panic(spec in prop_oneof![any_spec(), typed_spec()]) {
        let releases = releases();
        let around = Surroundings { releases: Some(&releases), profile: Some(Profile::Healthy), rival: None };
        for component in Component::ALL {
            if let Ok(resource) = read(component, &object(component, &json!({"spec": spec}).to_string())) {
                let told = faults(&resource, &around);
                // What was there before is never in the way of an update that leaves it.
                prop_assert!(judge(&resource, Some(&resource), &around).iter().all(|p| !p.is_error()), "{told:?}");
            }
        }
    }

    #[test]
    fn a_changed_reference_is_always_refused(a in typed_spec(), b in typed_spec()) {
        let (old, new) = (serving(&json!({"spec": a})), serving(&json!({"spec": b})));
        let same = old.common().cluster_profile_ref == new.common().cluster_profile_ref;
        let refused = judge(&new, Some(&old), &Surroundings::default()).iter().any(|p| p.rule.id == "cluster-profile-ref-immutable");
        prop_assert_eq!(refused, !same);
    }
}
