//! Parses YAML manifests into objects. Pure.

use std::str::Utf8Error;

use serde_json::Value;

use knative_operator_shared::yaml;

/// Why a text is no manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not UTF-8.
    #[error("{0}")]
    NotText(Utf8Error),
    /// It is not YAML; with the position.
    #[error("{0}")]
    NotYaml(String),
    /// It has a List without items.
    #[error("a List without items")]
    NoItems,
    /// The object with this number lacks this field.
    #[error("{1} of object {0} is missing, or not a string")]
    Incomplete(usize, &'static str),
    /// This field of the metadata of the object with this number has another type.
    #[error("metadata.{1} of object {0} is not a mapping")]
    Metadata(usize, &'static str),
    /// The document with this number is none.
    #[error("object {0} is not a mapping but {1}")]
    NotMapping(usize, &'static str),
}

/// Objects in `text`, a stream of YAML documents. Empty documents are skipped, Lists are flattened.
pub fn objects(text: &str) -> Result<Vec<Value>, ManifestError> {
    let documents: Vec<Value> = yaml::parse_all(text).map_err(|error| ManifestError::NotYaml(error.to_string()))?;
    let mut objects = Vec::with_capacity(documents.len());
    for document in documents {
        flatten(document, &mut objects)?;
    }
    Ok(objects)
}

fn flatten(document: Value, objects: &mut Vec<Value>) -> Result<(), ManifestError> {
    match document {
        Value::Null => Ok(()),
        Value::Object(mut list) if list.get("kind").is_some_and(|k| k == "List") => {
            let Some(Value::Array(items)) = list.remove("items") else { return Err(ManifestError::NoItems) };
            items.into_iter().try_for_each(|item| flatten(item, objects))
        }
        Value::Object(fields) => {
            let named = |key| fields.get(key).and_then(Value::as_str).is_some_and(|v| !v.is_empty());
            let metadata = fields.get("metadata").and_then(Value::as_object);
            let name = metadata
                .is_some_and(|m| ["name", "generateName"].iter().any(|k| m.get(*k).is_some_and(Value::is_string)));
            let needed = [("apiVersion", named("apiVersion")), ("kind", named("kind")), ("metadata.name", name)];
            if let Some((field, _)) = needed.into_iter().find(|(_, is_there)| !is_there) {
                return Err(ManifestError::Incomplete(objects.len() + 1, field));
            }
            // The operator adds to both.
            let is_other = |key: &&str| {
                metadata.and_then(|m| m.get(*key)).is_some_and(|value| !(value.is_object() || value.is_null()))
            };
            if let Some(key) = ["labels", "annotations"].into_iter().find(is_other) {
                return Err(ManifestError::Metadata(objects.len() + 1, key));
            }
            objects.push(Value::Object(fields));
            Ok(())
        }
        other => Err(ManifestError::NotMapping(objects.len() + 1, kind(&other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        _ => "a scalar",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_lists_and_empty_documents_are_parsed() {
        let text = "# nothing\n---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        let kinds: Vec<_> = objects(text).unwrap().iter().map(|o| o["kind"].as_str().unwrap().to_owned()).collect();
        assert_eq!(kinds, ["ConfigMap", "Secret"]);
    }

    #[test]
    fn bombs_are_refused() {
        let head = "apiVersion: v1\nkind: X\nmetadata: {name: a}\n";
        let level = |level: u32| format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(","));
        let levels: Vec<String> = (1..10).map(level).collect();
        let aliases = format!("{head}a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n{}", levels.concat());
        let deep = format!("{head}a: {}{}\n", "[".repeat(100_000), "]".repeat(100_000));
        let lists = format!("{}{}", "{kind: List, items: [".repeat(10_000), "]}".repeat(10_000));
        let many = "---\n".to_owned() + &format!("{head}a: [{}]\n", "x,".repeat(600_000));
        for (what, bomb) in [("aliases", aliases), ("deep", deep), ("lists", lists), ("many", many)] {
            let error = objects(&bomb).unwrap_err().to_string();
            assert!(error.len() < 500, "{what}: {error}");
        }
    }

    #[test]
    fn anchor_may_be_redefined() {
        let text = "apiVersion: v1\nkind: X\nmetadata: {name: a}\na: &e [1]\nb: *e\nc: &e [2]\nd: *e\n";
        let object = &objects(text).unwrap()[0];
        assert_eq!((&object["b"][0], &object["d"][0]), (&Value::from(1), &Value::from(2)));
    }

    #[test]
    fn yaml_error_has_position() {
        let error = |text: &str| objects(text).unwrap_err().to_string();
        let unclosed = error("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a\ndata: [\n");
        assert!(unclosed.contains("line"), "{unclosed}");
        assert_eq!(error("just text"), "object 1 is not a mapping but a string");
        for (text, field) in [
            ("a: 1\n", "apiVersion"),
            ("apiVersion: v1\nkind: ''\n", "kind"),
            ("apiVersion: v1\nkind: ConfigMap\n", "metadata.name"),
            ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 5}\n", "metadata.name"),
        ] {
            assert_eq!(error(text), format!("{field} of object 1 is missing, or not a string"));
        }
        for (field, expected) in [
            ("annotations: x", "metadata.annotations of object 1 is not a mapping"),
            ("labels: [x]", "metadata.labels of object 1 is not a mapping"),
        ] {
            assert_eq!(error(&format!("apiVersion: v1\nkind: X\nmetadata: {{name: a, {field}}}\n")), expected);
        }
        assert!(objects("apiVersion: v1\nkind: X\nmetadata: {name: a, labels: null, annotations: {}}\n").is_ok());
    }
}
