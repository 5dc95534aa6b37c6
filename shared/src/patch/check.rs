//! Checks of patches and patched objects.

use serde_json::{Map, Value};

use super::schema::{Field, Schema, Strategy};
use super::strategic::{DIRECTIVE, missing_merge_key, unknown_directive};
use crate::api::{Component, PatchTarget};

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
pub fn directives(patch: &Map<String, Value>, schema: Schema) -> Result<(), String> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("delete" | "replace") => Ok(()),
            _ => Err(unknown_directive(directive)),
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

fn elements(list: &[Value], name: &str, field: Field) -> Result<(), String> {
    if field.strategy != Strategy::Merge {
        return Ok(());
    }
    for element in list.iter().filter_map(Value::as_object) {
        let directive = element.get(DIRECTIVE);
        match directive.map(Value::as_str) {
            Some(Some("replace")) => continue,
            Some(Some("merge")) => return Err(format!("$patch: merge in {name} is the default; remove it")),
            None | Some(Some("delete")) => {}
            Some(_) => return Err(unknown_directive(&element[DIRECTIVE])),
        }
        if let Some(key) = field.merge_key.filter(|key| !element.contains_key(*key)) {
            return Err(missing_merge_key(name, key));
        }
        if directive.is_none() {
            directives(element, field.schema)?;
        }
    }
    Ok(())
}

/// Checks that no list without a merge key has a directive: it would be part of the object.
pub fn directives_have_effect(patch: &Map<String, Value>, schema: Schema) -> Result<(), String> {
    for (name, value) in patch {
        let field = schema.field(name);
        match value {
            Value::Object(map) => directives_have_effect(map, field.schema)?,
            Value::Array(list) => {
                for element in list.iter().filter_map(Value::as_object) {
                    if field.strategy != Strategy::Merge && element.contains_key(DIRECTIVE) {
                        return Err(format!(
                            "$patch has no effect in {name}, which has no merge key: a patch replaces the list; remove the directive"
                        ));
                    }
                    directives_have_effect(element, field.schema)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
