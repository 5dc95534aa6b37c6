//! Fields of a resource that its CustomResourceDefinition does not have. Pure.

use std::sync::LazyLock;

use knative_operator_shared::api::{Component, Kind};
use knative_operator_shared::text::{nearest, start};
use knative_operator_shared::{crd, fleet_crd};
use serde_json::{Value, json};

use super::remark::Remark;

/// Unknown fields of a document that are reported.
const MAX_FOUND: usize = 100;
/// Length of a name in a path, in bytes.
const MAX_NAME: usize = 253;

/// Mark of an object with any fields.
const OPEN: &str = "x-kubernetes-preserve-unknown-fields";

/// A remark about each unknown field of `object`, with the known field that is most similar.
pub fn fields(kind: Kind, object: &Value) -> Vec<Remark> {
    let mut found = Vec::new();
    visit(object, schema(kind), "", &mut found);
    found
}

/// The schema of `kind`. That of a fleet has the schemas of its templates.
fn schema(kind: Kind) -> &'static Value {
    static SERVING: LazyLock<Value> = LazyLock::new(|| of_definition(crd::definition(Component::Serving)));
    static EVENTING: LazyLock<Value> = LazyLock::new(|| of_definition(crd::definition(Component::Eventing)));
    static FLEET: LazyLock<Value> = LazyLock::new(fleet);
    match kind {
        Kind::Component(Component::Serving) => &SERVING,
        Kind::Component(Component::Eventing) => &EVENTING,
        Kind::Fleet => &FLEET,
    }
}

fn fleet() -> Value {
    let [definition, _] = fleet_crd::definitions();
    let mut schema = of_definition(definition);
    let fields = &mut schema["properties"]["spec"]["properties"];
    for component in Component::ALL {
        let spec = self::schema(component.into())["properties"]["spec"].clone();
        // The rules refuse other fields than those of a template.
        fields["overrides"]["items"]["properties"][component.word()] =
            json!({"properties": {"spec": spec}, "additionalProperties": {OPEN: true}});
        fields[component.word()]["properties"]["spec"] = spec;
    }
    schema
}

/// The schema in `definition`, with any metadata and status.
fn of_definition(mut definition: Value) -> Value {
    let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take();
    for part in ["metadata", "status"] {
        schema["properties"][part] = json!({OPEN: true});
    }
    schema
}

fn visit(given: &Value, schema: &Value, path: &str, found: &mut Vec<Remark>) {
    if schema[OPEN] == true {
        return;
    }
    match given {
        Value::Object(fields) => {
            let (known, values) = (schema["properties"].as_object(), &schema["additionalProperties"]);
            for (name, value) in fields {
                let shown = start(name, MAX_NAME);
                let path = if path.is_empty() { shown.to_owned() } else { format!("{path}.{shown}") };
                match known.and_then(|known| known.get(name)) {
                    Some(schema) => visit(value, schema, &path, found),
                    None if values.is_object() => visit(value, values, &path, found),
                    None if found.len() >= MAX_FOUND => return,
                    None => {
                        let nearest = known.and_then(|known| nearest(name, known.keys().map(String::as_str)));
                        let nearest = nearest.map(|name| format!("; the nearest is {name}")).unwrap_or_default();
                        found.push(Remark::new(path, format!("unknown field; the API server drops it{nearest}")));
                    }
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                visit(item, &schema["items"], &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_have_the_nearest_one_at_any_depth() {
        let unknown = |path: &str, nearest: &str| {
            Remark::new(path, format!("unknown field; the API server drops it; the nearest is {nearest}"))
        };
        let found_in = |kind: Kind, object: &Value| {
            let mut found = fields(kind, object);
            found.sort_by(|a, b| a.field.cmp(&b.field));
            found
        };
        let serving = json!({"kind": "KnativeServing", "metadata": {"name": "a", "labels": {"b": "c"}}, "sepc": {},
        "status": {"other": 1}, "spec": {
            "ingres": {}, "ingress": {"kourier": {"enabled": true, "enabld": true}},
            "config": {"any-map": {"any-key": "a"}},
            "workloads": [{"name": "a"}, {"name": "b", "replica": 2, "labels": {"x": "y"},
                "resources": [{"container": "c", "limits": {"cpu": "1"}}]}],
        }});
        let expected = [
            unknown("sepc", "spec"),
            unknown("spec.ingres", "ingress"),
            unknown("spec.ingress.kourier.enabld", "enabled"),
            unknown("spec.workloads[1].replica", "replicas"),
        ];
        assert_eq!(found_in(Component::Serving.into(), &serving), expected);
        let fleet = json!({"metadata": {"name": "f"}, "spec": {
            "placement": {"clusterSelector": {"matchLabels": {"a": "b"}}}, "rollot": {},
            "serving": {"metadata": {"labels": {"a": "b"}}, "spec": {"versoin": "1.22"}},
            "overrides": [{"clusterSelector": {}, "eventing": {"metadata": {}, "spec": {"confg": null}}}],
            "rollout": {"stages": [{"name": "a", "maxConcurent": 2,
                "gates": [{"name": "g", "job": {"namespace": "n", "spec": {"template": {}}}}]}]},
        }});
        let expected = [
            unknown("spec.overrides[0].eventing.spec.confg", "config"),
            unknown("spec.rollot", "rollout"),
            unknown("spec.rollout.stages[0].maxConcurent", "maxConcurrent"),
            unknown("spec.serving.spec.versoin", "version"),
        ];
        assert_eq!(found_in(Kind::Fleet, &fleet), expected);
    }

    #[test]
    fn examples_of_rules_have_no_unknown_fields() {
        use knative_operator_rules::ALL;
        for rule in ALL {
            for text in [rule.valid.before, rule.valid.after].into_iter().flatten() {
                let found = fields(rule.valid.kind, &rule.valid.object(text));
                assert_eq!(found, Vec::new(), "{}", rule.id);
            }
        }
    }
}
