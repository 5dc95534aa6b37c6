//! Realistic values by their place in a spec.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use knative_operator_rules::{Container, ReleaseNames};
use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;
use serde_json::{Value, json};

/// A place in a spec, and what is known there.
pub struct Place<'p> {
    /// The component.
    pub component: Component,
    /// What its releases contain.
    pub names: &'p ReleaseNames,
    /// Its released versions, oldest first.
    pub versions: &'p [Version],
    /// The workload around the place.
    pub workload: &'p str,
    /// Fields, `[]` for an item, `{}` for a key.
    pub path: &'p [String],
}

/// One of `words`.
fn one(random: &mut Rng, words: &[&str]) -> String {
    random.choice(words).map_or_else(String::new, |word| (*word).to_owned())
}

/// One of `known`, or rarely an unknown one.
fn known<'k>(random: &mut Rng, known: impl Iterator<Item = &'k String>) -> String {
    let known: Vec<_> = known.collect();
    if random.u8(..20) == 0 { "unknown".to_owned() } else { random.choice(known).cloned().unwrap_or_default() }
}

const LABELS: &[&str] =
    &["a", "app", "example.com/team", "app.kubernetes.io/name", "app.kubernetes.io/version", "istio-injection"];
const VALUES: &[&str] = &["a", "b", "enabled", "1.2.3", "true"];
const IMAGES: &[&str] = &[
    "registry.example.com/knative/controller:v1",
    "localhost:5000/a/b@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "a/b",
];
const QUANTITIES: &[&str] = &["0", "100m", "0.5", "1", "2", "1500m", "64Mi", "1.5Gi", "1e3", "1000000k", ".5", "+1"];

/// A quantity.
pub fn quantity(random: &mut Rng, path: &[String]) -> Value {
    if path.last().is_some_and(|field| field == "divisor") {
        return json!(one(random, &["1", "1m", "0", "1Mi"]));
    }
    if path.iter().any(|field| field == "limits") && random.u8(..4) != 0 {
        return json!(one(random, &["4Gi", "8G", "5e9", "4Ti"]));
    }
    if random.u8(..5) == 0 { json!(random.u8(..3)) } else { json!(one(random, QUANTITIES)) }
}

/// An integer.
pub fn number(random: &mut Rng, path: &[String]) -> Value {
    let field = path.last().map_or("", String::as_str);
    json!(match field {
        "replicas" => random.i32(0..6),
        "http-port" | "https-port" if random.u8(..6) == 0 => 0,
        "http-port" | "https-port" => random.i32(30000..30010),
        "number" | "target_port" => *random.choice(&[80, 443, 8081]).unwrap_or(&80),
        "minProtocolVersion" | "maxProtocolVersion" => random.i32(0..5),
        "weight" => random.i32(1..=100),
        "maxSkew" | "minDomains" | "terminationGracePeriodSeconds" => random.i32(1..4),
        "successThreshold" => i32::from(random.u8(..4) != 0),
        _ => random.i32(0..31),
    })
}

/// A string.
pub fn word(random: &mut Rng, place: &Place<'_>) -> String {
    let path: Vec<&str> = place.path.iter().map(String::as_str).collect();
    match path.as_slice() {
        [_, "{}"] | [.., "labels" | "annotations" | "nodeSelector" | "selector" | "matchLabels", "{}"]
            if path[0] != "config" =>
        {
            one(random, LABELS)
        }
        ["version"] => version(random, place.versions),
        ["config", "{}"] => {
            let name = known(random, place.names.configs.keys());
            if random.bool() { name.trim_start_matches("config-").to_owned() } else { name }
        }
        ["config", map, "{}"] => {
            let full = format!("config-{map}");
            let keys = place.names.configs.get(*map).or_else(|| place.names.configs.get(&full));
            let keys: Vec<&String> = keys.into_iter().flatten().filter(|key| *key != "_example").collect();
            if random.u8(..3) == 0 { "some-key".to_owned() } else { known(random, keys.into_iter()) }
        }
        ["config", _, key] => config_value(random, key),
        ["workloads" | "deployments", "[]", "name"] => known(random, place.names.workloads.keys()),
        ["services", "[]", "name"] => known(random, place.names.services.iter()),
        ["podDisruptionBudgets", "[]", "name"] => known(random, place.names.budgets.iter()),
        [.., "container"] => container(random, place),
        [.., "envVars", "[]", "name"] => {
            let existing: BTreeSet<String> = containers(place).into_values().flat_map(|c| c.env).collect();
            if random.bool() { one(random, &["A", "B", "NEW_VARIABLE"]) } else { known(random, existing.iter()) }
        }
        ["registry", "override", "{}"] => override_key(random, place),
        ["registry", "default"] => {
            one(random, &["example.com/knative/${NAME}:v1", "localhost:5000/${NAME}", "example.com/all-in-one:1"])
        }
        ["registry", "override", _] => one(random, IMAGES),
        ["additionalManifests", "[]", "URL"] => additional(random, place.component),
        ["defaultBrokerClass"] => one(random, &["MTChannelBasedBroker", "Kafka", "RabbitMQBroker"]),
        ["sinkBindingSelectionMode"] => one(random, &["inclusion", "exclusion"]),
        ["controller-custom-certs", "type"] => one(random, &["Secret", "ConfigMap", "ConfigMap", ""]),
        [.., "service-type"] => one(random, &["ClusterIP", "NodePort", "LoadBalancer"]),
        [.., "service-load-balancer-ip"] => "192.0.2.1".to_owned(),
        [.., "resources" | "limits" | "requests", "{}"] => {
            one(random, &["cpu", "memory", "ephemeral-storage", "example.com/gpu"])
        }
        _ => other(random, &path),
    }
}

