//! Tests of all rules: their examples, ratcheting, and random input.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use knative_operator_shared::api::{ClusterProfileReference, Component, Kind, Knative};
use knative_operator_shared::fleet::selector::Traits;

fn object(component: Component, example: &str) -> Value {
    Example { kind: Kind::Component(component), before: None, after: None }.object(example)
}

fn catalog() -> Catalog {
    let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    let container = |probes| Container { env: set(&["QUEUE_IMAGE"]), readiness: probes, liveness: probes };
    let workload = |name: &str, replicas| {
        let containers = BTreeMap::from([(name.to_owned(), container(true))]);
        (name.to_owned(), Workload { containers, overridable: true, replicas })
    };
    let names = ReleaseNames {
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
        objects: BTreeMap::from([(
            String::new(),
            BTreeMap::from([
                ("apps/v1 Deployment".to_owned(), set(&["activator", "webhook"])),
                ("v1 Service".to_owned(), set(&["activator-service", "autoscaler"])),
            ]),
        )]),
    };
    let of = |kind: &str| {
        (kind.to_owned(), BTreeMap::from([("1.22".to_owned(), names.clone()), ("1.23".to_owned(), names.clone())]))
    };
    let versions =
        |kind: &str| (kind.to_owned(), ["1.21.3", "1.22.0", "1.22.1", "1.23.0"].map(|v| v.parse().unwrap()).to_vec());
    Catalog {
        versions: BTreeMap::from([versions("KnativeServing"), versions("KnativeEventing")]),
        names: BTreeMap::from([of("KnativeServing"), of("KnativeEventing")]),
        keeps_installed: Some(false),
    }
}

/// Identifiers of the rules that `example` violates.
fn violated(example: &Example, catalog: &Catalog) -> Vec<String> {
    let Kind::Component(component) = example.kind else { return violated_by_fleet(example, catalog) };
    let new = example.after.map(|text| parse(component, &object(component, text)));
    let old = example.before.map(|text| parse(component, &object(component, text)).unwrap());
    let violations = match (new, old) {
        (Some(Err(violation)), _) => vec![violation],
        (Some(Ok(new)), old) => {
            let name = new.common().cluster_profile_ref.as_ref().map(|r| r.name.as_str());
            let profile = name.map(|name| match name {
                "missing" => Profile::Missing,
                "unhealthy" => Profile::Unhealthy,
                _ => Profile::Healthy,
            });
            let context = RuleContext {
                catalog: Some(catalog),
                profile,
                competitor: (name == Some("taken")).then_some("rules/first"),
                field_manager: Some("kubectl"),
            };
            validate_change(&new, old.as_ref(), &context)
        }
        (None, Some(old)) => validate_deletion(&old).into_iter().collect(),
        (None, None) => Vec::new(),
    };
    violations.into_iter().map(|p| p.rule.id.to_owned()).collect()
}

fn violated_by_fleet(example: &Example, catalog: &Catalog) -> Vec<String> {
    let fleet = |text| parse_fleet(&example.object(text)).unwrap();
    let cluster = ClusterProfileReference { name: "healthy".to_owned(), namespace: "rules-fleet".to_owned() };
    let profiles = [(cluster, Traits::default())];
    let context = FleetContext { catalog: Some(catalog), profiles: Some(&profiles) };
    let (new, old) = (example.after.map(fleet).unwrap(), example.before.map(fleet));
    validate_fleet_change(&new, old.as_ref(), &context).into_iter().map(|p| p.rule.id.to_owned()).collect()
}

#[test]
fn clusters_of_too_many_namespaces_are_not_looked_for() {
    // The API server refuses the fleet, but only after the mutating webhook.
    let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "own".to_owned() };
    let profiles = [(cluster, Traits::default())];
    let context = FleetContext { catalog: None, profiles: Some(&profiles) };
    let found = |namespaces: usize| {
        let namespaces: Vec<_> = (0..namespaces).map(|number| number.to_string()).collect();
        let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": "own"},
            "spec": {"placement": {"clusterSelector": {}, "namespaces": namespaces}, "serving": {"spec": {}}}});
        let found = validate_fleet(&parse_fleet(&fleet).unwrap(), &context);
        found.iter().filter(|violation| violation.rule.id == "fleet-no-clusters").count()
    };
    assert!(found(256) > 256);
    assert_eq!(found(257), 0);
}

