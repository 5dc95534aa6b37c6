//! What to do about a condition that is not True: the tables of docs/user/troubleshooting.md.

use super::fleet_remedy::FLEET_REMEDIES;
use super::model::Advice;
use super::remedy_row::{Remedy, permanent, temporary};

const RESOLVED: &str = "TargetClusterResolved";
const INSTALLED: &str = "InstallSucceeded";
const AVAILABLE: &str = "DeploymentsAvailable";

/// Remedies of resources. The first that fits counts.
pub const REMEDIES: &[Remedy] = &[
    permanent(
        RESOLVED,
        "MulticlusterDisabled",
        &[],
        "Set `knative_operator.multicluster.enabled` and `knative_operator.multicluster.accessProvidersConfig`, or the flag.",
    ),
    permanent(
        RESOLVED,
        "AccessProviderNotConfigured",
        &[],
        "Add one to `knative_operator.multicluster.accessProvidersConfig.providers`.",
    ),
    permanent(
        RESOLVED,
        "ClusterProfileNotPermitted",
        &[],
        "Refer to a ClusterProfile of another namespace, or add the namespace to `knative_operator.multicluster.profileNamespaces`.",
    ),
    permanent(
        RESOLVED,
        "ClusterProfileNotFound",
        &[],
        "Create it, or delete the resource and create it with the right reference.",
    ),
    temporary(RESOLVED, "ClusterProfileNotReady", &[], "Check the cluster manager. Without one, patch the status."),
    temporary(
        RESOLVED,
        "ClusterProfileUnavailable",
        &["has not been read yet"],
        "None. The operator reads it after its start.",
    ),
    temporary(
        RESOLVED,
        "ClusterProfileUnavailable",
        &["cannot read ClusterProfile "],
        "Grant the operator's account `list` and `watch` for ClusterProfiles, as the chart does.",
    ),
    permanent(
        RESOLVED,
        "ClusterProfileUnavailable",
        &["can't read ClusterProfile "],
        "Correct the field that the message names, or install a newer version of the operator.",
    ),
    permanent(RESOLVED, "ClusterProfileUnavailable", &[], "Use one name in both; the message lists the names."),
    temporary(
        RESOLVED,
        "AccessProviderFailed",
        &[],
        "The message has its last line on standard error. `exec format error`: it is built for another architecture. Missing Secret: create it in the operator's namespace.",
    ),
    permanent(
        RESOLVED,
        "CredentialNotBound",
        &[],
        "Check that the server in the message is the cluster of the Secret, and bind the Secret as the message says. See [Which ClusterProfile gets which credential](multicluster.md#which-clusterprofile-gets-which-credential).",
    ),
    permanent(RESOLVED, "RemoteClientCreationFailed", &[], "Correct the field that the message names."),
    temporary(
        RESOLVED,
        "RemoteClusterUnreachable",
        &[],
        "The message has the error. The operator retries within 10 s.",
    ),
    permanent(
        RESOLVED,
        "RemoteClusterUnauthorized",
        &[],
        "Replace the token in the Secret, or fix the permissions of the account. You don't need to restart the operator.",
    ),
    temporary(RESOLVED, "RemoteClusterStale", &[], "None. This ends by itself."),
    temporary(RESOLVED, "ClusterProviderClosed", &[], "None. This ends by itself."),
    permanent(
        "VersionMigrationEligible",
        "Error",
        &["the cluster has version ", "which is newer than "],
        "Set `spec.version` to the version that the cluster has. See [Backup and restore](../operate/lifecycle.md#backup-and-restore).",
    ),
    permanent(
        "VersionMigrationEligible",
        "Error",
        &["not available to this release"],
        "Set `spec.version` to a version that the message names, or install an operator whose release bundle has it. The installed version is kept and repaired meanwhile.",
    ),
    permanent(
        "VersionMigrationEligible",
        "",
        &[],
        "Set `spec.version` to the next minor version first; `knative-operator versions` lists the versions.",
    ),
    permanent(
        INSTALLED,
        "Unreadable",
        &[],
        "Correct the field that the message names. After a roll back, install the newer version again.",
    ),
    permanent(
        INSTALLED,
        "LocalInstallationDisabled",
        &[],
        "Create the resource with a ClusterProfile, or install the chart with `knative_operator.localInstallation: true`.",
    ),
    temporary(INSTALLED, "NamespaceTerminating", &[], "None. The operator installs again once the namespace is gone."),
    temporary(INSTALLED, "GoOperatorRunning", &[], "Delete the Go operator's Deployment; see [Migrate](migration.md)."),
    temporary(INSTALLED, "Error", &[" is not installed"], "Install it, or change the setting that the message names."),
    permanent(
        INSTALLED,
        "Occupied",
        &[],
        "Do what the message says: it names the owner and the ways out. See [Disaster recovery](../operate/disaster-recovery.md).",
    ),
    permanent(
        INSTALLED,
        "Protected",
        &[],
        "Remove the annotation `operator.knative.dev/protected` to uninstall. See [Uninstall, restore and move](../operate/lifecycle.md).",
    ),
    permanent(
        INSTALLED,
        "DeletionNotConfirmed",
        &[],
        "The fleet of the resource, or its namespace, is being deleted, too. Do what the message says: `knative-operator fleet delete` confirms that.",
    ),
    permanent(
        INSTALLED,
        "NotPermitted",
        &[],
        "Bind the ClusterRole that the message names, or run its command as a user who has it. See [Security](../operate/security.md).",
    ),
    permanent(INSTALLED, "Error", &["Job ", " failed"], "Fix the cause, then delete the Job to run it again."),
    temporary(
        INSTALLED,
        "Error",
        &["CustomResourceDefinition ", " is not established"],
        "Another CRD uses the same names. Remove one of them.",
    ),
    temporary(INSTALLED, "Error", &["cannot watch "], "Grant the account `list` and `watch` for the kind."),
    temporary(
        INSTALLED,
        "Error",
        &["failed to apply "],
        "Fix what the API server's message names: a quota, a policy, a permission. Other objects are installed meanwhile.",
    ),
    permanent(INSTALLED, "Error", &["spec."], "Correct the field that the message names."),
    permanent(
        AVAILABLE,
        "NotReady",
        &["invalid image name"],
        "Correct the name of the image in `spec.registry` or `spec.workloads`.",
    ),
    permanent(
        AVAILABLE,
        "NotReady",
        &[" must not run as root"],
        "Use an image whose config has a numeric user other than 0, as Knative's images do.",
    ),
    permanent(
        AVAILABLE,
        "NotReady",
        &["cannot execute the command of "],
        "Use the image that Knative released for this component, in the same version: another one is under its name, or `spec.patches` changes its command.",
    ),
    permanent(
        AVAILABLE,
        "NotReady",
        &["exec format error"],
        "Use an image for the architecture of the nodes, or select other nodes by `spec.workloads`.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["cannot pull image"],
        "Check the image: its name and tag in `spec.registry`, the pull Secrets (`spec.registry.imagePullSecrets`), and whether nodes reach the registry. Kubernetes tries again within 5 minutes.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["cannot configure container"],
        "Create the Secret, ConfigMap or key that the message names.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["(OOMKilled)"],
        "Raise the memory limit of the container by `resources` in `spec.workloads`.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["liveness probe"],
        "The container does not respond, so Kubernetes restarts it. Look at its log; if it is only slow, change `livenessProbes` or `resources` in `spec.workloads`.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &[" with exit code "],
        "The message has the container's last words. `kubectl logs --previous` shows all of its log, in the namespace of the Deployment on its cluster.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["cannot start container"],
        "The message is that of the container runtime of the node. Look at the node.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["exceeded quota"],
        "Raise the ResourceQuota of the namespace, or lower the requests by `spec.workloads`.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["violates PodSecurity"],
        "Allow what the message names in the label `pod-security.kubernetes.io/enforce` of the namespace, or remove it from `spec.workloads` or `spec.patches`.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["no node fits"],
        "Add nodes, or lower the requests and selectors in `spec.workloads` that the scheduler's message names.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["the node rejected Pods"],
        "The node lacks the resource that the message names. Kubernetes creates the Pods again, if possible elsewhere.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["the node \"", " does not respond"],
        "Look at the node: `kubectl describe node`. Kubernetes moves the Pods after 5 minutes.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["the node has not created "],
        "Create the Secret or volume that the message names, or look at the network plugin of the node. Without such a message, the node is pulling images.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["container", " not ready"],
        "The message has the answer of the readiness probe. Look at the log of the container: `kubectl logs`, in the namespace of the Deployment on its cluster.",
    ),
    temporary(AVAILABLE, "NotReady", &["former Pods drain"], "None. This ends by itself at the time in the message."),
    temporary(
        AVAILABLE,
        "NotReady",
        &["without the permission to "],
        "Grant the credential the permission that the message names. `knative-operator spoke-role` prints all of them.",
    ),
    temporary(
        AVAILABLE,
        "NotReady",
        &["ProgressDeadlineExceeded"],
        "Look at the Pods: `kubectl describe pods`, in the namespace of the Deployment on its cluster.",
    ),
];

