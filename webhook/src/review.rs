//! Responses to admission reviews (`admission.k8s.io/v1`). Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use knative_operator_rules::Violation;
use knative_operator_shared::text::and_more;
use serde::Serialize;

use crate::request::{API, KIND, Request, ReviewError};

/// Maximum number of violations in a response. A resource may have as many as values.
const MAX_REPORTED: usize = 100;

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

#[derive(Debug, Default, Serialize)]
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
        let warnings = violations.iter().filter(|p| !p.is_error()).take(MAX_REPORTED);
        self.response.warnings = warnings.map(ToString::to_string).collect();
        self
    }

    /// Refuses the request, with each violation and its field, as in built-in validation;
    /// [`MAX_REPORTED`] of them at most.
    pub fn refuse(request: Request, violations: &[Violation], refusal: Refusal) -> Self {
        let mut violations: Vec<&Violation> = violations.iter().filter(|p| p.is_error()).collect();
        let others = violations.len().saturating_sub(MAX_REPORTED);
        violations.truncate(MAX_REPORTED);
        let mut message = violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        if others > 0 {
            message = format!("{message};{}", and_more(others));
        }
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

    /// Refuses the request that the rules could not answer because of `error`; `None` if its uid is
    /// unknown. The API server reports the message of a review to the user. After an HTTP error, it
    /// reports only that the webhook failed, or admits the request if the policy says so.
    pub fn refuse_unanswered(error: &ReviewError) -> Option<Self> {
        let (code, reason) = match error {
            ReviewError::Interrupted { .. } => (500, "InternalError"),
            _ => (400, "BadRequest"),
        };
        let status =
            Status { status: "Failure", code, reason, message: error.to_string(), details: Details::default() };
        Some(Self::new(error.uid()?.to_owned(), Some(status)))
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
    use knative_operator_rules::Severity;
    use serde_json::json;

    use super::*;

    #[test]
    fn request_that_is_not_read_is_refused_with_its_uid() {
        let refuse =
            |error: &ReviewError| Review::refuse_unanswered(error).map(|review| json!(review)["response"].clone());
        let unreadable = ReviewError::Part { uid: "42".into(), why: "missing field `kind`".into() };
        let response = refuse(&unreadable).unwrap();
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("42"), &json!(false)));
        assert_eq!((&response["status"]["code"], &response["status"]["reason"]), (&json!(400), &json!("BadRequest")));
        assert_eq!(response["status"]["message"], "the request can't be read: missing field `kind`");
        let interrupted = refuse(&ReviewError::Interrupted { uid: "42".into() }).unwrap();
        assert_eq!((&interrupted["allowed"], &interrupted["status"]["code"]), (&json!(false), &json!(500)));
        assert!(refuse(&ReviewError::Shape).is_none());
    }

    #[test]
    fn response_is_bounded() {
        let mut violations = vec![knative_operator_rules::READABLE.at("spec.x", "is wrong", "make it right"); 5000];
        let refused = json!(Review::refuse(Request::default(), &violations, Refusal::Invalid));
        let status = &refused["response"]["status"];
        assert_eq!(status["details"]["causes"].as_array().unwrap().len(), MAX_REPORTED);
        assert!(status["message"].as_str().unwrap().ends_with("; make it right; and 4900 more"), "{status}");
        violations.iter_mut().for_each(|violation| violation.severity = Severity::Warning);
        let warned = json!(Review::allow(Request::default()).warn(&violations));
        assert_eq!(warned["response"]["warnings"].as_array().unwrap().len(), MAX_REPORTED);
    }

    #[test]
    fn refusal_lists_causes() {
        let violation = knative_operator_rules::READABLE.at("spec.x", "is wrong", "make it right");
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
