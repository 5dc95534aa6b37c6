//! Makes most random specs valid: Kubernetes has requirements that no schema expresses.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Repairs `spec`, mostly.
pub fn repair(spec: &mut Value, random: &mut Rng) {
    if random.u8(..8) == 0 {
        return;
    }
    ingress(spec, random);
    for budget in items(spec, "podDisruptionBudgets") {
        keep_one(budget, &["minAvailable", "maxUnavailable"], random);
    }
    kourier(spec, random);
    if spec["high-availability"]["replicas"] == 0 {
        spec["high-availability"]["replicas"] = json!(2);
    }
    for secret in spec.get_mut("registry").map(|registry| items(registry, "imagePullSecrets")).into_iter().flatten() {
        secret.insert("name".to_owned(), json!("pull-secret"));
    }
    for overrides in ["workloads", "deployments"] {
        for workload in spec.get_mut(overrides).and_then(Value::as_array_mut).into_iter().flatten() {
            for probe in items(workload, "readinessProbes") {
                probe.remove("terminationGracePeriodSeconds");
            }
            for toleration in items(workload, "tolerations") {
                tolerate(toleration);
            }
        }
    }
    if let Some(reference) = spec.get_mut("clusterProfileRef").filter(|reference| reference.is_object()) {
        *reference = json!({"name": "spoke", "namespace": "fleet"});
    }
    objects(spec, random);
}

/// One ingress.
fn ingress(spec: &mut Value, random: &mut Rng) {
    let Some(ingress) = spec.get_mut("ingress").and_then(Value::as_object_mut) else { return };
    if ingress.is_empty() || random.u8(..10) == 0 {
        return;
    }
    let names: Vec<String> = ingress.keys().cloned().collect();
    let chosen = random.choice(names).unwrap_or_default();
    for (name, settings) in ingress.iter_mut() {
        if *name == chosen && !settings.is_object() {
            *settings = json!({});
        }
        if settings.is_object() {
            settings["enabled"] = json!(*name == chosen);
        }
    }
    let config = spec.get_mut("config").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, entries) in config.filter(|(name, _)| name.ends_with("network")) {
        for key in ["ingress-class", "ingress.class"] {
            if let Some(class) = entries.get_mut(key) {
                *class = json!(format!("{chosen}.ingress.networking.knative.dev"));
            }
        }
    }
}

/// A Service that Kubernetes accepts.
fn kourier(spec: &mut Value, random: &mut Rng) {
    let Some(kourier) = spec.pointer_mut("/ingress/kourier").and_then(Value::as_object_mut) else { return };
    let type_ = kourier.get("service-type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if random.u8(..10) == 0 {
        return;
    }
    if type_ != "NodePort" {
        kourier.remove("http-port");
        kourier.remove("https-port");
    } else if kourier.get("http-port") == kourier.get("https-port") {
        kourier.remove("http-port");
    }
    if type_ != "LoadBalancer" {
        kourier.remove("service-load-balancer-ip");
    }
}

/// The objects in the list `field`.
fn items<'v>(value: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Map<String, Value>> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Keeps one of the fields `names`.
fn keep_one(object: &mut Map<String, Value>, names: &[&str], random: &mut Rng) {
    let present: Vec<&str> = names.iter().copied().filter(|name| object.contains_key(*name)).collect();
    let kept = random.choice(&present).copied();
    for name in present.iter().filter(|name| Some(**name) != kept) {
        object.remove(*name);
    }
}

/// All objects in `value`.
fn objects(value: &mut Value, random: &mut Rng) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(|value| objects(value, random));
            selector(object);
            keep_one(
                object,
                &["value", "valueFrom"].map(|n| if object.contains_key("valueFrom") { n } else { "" }),
                random,
            );
            keep_one(
                object,
                &["configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef"],
                random,
            );
            if object.get("valueFrom").is_some_and(|from| from.as_object().is_none_or(Map::is_empty)) {
                object.remove("valueFrom");
            }
            if object.get("whenUnsatisfiable") != Some(&json!("DoNotSchedule")) {
                object.remove("minDomains");
            }
            if object.get("labelSelector").is_none() {
                object.remove("matchLabelKeys");
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| objects(value, random)),
        _ => {}
    }
}

/// The operator fits the values.
fn selector(object: &mut Map<String, Value>) {
    if !object.get("operator").is_some_and(|o| ["In", "NotIn", "Exists", "DoesNotExist"].iter().any(|w| o == w)) {
        return;
    }
    let has_values = object.get("values").and_then(Value::as_array).is_some_and(|values| !values.is_empty());
    let needs_values = object["operator"] == "In" || object["operator"] == "NotIn";
    if has_values && !needs_values {
        object.remove("values");
    } else if needs_values && !has_values {
        object.insert("values".to_owned(), json!(["a"]));
    }
}

/// A toleration that Kubernetes accepts.
fn tolerate(toleration: &mut Map<String, Value>) {
    if toleration.get("operator") == Some(&json!("Exists")) {
        toleration.remove("value");
    } else if toleration.get("key").is_none_or(|key| key == "" || key.is_null()) {
        toleration.insert("key".to_owned(), json!("a"));
    }
    if toleration.get("tolerationSeconds").is_some_and(Value::is_number) {
        toleration.insert("effect".to_owned(), json!("NoExecute"));
    }
}
