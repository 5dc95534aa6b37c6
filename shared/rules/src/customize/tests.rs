//! The tables are complete, and comparisons follow them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::entry::{Entry, Needs};
use super::table::{child, field};
use super::{FIELDS, changes, config_maps, setting};
use knative_operator_shared::api::Component;
use knative_operator_shared::crd::definition;

fn spec_of(component: Component) -> Value {
    definition(component)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].take()
}

/// Adds the fields below `pattern` that no entry is about.
fn collect_undecided(schema: &Value, pattern: &str, undecided: &mut Vec<String>) {
    if pattern == "config" || field(pattern).is_some() {
        return;
    }
    let fields = schema["properties"].as_object().into_iter().flatten();
    let mut below: Vec<(String, &Value)> = fields.map(|(name, schema)| (child(pattern, name), schema)).collect();
    for (part, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if schema[part].is_object() {
            below.push((format!("{pattern}{mark}"), &schema[part]));
        }
    }
    if below.is_empty() {
        undecided.push(pattern.to_owned());
    }
    below.iter().for_each(|(pattern, schema)| collect_undecided(schema, pattern, undecided));
}

fn undecided(schema: &Value) -> Vec<String> {
    let mut undecided = Vec::new();
    collect_undecided(schema, "", &mut undecided);
    undecided
}

#[test]
fn every_field_of_the_definitions_is_decided() {
    for component in Component::ALL {
        let mut schema = spec_of(component);
        let found = undecided(&schema);
        assert!(found.is_empty(), "{component}: add to shared/rules/src/customize/fields.rs, with a reason: {found:?}");
        schema["properties"]["invented"] = json!({"type": "string"});
        schema["properties"]["workloads"]["items"]["properties"]["invented"] = json!({"type": "object"});
        schema["properties"]["high-availability"]["properties"]["invented"] = json!({"type": "integer"});
        assert_eq!(undecided(&schema), ["high-availability.invented", "invented", "workloads[].invented"]);
    }
}

/// Whether `schema` has the field `pattern`.
fn has(schema: &Value, pattern: &str) -> bool {
    let field = pattern.split('.').fold(schema, |schema, part| {
        let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
        let others = &schema["additionalProperties"];
        let field = if others.is_object() { others } else { &schema["properties"][name] };
        if is_list { &field["items"] } else { field }
    });
    !field.is_null()
}

#[test]
fn fields_in_the_table_exist() {
    let schemas = Component::ALL.map(spec_of);
    for name in FIELDS.iter().flat_map(Entry::names) {
        assert!(schemas.iter().any(|schema| has(schema, name)), "there is no field {name}");
    }
}

#[test]
fn each_field_and_key_is_listed_once_with_a_reason() {
    let mut names = BTreeSet::new();
    for entry in FIELDS {
        assert!(entry.reason.ends_with('.'), "{}", entry.reason);
        entry.names().for_each(|name| assert!(names.insert(name.to_owned()), "{name}"));
    }
    for component in Component::ALL {
        let mut keys = BTreeSet::new();
        for map in config_maps(component) {
            for entry in map.entries {
                assert!(entry.reason.ends_with('.'), "{}", entry.reason);
                assert_ne!(entry.needs, Needs::Use, "{}", map.name);
                entry.names().for_each(|key| assert!(keys.insert(format!("{}.{key}", map.name)), "{}.{key}", map.name));
            }
        }
    }
}

/// The changes of Serving.
fn changed(old: &Value, new: &Value) -> Vec<String> {
    changes(Component::Serving, old, new)
}

