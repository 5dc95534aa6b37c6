//! Requests in admission reviews (`admission.k8s.io/v1`). A review is read whole, or refused: a
//! part that can't be read is not taken as an empty one, which would be admitted. Pure.

use std::fmt;
use std::marker::PhantomData;

use knative_operator_rules::authorization::author::{User, null_as_default};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Kind of reviews.
pub const KIND: &str = "AdmissionReview";
/// Version of reviews.
pub const API: &str = "admission.k8s.io/v1";

/// A parsed request. Fields that the API server leaves out if they are empty may be missing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Identifier, repeated in the response.
    pub uid: String,
    /// Kind of the object.
    #[serde(deserialize_with = "object")]
    pub kind: Kind,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Name of the subresource, if any.
    #[serde(default)]
    pub sub_resource: String,
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: String,
    /// Name of the object.
    #[serde(default)]
    pub name: String,
    /// The user.
    #[serde(deserialize_with = "object")]
    pub user_info: User,
    /// Options of the request.
    #[serde(default, deserialize_with = "object_or_null")]
    pub options: Options,
    /// The object to be stored, without managed fields.
    #[serde(default, deserialize_with = "without_managed_fields")]
    pub object: Value,
    /// The stored object, without managed fields.
    #[serde(default, deserialize_with = "without_managed_fields")]
    pub old_object: Value,
}

/// Options of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// Field manager.
    pub field_manager: String,
    /// What becomes of the dependents of a deleted object, if the client says so.
    #[serde(deserialize_with = "null_as_default")]
    pub propagation_policy: String,
}

/// A group, version and kind.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Kind {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Why a request is not answered by the rules.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON.
    #[error("the body is not JSON: {0}")]
    Json(serde_json::Error),
    /// JSON with another structure.
    #[error("the body is not an AdmissionReview of admission.k8s.io/v1 with a request.uid")]
    Shape,
    /// A part is missing, or has another type.
    #[error("the request can't be read: {why}")]
    Part {
        /// The uid of the request.
        uid: String,
        /// What is wrong.
        why: String,
    },
    /// The rules of a fleet ended without a result.
    #[error("the review was interrupted")]
    Interrupted {
        /// The uid of the request.
        uid: String,
    },
}

impl ReviewError {
    /// The uid of the request, if it can be read. Without it, there is no review to answer.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Json(_) | Self::Shape => None,
            Self::Part { uid, .. } | Self::Interrupted { uid } => Some(uid),
        }
    }
}

/// A review as sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming {
    api_version: String,
    kind: String,
    #[serde(deserialize_with = "object")]
    request: Request,
}

/// Parses a review.
///
/// # Errors
///
/// If a part is missing or has another type.
pub fn parse(body: &[u8]) -> Result<Request, ReviewError> {
    let Fields(Incoming { api_version, kind, request }) =
        serde_json::from_slice(body).map_err(|error| unreadable(body, &error))?;
    if kind != KIND || api_version != API || request.uid.is_empty() {
        return Err(ReviewError::Shape);
    }
    if let Some(part) = missing_part(&request) {
        return Err(ReviewError::Part { uid: request.uid, why: format!("{part} is missing or has another type") });
    }
    Ok(request)
}

/// Why `body` can't be read, with the uid of its request if there is one.
fn unreadable(body: &[u8], error: &serde_json::Error) -> ReviewError {
    let review: Value = match serde_json::from_slice(body) {
        Ok(review) => review,
        Err(error) => return ReviewError::Json(error),
    };
    let uid = review["request"]["uid"].as_str().filter(|uid| !uid.is_empty());
    match uid {
        Some(uid) if review["kind"] == KIND && review["apiVersion"] == API => {
            ReviewError::Part { uid: uid.to_owned(), why: error.to_string() }
        }
        _ => ReviewError::Shape,
    }
}

/// The part that `request` must have because of its operation, and lacks.
fn missing_part(request: &Request) -> Option<&'static str> {
    match request.operation.as_str() {
        "CREATE" | "UPDATE" if !request.object.is_object() => Some("object"),
        "UPDATE" | "DELETE" if !request.old_object.is_object() => Some("oldObject"),
        "CREATE" | "UPDATE" | "DELETE" | "CONNECT" => None,
        _ => Some("operation"),
    }
}

/// A JSON object. Derived code takes a list, too, as the fields in their order.
struct Fields<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Fields<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Object(PhantomData)).map(Self)
    }
}

/// An object, or null. The managed fields are half of an object, and no rule needs them.
fn without_managed_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Stored { is_metadata: false }.deserialize(deserializer)
}

