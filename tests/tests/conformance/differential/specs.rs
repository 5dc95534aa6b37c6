//! Random resources from the schemas of the Go operator's CustomResourceDefinitions. Most values
//! are realistic: what a release contains, and what Kubernetes accepts.

use std::path::Path;

use fastrand::Rng;
use knative_operator_release::Bundle;
use knative_operator_render::names;
use knative_operator_rules::ReleaseNames;
use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;
use serde_json::{Map, Value, json};

use super::repair::repair;
use super::words::{self, Place};

/// Number of fields of the largest specs.
const FIELDS: usize = 60;

/// A component: its schema, and what its releases contain.
struct Source {
    component: Component,
    schema: Value,
    names: ReleaseNames,
    versions: Vec<Version>,
}

/// Generates resources.
pub struct Specs(Vec<Source>);

impl Specs {
    /// From the CRDs in the Go operator's `module`, and its releases in `folder`.
    pub fn new(module: &Path, folder: &Path) -> Self {
        let bundle = Bundle::open(folder.to_owned());
        let source = |component: Component| {
            let file = format!("config/crd/bases/operator.knative.dev_{}.yaml", component.plural());
            let text = std::fs::read_to_string(module.join(file)).unwrap();
            let crd: Value = serde_saphyr::from_str(&text).unwrap();
            let schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
            assert!(schema["properties"]["workloads"].is_object());
            let mut versions = bundle.versions(component).unwrap();
            versions.sort();
            let newest = versions.last().unwrap();
            let (family, extras) = match component {
                Component::Serving => ("ingress", &["istio", "kourier", "contour", "gateway-api"][..]),
                Component::Eventing => ("eventing-source", &["kafka", "rabbitmq", "redis"][..]),
            };
            let mut parts = vec![bundle.release(component, newest)];
            parts.extend(extras.iter().map(|extra| bundle.extra(family, newest, extra)));
            let parts: Vec<_> = parts.iter().map(|part| bundle.objects(part).unwrap()).collect();
            let names = names(parts.iter().flat_map(|part| part.iter()));
            Source { component, schema, names, versions }
        };
        Self(Component::ALL.map(source).into())
    }

    /// The resource of `seed`.
    pub fn resource(&self, seed: u64) -> Value {
        let mut random = Rng::with_seed(seed);
        let source = &self.0[usize::from(random.u8(..3) == 0)];
        let budget = random.usize(2..FIELDS);
        let mut generator = Generator { random, source, budget, workload: String::new() };
        let mut spec = generator.value(&source.schema, &mut Vec::new()).unwrap_or(json!({}));
        repair(&mut spec, &mut generator.random);
        let canonical = source.component.canonical();
        let namespace = if generator.random.u8(..8) == 0 { "other" } else { canonical };
        let name = if generator.random.u8(..4) == 0 { "prod" } else { canonical };
        let mut resource = json!({
            "apiVersion": "operator.knative.dev/v1beta1",
            "kind": source.component.kind(),
            "metadata": {"name": name, "namespace": namespace, "uid": "1"},
            "spec": spec,
        });
        if generator.random.u8(..8) == 0 {
            let installed = generator.random.choice(&source.versions).unwrap();
            resource["status"] = json!({"version": installed.to_string()});
        }
        resource
    }
}

struct Generator<'s> {
    random: Rng,
    source: &'s Source,
    /// Fields that the resource may still get.
    budget: usize,
    /// The workload that is being generated.
    workload: String,
}

impl Generator<'_> {
    fn one_in(&mut self, n: u32) -> bool {
        self.random.u32(..n) == 0
    }

    /// A value of `schema` at `path`; `None` leaves it out.
    fn value(&mut self, schema: &Value, path: &mut Vec<String>) -> Option<Value> {
        if let Some(words) = schema["enum"].as_array() {
            return self.random.choice(words).cloned();
        }
        if schema["x-kubernetes-int-or-string"] == true && schema["pattern"].is_null() {
            let percent = format!("{}%", self.random.u8(1..=100));
            return Some(if self.random.bool() { json!(self.random.u8(..4)) } else { json!(percent) });
        }
        if schema["pattern"].is_string() {
            return Some(words::quantity(&mut self.random, path));
        }
        match schema["type"].as_str() {
            Some("object") => Some(self.object(schema, path)),
            Some("array") => Some(self.array(schema, path)),
            Some("boolean") => Some(json!(self.random.bool())),
            Some("integer") => Some(words::number(&mut self.random, path)),
            _ => {
                let word = self.word(path);
                if path.last().is_some_and(|field| field == "name") && path.len() == 3 {
                    self.workload.clone_from(&word);
                }
                Some(json!(word))
            }
        }
    }

    fn word(&mut self, path: &[String]) -> String {
        let Source { component, names, versions, .. } = self.source;
        let place = Place { component: *component, names, versions, workload: &self.workload, path };
        words::word(&mut self.random, &place)
    }

    fn object(&mut self, schema: &Value, path: &mut Vec<String>) -> Value {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields = Map::new();
        let mut properties: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
        self.random.shuffle(&mut properties);
        // The name comes first: what follows depends on it.
        properties.sort_by_key(|(name, _)| *name != "name");
        for (name, child) in properties {
            let is_required = required.contains(&name.as_str());
            let is_rare =
                matches!(name.as_str(), "affinity" | "clusterProfileRef" | "manifests" | "additionalManifests");
            if !is_required && (self.budget == 0 || !self.one_in(if is_rare { 12 } else { 4 })) {
                continue;
            }
            // Own manifests would need releases of their own.
            if path.is_empty() && name == "manifests" {
                continue;
            }
            self.budget = self.budget.saturating_sub(1);
            path.push(name.clone());
            let value = if !is_required && self.one_in(15) { Some(self.empty(child)) } else { self.value(child, path) };
            path.pop();
            fields.extend(value.map(|value| (name.clone(), value)));
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.random.u8(..4) {
                path.push("{}".to_owned());
                let key = self.word(path);
                path.pop();
                path.push(key.clone());
                let value = self.value(&schema["additionalProperties"], path);
                path.pop();
                fields.extend(value.map(|value| (key, value)));
            }
        }
        fields.into()
    }

    /// Nothing, in one of its forms.
    fn empty(&mut self, schema: &Value) -> Value {
        match schema["type"].as_str() {
            Some("object") if self.random.bool() && schema["required"].is_null() => json!({}),
            Some("array") if self.random.bool() => json!([]),
            Some("string") if self.random.bool() && schema["enum"].is_null() => json!(""),
            _ => Value::Null,
        }
    }

    fn array(&mut self, schema: &Value, path: &mut Vec<String>) -> Value {
        let mut items: Vec<Value> = Vec::new();
        path.push("[]".to_owned());
        for _ in 0..self.random.u8(1..4) {
            let Some(item) = self.value(&schema["items"], path) else { continue };
            let key = |item: &Value| ["name", "container"].map(|key| item[key].clone());
            let again = item.is_object()
                && key(&item) != [Value::Null, Value::Null]
                && items.iter().any(|i| key(i) == key(&item));
            if !again || self.one_in(20) {
                items.push(item);
            }
        }
        path.pop();
        items.into()
    }
}
