//! Reads custom resources from the text of a file.

use knative_operator_rules as rules;
use knative_operator_rules::{RuleContext, Violation};
use knative_operator_shared::api::{Component, Kind, Knative, KnativeFleet};
use knative_operator_shared::label::{FLEET_VERSION, GROUP, VERSION};
use knative_operator_shared::text::{nearest, one_line};
use serde_json::{Value, json};

use super::remark::Remark;
use super::unknown;
use knative_operator_objects::text as text_at;

/// The kinds of the group, with their versions.
const KINDS: [(&str, &str); 4] = [
    ("KnativeServing", VERSION),
    ("KnativeEventing", VERSION),
    ("KnativeFleet", FLEET_VERSION),
    ("KnativeFleetApproval", FLEET_VERSION),
];

/// A KnativeServing and a KnativeEventing without settings.
pub fn default_resources() -> String {
    let resource = |component: Component| {
        let (kind, name) = (component.kind(), component.canonical());
        format!(
            "---\napiVersion: {GROUP}/{VERSION}\nkind: {kind}\nmetadata: {{name: {name}, namespace: {name}}}\nspec: {{}}\n"
        )
    };
    Component::ALL.map(resource).concat()
}

/// A custom resource in a file.
pub struct Document<R = Knative> {
    /// Kind and name, for messages.
    pub what: String,
    /// The resource, or why it is invalid.
    pub resource: Result<R, Violation>,
    /// Settings without effect.
    pub warnings: Vec<Remark>,
    /// Fields that its definition does not have.
    pub unknown: Vec<Remark>,
}

/// The KnativeServings and KnativeEventings in `yaml`, with the objects that are mistaken for
/// others, and warnings about other objects in it. Resources without a namespace get `namespace`,
/// or the usual one. The error has the position.
pub fn documents(yaml: &str, namespace: Option<&str>) -> Result<(Vec<Document>, Vec<String>), String> {
    let (mut documents, mut others) = (Vec::new(), Vec::new());
    for mut object in knative_operator_release::parse(yaml).map_err(|error| error.to_string())? {
        let (kind, what) = (text_at(&object, "/kind").to_owned(), called(&object));
        if let Some(violation) = mistake(&object) {
            documents.push(Document { what, resource: Err(violation), warnings: Vec::new(), unknown: Vec::new() });
            continue;
        }
        let Some(component) = Component::of_kind(&kind) else {
            others.push(format!("{what} is neither a KnativeServing nor a KnativeEventing; skipped"));
            continue;
        };
        rules::drop_nulls(&mut object);
        let mut warnings = Vec::new();
        if text_at(&object, "/metadata/namespace").is_empty() {
            if namespace.is_none() {
                warnings.push(Remark::new("metadata.namespace", format!("not set; using {}", component.canonical())));
            }
            object["metadata"]["namespace"] = json!(namespace.unwrap_or(component.canonical()));
        }
        let unknown = unknown::fields(component.into(), &object);
        documents.push(Document { what, resource: rules::parse(component, &object), warnings, unknown });
    }
    Ok((documents, others))
}

/// Kind and name of `object`.
fn called(object: &Value) -> String {
    // A name with several lines could look like a finding.
    one_line(&format!("{} {}", text_at(object, "/kind"), text_at(object, "/metadata/name")))
}

/// Why `object` is none of [`KINDS`], if it is meant to be: its kind is one of another API version,
/// or its group has no such kind.
fn mistake(object: &Value) -> Option<Violation> {
    let (kind, api_version) = (text_at(object, "/kind"), text_at(object, "/apiVersion"));
    if let Some((_, version)) = KINDS.iter().find(|(known, _)| *known == kind) {
        let right = format!("{GROUP}/{version}");
        let why = format!("\"{api_version}\" has no {kind}");
        return (api_version != right).then(|| rules::READABLE.at("apiVersion", why, format!("set it to {right}")));
    }
    if api_version.split('/').next() != Some(GROUP) {
        return None;
    }
    let kinds = KINDS.map(|(kind, _)| kind);
    let fix = match nearest(kind, kinds.into_iter()) {
        Some(nearest) => format!("the nearest is {nearest}"),
        None => format!("its kinds are {}", kinds.join(", ")),
    };
    Some(rules::READABLE.at("kind", format!("{GROUP} has no \"{kind}\""), fix))
}

/// A fleet in a file: its name for messages, and the fleet, or why it is invalid.
pub type FleetDocument = (String, Result<KnativeFleet, Violation>);

/// The fleets in `yaml`. The error has the position.
pub fn fleets(yaml: &str) -> Result<Vec<FleetDocument>, String> {
    Ok(fleet_documents(yaml)?.into_iter().map(|document| (document.what, document.resource)).collect())
}

/// The fleets in `yaml`, with their unknown fields. The error has the position.
pub fn fleet_documents(yaml: &str) -> Result<Vec<Document<KnativeFleet>>, String> {
    let is_fleet = |object: &Value| text_at(object, "/kind") == "KnativeFleet" && mistake(object).is_none();
    let document = |object: Value| Document {
        what: called(&object),
        resource: rules::parse_fleet(&object),
        warnings: Vec::new(),
        unknown: unknown::fields(Kind::Fleet, &object),
    };
    let objects = knative_operator_release::parse(yaml).map_err(|error| error.to_string())?;
    Ok(objects.into_iter().filter(is_fleet).map(document).collect())
}

