//! Why a cluster is not part of the fleet any more. Pure.

/// Why a cluster is not part of the fleet any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It is not selected.
    Left,
    /// Its ClusterProfile does not exist.
    Vanished,
}

impl Gone {
    /// The reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Left => "ClusterLeft",
            Self::Vanished => "ProfileMissing",
        }
    }

    /// What happened.
    pub fn message(self) -> &'static str {
        match self {
            Self::Left => "the cluster left the fleet during the rollout; its stage waits until it is selected again",
            Self::Vanished => "the ClusterProfile was deleted during the rollout; its stage waits until it is back",
        }
    }
}
