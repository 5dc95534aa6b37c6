//! What to do about a cluster in `status.attention` of a fleet.

use super::remedy_row::{Remedy, permanent, temporary};

/// Stands for the type of a condition in the table.
pub const ATTENTION: &str = "status.attention";

/// Remedies of clusters that need attention. The first that fits counts; the last one is for the
/// reasons of a resource that is not Ready.
pub const ATTENTION_REMEDIES: &[Remedy] = &[
    permanent(
        ATTENTION,
        "Conflict",
        &[],
        "Find out who uses the resource or the fleet in the message. If this fleet shall manage the resource, adopt it, as in [Adopt existing resources](fleet.md#adopt-existing-resources): `kubectl annotate KIND RESOURCE -n {namespace} operator.knative.dev/adopt=true`",
    ),
    temporary(
        ATTENTION,
        "Refused",
        &[],
        "Fix what the message of the API server names, such as a quota or a policy. The operator tries again every 30 s.",
    ),
    temporary(
        ATTENTION,
        "Deferred",
        &[],
        "Make the cluster healthy and reachable, so that it is updated in its turn: `knative-operator status -n {namespace}`",
    ),
    permanent(
        ATTENTION,
        "Skipped",
        &[],
        "Let the rollout update the cluster, which somebody let it skip: `knative-operator fleet retry {name} {profileNamespace}/{profile} -n {namespace}`",
    ),
    temporary(
        ATTENTION,
        "Unreachable",
        &[],
        "Make the cluster healthy and reachable, so that it is updated in its turn: `knative-operator status -n {namespace}`",
    ),
    permanent(
        ATTENTION,
        "GateFailed",
        &[],
        "Fix what the gate in the message measured, and measure it again, as in [Ask a cluster before the next one](fleet.md#ask-a-cluster-before-the-next-one): `knative-operator fleet retry {name} -n {namespace}`; or correct the spec: `kubectl edit knativefleets {name} -n {namespace}`",
    ),
    temporary(
        ATTENTION,
        "GateUnknown",
        &[],
        "Create the Service or the namespace that the message names, or bind the permission, as in [Gates of fleets](../operate/security.md#gates-of-fleets). The operator tries again.",
    ),
    temporary(ATTENTION, "GatePending", &[], "Wait: a gate is measured. The message has its last failure."),
    temporary(
        ATTENTION,
        "NotPermitted",
        &[],
        "Bind the ClusterRole in the message to the author of the fleet, or read its whole spec, and answer for it as a user who has that ClusterRole: `kubectl annotate --overwrite knativefleets {name} -n {namespace} operator.knative.dev/author=me`",
    ),
    temporary(
        ATTENTION,
        "Duplicate",
        &[],
        "Keep one ClusterProfile for each cluster: another one of the same cluster is counted. Remove a label from this one: `kubectl edit clusterprofiles {profile} -n {profileNamespace}`",
    ),
    temporary(
        ATTENTION,
        "HubFault",
        &[],
        "Correct the fault of the hub that the message names, such as a credential plugin that fails. Nothing counts as failed for it. Find more in the log: `kubectl logs deployment/knative-operator --namespace knative-operator`",
    ),
    temporary(
        ATTENTION,
        "ContentUnknown",
        &[],
        "Let the cluster manager publish `status.properties` of the ClusterProfile: `kubectl get clusterprofiles {profile} -n {profileNamespace} -o yaml`; or correct the templates or overrides, which is another revision: `kubectl edit knativefleets {name} -n {namespace}`",
    ),
    temporary(
        ATTENTION,
        "OutcomeNotStored",
        &[],
        "Fix what the message of the API server names, such as a policy that refuses the annotation `operator.knative.dev/fleet-outcome`. The operator tries again every 5 s.",
    ),
    temporary(
        ATTENTION,
        "NotObserved",
        &[],
        "Find out in the log why the operator does not report the state of the resource, such as a policy that refuses its status; the rollout goes on when it does: `kubectl logs --selector=name=knative-operator --namespace knative-operator --prefix --tail=-1`",
    ),
    permanent(
        ATTENTION,
        "ClusterLeft",
        &[],
        "Select the cluster again, so that its stage goes on: `kubectl edit knativefleets {name} -n {namespace}`; or go on without it, as the message says",
    ),
    permanent(
        ATTENTION,
        "ProfileMissing",
        &[],
        "Create the ClusterProfile again, with its labels. If the cluster is gone for good, follow [Remove a resource whose spoke is gone](multicluster.md#remove-a-resource-whose-spoke-is-gone).",
    ),
    temporary(ATTENTION, "", &[], "Follow the remedy of the resource: `knative-operator status -n {namespace}`"),
];
