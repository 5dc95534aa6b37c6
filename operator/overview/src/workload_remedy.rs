//! What to do about workloads that are not available.

use super::remedy_row::{Remedy, permanent, temporary};

const AVAILABLE: &str = "DeploymentsAvailable";

/// Remedies of workloads. The first that fits counts.
pub const WORKLOAD_REMEDIES: &[Remedy] = &[
    permanent(
        AVAILABLE,
        "NotReady",
        &["invalid image name"],
        "Correct the name of the image in `spec.registry` or `spec.workloads`: `{edit}`",
    ),
    permanent(
        AVAILABLE,
        "NotReady",
        &[" must not run as root"],
        "Use an image whose config has a numeric user other than 0, as Knative's images do, in `spec.registry` or `spec.workloads`, and remove `runAsUser: 0` from `spec.patches`: `{edit}`",
    ),
    permanent(
        AVAILABLE,
        "NotReady",
        &["cannot execute the command of "],
        "Use the image that Knative released for this component, in the same version, and remove a change of its command from `spec.patches`: `{edit}`",
    ),
    permanent(
        AVAILABLE,
        "NotReady",
        &["exec format error"],
        "Use an image for the architecture of the nodes, or select other nodes by `spec.workloads`: `{edit}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["cannot pull image"],
        "Check the image: its name and tag in `spec.registry`, the pull Secrets (`spec.registry.imagePullSecrets`), and whether nodes reach the registry. Kubernetes tries again within 5 minutes. Correct the spec, if it is wrong: `{edit}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["cannot configure container"],
        "Create the Secret, ConfigMap or key that the message names, on the cluster. List those that exist: `kubectl get secrets,configmaps -n {podNamespace}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["because the node lacks memory (OOMKilled)"],
        "Add nodes, or request more memory by `resources` in `spec.workloads`, so that the Pod gets a node that has it: `{edit}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["(OOMKilled)"],
        "Raise the memory limit of the container by `resources` in `spec.workloads`: `{edit}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["liveness probe"],
        "Find out from the log, on the cluster, why the container does not respond: `kubectl logs deployment/DEPLOYMENT -n {podNamespace} --previous`; if it is only slow, change `livenessProbes` or `resources` in `spec.workloads`: `{edit}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &[" with exit code "],
        "Read the log of the container, on the cluster, whose last words the message has: `kubectl logs deployment/DEPLOYMENT -n {podNamespace} --previous`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["cannot start container"],
        "Find the node of the Pod, on the cluster, and correct what its container runtime says in the message: `kubectl describe pods -n {podNamespace}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["exceeded quota"],
        "Raise the quota that the message names, on the cluster: `kubectl edit resourcequotas QUOTA -n {podNamespace}`; or lower the requests by `spec.workloads`: `{edit}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["violates PodSecurity"],
        "Remove what the message names from `spec.workloads` or `spec.patches`: `{edit}`; or allow it in the namespace, on the cluster: `kubectl label --overwrite namespace {podNamespace} pod-security.kubernetes.io/enforce=LEVEL`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["no node fits"],
        "Add nodes, or lower the requests and selectors in `spec.workloads` that the scheduler's message names: `{edit}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["the node rejected Pods"],
        "Free the resource that the message names, or add nodes. Kubernetes creates the Pods again, if possible elsewhere. See what the nodes of the cluster have: `kubectl describe nodes`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["the node \"", " does not respond"],
        "Repair the node that the message names, on the cluster. Kubernetes moves the Pods after 5 minutes. Look at its conditions: `kubectl describe node NODE`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["the node has not created "],
        "Create the Secret or volume that the message names, or repair the network plugin of the node; if the message names nothing, wait: the node is pulling images. See the events of the Pods, on the cluster: `kubectl describe pods -n {podNamespace}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["container", " not ready"],
        "Read the log of the container, on the cluster, whose readiness probe got the answer in the message: `kubectl logs deployment/DEPLOYMENT -n {podNamespace}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["former Pods drain"],
        "Wait: this ends by itself, at the time in the message at the latest.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["without the permission to "],
        "Grant the credential the permission that the message names. Print all that it needs, as in [Least privilege on spokes](../operate/security.md#least-privilege-on-spokes): `{spokeRole}`",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["ProgressDeadlineExceeded"],
        "Find the cause in the events of the Pods, on the cluster: `kubectl describe pods -n {podNamespace}`",
    ),
];