#[test]
fn what_a_tenant_may_set_needs_no_permission() {
    let free = json!({
        "version": "1.22", "clusterProfileRef": {"name": "a", "namespace": "f"}, "high-availability": {"replicas": 3},
        "ingress": {"kourier": {"enabled": true}}, "source": {"kafka": {"enabled": true}}, "security": {"securityGuard": {"enabled": false}},
        "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev", "_example": "x"},
            "config-autoscaler": {"max-scale": "7"}, "logging": {"loglevel.controller": "debug"}, "domain": {}},
        "workloads": [{"name": "w", "replicas": 3, "labels": {}, "env": [], "livenessProbes": [{"container": "c", "periodSeconds": 5}],
            "resources": [{"container": "c", "limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"ephemeral-storage": "1Gi"}}]}],
        "deployments": [{"name": "w", "replicas": 1}], "resources": [{"container": "c", "limits": {"cpu": "1"}}],
        "registry": {}, "patches": [], "manifests": null, "namespace": {"labels": null},
    });
    for component in Component::ALL {
        let expected: &[&str] = match component {
            Component::Serving => &[],
            // Eventing doesn't have these ConfigMaps.
            Component::Eventing => &["spec.config.autoscaler.max-scale", "spec.config.network.ingress-class"],
        };
        assert_eq!(changes(component, &Value::Null, &free), expected);
        assert_eq!(changes(component, &free, &Value::Null), expected);
    }
}

#[test]
fn all_else_needs_the_permission_whether_set_changed_or_removed() {
    for (spec, expected) in [
        (json!({"registry": {"default": "x"}, "patches": [{}]}), &["spec.patches", "spec.registry"][..]),
        (json!({"manifests": [{"URL": "knative-serving/1.22.0"}]}), &["spec.manifests"]),
        (json!({"invented": 1}), &["spec.invented"]),
        (json!({"version": {"a": 1}}), &["spec.version"]),
        (json!({"namespace": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}), &["spec.namespace"]),
        (json!({"services": [{"name": "s", "selector": {"a": "b"}}]}), &["spec.services"]),
        (json!({"security": {"securityGuard": {"enabled": true}}}), &["spec.security.securityGuard.enabled"]),
        (json!({"ingress": {"kourier": {"enabled": true, "http-port": 80}}}), &["spec.ingress.kourier.http-port"]),
        (
            json!({"workloads": [{"name": "w", "env": [{}], "hostNetwork": true, "affinity": {}, "annotations": {"a": "b"}}]}),
            &[
                "spec.workloads[w].affinity",
                "spec.workloads[w].annotations",
                "spec.workloads[w].env",
                "spec.workloads[w].hostNetwork",
            ],
        ),
        (json!({"deployments": [{"name": "w", "nodeSelector": {"a": "b"}}]}), &["spec.deployments[w].nodeSelector"]),
        (
            json!({"workloads": [{"name": "w", "resources": [{"container": "c", "limits": {"cpu": 1, "example.com/gpu": 1}, "claims": [{}]}]}]}),
            &["spec.workloads[w].resources[c].claims", "spec.workloads[w].resources[c].limits.example.com/gpu"],
        ),
        // Without names of their own, items are compared as a whole.
        (json!({"workloads": [{"replicas": 1}]}), &["spec.workloads"]),
        (json!({"workloads": [{"name": "w"}, {"name": "w"}]}), &["spec.workloads"]),
        (json!({"workloads": {"w": 1}}), &["spec.workloads"]),
        (
            json!({"config": {"deployment": {"queue-sidecar-image": "x", "progress-deadline": "1m"}, "invented": {"a": "b"}}}),
            &["spec.config.deployment.queue-sidecar-image", "spec.config.invented.a"],
        ),
        (
            json!({"config": {"logging": {"loglevel.kubeconfig": "apiVersion: v1\nkind: Config"}}}),
            &["spec.config.logging.loglevel.kubeconfig"],
        ),
        (json!({"config": {"network": {"ingress-class": "x"}}}), &["spec.config.network.ingress-class"]),
        (json!({"config": {"autoscaler": {"max-scale": "7"}, "config-autoscaler": {}}}), &["spec.config.autoscaler"]),
        (json!({"config": {"domain": {"example.com": ""}}}), &["spec.config.domain.example.com"]),
        (json!({"config": "x"}), &["spec.config"]),
        (json!("x"), &["spec"]),
    ] {
        assert_eq!(changed(&Value::Null, &spec), expected, "{spec}");
        assert_eq!(changed(&spec, &json!({})), expected, "{spec}");
        assert!(changed(&spec, &spec).is_empty());
    }
}

#[test]
fn only_what_differs_is_asked_about() {
    let none: &[&str] = &[];
    let env = |value: &str| json!([{"container": "c", "envVars": [{"name": "A", "value": value}]}]);
    let old = json!({"version": "1.21", "patches": [{}], "config": {"config-domain": {"a.example": ""}},
        "workloads": [{"name": "v", "replicas": 1}, {"name": "w", "env": env("1")}]});
    for (new, expected) in [
        (
            json!({"version": "1.22", "patches": [{}], "config": {"domain": {"a.example": ""}},
                "workloads": [{"name": "w", "env": env("1"), "replicas": 2}]}),
            none,
        ),
        (
            json!({"config": {"domain": {"b.example": ""}}, "workloads": [{"name": "w", "env": env("2")}]}),
            &["spec.config.domain.a.example", "spec.config.domain.b.example", "spec.patches", "spec.workloads[w].env"],
        ),
    ] {
        assert_eq!(changed(&old, &new), expected, "{new}");
    }
}

#[test]
fn keys_are_found_by_component_and_case() {
    let needs = |component, map, key| setting(component, map, key).map(|entry| entry.needs);
    assert_eq!(needs(Component::Serving, "logging", "loglevel.x"), Some(Needs::Nothing));
    assert_eq!(needs(Component::Serving, "features", "kubernetes.podspec-volumes-hostpath"), Some(Needs::Customize));
    assert_eq!(needs(Component::Eventing, "features", "delivery-timeout"), Some(Needs::Nothing));
    assert_eq!(needs(Component::Serving, "features", "delivery-timeout"), None);
    assert_eq!(needs(Component::Serving, "autoscaler", "Max-Scale"), None);
    assert_eq!(needs(Component::Serving, "autoscaler", "invented"), None);
}

#[test]
fn names_of_changed_fields_are_bounded() {
    let keys = Value::Object((0..5000).map(|number| (number.to_string(), json!(""))).collect());
    let long = "m".repeat(100_000);
    for spec in [
        json!({"config": {(long.as_str()): keys}}),
        json!({"workloads": [{"name": long, "resources": [{"container": long, "limits": keys}]}]}),
    ] {
        let changed = changes(Component::Serving, &Value::Null, &spec);
        assert!(changed.len() == 1000 && changed.iter().all(|path| path.len() < 1000), "{}", changed.len());
    }
}
