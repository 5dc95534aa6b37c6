//! The files of the page, which are part of the binary.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, media type and contents.
const FILES: [(&str, &str, &str); 9] = [
    ("/", "text/html; charset=utf-8", include_str!("../../../../ui/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../../../../ui/style.css")),
    ("/icon.svg", "image/svg+xml", include_str!("../../../../ui/icon.svg")),
    ("/main.js", JAVASCRIPT, include_str!("../../../../ui/main.js")),
    ("/session.js", JAVASCRIPT, include_str!("../../../../ui/session.js")),
    ("/store.js", JAVASCRIPT, include_str!("../../../../ui/store.js")),
    ("/dom.js", JAVASCRIPT, include_str!("../../../../ui/dom.js")),
    ("/fleets.js", JAVASCRIPT, include_str!("../../../../ui/fleets.js")),
    ("/details.js", JAVASCRIPT, include_str!("../../../../ui/details.js")),
];

/// Whether there is a file called `path`.
pub fn exists(path: &str) -> bool {
    FILES.iter().any(|(name, ..)| *name == path)
}

/// The file called `path`.
pub fn file(path: &str) -> Response {
    match FILES.iter().find(|(name, ..)| *name == path) {
        Some((_, media_type, contents)) => ([(header::CONTENT_TYPE, *media_type)], *contents).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such page.\n").into_response(),
    }
}
