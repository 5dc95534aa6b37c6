//! Properties of every rendering, tested with random specs and the project's small release.

use std::path::Path;
use std::sync::Arc;

use knative_operator_rules as rules;
use knative_operator_shared::api::{Component, Knative};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use super::{RenderError, Settings, objects};
use knative_operator_objects::CompactObject;
use knative_operator_objects::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_release::Bundle;

fn released(component: Component) -> Vec<CompactObject> {
    let bundle = Bundle::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/release"));
    let version = "1.1.0".parse().unwrap();
    let mut directories = vec![bundle.release(component, &version)];
    if component == Component::Serving {
        directories.extend(["istio", "kourier"].map(|name| bundle.extra("ingress", &version, name)));
    }
    directories.iter().flat_map(|d| bundle.objects(d).unwrap().iter().cloned().collect::<Vec<_>>()).collect()
}

fn resource(component: Component, namespace: &str, spec: &Value) -> Knative {
    let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"name": "a", "namespace": namespace, "uid": "u"}, "spec": spec});
    rules::parse(component, &object).unwrap_or_else(|violation| unreachable!("{violation}: {spec}"))
}

fn rendered(resource: &Knative, released: &[CompactObject]) -> Result<Vec<Value>, RenderError> {
    let settings = Settings { kubernetes_min_version: Some("v1.30.0".to_owned()) };
    let objects = objects(resource, &"1.1.0".parse().unwrap(), released.iter(), &settings);
    let plan = objects.map(|objects| Plan::new(Arc::new(objects), &Owner::of(resource, "u")));
    plan.map(|p| p.items().iter().map(|i| p.object_of(i)).collect())
}

/// Names of workloads and containers in the small release, and others.
fn name() -> impl Strategy<Value = &'static str> {
    select(vec![
        "activator",
        "controller",
        "webhook",
        "eventing-controller",
        "eventing-webhook",
        "mt-broker-filter",
        "nobody",
        "*",
    ])
}

fn entries() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-c]", "[x-z]{0,2}", 0..3).prop_map(|map| json!(map))
}

fn workload() -> impl Strategy<Value = Value> {
    let fields = (name(), name(), entries(), entries(), 0..9, any::<bool>(), 0..9, select(vec!["1", "500m", "2Gi"]));
    let all = fields.prop_map(|(name, container, labels, selector, replicas, host, period, quantity)| {
        json!({
            "name": name,
            "labels": labels,
            "annotations": labels,
            "replicas": replicas,
            "nodeSelector": selector,
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "hostNetwork": host,
            "resources": [{"container": container, "limits": {"cpu": quantity}}],
            "env": [{"container": container, "envVars": [{"name": "A", "value": "b"}, {"name": "SYSTEM_NAMESPACE", "value": "x"}]}],
            "readinessProbes": [{"container": container, "periodSeconds": period}],
        })
    });
    (all, subsequence((0..10).collect::<Vec<usize>>(), 0..9)).prop_map(|(all, omitted)| {
        let Value::Object(mut fields) = all else { return Value::Null };
        let keys: Vec<String> = fields.keys().filter(|k| *k != "name").cloned().collect();
        omitted.into_iter().filter_map(|i| keys.get(i)).for_each(|key| drop(fields.remove(key)));
        fields.into()
    })
}

/// A spec for any component. With `stable`, rendering the rendered objects again changes nothing.
fn spec(stable: bool) -> impl Strategy<Value = Value> {
    let lists = (prop::collection::vec(workload(), 0..3), prop::collection::vec(workload(), 0..2));
    let maps = (entries(), entries(), name(), name(), 0..9);
    (lists, maps, subsequence((0..11).collect::<Vec<usize>>(), 0..11)).prop_map(
        move |((workloads, deployments), (labels, config, container, service, replicas), omitted)| {
            let mut registry =
                json!({"override": {container: "r/x:1", "activator/activator": "r/a:2"}, "imagePullSecrets": [{"name": "pull"}]});
            if !stable {
                registry["default"] = json!("r/${NAME}:v1");
            }
            let Value::Object(mut spec) = json!({
                "workloads": workloads,
                "deployments": deployments,
                "namespace": {"labels": labels},
                "config": {"features": config, "config-features": labels},
                "registry": registry,
                "high-availability": {"replicas": replicas},
                "resources": [{"container": container, "requests": {"cpu": "1"}}],
                "services": [{"name": service, "labels": labels, "selector": config}],
                "podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": replicas}],
                "version": "1.1.0",
            }) else {
                return Value::Null;
            };
            let keys: Vec<String> = spec.keys().cloned().collect();
            omitted.into_iter().filter_map(|i| keys.get(i)).for_each(|key| drop(spec.remove(key)));
            spec.into()
        },
    )
}