/// The KnativeServings and KnativeEventings in `yaml`, as [`documents`] reads them, and warnings.
/// The error describes invalid resources, and if `is_strict` those with unknown fields.
pub fn resources(yaml: &str, namespace: Option<&str>, is_strict: bool) -> Result<(Vec<Knative>, Vec<String>), String> {
    let (documents, mut warnings) = documents(yaml, namespace)?;
    let mut resources = Vec::new();
    for document in documents {
        let (resource, own_warnings) = renderable(document, is_strict)?;
        resources.push(resource);
        warnings.extend(own_warnings);
    }
    Ok((resources, warnings))
}

/// The resource of `document`, and warnings. The error describes why it can't be rendered, and if
/// `is_strict` its unknown fields.
pub fn renderable(document: Document, is_strict: bool) -> Result<(Knative, Vec<String>), String> {
    let Document { what, resource, warnings, unknown } = document;
    let about = |text: &dyn std::fmt::Display| one_line(&format!("{what}: {text}"));
    let resource = resource.map_err(|violation| about(&violation))?;
    let violations = rules::validate(&resource, &RuleContext::default());
    let (fatal, rest): (Vec<_>, Vec<_>) = violations.iter().partition(|p| rules::REQUIRED_TO_RENDER.contains(&p.rule));
    let mut errors: Vec<String> = fatal.iter().map(|violation| about(violation)).collect();
    let mut warnings: Vec<String> = warnings.iter().map(|warning| about(warning)).collect();
    let target = if is_strict { &mut errors } else { &mut warnings };
    target.extend(unknown.iter().map(|field| about(field)));
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    // The resource may be stored like that, so it is rendered with a warning.
    let refused = rest.iter().filter(|p| p.is_error());
    warnings.extend(refused.map(|violation| about(&format!("would be refused: {violation}"))));
    Ok((resource, warnings))
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
        let text = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: n}}}}\n---\n{}",
            file("{registry: , verson: 1, workloads: [{name: a, replica: 2, labels: {}}], security: {}}")
        );
        let (found, warnings) = resources(&text, None, false).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            warnings,
            [
                "Namespace n is neither a KnativeServing nor a KnativeEventing; skipped",
                "KnativeServing a: spec.verson: unknown field; the API server drops it; the nearest is version",
                "KnativeServing a: spec.workloads[0].replica: unknown field; the API server drops it; the nearest is replicas",
            ]
        );
        assert_eq!(resources(&text, None, true).unwrap_err(), warnings[1..].join("\n"));
    }

    #[test]
    fn objects_that_are_mistaken_for_others_are_errors() {
        let object = |api_version: &str, kind: &str| {
            format!("{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: x}}}}")
        };
        for (api_version, kind, expected) in [
            (
                "operator.knative.dev/v1beta1",
                "KnativeServng",
                "kind: operator.knative.dev has no \"KnativeServng\"; the nearest is KnativeServing",
            ),
            (
                "operator.knative.dev/v1beta1",
                "Pod",
                "kind: operator.knative.dev has no \"Pod\"; its kinds are KnativeServing, KnativeEventing, KnativeFleet, KnativeFleetApproval",
            ),
            (
                "operator.knative.dev/v1alpha1",
                "KnativeFlet",
                "kind: operator.knative.dev has no \"KnativeFlet\"; the nearest is KnativeFleet",
            ),
            (
                "operator.knative.dev/v1beta1",
                "KnativeFleet",
                "apiVersion: \"operator.knative.dev/v1beta1\" has no KnativeFleet; set it to operator.knative.dev/v1alpha1",
            ),
            (
                "serving.knative.dev/v1",
                "KnativeServing",
                "apiVersion: \"serving.knative.dev/v1\" has no KnativeServing; set it to operator.knative.dev/v1beta1",
            ),
        ] {
            let text = format!("{}\n---\n{}", file("{}"), object(api_version, kind));
            let error = resources(&text, None, false).unwrap_err();
            assert_eq!(error, format!("{kind} x: {expected}"));
            assert!(fleet_documents(&text).unwrap().is_empty());
        }
        for (api_version, kind) in [
            ("v1", "Namespace"),
            ("apps/v1", "Deployment"),
            ("serving.knative.dev/v1", "Service"),
            ("operator.knative.dev/v1alpha1", "KnativeFleetApproval"),
        ] {
            let (documents, others) = documents(&object(api_version, kind), None).unwrap();
            assert_eq!((documents.len(), others.len()), (0, 1), "{kind}");
        }
    }

    #[test]
    fn resource_without_namespace_gets_that_of_the_command() {
        let text = file("{}").replace(", namespace: b", "");
        let of = |namespace: Option<&str>| {
            let (resources, warnings) = resources(&text, namespace, false).unwrap();
            (resources[0].namespace().to_owned(), warnings.len())
        };
        assert_eq!(of(Some("mine")), ("mine".to_owned(), 0));
        assert_eq!(of(None), ("knative-serving".to_owned(), 1));
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
                "apiVersion: \"operator.knative.dev/v1alpha1\" has no KnativeServing; set it to operator.knative.dev/v1beta1",
            ),
        ] {
            let error = resources(&text, None, false).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