/// Reads an object, or its metadata.
struct Stored {
    is_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Stored {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Stored {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = serde_json::Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match name.as_str() {
                "managedFields" if self.is_metadata => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                "metadata" if !self.is_metadata => map.next_value_seed(Self { is_metadata: true })?,
                _ => map.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Fields::deserialize(deserializer).map(|Fields(value)| value)
}

fn object_or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<Fields<T>>::deserialize(deserializer)?.map(|Fields(value)| value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_request(request: &Value) -> Result<Request, ReviewError> {
        parse(json!({"apiVersion": API, "kind": KIND, "request": request}).to_string().as_bytes())
    }

    /// A request as the API server sends it.
    fn whole(operation: &str) -> Value {
        json!({"uid": "42", "operation": operation, "kind": {"group": "g", "version": "v1", "kind": "K"},
            "resource": {"group": "g", "version": "v1", "resource": "ks"}, "userInfo": {"username": "jane", "groups": ["a"]},
            "options": {"fieldManager": "m"}, "object": {"metadata": {"managedFields": [{}], "name": "x"}}, "oldObject": {"spec": {}}})
    }

    #[test]
    fn invalid_review_is_reported() {
        for (body, expected) in [
            ("", "the body is not JSON"),
            ("{", "the body is not JSON"),
            ("[]", "not an AdmissionReview"),
            ("{}", "not an AdmissionReview"),
            (
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}"#,
                "not an AdmissionReview",
            ),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#, "not an AdmissionReview"),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "not an AdmissionReview"),
            (r#"["admission.k8s.io/v1","AdmissionReview",{"uid":"1"}]"#, "not an AdmissionReview"),
        ] {
            let error = parse(body.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(expected) && error.uid().is_none(), "{body}: {error}");
        }
    }

    #[test]
    fn no_key_is_special() {
        // With its feature `raw_value`, serde_json parses the text of this key, without limits.
        for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
            let mut request = whole("UPDATE");
            request["object"] = json!({"metadata": {"name": "x"}, "spec": {"config": {"network": {key: "7"}}}});
            assert_eq!(parse_request(&request).unwrap().object, request["object"]);
        }
    }

    #[test]
    fn whole_request_is_read() {
        let request = parse_request(&whole("UPDATE")).unwrap();
        assert_eq!((request.kind.kind.as_str(), request.user_info.username.as_str()), ("K", "jane"));
        assert_eq!(request.options.field_manager, "m");
        assert_eq!((request.object, request.old_object), (json!({"metadata": {"name": "x"}}), json!({"spec": {}})));
        for (part, value) in [
            ("options", Value::Null),
            ("userInfo", json!({})),
            ("userInfo", json!({"username": "a", "groups": null, "extra": null})),
            ("new", json!([7])),
        ] {
            let mut request = whole("UPDATE");
            request[part] = value;
            assert!(parse_request(&request).is_ok(), "{request}");
        }
        let mut creation = whole("CREATE");
        creation["oldObject"] = Value::Null;
        assert!(parse_request(&creation).is_ok());
        let mut deletion = whole("DELETE");
        deletion["object"] = Value::Null;
        assert!(parse_request(&deletion).is_ok());
    }

    #[test]
    fn request_with_an_unreadable_part_is_not_taken_as_an_empty_one() {
        let refused = |request: &Value| match parse_request(request) {
            Err(ReviewError::Part { uid, .. }) => uid == "42",
            _ => false,
        };
        assert!(refused(&json!({"uid": "42"})));
        for part in ["kind", "operation", "userInfo", "object", "oldObject"] {
            let mut missing = whole("UPDATE");
            missing.as_object_mut().unwrap().remove(part);
            assert!(refused(&missing), "{missing}");
            for value in [Value::Null, json!(7), json!([]), json!(["", "", ""])] {
                let mut other = whole("UPDATE");
                other[part] = value;
                assert!(refused(&other), "{other}");
            }
        }
        for (part, value) in [
            ("operation", json!("")),
            ("operation", json!("update")),
            ("kind", json!({})),
            ("kind", json!({"group": "g", "version": "v1"})),
            ("options", json!([])),
            ("name", Value::Null),
            ("userInfo", json!({"username": "a", "extra": {"k": null}})),
        ] {
            let mut other = whole("UPDATE");
            other[part] = value;
            assert!(refused(&other), "{other}");
        }
        // The second of two fields is not read instead of the first.
        let twice = whole("UPDATE").to_string().replacen('{', r#"{"kind":{"group":"","version":"","kind":""},"#, 1);
        let review = format!(r#"{{"apiVersion":"{API}","kind":"{KIND}","request":{twice}}}"#);
        assert!(matches!(parse(review.as_bytes()), Err(ReviewError::Part { .. })), "{review}");
    }
}
