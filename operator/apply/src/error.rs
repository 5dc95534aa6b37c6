//! Why a cluster is not equal to a plan. The variants are what callers decide by.

use knative_operator_runtime::error_text;
use knative_operator_shared::syntax;
use kube::core::GroupVersionKind;

/// Why an object can't be written, deleted or looked at. The text is complete, and has no
/// credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The cluster lacks a kind.
    #[error("no matches for kind \"{kind}\" in version \"{version}\"")]
    NoKind {
        /// The kind.
        kind: String,
        /// API group and version.
        version: String,
    },
    /// The namespace of the object does not exist.
    #[error("namespaces \"{0}\" not found")]
    NoNamespace(String),
    /// The namespace of the object is being deleted, as the API server says.
    #[error("{0}")]
    NamespaceTerminating(String),
    /// An earlier write did not reach the cluster, so this one was not tried.
    #[error("the cluster became unreachable")]
    Unreachable,
    /// A step failed.
    #[error("cannot {what}: {why}")]
    Failed {
        /// The step.
        what: String,
        /// The error.
        why: String,
    },
    /// What people have to read.
    #[error("{0}")]
    Other(String),
}

impl ApplyError {
    /// The cluster lacks the kind of `gvk`.
    pub fn no_kind(gvk: &GroupVersionKind) -> Self {
        Self::NoKind { kind: gvk.kind.clone(), version: gvk.api_version() }
    }

    /// The step `what` failed.
    pub fn failed(what: impl Into<String>, error: &kube::Error) -> Self {
        Self::Failed { what: what.into(), why: error_text(error) }
    }
}

impl From<kube::Error> for ApplyError {
    fn from(error: kube::Error) -> Self {
        if let Some(namespace) = missing_namespace(&error) {
            Self::NoNamespace(namespace)
        } else if is_namespace_terminating(&error) {
            Self::NamespaceTerminating(error_text(&error))
        } else {
            Self::Other(error_text(&error))
        }
    }
}

/// The namespace that is missing, as the API server says, if that can be the name of one.
fn missing_namespace(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    let details = status.details.as_ref().filter(|details| status.code == 404 && details.kind == "namespaces")?;
    syntax::label(&details.name).is_none().then(|| details.name.clone())
}

/// Whether `error` refuses an object, because its namespace is being deleted.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(code: u16, message: &str, details: &Value) -> ApplyError {
        let status = json!({"status": "Failure", "message": message, "reason": "r", "code": code, "details": details});
        kube::Error::Api(serde_json::from_value(status).unwrap()).into()
    }

    #[test]
    fn namespaces_are_told_by_the_details_of_the_answer() {
        let missing = answer(404, "namespaces \"n\" not found", &json!({"name": "n", "kind": "namespaces"}));
        assert_eq!(missing, ApplyError::NoNamespace("n".to_owned()));
        assert_eq!(missing.to_string(), "namespaces \"n\" not found");
        let message =
            "configmaps \"a\" is forbidden: unable to create new content in namespace n because it is being terminated";
        let cause = json!({"reason": "NamespaceTerminating", "message": "namespace n is being terminated", "field": "metadata.namespace"});
        let terminating = answer(403, message, &json!({"name": "a", "kind": "configmaps", "causes": [cause]}));
        let text = format!("{message}; metadata.namespace: namespace n is being terminated");
        assert_eq!(terminating, ApplyError::NamespaceTerminating(text));
        for (code, kind, name) in [(404, "clusterroles", "n"), (403, "namespaces", "n"), (404, "namespaces", "x$(id)")]
        {
            let other = answer(code, "no", &json!({"name": name, "kind": kind}));
            assert_eq!(other, ApplyError::Other("no".to_owned()), "{code} {kind} {name}");
        }
    }
}
