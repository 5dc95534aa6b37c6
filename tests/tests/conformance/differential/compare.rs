//! Objects by their meaning, and where two of them differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// Prefix of the operators' own labels and annotations.
const OWN: &str = "operator.knative.dev/";
/// An annotation that the Go operator adds to every object for itself.
const CREATED: &str = "manifestival";

/// An object by its meaning.
#[derive(Debug)]
pub struct Object {
    /// API version, kind, namespace and name.
    pub identity: String,
    /// Without what means nothing.
    pub content: Value,
}

impl Object {
    /// The meaning of `object`.
    pub fn new(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let [version, kind, namespace, name, prefix] =
            ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name", "/metadata/generateName"].map(text);
        let name = if name.is_empty() { prefix } else { name };
        let identity = format!("{version} {kind} {namespace}/{name}");
        Self { identity, content: canonical(object, &[]).unwrap_or_default() }
    }
}

/// Fields of which an empty map or list means something else than none.
const EMPTY: [&str; 6] = ["labelSelector", "namespaceSelector", "podSelector", "emptyDir", "ingress", "egress"];

/// `value` at `path` without nulls, empty maps and lists (except for [`EMPTY`]), status, timestamps
/// of creation, uids of owners, and the operators' own labels and annotations; quantities as
/// numbers. `None` if nothing is left.
fn canonical(value: &Value, path: &[&str]) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(map) => {
            let fields = map.iter().filter(|(key, _)| !is_meaningless(key, path)).filter_map(|(key, value)| {
                let value = canonical(value, &[path, &[key.as_str()]].concat())?;
                Some((key.clone(), value))
            });
            let fields: Map<String, Value> = fields.collect();
            (!fields.is_empty() || has_meaning(path)).then_some(Value::Object(fields))
        }
        Value::Array(list) => {
            let items: Vec<Value> = list.iter().map(|item| canonical(item, path).unwrap_or(Value::Null)).collect();
            (!items.is_empty() || has_meaning(path)).then_some(Value::Array(items))
        }
        scalar if is_quantity(path) => Some(quantity(scalar).map_or_else(|| scalar.clone(), |n| json!(n))),
        scalar => Some(scalar.clone()),
    }
}

fn has_meaning(path: &[&str]) -> bool {
    path.ends_with(&["subresources", "status"]) || path.last().is_some_and(|key| EMPTY.contains(key))
}

fn is_meaningless(key: &str, path: &[&str]) -> bool {
    match path {
        [] => key == "status",
        [.., "labels" | "annotations"] => key.starts_with(OWN) || key == CREATED,
        [.., "ownerReferences"] => key == "uid",
        [.., "metadata"] => key == "creationTimestamp",
        _ => false,
    }
}

fn is_quantity(path: &[&str]) -> bool {
    matches!(path, [.., "limits" | "requests", _] | [.., "resourceFieldRef", "divisor"])
}

/// The value of a quantity in billionths, as text.
fn quantity(value: &Value) -> Option<String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let number_ends = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(number_ends);
    let (sign, digits) = number.strip_prefix('-').map_or((1, number.trim_start_matches('+')), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let tenth = |power: u32| 10_i128.checked_pow(power);
    let nano = match suffix {
        "n" => 1,
        "u" => tenth(3)?,
        "m" => tenth(6)?,
        "" => tenth(9)?,
        "k" => tenth(12)?,
        "M" => tenth(15)?,
        "G" => tenth(18)?,
        "T" => tenth(21)?,
        "P" => tenth(24)?,
        "E" => tenth(27)?,
        _ => {
            if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
                tenth(u32::try_from(9 + exponent.parse::<i32>().ok()?).ok()?)?
            } else {
                let power = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|s| *s == suffix)?;
                tenth(9)?.checked_mul(1024_i128.checked_pow(u32::try_from(power + 1).ok()?)?)?
            }
        }
    };
    let scaled = digits.checked_mul(nano)?.checked_mul(sign)?;
    // Kubernetes rounds up to billionths.
    let divisor = tenth(u32::try_from(fraction.len()).ok()?)?;
    Some(format!("{}n", scaled.div_euclid(divisor) + i128::from(scaled.rem_euclid(divisor) > 0)))
}

/// A difference between the objects of the Go operator and ours.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Identity of the object.
    pub object: String,
    /// Path in it; empty for the whole object.
    pub path: String,
    /// The value of the Go operator; null without.
    pub theirs: Value,
    /// Our value; null without.
    pub ours: Value,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |value: &Value| {
            let mut text = value.to_string();
            let end = text.char_indices().nth(400).map_or(text.len(), |(end, _)| end);
            text.truncate(end);
            text
        };
        write!(f, "{}{}: theirs {}, ours {}", self.object, self.path, short(&self.theirs), short(&self.ours))
    }
}

/// All differences of two lists of objects, which may share objects.
pub fn differences(theirs: &[Arc<Object>], ours: &[Arc<Object>]) -> Vec<Difference> {
    let mut remaining: BTreeMap<&str, &Object> = ours.iter().map(|o| (o.identity.as_str(), &**o)).collect();
    let mut all = Vec::new();
    // An object of ours twice is a difference by itself.
    for (index, object) in ours.iter().enumerate() {
        if ours[..index].iter().any(|before| before.identity == object.identity) {
            collect(&object.identity, "", &Value::Null, &object.content, &mut all);
        }
    }
    for object in theirs {
        let ours = remaining.remove(object.identity.as_str()).map_or(&Value::Null, |own| &own.content);
        collect(&object.identity, "", &object.content, ours, &mut all);
    }
    for object in remaining.values() {
        collect(&object.identity, "", &Value::Null, &object.content, &mut all);
    }
    all
}

fn collect(object: &str, path: &str, theirs: &Value, ours: &Value, all: &mut Vec<Difference>) {
    match (theirs, ours) {
        _ if theirs == ours => {}
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let [a, b] = [a, b].map(|map| map.get(key).unwrap_or(&Value::Null));
                collect(object, &format!("{path}/{key}"), a, b, all);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                collect(object, &format!("{path}/{index}"), a, b, all);
            }
        }
        _ => all.push(Difference {
            object: object.to_owned(),
            path: path.to_owned(),
            theirs: theirs.clone(),
            ours: ours.clone(),
        }),
    }
}

#[test]
fn objects_are_compared_by_meaning() {
    let object = |cpu: &str| {
        Object::new(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"operator.knative.dev/a": "b"}},
            "spec": {"a": null, "containers": [{"resources": {"limits": {"cpu": cpu}}}], "b": {"c": []}},
            "status": {"a": 1}
        }))
    };
    for (a, b) in [("1", "1000m"), ("1.5Gi", "1536Mi"), ("1e3", "1k"), ("0.5", "500m"), ("1.0000000001", "1000000001n")]
    {
        assert_eq!(object(a).content, object(b).content, "{a} {b}");
        assert!(object(a).content["metadata"].get("labels").is_none() && object(a).content.get("status").is_none());
    }
    let list = |cpu: &str| [Arc::new(object(cpu))];
    let found = differences(&list("1"), &list("2"));
    let path = "/spec/containers/0/resources/limits/cpu";
    assert_eq!(found.iter().map(|d| d.path.as_str()).collect::<Vec<_>>(), [path]);
    assert_eq!(differences(&[], &list("1")).len(), 1);
}
