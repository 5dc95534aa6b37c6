//! Admission reviews (`admission.k8s.io/v1`): requests and responses. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use knative_operator_shared::rules::Violation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const KIND: &str = "AdmissionReview";
const API: &str = "admission.k8s.io/v1";

/// A parsed request. Missing fields are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Identifier, repeated in the response.
    pub uid: String,
    /// Kind of the object.
    pub kind: Kind,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Name of the subresource, if any.
    pub sub_resource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The user.
    pub user_info: UserInfo,
    /// Options of the request.
    pub options: Options,
    /// The object to be stored.
    pub object: Value,
    /// The stored object.
    pub old_object: Value,
}

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name.
    pub username: String,
    /// Identifier.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What the authenticator adds.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Approximate size in bytes.
    pub fn size(&self) -> usize {
        let extra = self.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
        [&self.username, &self.uid].into_iter().chain(&self.groups).chain(extra).map(|text| text.len() + 32).sum()
    }
}

/// Options of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// Field manager.
    pub field_manager: String,
}

/// A group, version and kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The object breaks a rule: 422, as in built-in validation.
    Invalid,
    /// The user has no permission: 403.
    Forbidden,
    /// It is not known whether the user has permission: 503.
    Unavailable,
}

/// Why a request is invalid. Without a uid there is no review to answer, so the response is HTTP
/// 400.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON.
    #[error("the body is not JSON: {0}")]
    Json(serde_json::Error),
    /// JSON with another structure.
    #[error("the body is not an AdmissionReview of admission.k8s.io/v1 with a request.uid")]
    Shape,
}

/// A review as sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming {
    api_version: String,
    kind: String,
    request: Request,
}

/// Parses a review.
pub fn parse(body: &[u8]) -> Result<Request, ReviewError> {
    if let Ok(Incoming { api_version, kind, mut request }) = serde_json::from_slice(body) {
        // The managed fields are half of an object, and no rule needs them.
        for object in [&mut request.object, &mut request.old_object] {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        let is_valid = kind == KIND && api_version == API && !request.uid.is_empty();
        return if is_valid { Ok(request) } else { Err(ReviewError::Shape) };
    }
    let mut review: Value = serde_json::from_slice(body).map_err(ReviewError::Json)?;
    if review["kind"] != KIND || review["apiVersion"] != API {
        return Err(ReviewError::Shape);
    }
    let request = review["request"].take();
    let uid = request["uid"].as_str().filter(|u| !u.is_empty()).ok_or(ReviewError::Shape)?.to_owned();
    // Parts of the wrong type become empty, so that the request gets a response with its uid.
    Ok(serde_json::from_value(request).unwrap_or(Request { uid, ..Request::default() }))
}

/// The response to a review.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    api_version: &'static str,
    kind: &'static str,
    /// The response itself.
    pub response: Response,
}

/// The response itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    uid: String,
    /// Whether the request is admitted.
    pub allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// `JSONPatch`, if there is a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// A JSON patch (RFC 6902), in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: Details,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    group: String,
    kind: String,
    name: String,
    causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    retry_after_seconds: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Debug, Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl Review {
    fn new(uid: String, status: Option<Status>) -> Self {
        let response =
            Response { uid, allowed: status.is_none(), status, warnings: Vec::new(), patch_type: None, patch: None };
        Self { api_version: API, kind: KIND, response }
    }

    /// Admits the request.
    pub fn allow(request: Request) -> Self {
        Self::new(request.uid, None)
    }

    /// Admits the request with the changes in `patch`.
    pub fn allow_with_patch(request: Request, patch: &json_patch::Patch) -> Self {
        let mut review = Self::allow(request);
        if !patch.is_empty() {
            // A patch has string keys only, so it always serializes.
            let text = serde_json::to_vec(patch).unwrap_or_default();
            (review.response.patch_type, review.response.patch) =
                (Some("JSONPatch"), Some(BASE64_STANDARD.encode(text)));
        }
        review
    }

    /// Adds the warnings among `violations`.
    #[must_use]
    pub fn warn(mut self, violations: &[Violation]) -> Self {
        self.response.warnings = violations.iter().filter(|p| !p.is_error()).map(ToString::to_string).collect();
        self
    }

    /// Refuses the request, with each violation and its field, as in built-in validation.
    pub fn refuse(request: Request, violations: &[Violation], refusal: Refusal) -> Self {
        let violations: Vec<&Violation> = violations.iter().filter(|p| p.is_error()).collect();
        let message = violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let cause = |p: &&Violation| Cause {
            reason: "FieldValueInvalid",
            message: format!("{}; {}", p.message, p.fix),
            field: p.field.clone(),
        };
        let causes = violations.iter().map(cause).collect();
        let details = Details {
            group: request.kind.group,
            kind: request.kind.kind,
            name: request.name,
            causes,
            retry_after_seconds: u32::from(refusal == Refusal::Unavailable),
        };
        let (code, reason) = match refusal {
            Refusal::Invalid => (422, "Invalid"),
            Refusal::Forbidden => (403, "Forbidden"),
            Refusal::Unavailable => (503, "ServiceUnavailable"),
        };
        Self::new(request.uid, Some(Status { status: "Failure", code, reason, message, details }))
    }

    /// Rejects the request because of overload.
    pub fn too_many_requests(request: Request) -> Self {
        let details = Details {
            group: request.kind.group,
            kind: request.kind.kind,
            name: request.name,
            causes: Vec::new(),
            retry_after_seconds: 1,
        };
        let message = "too many requests are under way; try again in a second".to_owned();
        Self::new(
            request.uid,
            Some(Status { status: "Failure", code: 429, reason: "TooManyRequests", message, details }),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        ] {
            let error = parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
        }
    }

    #[test]
    fn request_with_invalid_parts_keeps_uid() {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "42", "kind": 7, "object": []}});
        assert_eq!(parse(review.to_string().as_bytes()).unwrap().uid, "42");
    }

    #[test]
    fn refusal_lists_causes() {
        let violation = knative_operator_shared::rules::READABLE.at("spec.x", "is wrong", "make it right");
        let answer = serde_json::to_value(Review::refuse(
            Request { uid: "1".into(), ..Default::default() },
            &[violation],
            Refusal::Invalid,
        ))
        .unwrap();
        assert_eq!(answer["response"]["uid"], "1");
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["code"], 422);
        assert_eq!(answer["response"]["status"]["message"], "spec.x: is wrong; make it right");
        assert_eq!(answer["response"]["status"]["details"]["causes"][0]["field"], "spec.x");
    }
}