/// A string with the same meaning everywhere.
fn other(random: &mut Rng, path: &[&str]) -> String {
    match path {
        [.., "operator"] if path.contains(&"tolerations") => one(random, &["Exists", "Equal", ""]),
        [.., "operator"] => one(random, &["In", "NotIn", "Exists", "DoesNotExist"]),
        [.., "effect"] => one(random, &["NoSchedule", "PreferNoSchedule", "NoExecute", ""]),
        [.., "topologyKey"] => one(random, &["kubernetes.io/hostname", "topology.kubernetes.io/zone"]),
        [.., "whenUnsatisfiable"] => one(random, &["DoNotSchedule", "ScheduleAnyway"]),
        [.., "nodeAffinityPolicy" | "nodeTaintsPolicy"] => one(random, &["Honor", "Ignore"]),
        [.., "mountPropagation"] => one(random, &["None", "HostToContainer"]),
        [.., "recursiveReadOnly"] => one(random, &["Disabled", "IfPossible"]),
        [.., "mountPath"] => one(random, &["/data", "/etc/own"]),
        [.., "fieldPath"] => one(random, &["metadata.name", "status.podIP"]),
        [.., "resource"] => one(random, &["limits.cpu", "requests.memory"]),
        [.., "protocol"] => one(random, &["HTTP", "HTTPS", "TCP"]),
        [.., "hosts", "[]"] => one(random, &["*", "example.com", "*.svc.cluster.local"]),
        [.., "value"] if path.contains(&"envVars") => {
            one(random, &["", "a", "a=b", "$(POD_NAME)", "\"quoted\"\n", "ü"])
        }
        [.., "key"] => one(random, LABELS),
        [.., "annotations", _] => one(random, &["", "a", "some text: with\nlines", "true"]),
        _ => one(random, VALUES),
    }
}

fn version(random: &mut Rng, versions: &[Version]) -> String {
    let version = random.choice(versions).map_or_else(String::new, ToString::to_string);
    let minor = version.rsplit_once('.').map_or("1.22", |(minor, _)| minor).to_owned();
    match random.u8(..24) {
        0..10 => version,
        10..15 => minor,
        15..17 => format!("v{version}"),
        17 => format!("v{minor}"),
        18 => "latest".to_owned(),
        19 => "Latest".to_owned(),
        20 => String::new(),
        21 => one(random, &["1.19.0", "1.22.99", "2.0.0", "1.24", "0.26.0"]),
        22 => one(random, &["a", "1", "1.22.1.1", "1.22.x", "v"]),
        _ => format!("{version}-rc1"),
    }
}

/// A value of the key of a ConfigMap: one that fits, if its name tells.
fn config_value(random: &mut Rng, key: &str) -> String {
    let duration = ["timeout", "period", "duration", "window", "deadline", "delay", "interval", "ttl"];
    if duration.iter().any(|word| key.contains(word)) {
        return one(random, &["30s", "5m", "1h"]);
    }
    match key {
        "ingress-class" | "ingress.class" => one(
            random,
            &[
                "kourier.ingress.networking.knative.dev",
                "istio.ingress.networking.knative.dev",
                "contour.ingress.networking.knative.dev",
                "gateway-api.ingress.networking.knative.dev",
            ],
        ),
        "transport-encryption" => one(random, &["permissive", "strict", "disabled", "Permissive"]),
        "default-br-config" => one(
            random,
            &[
                "clusterDefault: {}\n",
                "clusterDefault:\n  brokerClass: A\n  name: a\n",
                "namespaceDefaults: {}\n",
                "a: [",
            ],
        ),
        _ => one(random, &["enabled", "disabled", "true", "false", "1", "10", "a\nb: c\n", "", "ü"]),
    }
}

/// Containers of the workload around the place, or of all.
fn containers(place: &Place<'_>) -> BTreeMap<String, Container> {
    let all = &place.names.workloads;
    match all.get(place.workload).filter(|_| place.path.first().is_some_and(|field| field != "resources")) {
        Some(workload) => workload.containers.clone(),
        None => all.values().flat_map(|workload| workload.containers.clone()).collect(),
    }
}

fn container(random: &mut Rng, place: &Place<'_>) -> String {
    let containers = containers(place);
    known(random, containers.keys())
}

fn override_key(random: &mut Rng, place: &Place<'_>) -> String {
    let Some((workload, found)) = random.choice(place.names.workloads.iter()) else { return String::new() };
    let container = random.choice(found.containers.iter()).map(|(name, container)| (name.clone(), container.clone()));
    let (name, container) = container.unwrap_or_default();
    match random.u8(..5) {
        0 | 1 => format!("{workload}/{name}"),
        2 => name,
        3 => known(random, container.env.iter()),
        _ => known(random, place.names.images.iter()),
    }
}

/// A path in the releases.
fn additional(random: &mut Rng, component: Component) -> String {
    match component {
        Component::Serving => {
            one(random, &["ingress/1.22/kourier", "ingress/1.21/contour", "knative-serving/${VERSION}"])
        }
        Component::Eventing => one(random, &["eventing-source/1.22/redis", "knative-eventing/${VERSION}"]),
    }
}