/// `value` as JSON, with the keys of every mapping in reverse order.
fn with_reversed_keys(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .rev()
                .map(|(key, value)| format!("{}:{}", json!(key), with_reversed_keys(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(with_reversed_keys).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

fn junk() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let key = select(vec!["name", "spec", "labels", "env", "a"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..3)
                .prop_map(|f| Value::Object(f.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_specs_render_equally(spec in spec(false), serving in any::<bool>(), elsewhere in any::<bool>()) {
        let component = if serving { Component::Serving } else { Component::Eventing };
        let namespace = if elsewhere { "elsewhere" } else { component.canonical() };
        let released = released(component);
        let first = rendered(&resource(component, namespace, &spec), &released);
        // Again, from the same objects.
        prop_assert_eq!(&first, &rendered(&resource(component, namespace, &spec), &released));
        // With another order of keys.
        let other: Value = serde_json::from_str(&with_reversed_keys(&spec)).unwrap();
        prop_assert_eq!(&first, &rendered(&resource(component, namespace, &other), &released));
        // Serialized and parsed.
        let stored = match resource(component, namespace, &spec) {
            Knative::Serving(s) => json!(s.spec),
            Knative::Eventing(e) => json!(e.spec),
        };
        prop_assert_eq!(&first, &rendered(&resource(component, namespace, &stored), &released));
    }

    #[test]
    fn rendering_is_idempotent(spec in spec(true), serving in any::<bool>()) {
        let component = if serving { Component::Serving } else { Component::Eventing };
        let resource = resource(component, component.canonical(), &spec);
        // The name of a Job gets the version appended each time.
        let released: Vec<_> = released(component).into_iter().filter(|o| o.id().kind != "Job").collect();
        let first = rendered(&resource, &released).unwrap();
        let again: Vec<_> = first.iter().map(CompactObject::new).collect();
        prop_assert_eq!(first, rendered(&resource, &again).unwrap());
    }

    #[test]
    fn empty_block_renders_like_none(spec in spec(false), serving in any::<bool>(), blocks in subsequence(vec![
        "namespace", "namespaceConfiguration", "config", "registry", "high-availability", "security", "controller-custom-certs", "source",
    ], 1..8), lists in subsequence(vec!["workloads", "deployments", "resources", "services", "podDisruptionBudgets", "manifests", "additionalManifests"], 1..7)) {
        let component = if serving { Component::Serving } else { Component::Eventing };
        let released = released(component);
        let (mut without, mut with) = (spec.clone(), spec);
        for (fields, empty) in [(blocks, json!({})), (lists, json!([]))] {
            for field in fields {
                without.as_object_mut().map(|s| s.remove(field));
                with[field] = empty.clone();
            }
        }
        let render = |spec: &Value| rendered(&resource(component, component.canonical(), spec), &released);
        prop_assert_eq!(render(&without), render(&with));
    }

    #[test]
    fn patches_change_only_their_targets(
        serving in any::<bool>(), index in any::<prop::sample::Index>(), type_ in select(vec!["json", "merge", "strategic"]), content in junk(),
        deletes in any::<bool>(), pointer in select(vec!["/metadata/labels/a", "/spec", "/data", "/spec/template/spec/containers"]),
    ) {
        let component = if serving { Component::Serving } else { Component::Eventing };
        let released = released(component);
        let render = |spec: Value| rendered(&resource(component, component.canonical(), &spec), &released);
        let before = render(json!({})).unwrap();
        let object = index.get(&before);
        let content = match type_ {
            "json" => json!([{"op": "add", "path": pointer, "value": content}]),
            _ if deletes => json!({"$patch": "delete"}),
            _ => json!({"spec": content}),
        };
        let patch = json!({
            "target": {"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"]},
            "patch": {"type": type_, "content": content.to_string()},
        });
        if let Ok(once) = render(json!({"patches": [patch]})) {
            let others = |objects: &[Value]| {
                objects.iter().filter(|o| ["apiVersion", "kind"].iter().any(|k| o[*k] != object[*k]) || o["metadata"]["name"] != object["metadata"]["name"]).cloned().collect::<Vec<_>>()
            };
            prop_assert_eq!(others(&once), others(&before));
            if content.get("$patch").is_none() {
                prop_assert_eq!(once, render(json!({"patches": [patch, patch]})).unwrap());
            }
        }
    }

    #[test]
    fn released_objects_cause_no_panic(
        kind in select(vec!["Deployment", "Job", "Service", "ConfigMap", "Namespace", "RoleBinding", "ClusterRole", "HorizontalPodAutoscaler",
            "PodDisruptionBudget", "CustomResourceDefinition", "ValidatingWebhookConfiguration", "Gateway", "Image", "StatefulSet"]),
        name in select(vec!["activator", "controller", "webhook", "config-features", "config-br-defaults", "kourier", "knative-local-gateway",
            "eventing-webhook", "activator-pdb", "x"]),
        pointer in select(vec!["/spec", "/data", "/metadata/labels", "/metadata/annotations", "/spec/template", "/spec/template/spec", "/spec/template/metadata", "/subjects",
            "/webhooks", "/spec/template/spec/containers", "/spec/template/spec/containers/0", "/spec/template/spec/containers/0/env",
            "/spec/template/spec/containers/0/resources", "/spec/minReplicas", "/spec/conversion", "/aggregationRule", "/spec/selector"]),
        junk in junk(), spec in spec(false), serving in any::<bool>(),
    ) {
        let component = if serving { Component::Serving } else { Component::Eventing };
        let mut object = json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": {}, "annotations": {}}, "data": {}, "subjects": [], "webhooks": [],
            "aggregationRule": {},
            "spec": {"selector": {}, "minReplicas": 1, "conversion": {}, "template": {"metadata": {}, "spec": {"containers": [{"name": name, "env": [], "resources": {}}]}}},
        });
        if let Some(found) = object.pointer_mut(pointer) {
            *found = junk;
        }
        let mut spec = spec;
        if serving {
            spec["ingress"] = json!({"kourier": {"enabled": true, "service-type": "NodePort", "http-port": 1, "bootstrap-configmap": "b"}, "istio": {"enabled": true, "knative-local-gateway": {"selector": {"a": "b"}}}});
            spec["controller-custom-certs"] = json!({"type": "Secret", "name": "s"});
            spec["security"] = json!({"securityGuard": {"enabled": true}});
        }
        // An error is allowed.
        let released = [CompactObject::new(&object)];
        let resource = resource(component, "n", &spec);
        let _ = rendered(&resource, &released);
        let _ = super::names(released.iter()).unmatched(&resource);
    }
}