#[test]
fn only_the_first_unknown_targets_of_patches_are_compared() {
    let catalog = catalog();
    let context = RuleContext { catalog: Some(&catalog), ..RuleContext::default() };
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "activater"});
    let patch = json!({"target": target, "patch": {"type": "merge", "content": "metadata: {labels: {a: b}}"}});
    let found = validate(&serving(&json!({"spec": {"version": "1.22.1", "patches": vec![patch; 1000]}})), &context);
    let unknown: Vec<_> = found.iter().filter(|violation| violation.rule.id == "patch-target-unknown").collect();
    assert_eq!(unknown.len(), 1000);
    let compared = unknown.iter().filter(|violation| violation.to_string().contains("the nearest Deployment"));
    assert_eq!(compared.count(), 20);
}

#[test]
fn examples_follow_and_violate_their_rule() {
    let catalog = catalog();
    let mut ids = HashSet::new();
    for rule in ALL {
        assert!(ids.insert(rule.id), "{} is there twice", rule.id);
        let (valid, violated) = (violated(&rule.valid, &catalog), violated(&rule.invalid, &catalog));
        assert!(!valid.contains(&rule.id.to_owned()), "{} is not kept: {valid:?}", rule.id);
        assert!(violated.contains(&rule.id.to_owned()), "{} is not broken: {violated:?}", rule.id);
        // A valid example violates no other rule with severity Error.
        let errors: Vec<_> =
            valid.iter().filter(|id| ALL.iter().any(|r| r.id == **id && r.severity == Severity::Error)).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", rule.id);
    }
}

fn serving(spec: &Value) -> Knative {
    parse(Component::Serving, &object(Component::Serving, &spec.to_string())).unwrap()
}

#[test]
fn update_is_not_refused_for_existing_violation() {
    let reported = |old: Value, new: Value| -> Vec<String> {
        let violations = validate_change(&serving(&new), Some(&serving(&old)), &RuleContext::default());
        violations.into_iter().filter(Violation::is_error).map(|p| p.field).collect()
    };
    let wrong = json!({"name": "webhook", "replicas": -1});
    // A change of another field, of the index, or a smaller list.
    assert!(reported(json!({"workloads": [wrong]}), json!({"workloads": [wrong], "version": "1.22"})).is_empty());
    assert!(reported(json!({"workloads": [wrong]}), json!({"workloads": [{"name": "activator"}, wrong]})).is_empty());
    // A changed or repeated violation.
    assert_eq!(
        reported(json!({"workloads": [wrong]}), json!({"workloads": [{"name": "webhook", "replicas": -2}]})),
        ["spec.workloads[0].replicas"]
    );
    let other = json!({"name": "activator", "replicas": -1});
    assert_eq!(reported(json!({"workloads": [wrong]}), json!({"workloads": [wrong, other]})).len(), 1);
    // Warnings are repeated.
    let old = json!({"deployments": [{"name": "webhook"}]});
    assert_eq!(validate_change(&serving(&old), Some(&serving(&old)), &RuleContext::default()).len(), 1);
}

