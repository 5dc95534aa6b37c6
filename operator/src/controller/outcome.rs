//! The outcome of a reconcile: what it found, and when the next one is due.

use std::time::Duration;

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use super::conditions::{InstallationReport, ReconcileResult};

/// When to reconcile again if nothing changes before (kube's `Action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Only after a change.
    AwaitChange,
    /// After this time.
    After(Duration),
    /// With back-off: the reconcile failed.
    Retry,
    /// Never: the resource is gone.
    Done,
}

/// Outcome of a reconcile.
pub struct Outcome {
    /// What the reconcile found.
    pub result: ReconcileResult,
    /// The installed release, if the installation was examined.
    pub release: Option<InstalledRelease>,
    /// When to reconcile again.
    pub requeue: Requeue,
}

impl Outcome {
    /// An outcome without a release.
    pub fn new(result: ReconcileResult, requeue: Requeue) -> Self {
        Self { result, release: None, requeue }
    }

    /// The installation failed as a whole, with this reason.
    pub fn failed(resource: &Knative, why: impl Into<String>, requeue: Requeue) -> Self {
        let component = resource.component();
        Self::new(
            ReconcileResult::Installation(InstallationReport {
                failed: Some(why.into()),
                ..InstallationReport::of(component)
            }),
            requeue,
        )
    }
}

/// The installed release.
pub struct InstalledRelease {
    /// Its version.
    pub version: Version,
    /// Sources of its manifests.
    pub manifests: Vec<String>,
}

/// Why a step ended the installation early.
pub type Stopped = Box<Outcome>;

/// Why the inventory is not stored.
pub enum NotStored {
    /// The installation ends here.
    Stopped(Stopped),
    /// The cluster has this version, which the wanted one may not follow, for this reason.
    Ineligible(Version, String),
}

impl From<Stopped> for NotStored {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}
