//! Patches of `spec.patches` (knative/operator #2337): [`Document`] is the content of one, checked
//! as far as that is possible without the object; [`Document::apply`] changes an object.
//!
//! JSON patches (RFC 6902) and merge patches (RFC 7386) are applied by the crate `json-patch`, the
//! former within the limits of `operations`; strategic merge patches by `strategic`, with the merge
//! keys in `schema`.
//!
//! Invariant: this crate does no I/O and reads neither the clock nor the environment.

mod check;
mod error;
mod operations;
#[cfg(test)]
mod properties;
mod schema;
mod strategic;
pub mod target;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use knative_operator_shared::api::{Component, PatchTarget, PatchType, ResourcePatch};
use knative_operator_shared::yaml;
use schema::Schema;

pub use error::PatchError;
pub use strategic::remove_directives;

/// Paths of the fields that identify an object.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];
const CHANGED_IDENTITY: &str =
    "a patch can't change apiVersion, kind, metadata.name or metadata.namespace; remove the change";

/// Content of a patch.
#[derive(Clone, Debug)]
pub enum Document {
    /// A JSON patch.
    Json(json_patch::Patch),
    /// A JSON merge patch.
    Merge(Map<String, Value>),
    /// A strategic merge patch for an object of a kind with this schema.
    Strategic(Map<String, Value>, Schema),
    /// `$patch: replace` at the root: the content of the object.
    Replace(Map<String, Value>),
    /// `$patch: delete` at the root.
    Delete,
}

/// The object after a patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Patched {
    /// It has changed.
    Changed(Value),
    /// It was replaced: labels, annotations and owner references are those of the patch.
    Replaced(Value),
    /// It was deleted.
    Deleted,
}

impl Document {
    /// Parses `patch` of a resource of `component`, and checks what doesn't depend on the object.
    ///
    /// # Errors
    ///
    /// If the content is not YAML, has another shape than its type requires, is nested too deeply,
    /// uses directives wrongly, changes the identity of the target, or deletes an object that is
    /// required.
    pub fn parse(patch: &ResourcePatch, component: Component) -> Result<Self, PatchError> {
        let (target, type_) = (&patch.target, patch.patch.type_);
        let content: Value = yaml::parse_with_all_booleans(&patch.patch.content)
            .map_err(|e| PatchError::content(format!("cannot parse the patch: {e}; write YAML or JSON")))?;
        if type_ != PatchType::Strategic && has_directive(&content) {
            return Err(PatchError::content(
                "$patch is a directive of strategic merge patches; set patch.type to strategic, or remove it",
            ));
        }
        let document = match (type_, content) {
            (PatchType::Json, content @ Value::Array(_)) => {
                let parsed = serde_json::from_value(content).map_err(|e| {
                    PatchError::content(format!(
                        "the patch is not a JSON patch: {e}; write a list of operations, as in RFC 6902"
                    ))
                })?;
                operations::check(&parsed)?;
                Self::Json(parsed)
            }
            (PatchType::Json, other) => return Err(wrong_shape(&other, "a list of operations, as in RFC 6902")),
            (PatchType::Merge, Value::Object(content)) => Self::Merge(content),
            (PatchType::Strategic, Value::Object(content)) => Self::strategic(content, target, component)?,
            (_, other) => return Err(wrong_shape(&other, "a mapping with the fields to change")),
        };
        document.check_identity(target)?;
        Ok(document)
    }

    fn strategic(
        mut content: Map<String, Value>,
        target: &PatchTarget,
        component: Component,
    ) -> Result<Self, PatchError> {
        let schema = Schema::of(&target.api_version, &target.kind);
        match content.get(strategic::DIRECTIVE).map(|directive| directive.as_str()) {
            Some(Some("delete")) => {
                return match check::required(target, component) {
                    Some(reason) => {
                        Err(PatchError::content(format!("can't be deleted, because {reason}; remove the patch")))
                    }
                    None => Ok(Self::Delete),
                };
            }
            _ if schema.is_none() => {}
            Some(Some("replace")) => {
                content.remove(strategic::DIRECTIVE);
                return Ok(Self::Replace(content));
            }
            _ => {}
        }
        let schema = schema.ok_or_else(|| PatchError {
            field: "patch.type",
            reason: "strategic merge patches are not supported for this kind; use merge or json".to_owned(),
        })?;
        check::directives(&content, schema)?;
        Ok(Self::Strategic(content, schema))
    }

