//! Responses in JSON. The type of axum would switch on a feature of `serde_json` with which a key
//! that users can write is special.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A response with `code` and `content`.
pub fn json_response(code: StatusCode, content: &impl Serialize) -> Response {
    match serde_json::to_vec(content) {
        Ok(bytes) => {
            (code, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
