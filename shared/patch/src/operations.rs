//! Applies JSON patches (RFC 6902) within limits. A short patch can copy what it has copied before
//! until no memory is left, or nest a value so deeply that its recursive readers run out of stack,
//! which ends the process.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::error::ContentError;

/// Maximum number of operations, as in Kubernetes.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum size of what the operations of a patch copy and move together, in bytes of JSON, as in
/// Kubernetes.
const MAX_COPIED: usize = 3 << 20;
/// Maximum size of a patched object in bytes of JSON: no API server accepts a larger one.
const MAX_SIZE: usize = 3 << 20;
/// Maximum number of items of a list: each operation may move all of them.
const MAX_ITEMS: usize = 10_000;
/// Maximum depth of a patched object. `serde_json` reads 127 levels.
const MAX_DEPTH: usize = 100;

/// Checks what doesn't depend on the object: the number of `operations`, and how deeply they nest.
///
/// # Errors
///
/// The limit that is exceeded.
pub fn check(operations: &Patch) -> Result<(), ContentError> {
    if operations.0.len() > MAX_OPERATIONS {
        return Err(ContentError::TooManyOperations(MAX_OPERATIONS));
    }
    let mut left = MAX_SIZE;
    for operation in &operations.0 {
        let value = match operation {
            PatchOperation::Add(add) => Some(&add.value),
            PatchOperation::Replace(replace) => Some(&replace.value),
            PatchOperation::Test(test) => Some(&test.value),
            PatchOperation::Remove(_) | PatchOperation::Move(_) | PatchOperation::Copy(_) => None,
        };
        let below = value.map_or(Some(0), |value| measure(value, &mut left)).ok_or(ContentError::TooLarge)?;
        check_depth(operation, below)?;
    }
    Ok(())
}

/// Applies `operations` to `object`. Adds the number of bytes that they copy or move to `copied`.
///
/// # Errors
///
/// The operation that fails, or the limit that is exceeded.
pub fn apply(mut object: Value, operations: &Patch, copied: &mut usize) -> Result<Value, ContentError> {
    let mut left = MAX_COPIED;
    for (index, operation) in operations.0.iter().enumerate() {
        let from = match operation {
            PatchOperation::Move(moved) => Some(moved.from.as_str()),
            PatchOperation::Copy(copied) => Some(copied.from.as_str()),
            _ => None,
        };
        // Without a source, the operation fails.
        if let Some(source) = from.and_then(|from| object.pointer(from)) {
            check_depth(operation, measure(source, &mut left).ok_or(ContentError::TooMuchCopied)?)?;
        }
        // Not the atomic function: it panics if it can't undo a move.
        json_patch::patch_unsafe(&mut object, std::slice::from_ref(operation)).map_err(|mut error| {
            error.operation = index;
            ContentError::Operation(error)
        })?;
    }
    *copied = copied.saturating_add(MAX_COPIED - left);
    Ok(object)
}

/// Checks that `object` is not larger than what API servers accept.
///
/// # Errors
///
/// If it is.
pub fn check_size(object: &Value) -> Result<(), ContentError> {
    let mut left = MAX_SIZE;
    match measure(object, &mut left) {
        Some(_) => Ok(()),
        None => Err(ContentError::TooLarge),
    }
}

/// Checks the depth of a value with `below` levels at the place where `operation` puts it.
fn check_depth(operation: &PatchOperation, below: usize) -> Result<(), ContentError> {
    let above = operation.path().as_str().matches('/').count();
    if above.saturating_add(below) > MAX_DEPTH { Err(ContentError::TooDeep(MAX_DEPTH)) } else { Ok(()) }
}

