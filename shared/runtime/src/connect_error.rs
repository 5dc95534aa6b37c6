//! Errors of connections to API servers, without credentials. Those of libraries show the lines of
//! a kubeconfig around a mistake, and all that a credential plugin printed.

use std::error::Error;
use std::iter::successors;

use http::Uri;
use http::uri::Authority;
use hyper_util::client::legacy;
use knative_operator_shared::redact::redact;
use kube::client::AuthError;
use kube::config::KubeconfigError;
use tower::BoxError;
use tower::timeout::error::Elapsed;

use crate::error_text::{Unreachable, error_text};
use crate::gate::Closed;

/// Where the settings of a connection are from without a kubeconfig, and what to check.
pub const OF_POD: (&str, &str) = ("the cluster of this Pod", "check the network of the Pod");

/// What is reported if `what`, which has the settings of a connection, can't be used.
pub fn unusable(what: &str, error: &(dyn Error + 'static)) -> String {
    let why = match error.downcast_ref::<KubeconfigError>() {
        Some(KubeconfigError::ReadConfig(error, path)) => {
            let why = error_text(error);
            return format!("cannot use the kubeconfig {}: {why}; name another one with --kubeconfig", path.display());
        }
        Some(KubeconfigError::Parse(error)) => format!("it can't be parsed{}", place(error)),
        _ => of_plugin(error).unwrap_or_else(|| redact(&error_text(error))),
    };
    format!("cannot use {what}: {why}")
}

/// URL of the API server at `url` and the `origin` of its settings, without user, password and
/// query.
pub fn server(url: &Uri, origin: &str) -> String {
    let authority = url.authority().map_or("", Authority::as_str);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let scheme = url.scheme_str().unwrap_or("https");
    format!("{scheme}://{host}{} ({origin})", url.path().trim_end_matches('/'))
}

/// Explains the errors of a client: if its `server` can't be reached, they name it, and what to
/// `check`.
pub fn explained(server: String, check: &'static str) -> impl Fn(BoxError) -> BoxError + Clone + Send + 'static {
    move |error: BoxError| -> BoxError {
        if let Some(text) = of_plugin(&*error) {
            return text.into();
        }
        let is_lost = error.is::<legacy::Error>() || error.is::<Elapsed>();
        // What this process did not send is no fault of the server.
        if !is_lost || causes(&*error).any(<dyn Error>::is::<Closed>) {
            return error;
        }
        let cause = redact(&error_text(&*error)).replace("deadline has elapsed", "timed out");
        Box::new(Unreachable { server: server.clone(), cause, check })
    }
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// What is reported about a credential plugin that failed: the error shows its environment and all
/// that it printed.
fn of_plugin(error: &(dyn Error + 'static)) -> Option<String> {
    causes(error).filter_map(|error| error.downcast_ref::<AuthError>()).find_map(|error| match error {
        AuthError::AuthExecRun { out, .. } => {
            Some(format!("the credential plugin of the kubeconfig failed with {}; run it to see why", out.status))
        }
        AuthError::AuthExecParse(error) => Some(format!(
            "the credential plugin of the kubeconfig printed no ExecCredential{}; run it to see why",
            place(error)
        )),
        _ => None,
    })
}

/// Where `error` is.
fn place(error: &serde_saphyr::Error) -> String {
    let place = error.location().map(|place| format!(", line {} column {}", place.line(), place.column()));
    place.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn lines_of_a_kubeconfig_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let report = || {
            let error = Kubeconfig::read_from(&path).map(drop).unwrap_err();
            unusable("the kubeconfig a", &error)
        };
        let expected = format!("cannot use the kubeconfig {}: No such file or directory; ", path.display());
        assert!(report().starts_with(&expected), "{}", report());
        for (text, place) in [
            ("users:\n- name: a\n  user: {token: hunter2\n", ""),
            ("users:\n- name: a\n  user: {token: hunter2, exec: 1}\n", ", line 3 column "),
        ] {
            std::fs::write(&path, text).unwrap();
            let (report, expected) = (report(), format!("cannot use the kubeconfig a: it can't be parsed{place}"));
            assert!(report.starts_with(&expected) && !report.contains("hunter2"), "{report}");
        }
    }

    #[test]
    fn server_has_no_credentials() {
        let url = "https://user:hunter2@127.0.0.1:1/prefix/?token=hunter3".parse().unwrap();
        assert_eq!(server(&url, "context prod, a.yaml"), "https://127.0.0.1:1/prefix (context prod, a.yaml)");
    }
}
