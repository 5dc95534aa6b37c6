//! Why the target cluster is not resolved: the words that users' scripts rely on.

/// A reason on `TargetClusterResolved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The operator runs without a provider file.
    MulticlusterDisabled,
    /// The provider file names no provider at all.
    AccessProviderNotConfigured,
    /// The ClusterProfile isn't there.
    ClusterProfileNotFound,
    /// The ClusterProfile has no `ControlPlaneHealthy=True`.
    ClusterProfileNotReady,
    /// The ClusterProfile has no provider that the file knows, or could not be read.
    ClusterProfileUnavailable,
    /// The credential plugin failed.
    AccessProviderFailed,
    /// No client can be built from what the profile and the plugin gave.
    RemoteClientCreationFailed,
    /// The spoke's API server does not answer.
    RemoteClusterUnreachable,
    /// The spoke's API server refuses the credential.
    RemoteClusterUnauthorized,
    /// The connection is being rebuilt.
    RemoteClusterStale,
    /// The operator is shutting down.
    ClusterProviderClosed,
}

impl Reason {
    /// The word in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MulticlusterDisabled => "MulticlusterDisabled",
            Self::AccessProviderNotConfigured => "AccessProviderNotConfigured",
            Self::ClusterProfileNotFound => "ClusterProfileNotFound",
            Self::ClusterProfileNotReady => "ClusterProfileNotReady",
            Self::ClusterProfileUnavailable => "ClusterProfileUnavailable",
            Self::AccessProviderFailed => "AccessProviderFailed",
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
