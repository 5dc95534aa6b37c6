//! What to do about a condition of a fleet.

use super::remedy_row::{Remedy, permanent, temporary};

/// Remedies of fleets. The first that fits counts.
pub const FLEET_REMEDIES: &[Remedy] = &[
    permanent(
        "Ready",
        "InvalidSpec",
        &[],
        "Correct the field that the message names: `kubectl edit knativefleets {name} -n {namespace}`",
    ),
    temporary(
        "Ready",
        "ClustersUnknown",
        &[],
        "Correct what the message names, so that the operator can read ClusterProfiles, PlacementDecisions and the resources of the fleet: `kubectl describe knativefleets {name} -n {namespace}`",
    ),
    permanent(
        "Ready",
        "Protected",
        &[],
        "Decide whether the installations stay, then end the deletion of the fleet, as in [Uninstall, restore and move](../operate/lifecycle.md). To keep them, first: `kubectl patch knativefleets {name} -n {namespace} --type=merge -p '{\"spec\":{\"removal\":{\"policy\":\"Orphan\"}}}'`; then, in any case: `kubectl annotate knativefleets {name} -n {namespace} operator.knative.dev/protected-`",
    ),
    temporary(
        "Ready",
        "NoClusters",
        &[],
        "Compare `spec.placement` with the labels and `status.properties` of the ClusterProfiles: `kubectl get clusterprofiles -A -o yaml`; correct one of them: `kubectl edit knativefleets {name} -n {namespace}`",
    ),
    permanent(
        "Paused",
        "TooManyFailures",
        &[],
        "Find the clusters that failed: `knative-operator fleet status {name} -n {namespace}`; correct the spec: `kubectl edit knativefleets {name} -n {namespace}`; or return to the last revision: `knative-operator fleet rollback {name} -n {namespace}`; or, after you fixed the clusters, observe them again: `knative-operator fleet retry {name} -n {namespace}`",
    ),
    permanent(
        "Paused",
        "Paused",
        &[],
        "Read in the message who paused the fleet and why; if that does not hold any more, resume: `knative-operator fleet resume {name} -n {namespace}`",
    ),
    permanent(
        "Progressing",
        "RolledBack",
        &[],
        "Correct the templates, overrides, placement or stages, since the same revision is not tried again: `kubectl edit knativefleets {name} -n {namespace}`",
    ),
    permanent(
        "Progressing",
        "AwaitingApproval",
        &[],
        "Check the clusters that have the revision, and approve the stage: `knative-operator fleet approve {name} -n {namespace}`",
    ),
    permanent(
        "Progressing",
        "RevisionNotStored",
        &[],
        "Correct what the API server says in the message; if another object has the name of the revision, find its owner before you do what the message says: `kubectl get controllerrevisions -n {namespace}`",
    ),
    permanent(
        "Progressing",
        "FinalizerNotStored",
        &[],
        "Correct what the API server says in the message, such as a policy or a webhook that refuses the finalizer. The operator tries again every 30 s: if the API server has too much to do (429), wait.",
    ),
    temporary(
        "Progressing",
        "WaitingForClusters",
        &[],
        "Find the clusters that are deferred, that failed within `maxFailures`, or that left: `knative-operator fleet status {name} -n {namespace}`; make one available, select it again, or change the stages: `kubectl edit knativefleets {name} -n {namespace}`",
    ),
    temporary(
        "RemovalPending",
        "GracePeriod",
        &[],
        "Select the clusters again before the time in the message, if they must stay: `kubectl edit knativefleets {name} -n {namespace}`",
    ),
    temporary(
        "RemovalPending",
        "Protected",
        &[],
        "Select the clusters again, if they must stay: `kubectl edit knativefleets {name} -n {namespace}`; or, to uninstall from them, end the protection of each resource: `kubectl annotate KIND RESOURCE -n {namespace} operator.knative.dev/protected-`",
    ),
    temporary(
        "RemovalPending",
        "Unavailable",
        &[],
        "Select the clusters again, if they must stay: `kubectl edit knativefleets {name} -n {namespace}`; otherwise, make them available. If one is gone for good, delete its resources: `kubectl delete KIND RESOURCE -n {namespace}`",
    ),
    temporary(
        "RemovalPending",
        "Paused",
        &[],
        "Select the clusters again, if they must stay: `kubectl edit knativefleets {name} -n {namespace}`; then resume, after which the others stay for an hour at least, or for their grace period if that is shorter: `knative-operator fleet resume {name} -n {namespace}`",
    ),
    permanent(
        "RemovalBlocked",
        "TooManyClusters",
        &[],
        "Correct `spec.placement`, if the clusters must stay: `kubectl edit knativefleets {name} -n {namespace}`; or approve that they are uninstalled: `knative-operator fleet approve {name} -n {namespace} --removal`",
    ),
    permanent(
        "RemovalBlocked",
        "DeletionNotConfirmed",
        &[],
        "Decide whether the installations stay when the fleet is deleted. To keep them: `kubectl patch knativefleets {name} -n {namespace} --type=merge -p '{\"spec\":{\"removal\":{\"policy\":\"Orphan\"}}}'`; or confirm that they are uninstalled: `knative-operator fleet delete {name} -n {namespace}`",
    ),
];