/// What to do about `condition` with `reason` and `message`.
pub fn find(condition: &str, reason: &str, message: &str) -> Option<Advice> {
    let fits = |remedy: &&Remedy| {
        let mut rest = Some(message);
        for part in remedy.message {
            rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
        }
        remedy.condition == condition && (remedy.reason.is_empty() || remedy.reason == reason) && rest.is_some()
    };
    REMEDIES.iter().chain(FLEET_REMEDIES).find(fits).map(|remedy| remedy.advice)
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::reason::Reason;

    use super::*;

    #[test]
    fn first_remedy_that_fits_counts() {
        let text = |condition, reason, message| find(condition, reason, message).map(|advice| advice.text);
        assert_eq!(
            text(INSTALLED, "Error", "Install failed with message: Job n/j failed: BackoffLimitExceeded"),
            Some("Fix the cause, then delete the Job to run it again.")
        );
        assert_eq!(text(INSTALLED, "Installing", "Waiting for Job n/j"), None);
        assert_eq!(text(RESOLVED, "RemoteClusterStale", "x"), Some("None. This ends by itself."));
        let recovers = |message| find(RESOLVED, "ClusterProfileUnavailable", message).map(|advice| advice.can_recover);
        let messages =
            ["ClusterProfile a/b has not been read yet", "cannot read ClusterProfile a/b: 403", "a/b has none"];
        assert_eq!(messages.map(recovers), [Some(true), Some(true), Some(false)]);
        assert!(text(INSTALLED, "Error", "cannot watch Deployments").is_some_and(|text| text.starts_with("Grant")));
    }

    #[test]
    fn each_reason_has_a_remedy() {
        for reason in [
            Reason::MulticlusterDisabled,
            Reason::AccessProviderNotConfigured,
            Reason::ClusterProfileNotPermitted,
            Reason::ClusterProfileNotFound,
            Reason::ClusterProfileNotReady,
            Reason::ClusterProfileUnavailable,
            Reason::AccessProviderFailed,
            Reason::CredentialNotBound,
            Reason::RemoteClientCreationFailed,
            Reason::RemoteClusterUnreachable,
            Reason::RemoteClusterUnauthorized,
            Reason::RemoteClusterStale,
            Reason::ClusterProviderClosed,
        ] {
            assert!(find(RESOLVED, reason.as_str(), "").is_some(), "{reason}");
        }
    }
}
