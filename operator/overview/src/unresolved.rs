//! Why a spoke can't be used, as conditions and commands report it: what [`AccessError`] says, with
//! what to do about it in this operator.

use knative_operator_cluster_access::{AccessError, Annotations, Reason as Cause};
use knative_operator_shared::label::{CLUSTER_PROFILE, SENT_TO, SERVER};
use knative_operator_shared::reason::Reason;

/// Annotations of Secrets with credentials.
pub const ANNOTATIONS: Annotations = Annotations { profiles: CLUSTER_PROFILE, servers: SERVER, sent_to: SENT_TO };

/// Why a spoke can't be used: reason and message of the condition `TargetClusterResolved`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unresolved {
    /// Reason, for programs.
    pub reason: Reason,
    /// Message, for people, with a remedy.
    pub message: String,
}

impl Unresolved {
    /// A failure with this reason and message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl From<AccessError> for Unresolved {
    fn from(AccessError { reason, message }: AccessError) -> Self {
        let (reason, remedy) = match reason {
            Cause::AccessProviderNotConfigured => {
                (Reason::AccessProviderNotConfigured, "; add one to accessProvidersConfig.providers")
            }
            Cause::ClusterProfileNotPermitted => (
                Reason::ClusterProfileNotPermitted,
                "; add it to knative_operator.multicluster.profileNamespaces in the Helm values of the operator, or to --profile-namespaces",
            ),
            Cause::ClusterProfileNotFound => {
                (Reason::ClusterProfileNotFound, "; create it, or correct spec.clusterProfileRef")
            }
            Cause::ServerWithoutTls => (
                Reason::RemoteClientCreationFailed,
                " (or, in a network that nobody else reads, knative_operator.multicluster.allowHttpServers in the Helm values of the \
                 operator, or --allow-http-servers)",
            ),
            Cause::ClusterProfileNotServed => (Reason::ClusterProfileNotFound, ""),
            Cause::ClusterProfileNotReady => (Reason::ClusterProfileNotReady, ""),
            Cause::ClusterProfileUnavailable => (Reason::ClusterProfileUnavailable, ""),
            Cause::AccessProviderFailed => (Reason::AccessProviderFailed, ""),
            Cause::CredentialNotBound => (Reason::CredentialNotBound, ""),
            Cause::RemoteClientCreationFailed => (Reason::RemoteClientCreationFailed, ""),
            Cause::RemoteClusterUnreachable => (Reason::RemoteClusterUnreachable, ""),
            Cause::RemoteClusterUnauthorized => (Reason::RemoteClusterUnauthorized, ""),
        };
        Self { reason, message: message + remedy }
    }
}

/// The warning about a Secret that names no ClusterProfile, which has `remedy`.
pub fn unbound(remedy: &str) -> String {
    format!("version 0.4.0 will refuse a Secret that is used now: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_the_remedy_of_the_operator() {
        for (cause, reason, end) in [
            (Cause::ServerWithoutTls, Reason::RemoteClientCreationFailed, "or --allow-http-servers)"),
            (Cause::ClusterProfileNotPermitted, Reason::ClusterProfileNotPermitted, "or to --profile-namespaces"),
            (Cause::ClusterProfileNotFound, Reason::ClusterProfileNotFound, "or correct spec.clusterProfileRef"),
            (Cause::ClusterProfileNotServed, Reason::ClusterProfileNotFound, "why"),
        ] {
            let unresolved = Unresolved::from(AccessError::new(cause, "why"));
            assert_eq!(unresolved.reason, reason);
            let message = &unresolved.message;
            assert!(message.starts_with("why") && message.ends_with(end), "{message}");
        }
    }
}
