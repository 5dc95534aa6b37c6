//! Custom resources out of a file that was never stored. Pure.

use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::label::{GROUP, VERSION};
use knative_operator_shared::rules::{self, Problem, Surroundings};
use serde_json::{Value, json};

use crate::object::text;
use crate::release;

/// A custom resource in a file.
pub struct Document {
    /// Kind and name, for messages.
    pub what: String,
    /// The resource, or why it can't be read.
    pub resource: Result<Knative, Problem>,
    /// What is of no effect.
    pub warnings: Vec<String>,
}

/// The custom resources in `yaml`, and what in it is no custom resource. The error says where it is wrong.
pub fn documents(yaml: &str) -> Result<(Vec<Document>, Vec<String>), String> {
    let (mut documents, mut others) = (Vec::new(), Vec::new());
    for mut object in release::parse(yaml)? {
        let (kind, name) = (text(&object, "/kind").to_owned(), text(&object, "/metadata/name").to_owned());
        let what = format!("{kind} {name}");
        let (Some(component), true) =
            (Component::of_kind(&kind), text(&object, "/apiVersion").starts_with(&format!("{GROUP}/")))
        else {
            others.push(format!("{what} is neither a KnativeServing nor a KnativeEventing, and left out"));
            continue;
        };
        if text(&object, "/apiVersion") != format!("{GROUP}/{VERSION}") {
            return Err(format!(
                "{what}: apiVersion: \"{}\" is not served; set it to {GROUP}/{VERSION}",
                text(&object, "/apiVersion")
            ));
        }
        rules::drop_nulls(&mut object);
        let mut warnings = Vec::new();
        if text(&object, "/metadata/namespace").is_empty() {
            object["metadata"]["namespace"] = json!(component.canonical());
            warnings.push(format!("metadata.namespace is not set; {} is taken", component.canonical()));
        }
        let resource = rules::read(component, &object);
        if let Ok(resource) = &resource {
            let understood = match resource {
                Knative::Serving(serving) => json!(serving.spec),
                Knative::Eventing(eventing) => json!(eventing.spec),
            };
            let spec = object.get("spec").unwrap_or(&Value::Null);
            unknown(spec, &understood, "spec", &mut |path| {
                warnings.push(format!("{path}: there is no such field, and the API server drops it"));
            });
        }
        documents.push(Document { what, resource, warnings });
    }
    if documents.is_empty() {
        Err("there is neither a KnativeServing nor a KnativeEventing in it".to_owned())
    } else {
        Ok((documents, others))
    }
}

/// The custom resources in `yaml`, and what in it is of no effect. The error says what is wrong with them.
pub fn resources(yaml: &str) -> Result<(Vec<Knative>, Vec<String>), String> {
    let (documents, mut warnings) = documents(yaml)?;
    let mut resources = Vec::new();
    for Document { what, resource, warnings: told } in documents {
        let resource = resource.map_err(|problem| format!("{what}: {problem}"))?;
        let faults = rules::faults(&resource, &Surroundings::default());
        let (broken, rest): (Vec<_>, Vec<_>) = faults.iter().partition(|p| rules::MEANING.contains(&p.rule));
        if !broken.is_empty() {
            return Err(broken.iter().map(|fault| format!("{what}: {fault}")).collect::<Vec<_>>().join("\n"));
        }
        warnings.extend(told.into_iter().map(|warning| format!("{what}: {warning}")));
        // What is stored already may be so: it is told, and rendered all the same.
        warnings.extend(rest.iter().filter(|p| p.is_error()).map(|fault| format!("{what}: would be refused: {fault}")));
        resources.push(resource);
    }
    Ok((resources, warnings))
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
        format!(
            "apiVersion: operator.knative.dev/v1beta1\nkind: KnativeServing\nmetadata: {{name: a, namespace: b}}\nspec: {spec}\n"
        )
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
                "KnativeServing a: spec.workloads[0].replicas: invalid type: string \"two\", expected an integer",
            ),
            (
                file("{resources: [{container: a, limits: {cpu: 1x}}]}"),
                "KnativeServing a: spec.resources[0].limits.cpu: \"1x\" is no quantity; set it to one such as 500m",
            ),
            (file("{version: one}"), "spec.version: \"one\" is not a version"),
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
