//! Errors as text for conditions, events, logs and terminals.

use std::error::Error;

use knative_operator_base::text::{MAX_MESSAGE, clip};
use kube::core::Status;

/// Names that libraries give their errors, which add nothing to the cause.
const LIBRARY_NAMES: [&str; 7] = [
    "ServiceError",
    "HyperError",
    "HttpError",
    "client error (Connect)",
    "client error (SendRequest)",
    "tcp connect error",
    "Error reading events stream",
];

/// An API server can't be reached. The text is complete, and has no credentials.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach the API server {server}: {cause}; {check}")]
pub struct Unreachable {
    /// Its URL, and where that is from.
    pub server: String,
    /// Why.
    pub cause: String,
    /// What to check.
    pub check: &'static str,
}

/// `error` and its causes as one sentence of at most 1,023 bytes, without repetitions. For a
/// response of an API server, its message and its causes. For an API server that can't be reached,
/// only [`Unreachable`].
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<Unreachable>() {
            return clip(&error.to_string(), MAX_MESSAGE);
        }
        let status = status_of(error);
        next = error.source().filter(|_| status.is_none());
        let part = status.map_or_else(|| own_text(error), describe);
        let says_nothing = part.is_empty() || next.is_some() && LIBRARY_NAMES.contains(&part.as_str());
        if !says_nothing && !parts.iter().any(|known| known.contains(&part)) {
            parts.push(part);
        }
    }
    clip(&parts.join(": "), MAX_MESSAGE)
}

/// The Status in `error`, if it is a response of an API server.
fn status_of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Status> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status),
        _ => error.downcast_ref::<Status>().or_else(|| error.downcast_ref::<Box<Status>>().map(Box::as_ref)),
    }
}

/// The message of `status`, with causes that it lacks: the first ones, as far as people are shown
/// them. A server may send thousands, each of which is searched for in the text so far.
pub fn describe(status: &Status) -> String {
    let mut text =
        if status.message.is_empty() { format!("{} ({})", status.reason, status.code) } else { status.message.clone() };
    for cause in status.details.iter().flat_map(|details| &details.causes) {
        if text.len() > MAX_MESSAGE {
            break;
        }
        if !cause.message.is_empty() && !text.contains(&cause.message) {
            let field = if cause.field.is_empty() { String::new() } else { format!("{}: ", cause.field) };
            text = format!("{text}; {field}{}", cause.message);
        }
    }
    text
}

/// The text of `error` without that of its source, which many errors repeat.
fn own_text(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    let source = error.source().map(ToString::to_string).filter(|source| !source.is_empty());
    let text = match source.and_then(|source| text.find(&source)) {
        Some(at) => text[..at].trim_end_matches([':', ' ', '(']).to_owned(),
        None => text,
    };
    // Remove the number of the operating system's error.
    match text.find(" (os error ") {
        Some(at) if text.ends_with(')') => text[..at].to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn status(message: &str) -> Box<Status> {
        Box::new(Status { message: message.to_owned(), code: 403, reason: "Forbidden".to_owned(), ..Status::default() })
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{what}")]
    struct Outer {
        what: &'static str,
        source: kube::Error,
    }

    fn details(causes: impl IntoIterator<Item = (String, String)>) -> StatusDetails {
        let reason = || "FieldValueInvalid".to_owned();
        let cause = |(field, message)| StatusCause { reason: reason(), message, field };
        StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.into_iter().map(cause).collect(),
            retry_after_seconds: 0,
        }
    }

    #[test]
    fn thousands_of_causes_are_not_read() {
        let mut status = status("it is invalid");
        status.details = Some(details((0..100_000).map(|number| (String::new(), format!("cause {number}")))));
        assert!(describe(&status).len() < MAX_MESSAGE + 20);
        assert!(error_text(&kube::Error::Api(status)).starts_with("it is invalid; cause 0; cause 1; "));
    }

    #[test]
    fn api_server_messages_are_kept() {
        let refused = || kube::Error::Api(status("namespaces \"x\" not found"));
        assert_eq!(error_text(&refused()), "namespaces \"x\" not found");
        assert_eq!(
            error_text(&Outer { what: "failed to create ConfigMap a/b", source: refused() }),
            "failed to create ConfigMap a/b: namespaces \"x\" not found"
        );
        let mut with_causes = status("it is invalid");
        with_causes.details = Some(details([("spec.a".to_owned(), "too long".to_owned())]));
        assert_eq!(error_text(&kube::Error::Api(with_causes)), "it is invalid; spec.a: too long");
        assert_eq!(error_text(&kube::Error::Api(status(""))), "Forbidden (403)");
    }

    #[test]
    fn repetitions_and_debug_forms_are_removed() {
        let reset = std::io::Error::from_raw_os_error(104);
        let lost = kube::Error::Service(Box::new(reset));
        assert_eq!(error_text(&lost), "Connection reset by peer");
        let twice = Outer { what: "Connection reset by peer", source: lost };
        assert_eq!(error_text(&twice), "Connection reset by peer");
    }
}
