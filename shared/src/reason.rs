//! Reasons of `TargetClusterResolved`, which users' scripts rely on.

/// A reason on `TargetClusterResolved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The operator runs without a provider file.
    MulticlusterDisabled,
    /// The provider file has no providers.
    AccessProviderNotConfigured,
    /// The namespace of the ClusterProfile is not in `--profile-namespaces`.
    ClusterProfileNotPermitted,
    /// The ClusterProfile does not exist.
    ClusterProfileNotFound,
    /// The ClusterProfile has `ControlPlaneHealthy` False or Unknown, or says nothing about the
    /// cluster.
    ClusterProfileNotReady,
    /// The ClusterProfile has no provider that the file lists, or can't be read.
    ClusterProfileUnavailable,
    /// The credential plugin failed.
    AccessProviderFailed,
    /// The Secret with the credential is not bound to the ClusterProfile and its server.
    CredentialNotBound,
    /// The data of the profile and the plugin are not valid for a client.
    RemoteClientCreationFailed,
    /// The API server of the spoke does not answer.
    RemoteClusterUnreachable,
    /// The API server of the spoke refuses the credential.
    RemoteClusterUnauthorized,
    /// The connection is being rebuilt.
    RemoteClusterStale,
    /// The operator is shutting down.
    ClusterProviderClosed,
}

impl Reason {
    /// The reason as it is in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MulticlusterDisabled => "MulticlusterDisabled",
            Self::AccessProviderNotConfigured => "AccessProviderNotConfigured",
            Self::ClusterProfileNotPermitted => "ClusterProfileNotPermitted",
            Self::ClusterProfileNotFound => "ClusterProfileNotFound",
            Self::ClusterProfileNotReady => "ClusterProfileNotReady",
            Self::ClusterProfileUnavailable => "ClusterProfileUnavailable",
            Self::AccessProviderFailed => "AccessProviderFailed",
            Self::CredentialNotBound => "CredentialNotBound",
            Self::RemoteClientCreationFailed => "RemoteClientCreationFailed",
            Self::RemoteClusterUnreachable => "RemoteClusterUnreachable",
            Self::RemoteClusterUnauthorized => "RemoteClusterUnauthorized",
            Self::RemoteClusterStale => "RemoteClusterStale",
            Self::ClusterProviderClosed => "ClusterProviderClosed",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
