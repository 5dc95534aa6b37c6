//! What to do about what `preflight` finds, apart from what a condition reports, too.

use super::remedy_row::{Remedy, permanent, temporary};

/// In place of a condition. The reasons are those of [`PREFLIGHT_REMEDIES`], the names of checks.
pub const PREFLIGHT: &str = "preflight";

/// Remedies of checks.
pub const PREFLIGHT_REMEDIES: &[Remedy] = &[
    permanent(
        PREFLIGHT,
        "connection",
        &[],
        "Set `certificate-authority-data` in place of `insecure-skip-tls-verify`: `kubectl edit clusterprofile {profile} -n {profileNamespace} --subresource=status`",
    ),
    permanent(
        PREFLIGHT,
        "version",
        &[],
        "Set `spec.version` to one that the operator has, or correct the field that the message names; for a cluster that is too old, upgrade Kubernetes. List the versions: `kubectl exec -n knative-operator deploy/knative-operator -- /knative-operator versions`",
    ),
    temporary(
        PREFLIGHT,
        "clock",
        &[],
        "Synchronize the clocks of both clusters: tokens and certificates are valid for a limited time.",
    ),
    permanent(
        PREFLIGHT,
        "rights",
        &[],
        "Grant the account of the credential the ClusterRole that this prints for FILE, which has all resources of the cluster, as in [Least privilege on spokes](../operate/security.md#least-privilege-on-spokes): `knative-operator spoke-role -f FILE`; if FILE has a fleet: `knative-operator spoke-role -f FILE --cluster {profileNamespace}/{profile}`",
    ),
    permanent(
        PREFLIGHT,
        "owner",
        &[],
        "Delete the resource that owns the installation, on its hub, or take the installation over, as in [Disaster recovery](../operate/disaster-recovery.md).",
    ),
    temporary(
        PREFLIGHT,
        "namespace",
        &[],
        "Wait until the namespace is gone. See what its deletion waits for, on the cluster: `kubectl describe namespace {podNamespace}`",
    ),
    temporary(
        PREFLIGHT,
        "admission",
        &[],
        "Correct the webhook or the policy that the message names, or exempt namespace {podNamespace} from it. List those of the cluster: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies`",
    ),
    permanent(
        PREFLIGHT,
        "pod-security",
        &[],
        "Change the Pods by `spec.patches`, or permit them, on the cluster: `kubectl label --overwrite namespace {podNamespace} pod-security.kubernetes.io/enforce=baseline`",
    ),
    permanent(
        PREFLIGHT,
        "quota",
        &[],
        "Raise the quota that the message names, or remove what uses it, on the cluster: `kubectl describe resourcequota -n {podNamespace}`",
    ),
    temporary(
        PREFLIGHT,
        "image-pull",
        &[],
        "Correct the name of the image by `spec.registry`, create the pull Secrets that it names in namespace {podNamespace}, or let the nodes reach the registry, as in [Air gap and mirrors](../operate/air-gap.md). List the images of the resources in FILE: `knative-operator images -f FILE`",
    ),
];
