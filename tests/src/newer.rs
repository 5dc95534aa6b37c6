//! Values of a newer version, generated from a stored value and its schema: another type, an
//! unknown value of an enum, a required field that is missing, a field that this version lacks.
//!
//! The unit tests of the operator include this file, so it uses serde_json only.

use std::fmt;

use serde_json::{Map, Value, json};

/// What a newer version changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another type.
    Type,
    /// An unknown value of an enum.
    Value,
    /// A required field is missing.
    Missing,
    /// A field that this version lacks.
    Added,
}

/// A value of a newer version.
#[derive(Clone, Debug, PartialEq)]
pub struct Newer {
    /// The changed field, as a JSON pointer.
    pub field: String,
    /// Its change.
    pub change: Change,
    /// The whole value.
    pub value: Value,
}

impl Newer {
    /// Whether `read`, what this version reads of it, is a guess: neither what it read `before`, of
    /// the original value, nor the field as it is stored.
    pub fn is_guessed(&self, before: &Value, read: &Value) -> bool {
        let is_kept = self.change != Change::Missing && read.pointer(&self.field) == self.value.pointer(&self.field);
        read != before && !is_kept
    }
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.change, self.field)?;
        self.value.pointer(&self.field).map_or(Ok(()), |value| write!(f, " = {value}"))
    }
}

/// The values that differ from `value` in one field, by its `schema` (OpenAPI). Of a list, only the
/// first item is changed.
pub fn newer(value: &Value, schema: &Value) -> Vec<Newer> {
    let mut all = Vec::new();
    let mut add = |field: &str, change, new| {
        all.push(Newer { field: field.to_owned(), change, value: with(value, field, new) });
    };
    walk(value, schema, "", &mut add);
    all
}

/// The schema of `value`, by itself. The fields that `least` has, the shortest stored value, are
/// required.
pub fn schema_of(value: &Value, least: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let properties: Map<String, Value> =
                fields.iter().map(|(name, inner)| (name.clone(), schema_of(inner, &least[name.as_str()]))).collect();
            let required: Vec<&String> = least.as_object().into_iter().flat_map(Map::keys).collect();
            json!({"type": "object", "properties": properties, "required": required})
        }
        Value::Array(items) => {
            json!({"type": "array", "items": items.first().map(|first| schema_of(first, &least[0]))})
        }
        Value::String(_) => json!({"type": "string"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(_) => json!({"type": "number"}),
        Value::Null => json!({}),
    }
}

/// Calls `add` with each changed field, its change, and its new value; none if it is missing.
fn walk(value: &Value, schema: &Value, field: &str, add: &mut impl FnMut(&str, Change, Option<Value>)) {
    if !field.is_empty() {
        for other in others(value).into_iter().filter(|other| !admits(schema, other)) {
            add(field, Change::Type, Some(other));
        }
        // The schema of selectors names no operators.
        if schema["enum"].is_array() || field.ends_with("/operator") {
            add(field, Change::Value, Some(json!("Newer")));
        }
    }
    match value {
        Value::Object(fields) => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for name in required.filter(|name| fields.contains_key(*name)) {
                add(&inner(field, name), Change::Missing, None);
            }
            if schema["properties"].is_object() {
                add(&inner(field, "addedLater"), Change::Added, Some(json!({"by": "a newer version"})));
            }
            for (name, value) in fields {
                let own = [&schema["properties"][name.as_str()], &schema["additionalProperties"]];
                if let Some(schema) = own.into_iter().find(|schema| schema.is_object()) {
                    walk(value, schema, &inner(field, name), add);
                }
            }
        }
        Value::Array(items) => {
            if let Some(first) = items.first().filter(|_| schema["items"].is_object()) {
                walk(first, &schema["items"], &inner(field, "0"), add);
            }
        }
        _ => {}
    }
}

/// Values of other types, among them those that a newer version is likely to make of `value`: a
/// list of it, a list of its fields, or its first item.
fn others(value: &Value) -> Vec<Value> {
    let mut all = vec![json!([]), json!({}), json!("newer"), json!(7), json!(true), json!([value])];
    match value {
        Value::Object(fields) => all.push(fields.values().cloned().collect()),
        Value::Array(items) => all.extend(items.first().cloned()),
        _ => {}
    }
    all
}

/// Whether `schema` admits the type of `value`.
fn admits(schema: &Value, value: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_i64() || value.is_string();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer" | "number") => value.is_number(),
        _ => true,
    }
}

/// The pointer to the field `name` within `field`.
fn inner(field: &str, name: &str) -> String {
    format!("{field}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// `value` with `new` at the pointer `field`, or without it.
fn with(value: &Value, field: &str, new: Option<Value>) -> Value {
    let mut value = value.clone();
    let (parent, name) = field.rsplit_once('/').unwrap_or(("", field));
    let name = name.replace("~1", "/").replace("~0", "~");
    match (value.pointer_mut(parent), new) {
        (Some(Value::Object(fields)), Some(new)) => drop(fields.insert(name, new)),
        (Some(Value::Object(fields)), None) => drop(fields.remove(&name)),
        (Some(Value::Array(items)), Some(new)) => items.first_mut().into_iter().for_each(|first| *first = new.clone()),
        _ => {}
    }
    value
}