#[test]
fn all_violations_are_reported_at_once() {
    let spec = json!({
        "version": "x", "high-availability": {"replicas": 0}, "manifests": [{"URL": "ftp://a/b"}],
        "workloads": [{"name": "a", "env": [{"container": "c", "envVars": [{"name": ""}]}]}, {"name": "a"}],
    });
    let fields: Vec<_> = validate(&serving(&spec), &RuleContext::default()).into_iter().map(|p| p.field).collect();
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
fn unknown_name_is_reported_with_nearest() {
    let catalog = catalog();
    let context = RuleContext { catalog: Some(&catalog), ..RuleContext::default() };
    for (spec, expected) in [
        (
            json!({"workloads": [{"name": "activater"}]}),
            "spec.workloads[0].name: the release has no workload called \"activater\"; the nearest is \"activator\"",
        ),
        (
            json!({"workloads": [{"name": "migration"}]}),
            "spec.workloads[0].name: the release has no workload called \"migration\"; the nearest is \"migration-\"",
        ),
        (
            json!({"workloads": [{"name": "activator", "livenessProbes": [{"container": "activ"}]}]}),
            "spec.workloads[0].livenessProbes[0].container: the release has no container of this workload called \"activ\"; the nearest is \"activator\"",
        ),
        (
            json!({"workloads": [{"name": "kafka-source-dispatcher", "replicas": 2}]}),
            "spec.workloads[0].replicas: has no effect, because kafka-source-dispatcher sets its replicas itself; remove it",
        ),
        (
            json!({"workloads": [{"name": "*", "labels": {"a": "b"}, "replicas": 2}]}),
            "spec.workloads[0].replicas: has no effect for all workloads; use spec.high-availability",
        ),
        (
            json!({"workloads": [{"name": "*", "resources": [{"container": "activater"}, {"container": "webhook"}]}]}),
            "spec.workloads[0].resources[0].container: the release has no container called \"activater\"; the nearest is \"activator\"",
        ),
        (
            json!({"podDisruptionBudgets": [{"name": "x", "minAvailable": 1}]}),
            "spec.podDisruptionBudgets[0].name: the release has no PodDisruptionBudget called \"x\"; correct it, or remove it",
        ),
        (
            json!({"config": {"feature": {}}}),
            "spec.config.feature: the release has no ConfigMap called \"feature\"; the nearest is \"features\"",
        ),
        (
            json!({"registry": {"override": {"QUEUE_IMAG": "a/b"}}}),
            "spec.registry.override.QUEUE_IMAG: the release has no container, workload/container, environment variable or cached image called \"QUEUE_IMAG\"; the nearest is \"QUEUE_IMAGE\"",
        ),
    ] {
        let reported: Vec<_> = validate(&serving(&spec), &context).iter().map(ToString::to_string).collect();
        assert_eq!(reported, [expected]);
    }
    let correct = json!({"workloads": [{"name": "mt-broker-filter", "replicas": 2}], "registry": {"override": {"QUEUE_IMAGE": "a/b", "activator/activator": "a/b"}}});
    assert!(validate(&serving(&correct), &context).is_empty());
    let defaults = json!({"workloads": [{"name": "*", "nodeSelector": {"pool": "infra"}, "labels": {"example.com/team": "a"},
        "resources": [{"container": "*", "limits": {"memory": "1Gi"}}, {"container": "activator", "limits": {"memory": "2Gi"}}]}]});
    assert!(validate(&serving(&defaults), &context).is_empty());
}

/// Any value: known fields with values of any type, nested.
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

/// Valid types with random values.
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
    fn random_specs_cause_no_panic(spec in prop_oneof![any_spec(), typed_spec()]) {
        let catalog = catalog();
        let context = RuleContext { catalog: Some(&catalog), profile: Some(Profile::Healthy), ..RuleContext::default() };
        for component in Component::ALL {
            if let Ok(resource) = parse(component, &object(component, &json!({"spec": spec}).to_string())) {
                let reported = validate(&resource, &context);
                // An existing violation never blocks an update that keeps it.
                prop_assert!(validate_change(&resource, Some(&resource), &context).iter().all(|p| !p.is_error()), "{reported:?}");
            }
        }
    }

    #[test]
    fn changed_reference_is_always_refused(a in typed_spec(), b in typed_spec()) {
        let (old, new) = (serving(&json!({"spec": a})), serving(&json!({"spec": b})));
        let same = old.common().cluster_profile_ref == new.common().cluster_profile_ref;
        let refused = validate_change(&new, Some(&old), &RuleContext::default()).iter().any(|p| p.rule.id == "cluster-profile-ref-immutable");
        prop_assert_eq!(refused, !same);
    }
}