/// Number of levels in `value`; `None` if it takes more than `left` bytes of JSON, which are
/// reduced by its size, or has a list that is too long.
fn measure(value: &Value, left: &mut usize) -> Option<usize> {
    let (own, below) = match value {
        Value::String(text) => (text.len() + 3, 0),
        Value::Array(items) if items.len() > MAX_ITEMS => return None,
        Value::Array(items) => {
            let mut deepest = 0;
            for item in items {
                deepest = deepest.max(measure(item, left)?);
            }
            (3, deepest + 1)
        }
        Value::Object(fields) => {
            let mut deepest = 0;
            for (name, field) in fields {
                *left = left.checked_sub(name.len() + 4)?;
                deepest = deepest.max(measure(field, left)?);
            }
            (3, deepest + 1)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => (6, 0),
    };
    *left = left.checked_sub(own)?;
    Some(below)
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::PatchType::{Json, Merge, Strategic};
    use serde_json::json;

    use crate::Document;
    use crate::tests::{deployment, patch, patched};
    use knative_operator_shared::api::Component;

    /// What is wrong with these operations on a Deployment.
    fn refusal(operations: &[String]) -> String {
        patched(&deployment(&json!({})), Json, &format!("[{}]", operations.join(","))).unwrap_err()
    }

    fn operation(name: &str, from: &str, path: &str) -> String {
        json!({"op": name, "from": from, "path": path, "value": {}}).to_string()
    }

    #[test]
    fn copies_of_copies_are_refused() {
        let doubled: Vec<_> = (0..60).map(|number| operation("copy", "/spec", &format!("/spec/c{number}"))).collect();
        let reason = refusal(&doubled);
        assert!(reason.contains("copies and moves more than"), "{reason}");
        let few = format!("[{}]", doubled[..3].join(","));
        let copied = patched(&deployment(&json!({})), Json, &few).unwrap();
        assert!(copied.pointer("/spec/c2/c1/c0/template").is_some(), "{copied}");
    }

    #[test]
    fn deep_values_are_refused() {
        let nested: Vec<_> = (0..200)
            .flat_map(|_| {
                [
                    operation("add", "", "/spec/b"),
                    operation("move", "/spec/a", "/spec/b/a"),
                    operation("move", "/spec/b", "/spec/a"),
                ]
            })
            .collect();
        let copied: Vec<_> = (0..200).map(|_| operation("copy", "/spec", "/spec/a")).collect();
        for operations in [[vec![operation("add", "", "/spec/a")], nested].concat(), copied] {
            let reason = refusal(&operations);
            assert!(reason.contains("nests values more than 100 levels deep"), "{reason}");
        }
    }

    #[test]
    fn long_path_is_refused_before_it_is_walked() {
        let object = deployment(&json!({}));
        let operations = format!("[{}]", operation("add", "", &"/a".repeat(400_000)));
        let parsed = Document::parse(&patch(&object, Json, &operations), Component::Serving);
        let reason = parsed.unwrap_err().reason;
        assert!(reason.contains("nests values more than 100 levels deep"), "{reason}");
    }

    #[test]
    fn many_operations_and_large_objects_are_refused() {
        let reason = refusal(&vec![operation("test", "", "/spec/a"); 10_001]);
        assert!(reason.contains("more than 10000 operations"), "{reason}");
        let large = deployment(&json!({"text": "x".repeat(3 << 20)}));
        let reason = patched(&large, Merge, "spec: {paused: true}").unwrap_err();
        assert!(reason.contains("larger than an API server accepts"), "{reason}");
    }

    #[test]
    fn long_lists_are_refused() {
        let long = json!([{"op": "add", "path": "/spec/a", "value": vec![0; 10_001]}]).to_string();
        let reason = patched(&deployment(&json!({})), Json, &long).unwrap_err();
        assert!(reason.contains("larger than an API server accepts"), "{reason}");
        // What is merged is compared.
        let env: Vec<_> = (0..501).map(|number| json!({"name": format!("A{number}")})).collect();
        let container = |env: &[serde_json::Value]| json!([{"name": "a", "env": env}]);
        let object = deployment(&json!({"containers": container(&env[..1])}));
        for (added, expected) in [(499, Ok(500)), (500, Err("env has more than 500 elements, which are too many"))] {
            let content = json!({"spec": {"template": {"spec": {"containers": container(&env[1..=added])}}}});
            let result = patched(&object, Strategic, &content.to_string());
            let merged = result.map(|object| {
                let env = object.pointer("/spec/template/spec/containers/0/env");
                env.and_then(|env| env.as_array().map(Vec::len)).unwrap_or_default()
            });
            match expected {
                Ok(length) => assert_eq!(merged, Ok(length)),
                Err(part) => assert!(merged.unwrap_err().contains(part)),
            }
        }
    }

    #[test]
    fn failed_operation_has_its_number() {
        let reason = refusal(&[operation("add", "", "/spec/a"), operation("remove", "", "/spec/b")]);
        assert!(reason.contains("operation '/1' failed at path '/spec/b'"), "{reason}");
    }
}
