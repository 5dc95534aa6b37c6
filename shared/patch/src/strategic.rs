//! Strategic merge patches with the semantics of Kubernetes (`strategicpatch` in
//! k8s.io/apimachinery): lists with a merge key merge by that key, and directives delete, replace
//! and order.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::mem::{discriminant, take};

use serde_json::{Map, Value};

use super::error::ContentError;
use super::schema::{Field, Schema, Strategy};

/// The directive of a map or a list element: `delete`, `replace`, or in a list `merge`.
pub const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Maximum number of elements of a list that is merged: each is compared with all others.
const MAX_ELEMENTS: usize = 500;

type Object = Map<String, Value>;

/// Merges `patch` into `original`, an object of the type `schema`.
///
/// # Errors
///
/// What is wrong with the patch.
pub fn merge(mut original: Object, mut patch: Object, schema: Schema) -> Result<Object, ContentError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::new()),
            _ => Err(ContentError::UnknownDirective(directive)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order_elements(&mut original, &mut patch, schema)?;
    delete_from_lists(&mut original, &mut patch)?;
    for (key, value) in patch {
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let field = schema.field(&key);
                if field.strategy == Strategy::Replace {
                    Some(Value::Object(new))
                } else {
                    Some(Value::Object(merge(old, new, field.schema)?))
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                Some(Value::Array(merge_lists(old, new, &key, schema.field(&key))?))
            }
            (Some(old), new) if discriminant(&old) == discriminant(&new) => without_directives(new),
            (_, new) => without_directives(without_nulls(new)),
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

/// Applies `$retainKeys`: removes the keys that it doesn't list from `original`.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), ContentError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let keys: Option<HashSet<&str>> = keys.as_array().and_then(|keys| keys.iter().map(Value::as_str).collect());
    let keys = keys.ok_or(ContentError::RetainKeys)?;
    let is_listed = |key: &String| keys.contains(key.as_str());
    let is_directive = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
    if let Some((key, _)) = patch.iter().find(|(key, value)| !value.is_null() && !is_directive(key) && !is_listed(key))
    {
        return Err(ContentError::NotRetained(key.clone()));
    }
    original.retain(|key, _| is_listed(key));
    Ok(())
}

/// Applies `$setElementOrder/LIST` directives together with the lists that they order.
fn order_elements(original: &mut Object, patch: &mut Object, schema: Schema) -> Result<(), ContentError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let list = &directive[ELEMENT_ORDER.len()..];
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(ContentError::NotAList(directive));
        };
        let (old, new) = (take_list(original, list)?, take_list(patch, list)?);
        let field = schema.field(list);
        if let Some(new) = &new {
            check_order(new, &order, list, field)?;
        }
        let before = old.clone().unwrap_or_default();
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) => merge_lists(old, new, list, field)?,
        };
        original.insert(list.to_owned(), Value::Array(sort(merged, &order, &before, list, field.merge_key)?));
    }
    Ok(())
}

fn take_list(object: &mut Object, name: &str) -> Result<Option<Vec<Value>>, ContentError> {
    match object.remove(name) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(ContentError::NothingToOrder(name.to_owned())),
    }
}

/// The elements of a patch must be in the list that orders them, in the same order.
fn check_order(patch: &[Value], order: &[Value], list: &str, field: Field) -> Result<(), ContentError> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for element in patch.iter().filter(|element| element.get(DIRECTIVE).is_none()) {
        let wanted = key_of(element, list, field.merge_key)?;
        loop {
            let next = rest.next().ok_or_else(|| ContentError::OtherOrder(list.to_owned()))?;
            if key_of(next, list, field.merge_key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

/// Applies `$deleteFromPrimitiveList/LIST` directives.
fn delete_from_lists(original: &mut Object, patch: &mut Object) -> Result<(), ContentError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(DELETE_FROM_LIST)).cloned().collect();
    for directive in directives {
        let name = &directive[DELETE_FROM_LIST.len()..];
        match (patch.remove(&directive), original.get_mut(name)) {
            (Some(Value::Array(deleted)), Some(Value::Array(list))) => list.retain(|value| !deleted.contains(value)),
            (Some(Value::Array(_)), _) => {}
            _ => return Err(ContentError::NotAList(directive)),
        }
    }
    Ok(())
}

/// Merges the list `name`, or replaces it if it has no strategy.
fn merge_lists(old: Vec<Value>, new: Vec<Value>, name: &str, field: Field) -> Result<Vec<Value>, ContentError> {
    if field.strategy != Strategy::Merge {
        return Ok(new);
    }
    check_length(old.len().saturating_add(new.len()), name)?;
    let kinds = || old.iter().chain(&new).map(discriminant);
    let Some(kind) = kinds().next() else { return Ok(old) };
    if kinds().any(|other| other != kind) || old.iter().chain(&new).any(Value::is_array) {
        return Err(ContentError::MixedElements(name.to_owned()));
    }
    let (before, order) = (old.clone(), new.clone());
    if !old.iter().chain(&new).any(Value::is_object) {
        let mut merged: Vec<Value> = Vec::new();
        old.into_iter().chain(new).for_each(|value| {
            if !merged.contains(&value) {
                merged.push(value);
            }
        });
        return sort(merged, &order, &before, name, None);
    }
    let key = field.merge_key.ok_or_else(|| ContentError::ListWithoutKey(name.to_owned()))?;
    let (mut merged, patches, replaced) = apply_element_directives(old, new, name, key)?;
    if replaced {
        return Ok(patches);
    }
    let order: Vec<Value> = patches.clone();
    for patch in patches {
        let Value::Object(patch) = patch else { continue };
        let wanted = patch.get(key).ok_or_else(|| ContentError::no_merge_key(name, key))?;
        match merged.iter_mut().find(|element| element.get(key) == Some(wanted)) {
            Some(Value::Object(element)) => *element = merge(take(element), patch, field.schema)?,
            _ => merged.push(Value::Object(patch)),
        }
    }
    sort(merged, &order, &before, name, Some(key))
}

/// Applies elements with a directive: `delete` removes the elements with the same merge key from
/// `old`, `replace` all of them. Returns the old elements that remain, the other elements of the
/// patch, and whether they replace the list.
fn apply_element_directives(
    mut old: Vec<Value>,
    new: Vec<Value>,
    name: &str,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>, bool), ContentError> {
    let (mut patches, mut replaced) = (Vec::new(), false);
    for element in new {
        match element.get(DIRECTIVE) {
            None => patches.push(element),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let deleted = element.get(key).ok_or_else(|| ContentError::no_merge_key(name, key))?;
                    old.retain(|element| element.get(key) != Some(deleted));
                }
                Some("replace") => replaced = true,
                Some("merge") => return Err(ContentError::DefaultDirective(name.to_owned())),
                _ => return Err(ContentError::UnknownDirective(directive.clone())),
            },
        }
    }
    Ok((old, patches, replaced))
}

