//! Custom resources out of a file that was never stored. Pure.

use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::label::{GROUP, VERSION};
use knative_operator_shared::rules;
use serde_json::{Value, json};

use crate::object::text;
use crate::release;

/// The custom resources in `yaml`, and what in it is of no effect. The error says where it is wrong.
pub fn resources(yaml: &str) -> Result<(Vec<Knative>, Vec<String>), String> {
    let (mut resources, mut warnings) = (Vec::new(), Vec::new());
    for mut object in release::parse(yaml)? {
        let (kind, name) = (text(&object, "/kind").to_owned(), text(&object, "/metadata/name").to_owned());
        let (Some(component), true) = (Component::of_kind(&kind), text(&object, "/apiVersion").starts_with(&format!("{GROUP}/"))) else {
            warnings.push(format!("{kind} {name} is neither a KnativeServing nor a KnativeEventing, and left out"));
            continue;
        };
        let about = |message: String| format!("{kind} {name}: {message}");
        if text(&object, "/apiVersion") != format!("{GROUP}/{VERSION}") {
            return Err(about(format!("apiVersion: \"{}\" is not served; set it to {GROUP}/{VERSION}", text(&object, "/apiVersion"))));
        }
        without_nulls(&mut object);
        if text(&object, "/metadata/namespace").is_empty() {
            object["metadata"]["namespace"] = json!(component.canonical());
            warnings.push(about(format!("metadata.namespace is not set; {} is taken", component.canonical())));
        }
        let resource = rules::read(component, &object).map_err(|problem| about(problem.to_string()))?;
        let faults: Vec<_> = rules::faults(&resource).iter().map(|fault| about(fault.to_string())).collect();
        if !faults.is_empty() {
            return Err(faults.join("\n"));
        }
        let understood = match &resource {
            Knative::Serving(serving) => json!(serving.spec),
            Knative::Eventing(eventing) => json!(eventing.spec),
        };
        let spec = object.get("spec").unwrap_or(&Value::Null);
        unknown(spec, &understood, "spec", &mut |path| {
            warnings.push(about(format!("{path}: there is no such field, and the API server drops it")));
        });
        resources.push(resource);
    }
    if resources.is_empty() {
        Err("there is neither a KnativeServing nor a KnativeEventing in it".to_owned())
    } else {
        Ok((resources, warnings))
    }
}

/// A key without a value counts as left out, as for kubectl.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Tells each path in `given` that `understood` doesn't have, unless it is empty there.
fn unknown(given: &Value, understood: &Value, path: &str, tell: &mut impl FnMut(&str)) {
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            for (key, value) in given {
                let path = format!("{path}.{key}");
                match understood.get(key) {
                    Some(known) => unknown(value, known, &path, tell),
                    None if [json!({}), json!([]), json!(""), json!(false), json!(0)].contains(value) => {}
                    None => tell(&path),
                }
            }
        }
        (Value::Array(given), Value::Array(understood)) => {
            for (index, (given, understood)) in given.iter().zip(understood).enumerate() {
                unknown(given, understood, &format!("{path}[{index}]"), tell);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(spec: &str) -> String {
        format!("apiVersion: operator.knative.dev/v1beta1\nkind: KnativeServing\nmetadata: {{name: a, namespace: b}}\nspec: {spec}\n")
    }

    #[test]
    fn what_is_of_no_effect_is_told() {
        let (resources, warnings) = resources(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: n}}}}\n---\n{}",
            file("{registry: , verson: 1, workloads: [{name: a, replica: 2, labels: {}}], security: {}}")
        ))
        .unwrap();
        assert_eq!(resources.len(), 1);
        assert_eq!(
            warnings,
            [
                "Namespace n is neither a KnativeServing nor a KnativeEventing, and left out",
                "KnativeServing a: spec.verson: there is no such field, and the API server drops it",
                "KnativeServing a: spec.workloads[0].replica: there is no such field, and the API server drops it",
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_path() {
        for (text, expected) in [
            (
                file("{workloads: [{name: a, replicas: two}]}"),
                "KnativeServing a: spec.workloads[0].replicas: invalid type: string \"two\", expected i32",
            ),
            (
                file("{resources: [{container: a, limits: {cpu: 1x}}]}"),
                "KnativeServing a: spec.resources[0].limits.cpu: \"1x\" is no quantity; set it to one such as 500m",
            ),
            (file("{version: one}"), "spec.version: \"one\" is no version"),
            (file("{"), "line "),
            (
                file("{}").replace("v1beta1", "v1alpha1"),
                "apiVersion: \"operator.knative.dev/v1alpha1\" is not served; set it to operator.knative.dev/v1beta1",
            ),
            (String::new(), "neither a KnativeServing nor a KnativeEventing"),
        ] {
            let error = resources(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
