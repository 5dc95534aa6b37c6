//! What to do about a condition of a fleet.

use super::remedy_row::{Remedy, permanent};

/// Remedies of fleets. The first that fits counts.
pub const FLEET_REMEDIES: &[Remedy] = &[
    permanent("Ready", "InvalidSpec", &[], "Correct the field that the message names."),
    permanent("Ready", "NoClusters", &[], "Correct `spec.placement`, or label the ClusterProfiles."),
    permanent(
        "Paused",
        "TooManyFailures",
        &[],
        "Correct the spec, or return to the last revision: `knative-operator fleet rollback`. If the clusters are fixed, `fleet pause` and \
         `fleet resume` observe them again.",
    ),
    permanent("Paused", "Paused", &[], "`knative-operator fleet resume` continues the rollout."),
    permanent(
        "Progressing",
        "RolledBack",
        &[],
        "Correct the spec. The same revision is not tried again until templates, overrides, placement or stages change.",
    ),
    permanent("Progressing", "AwaitingApproval", &[], "`knative-operator fleet approve` approves the stage."),
    permanent(
        "Progressing",
        "RevisionNotStored",
        &[],
        "Delete the ControllerRevision that the message names, if it is not of the fleet. If the API server refuses all, the message says why.",
    ),
    permanent(
        "Progressing",
        "WaitingForClusters",
        &[],
        "Clusters of the stage are deferred, failed within `maxFailures`, or left during the rollout: make one available, select them again, or \
         change the stages.",
    ),
    permanent(
        "RemovalPending",
        "GracePeriod",
        &[],
        "Select the clusters again before the time in the message, if they must stay.",
    ),
    permanent(
        "RemovalPending",
        "Protected",
        &[],
        "Remove the annotation `operator.knative.dev/protected` from the resources of the clusters, or select the clusters again.",
    ),
    permanent(
        "RemovalBlocked",
        "TooManyClusters",
        &[],
        "Correct `spec.placement`, or approve the removal: `knative-operator fleet approve NAME --removal`.",
    ),
    permanent(
        "RemovalBlocked",
        "DeletionNotConfirmed",
        &[],
        "The fleet is being deleted, and nothing is uninstalled. `knative-operator fleet delete` confirms that; `spec.removal.policy: Orphan` keeps the installations.",
    ),
];