/// The value by which an element of a list is identified: its merge key, or the element itself.
fn key_of<'v>(element: &'v Value, list: &str, merge_key: Option<&str>) -> Result<&'v Value, ContentError> {
    match merge_key {
        None => Ok(element),
        Some(key) => element.get(key).ok_or_else(|| ContentError::no_merge_key(list, key)),
    }
}

/// Checks the number of elements of the list `name`.
fn check_length(elements: usize, name: &str) -> Result<(), ContentError> {
    if elements > MAX_ELEMENTS {
        return Err(ContentError::TooManyElements(name.to_owned(), MAX_ELEMENTS));
    }
    Ok(())
}

/// Sorts a merged list: the elements that `order` has in that order, the others as they were
/// `before`, and an other element in front of one that it was in front of before.
fn sort(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    name: &str,
    key: Option<&str>,
) -> Result<Vec<Value>, ContentError> {
    check_length(merged.len(), name)?;
    let position = |list: &[Value], element: &Value| -> Result<Option<usize>, ContentError> {
        let wanted = key_of(element, name, key)?;
        for (index, other) in list.iter().enumerate() {
            if key_of(other, name, key)? == wanted {
                return Ok(Some(index));
            }
        }
        Ok(None)
    };
    let (mut patched, mut others) = (Vec::new(), Vec::new());
    for element in merged {
        let old = position(before, &element)?;
        match position(order, &element)? {
            Some(index) => patched.push((index, old, element)),
            None => others.push((old, element)),
        }
    }
    patched.sort_by_key(|(index, ..)| *index);
    others.sort_by(|(a, _), (b, _)| a.zip(*b).map_or(Ordering::Equal, |(a, b)| a.cmp(&b)));
    let (mut sorted, mut others) = (Vec::new(), others.into_iter().peekable());
    for (_, old, element) in patched {
        while let Some((_, other)) = others.next_if(|(other, _)| other.zip(old).is_some_and(|(other, old)| other < old))
        {
            sorted.push(other);
        }
        sorted.push(element);
    }
    sorted.extend(others.map(|(_, element)| element));
    Ok(sorted)
}

/// `value` without maps that have a directive; `None` if it is such a map.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(object) if object.contains_key(DIRECTIVE) => None,
        Value::Object(object) => {
            Some(Value::Object(object.into_iter().filter_map(|(k, v)| Some((k, without_directives(v)?))).collect()))
        }
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

/// Removes the directives that a patch left in `value`.
pub fn remove_directives(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let is_directive = |key: &str| {
                [DIRECTIVE, RETAIN_KEYS].contains(&key)
                    || [DELETE_FROM_LIST, ELEMENT_ORDER].iter().any(|d| key.starts_with(d))
            };
            object.retain(|key, _| !is_directive(key));
            object.values_mut().for_each(remove_directives);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_directives),
        _ => {}
    }
}

/// `value` without nulls in the maps of its lists, where they remove nothing. The Go operator drops
/// them, too.
pub fn without_nulls_in_lists(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            Value::Object(object.into_iter().map(|(key, value)| (key, without_nulls_in_lists(value))).collect())
        }
        list @ Value::Array(_) => without_nulls(list),
        scalar => scalar,
    }
}

/// `value` without nulls in its maps.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}