    /// Checks for content that Kubernetes refuses or drops, though the Go operator, and so
    /// [`Document::parse`], accepts it.
    ///
    /// # Errors
    ///
    /// If a list without a merge key has a directive, or a value that must be a string is not one.
    pub fn check_content(&self, target: &PatchTarget) -> Result<(), PatchError> {
        if Schema::of(&target.api_version, &target.kind).is_none() {
            return Ok(());
        }
        let checked = match self {
            Self::Strategic(content, schema) => {
                check::directives_have_effect(content, *schema).and_then(|()| check::strings_in(content, &target.kind))
            }
            Self::Merge(content) | Self::Replace(content) => check::strings_in(content, &target.kind),
            Self::Json(operations) => check::strings_in_operations(&json!(operations), &target.kind),
            Self::Delete => Ok(()),
        };
        checked.map_err(PatchError::from)
    }

    /// A mapping must not contain another identity than that of the target.
    fn check_identity(&self, target: &PatchTarget) -> Result<(), PatchError> {
        let (Self::Merge(content) | Self::Strategic(content, _) | Self::Replace(content)) = self else { return Ok(()) };
        let metadata = content.get("metadata");
        let fields = [
            (content.get("apiVersion"), Some(&target.api_version)),
            (content.get("kind"), Some(&target.kind)),
            (metadata.and_then(|m| m.get("name")), Some(&target.name)),
            (metadata.and_then(|m| m.get("namespace")), target.namespace.as_ref()),
        ];
        let differs = |(given, wanted): &(Option<&Value>, Option<&String>)| {
            given.zip(*wanted).is_some_and(|(given, wanted)| given.as_str() != Some(wanted))
        };
        if fields.iter().any(differs) || metadata.is_some_and(|m| !m.is_object()) {
            return Err(PatchError::content(CHANGED_IDENTITY));
        }
        Ok(())
    }

    /// Applies the patch to `object`. Adds the number of bytes that it copies or moves within the
    /// object to `copied`.
    ///
    /// # Errors
    ///
    /// If an operation fails, the object gets too large, or its identity changes.
    pub fn apply(self, object: Value, copied: &mut usize) -> Result<Patched, PatchError> {
        let identity = IDENTITY.map(|path| object.pointer(path).cloned());
        let patched = match self {
            Self::Delete => return Ok(Patched::Deleted),
            Self::Replace(content) => Patched::Replaced(replace(content, &identity)),
            Self::Json(operations) => Patched::Changed(operations::apply(object, &operations, copied)?),
            Self::Merge(content) => {
                let mut object = object;
                json_patch::merge(&mut object, &strategic::without_nulls_in_lists(Value::Object(content)));
                Patched::Changed(object)
            }
            Self::Strategic(content, schema) => {
                let Value::Object(object) = object else {
                    return Err(PatchError::content("the object is not a mapping"));
                };
                let merged = strategic::merge(object, content, schema)?;
                Patched::Changed(Value::Object(merged))
            }
        };
        let (Patched::Changed(object) | Patched::Replaced(object)) = &patched else { return Ok(patched) };
        if IDENTITY.map(|path| object.pointer(path).cloned()) != identity {
            return Err(PatchError::content(CHANGED_IDENTITY));
        }
        operations::check_size(object)?;
        Ok(patched)
    }
}

fn wrong_shape(content: &Value, wanted: &str) -> PatchError {
    let shape = match content {
        Value::Null => "empty",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
        _ => "a scalar",
    };
    PatchError::content(format!("the patch is {shape}; write {wanted}"))
}

/// `content` with the identity of the object that it replaces.
fn replace(content: Map<String, Value>, identity: &[Option<Value>; 4]) -> Value {
    let mut object = strategic::without_nulls(Value::Object(content));
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    for (path, value) in IDENTITY.iter().zip(identity) {
        if let (None, Some(value)) = (object.pointer(path), value) {
            match path.strip_prefix("/metadata/") {
                Some(name) => object["metadata"][name] = value.clone(),
                None => object[&path[1..]] = value.clone(),
            }
        }
    }
    object
}

/// Whether `value` has the key `$patch` at any depth.
fn has_directive(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.contains_key(strategic::DIRECTIVE) || map.values().any(has_directive),
        Value::Array(list) => list.iter().any(has_directive),
        _ => false,
    }
}
