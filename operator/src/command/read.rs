//! Reads custom resources from a file.

use std::io::Read;

use knative_operator_shared::api::{Component, Knative, KnativeFleet};
use knative_operator_shared::label::{FLEET_VERSION, GROUP, VERSION};
use knative_operator_shared::rules::{self, RuleContext, Violation};
use serde_json::{Value, json};

use knative_operator_objects::text as text_at;

/// Contents of `file`; `-` is stdin.
pub fn text(file: &str) -> Result<String, String> {
    let mut text = String::new();
    let (name, read) = match file {
        "-" => ("stdin", std::io::stdin().read_to_string(&mut text).map(|_| text)),
        file => (file, std::fs::read_to_string(file)),
    };
    read.map_err(|error| format!("cannot read {name}: {error}"))
}

/// A custom resource in a file.
pub struct Document {
    /// Kind and name, for messages.
    pub what: String,
    /// The resource, or why it is invalid.
    pub resource: Result<Knative, Violation>,
    /// Settings without effect.
    pub warnings: Vec<String>,
}

/// The custom resources in `yaml`, and warnings about other objects in it. The error has the
/// position.
pub fn documents(yaml: &str) -> Result<(Vec<Document>, Vec<String>), String> {
    let (mut documents, mut others) = (Vec::new(), Vec::new());
    for mut object in knative_operator_release::parse(yaml)? {
        let (kind, name) = (text_at(&object, "/kind").to_owned(), text_at(&object, "/metadata/name").to_owned());
        let what = format!("{kind} {name}");
        let (Some(component), true) =
            (Component::of_kind(&kind), text_at(&object, "/apiVersion").starts_with(&format!("{GROUP}/")))
        else {
            others.push(format!("{what} is neither a KnativeServing nor a KnativeEventing; skipped"));
            continue;
        };
        if text_at(&object, "/apiVersion") != format!("{GROUP}/{VERSION}") {
            return Err(format!(
                "{what}: apiVersion: \"{}\" is not served; set it to {GROUP}/{VERSION}",
                text_at(&object, "/apiVersion")
            ));
        }
        rules::drop_nulls(&mut object);
        let mut warnings = Vec::new();
        if text_at(&object, "/metadata/namespace").is_empty() {
            object["metadata"]["namespace"] = json!(component.canonical());
            warnings.push(format!("metadata.namespace is not set; using {}", component.canonical()));
        }
        let resource = rules::parse(component, &object);
        if let Ok(resource) = &resource {
            let parsed = match resource {
                Knative::Serving(serving) => json!(serving.spec),
                Knative::Eventing(eventing) => json!(eventing.spec),
            };
            let spec = object.get("spec").unwrap_or(&Value::Null);
            visit_unknown_fields(spec, &parsed, "spec", &mut |path| {
                warnings.push(format!("{path}: unknown field; the API server drops it"));
            });
        }
        documents.push(Document { what, resource, warnings });
    }
    Ok((documents, others))
}

/// A fleet in a file: its name for messages, and the fleet, or why it is invalid.
pub type FleetDocument = (String, Result<KnativeFleet, Violation>);

/// The fleets in `yaml`. The error has the position.
pub fn fleets(yaml: &str) -> Result<Vec<FleetDocument>, String> {
    let is_fleet = |object: &Value| {
        text_at(object, "/kind") == "KnativeFleet"
            && text_at(object, "/apiVersion") == format!("{GROUP}/{FLEET_VERSION}")
    };
    let named =
        |object: Value| (format!("KnativeFleet {}", text_at(&object, "/metadata/name")), rules::parse_fleet(&object));
    Ok(knative_operator_release::parse(yaml)?.into_iter().filter(is_fleet).map(named).collect())
}

/// The custom resources in `yaml`, and warnings. The error describes invalid resources.
pub fn resources(yaml: &str) -> Result<(Vec<Knative>, Vec<String>), String> {
    let (documents, mut warnings) = documents(yaml)?;
    if documents.is_empty() {
        return Err("the file has neither a KnativeServing nor a KnativeEventing".to_owned());
    }
    let mut resources = Vec::new();
    for Document { what, resource, warnings: own_warnings } in documents {
        let resource = resource.map_err(|violation| format!("{what}: {violation}"))?;
        let violations = rules::validate(&resource, &RuleContext::default());
        let (fatal, rest): (Vec<_>, Vec<_>) =
            violations.iter().partition(|p| rules::REQUIRED_TO_RENDER.contains(&p.rule));
        if !fatal.is_empty() {
            return Err(fatal.iter().map(|violation| format!("{what}: {violation}")).collect::<Vec<_>>().join("\n"));
        }
        warnings.extend(own_warnings.into_iter().map(|warning| format!("{what}: {warning}")));
        // The resource may be stored like that, so it is rendered with a warning.
        warnings.extend(
            rest.iter().filter(|p| p.is_error()).map(|violation| format!("{what}: would be refused: {violation}")),
        );
        resources.push(resource);
    }
    Ok((resources, warnings))
}

/// Visits each path in `given` that `parsed` lacks, unless its value is empty.
fn visit_unknown_fields(given: &Value, parsed: &Value, path: &str, visit: &mut impl FnMut(&str)) {
    match (given, parsed) {
        (Value::Object(given), Value::Object(parsed)) => {
            for (key, value) in given {
                let path = format!("{path}.{key}");
                match parsed.get(key) {
                    Some(known) => visit_unknown_fields(value, known, &path, visit),
                    None if [json!({}), json!([]), json!(""), json!(false), json!(0)].contains(value) => {}
                    None => visit(&path),
                }
            }
        }
        (Value::Array(given), Value::Array(parsed)) => {
            for (index, (given, parsed)) in given.iter().zip(parsed).enumerate() {
                visit_unknown_fields(given, parsed, &format!("{path}[{index}]"), visit);
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
    fn ignored_settings_are_reported() {
        let (resources, warnings) = resources(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: n}}}}\n---\n{}",
            file("{registry: , verson: 1, workloads: [{name: a, replica: 2, labels: {}}], security: {}}")
        ))
        .unwrap();
        assert_eq!(resources.len(), 1);
        assert_eq!(
            warnings,
            [
                "Namespace n is neither a KnativeServing nor a KnativeEventing; skipped",
                "KnativeServing a: spec.verson: unknown field; the API server drops it",
                "KnativeServing a: spec.workloads[0].replica: unknown field; the API server drops it",
            ]
        );
    }

    #[test]
    fn errors_have_their_path() {
        for (text, expected) in [
            (
                file("{workloads: [{name: a, replicas: two}]}"),
                "KnativeServing a: spec.workloads[0].replicas: invalid type: string \"two\", expected an integer",
            ),
            (
                file("{resources: [{container: a, limits: {cpu: 1x}}]}"),
                "KnativeServing a: spec.resources[0].limits.cpu: \"1x\" is not a quantity; set it to one such as 500m",
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
