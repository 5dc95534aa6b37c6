//! Checks of patches and patched objects.

use serde_json::{Map, Value, json};

use super::error::ContentError;
use super::schema::{Field, Schema, Strategy};
use super::strategic::DIRECTIVE;
use knative_operator_shared::api::{Component, PatchTarget};

/// Maps whose values are strings.
const STRING_MAPS: [&str; 4] = ["labels", "annotations", "matchLabels", "nodeSelector"];

/// Why the object `target` can't be deleted; `None` if it can.
pub fn required(target: &PatchTarget, component: Component) -> Option<&'static str> {
    match (target.api_version.as_str(), target.kind.as_str(), target.name.as_str()) {
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", _) => Some("that would delete its custom resources"),
        ("v1", "Namespace", _) => Some("that would delete everything in it"),
        ("apps/v1", "Deployment", "webhook") if component == Component::Serving => {
            Some("Knative Serving needs it during the installation")
        }
        _ => None,
    }
}

/// Checks the directives and merge keys in a strategic merge patch.
pub fn directives(patch: &Map<String, Value>, schema: Schema) -> Result<(), ContentError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("delete" | "replace") => Ok(()),
            _ => Err(ContentError::UnknownDirective(directive.clone())),
        };
    }
    for (name, value) in patch {
        let field = schema.field(name);
        match value {
            Value::Object(map) => directives(map, field.schema)?,
            Value::Array(list) => elements(list, name, field)?,
            _ => {}
        }
    }
    Ok(())
}

fn elements(list: &[Value], name: &str, field: Field) -> Result<(), ContentError> {
    if field.strategy != Strategy::Merge {
        return Ok(());
    }
    for element in list.iter().filter_map(Value::as_object) {
        let directive = element.get(DIRECTIVE);
        match directive.map(Value::as_str) {
            Some(Some("replace")) => continue,
            Some(Some("merge")) => return Err(ContentError::DefaultDirective(name.to_owned())),
            None | Some(Some("delete")) => {}
            Some(_) => return Err(ContentError::UnknownDirective(element[DIRECTIVE].clone())),
        }
        if let Some(key) = field.merge_key.filter(|key| !element.contains_key(*key)) {
            return Err(ContentError::no_merge_key(name, key));
        }
        if directive.is_none() {
            directives(element, field.schema)?;
        }
    }
    Ok(())
}

/// Checks that no list without a merge key has a directive: it would be part of the object.
pub fn directives_have_effect(patch: &Map<String, Value>, schema: Schema) -> Result<(), ContentError> {
    for (name, value) in patch {
        let field = schema.field(name);
        match value {
            Value::Object(map) => directives_have_effect(map, field.schema)?,
            Value::Array(list) => {
                for element in list.iter().filter_map(Value::as_object) {
                    if field.strategy != Strategy::Merge && element.contains_key(DIRECTIVE) {
                        return Err(ContentError::DirectiveWithoutEffect(name.clone()));
                    }
                    directives_have_effect(element, field.schema)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the values in `patch`, a merge patch of `kind`, that Kubernetes requires to be strings.
pub fn strings_in(patch: &Map<String, Value>, kind: &str) -> Result<(), ContentError> {
    strings_below(patch, "", kind == "ConfigMap")
}

/// Checks the values in `operations`, a JSON patch of `kind`, that Kubernetes requires to be
/// strings.
pub fn strings_in_operations(operations: &Value, kind: &str) -> Result<(), ContentError> {
    for operation in operations.as_array().into_iter().flatten() {
        // As a merge patch of the object.
        let path = operation["path"].as_str().unwrap_or_default().trim_start_matches('/');
        let steps = path.rsplit('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
        let patch = steps.fold(operation["value"].clone(), |value, step| match step.parse::<usize>() {
            Ok(_) => json!([value]),
            Err(_) if step == "-" => json!([value]),
            Err(_) => json!({step: value}),
        });
        patch.as_object().map_or(Ok(()), |patch| strings_in(patch, kind))?;
    }
    Ok(())
}

fn strings_below(patch: &Map<String, Value>, path: &str, is_config_map: bool) -> Result<(), ContentError> {
    for (name, value) in patch {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Object(map) if STRING_MAPS.contains(&name.as_str()) || is_config_map && name == "data" => {
                let other =
                    map.iter().find(|(key, value)| !(key.starts_with('$') || value.is_string() || value.is_null()));
                if let Some((key, value)) = other {
                    return Err(not_a_string(format!("{path}.{key}"), value));
                }
            }
            Value::Object(map) => strings_below(map, &path, false)?,
            Value::Array(list) => {
                for (index, element) in list.iter().enumerate() {
                    let Some(element) = element.as_object() else { continue };
                    let path = format!("{path}[{index}]");
                    match element.get("value").filter(|value| !(value.is_string() || value.is_null())) {
                        Some(value) if name == "env" => return Err(not_a_string(format!("{path}.value"), value)),
                        _ => strings_below(element, &path, false)?,
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn not_a_string(path: String, value: &Value) -> ContentError {
    let type_ = match value {
        Value::Bool(_) => "a boolean: YAML reads y, yes, on, n, no and off as booleans",
        Value::Number(_) => "a number",
        _ => "no string",
    };
    ContentError::NotAString { path, type_ }
}
