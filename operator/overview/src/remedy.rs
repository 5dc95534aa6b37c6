//! What to do about a condition that is not True: the tables of docs/user/troubleshooting.md.

use super::advice::Advice;
use super::attention_remedy::{ATTENTION, ATTENTION_REMEDIES};
use super::fleet_remedy::FLEET_REMEDIES;
use super::names::Names;
use super::preflight_remedy::PREFLIGHT_REMEDIES;
use super::remedy_row::{Remedy, permanent, temporary};
use super::workload_remedy::WORKLOAD_REMEDIES;

/// Condition: whether the cluster of a resource is found and answers.
pub const RESOLVED: &str = "TargetClusterResolved";
const ELIGIBLE: &str = "VersionMigrationEligible";
/// Condition: whether everything is applied.
pub const INSTALLED: &str = "InstallSucceeded";

/// Remedies of resources, apart from those of workloads. The first that fits counts.
const REMEDIES: &[Remedy] = &[
    permanent(
        RESOLVED,
        "MulticlusterDisabled",
        &[],
        "Set `knative_operator.multicluster.enabled` and `knative_operator.multicluster.accessProvidersConfig`, as in [Many clusters](multicluster.md#enable-it): `helm upgrade knative-operator CHART --namespace knative-operator --reset-then-reuse-values -f VALUES.yaml`",
    ),
    permanent(
        RESOLVED,
        "AccessProviderNotConfigured",
        &[],
        "Add a provider to `knative_operator.multicluster.accessProvidersConfig.providers`, as in [Many clusters](multicluster.md#enable-it): `helm upgrade knative-operator CHART --namespace knative-operator --reset-then-reuse-values -f VALUES.yaml`",
    ),
    permanent(
        RESOLVED,
        "ClusterProfileNotPermitted",
        &[],
        "Create the resource with a ClusterProfile of another namespace, or add {profileNamespace} to `knative_operator.multicluster.profileNamespaces`: `helm upgrade knative-operator CHART --namespace knative-operator --reset-then-reuse-values -f VALUES.yaml`",
    ),
    permanent(
        RESOLVED,
        "ClusterProfileNotFound",
        &[],
        "Create ClusterProfile {profile} in namespace {profileNamespace}, as in [Many clusters](multicluster.md#register-a-spoke), or create the resource again with the right reference. List the ClusterProfiles that exist: `kubectl get clusterprofiles -A`",
    ),
    temporary(
        RESOLVED,
        "ClusterProfileNotReady",
        &[],
        "Find out from the cluster manager why the cluster is not healthy. If no cluster manager writes the ClusterProfile, and the cluster works, set its condition: `kubectl patch clusterprofile {profile} -n {profileNamespace} --subresource=status --type=merge -p '{\"status\":{\"conditions\":[{\"type\":\"ControlPlaneHealthy\",\"status\":\"True\",\"reason\":\"ByHand\",\"message\":\"set by hand\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}]}}'`",
    ),
    temporary(
        RESOLVED,
        "ClusterProfileUnavailable",
        &["has not been read yet"],
        "Wait: the operator reads it after its start.",
    ),
    temporary(
        RESOLVED,
        "ClusterProfileUnavailable",
        &["cannot read ClusterProfile "],
        "Grant the operator's account `list` and `watch` for ClusterProfiles, as the chart does: `helm upgrade knative-operator CHART --namespace knative-operator --reset-then-reuse-values`",
    ),
    permanent(
        RESOLVED,
        "ClusterProfileUnavailable",
        &["can't read ClusterProfile "],
        "Correct the field that the message names: `kubectl edit clusterprofile {profile} -n {profileNamespace}`; or install a newer version of the operator",
    ),
    permanent(
        RESOLVED,
        "ClusterProfileUnavailable",
        &[],
        "Use one name of an access provider in the provider file and in the status of the ClusterProfile. The message lists the names. Look at the status: `kubectl get clusterprofile {profile} -n {profileNamespace} -o yaml`",
    ),
    temporary(
        RESOLVED,
        "AccessProviderFailed",
        &[],
        "Correct what the plugin says in the message; `exec format error` means that it is built for another architecture. If a Secret is missing, create it with the token: `kubectl create secret generic SECRET --namespace knative-operator --from-file=token=FILE`",
    ),
    permanent(
        RESOLVED,
        "CredentialNotBound",
        &[],
        "Create the Secret, in the namespace and with the key that the message has, if it is missing. Check that the server in the message is the cluster of the Secret, and bind the Secret as the message says, and as in [Which ClusterProfile gets which credential](multicluster.md#which-clusterprofile-gets-which-credential). Bind a Secret without a binding: `kubectl annotate secret SECRET --namespace knative-operator operator.knative.dev/cluster-profile={profileNamespace}/{profile}`",
    ),
    permanent(
        RESOLVED,
        "RemoteClientCreationFailed",
        &[],
        "Correct the field that the message names: `kubectl edit clusterprofile {profile} -n {profileNamespace} --subresource=status`",
    ),
    temporary(
        RESOLVED,
        "RemoteClusterUnreachable",
        &["the cluster can't be identified"],
        "Grant the account of the credential `get` for the namespace that the message names. Print all that it needs, as in [Least privilege on spokes](../operate/security.md#least-privilege-on-spokes): `{spokeRole}`",
    ),
    temporary(
        RESOLVED,
        "RemoteClusterUnreachable",
        &[],
        "Let the operator reach the server in the message, which it tries every 10 s, or correct address and authority: `kubectl edit clusterprofile {profile} -n {profileNamespace} --subresource=status`",
    ),
    permanent(
        RESOLVED,
        "RemoteClusterUnauthorized",
        &[],
        "Grant the account its permissions again, or renew its credential. You don't need to restart the operator. If a Secret has the token, write the new one to `stringData.token` in a file: `kubectl patch secret SECRET --namespace knative-operator --type=merge --patch-file=FILE`",
    ),
    temporary(RESOLVED, "RemoteClusterStale", &[], "Wait: the operator is connecting with the new settings."),
    temporary(RESOLVED, "ClusterProviderClosed", &[], "Wait: the operator checks the cluster again after its restart."),
    permanent(
        ELIGIBLE,
        "Error",
        &["the cluster has version ", "which is newer than "],
        "Set `spec.version` to the version that the cluster has, as in [Backup and restore](../operate/lifecycle.md#backup-and-restore): `{edit}`",
    ),
    permanent(
        ELIGIBLE,
        "Error",
        &["not available to this release"],
        "Set `spec.version` to a version that the message names, or install an operator whose release bundle has it. The installed version is kept and repaired meanwhile. Edit the spec: `{edit}`",
    ),
    permanent(
        ELIGIBLE,
        "Error",
        &["the release bundle lacks version ", "which is on the way"],
        "Install an operator whose release bundle has the version that the message names, or set `spec.version` to one before it: `{edit}`",
    ),
    permanent(
        ELIGIBLE,
        "Error",
        &["or set the annotation "],
        "Set `spec.version` to the first version that the message names, wait until the resource is Ready, and go on with the next one: `{edit}`; or let the operator install each minor version on the way: `kubectl annotate {kind} {name} -n {namespace} operator.knative.dev/minor-versions=each`",
    ),
    permanent(
        ELIGIBLE,
        "",
        &[],
        "Find the next minor version: `kubectl exec -n knative-operator deploy/knative-operator -- /knative-operator versions`; then set `spec.version` to it: `{edit}`",
    ),
    permanent(
        INSTALLED,
        "Unreadable",
        &[],
        "Correct the field that the message names: `{edit}`; or, after a rollback, install the newer version again",
    ),
    permanent(
        INSTALLED,
        "LocalInstallationDisabled",
        &[],
        "Create the resource with a ClusterProfile, or permit installations on the operator's own cluster: `helm upgrade knative-operator CHART --namespace knative-operator --reset-then-reuse-values --set knative_operator.localInstallation=true`",
    ),
    temporary(
        INSTALLED,
        "NamespaceTerminating",
        &[],
        "Wait: the operator installs again once the namespace is gone. See what its deletion waits for, on the cluster: `kubectl describe namespace {podNamespace}`",
    ),
    temporary(
        INSTALLED,
        "GoOperatorRunning",
        &[],
        "Stop the Go operator, whose Pod the message names, as in [Migrate](migration.md): `kubectl scale deployment DEPLOYMENT -n GO_OPERATOR_NAMESPACE --replicas=0`",
    ),
    temporary(
        INSTALLED,
        "Error",
        &[", so the operator can't apply "],
        "Install what is missing, or change the setting that the message names: `{edit}`",
    ),
    permanent(
        INSTALLED,
        "Occupied",
        &[],
        "Choose one of the ways out that the message has, which names the owner or what the namespace has, as in [Disaster recovery](../operate/disaster-recovery.md).",
    ),
    permanent(
        INSTALLED,
        "Protected",
        &[],
        "Decide whether the installation stays, then end the deletion, as in [Uninstall, restore and move](../operate/lifecycle.md). To keep it, first: `kubectl annotate {kind} {name} -n {namespace} operator.knative.dev/on-delete=orphan`; then, in any case: `kubectl annotate {kind} {name} -n {namespace} operator.knative.dev/protected-`",
    ),
    permanent(
        INSTALLED,
        "DeletionNotConfirmed",
        &[],
        "Decide whether the installations stay: the fleet of the resource, or its namespace, is being deleted, too. To keep them: `kubectl patch knativefleets {fleet} -n {namespace} --type=merge -p '{\"spec\":{\"removal\":{\"policy\":\"Orphan\"}}}'`; or confirm that they are uninstalled: `knative-operator fleet delete {fleet} -n {namespace}`",
    ),
    permanent(
        INSTALLED,
        "NotPermitted",
        &[],
        "Bind the ClusterRole that the message names, as in [Security](../operate/security.md), or read its whole spec, and answer for it as a user who has that ClusterRole: `kubectl annotate --overwrite {kind} {name} -n {namespace} operator.knative.dev/author=me`",
    ),
    temporary(
        INSTALLED,
        "Error",
        &["Namespace ", " on the cluster existed before"],
        "Remove the objects of others from the namespace, or unset `knative_operator.multicluster.refuseUsedNamespaces`. List them, on the cluster: `kubectl get all,rolebindings,serviceaccounts -n {podNamespace}`; and webhooks that select the namespace: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`",
    ),
    temporary(
        INSTALLED,
        "Error",
        &["cannot look into namespace "],
        "Grant the account `list` for the kind that the message names. Print all that it needs, as in [Least privilege on spokes](../operate/security.md#least-privilege-on-spokes): `{spokeRole}`",
    ),
    permanent(
        INSTALLED,
        "Error",
        &["Job ", " failed"],
        "Fix the cause, which the log of the Job has, on the cluster: `kubectl logs job/JOB -n {podNamespace}`; then delete the Job to run it again: `kubectl delete job JOB -n {podNamespace}`",
    ),
    temporary(
        INSTALLED,
        "Error",
        &["CustomResourceDefinition ", " is not established"],
        "Find the other CRD that uses the same names, on the cluster, and decide which product stays: `kubectl get customresourcedefinitions`",
    ),
    temporary(
        INSTALLED,
        "Error",
        &["cannot watch "],
        "Grant the account `list` and `watch` for the kind. Print all that it needs, as in [Least privilege on spokes](../operate/security.md#least-privilege-on-spokes): `{spokeRole}`",
    ),
    temporary(
        INSTALLED,
        "Error",
        &["failed to apply "],
        "Fix what the API server's message names: a quota, a policy, a permission. Other objects are installed meanwhile.",
    ),
    permanent(INSTALLED, "Error", &["spec."], "Correct the field that the message names: `{edit}`"),
];

/// All remedies, in the order in which they are tried.
pub fn all() -> impl Iterator<Item = &'static Remedy> {
    [REMEDIES, WORKLOAD_REMEDIES, FLEET_REMEDIES, ATTENTION_REMEDIES, PREFLIGHT_REMEDIES].into_iter().flatten()
}

/// What to do about `condition` with `reason` and `message`.
pub fn find(condition: &str, reason: &str, message: &str) -> Option<&'static Remedy> {
    let fits = |remedy: &&Remedy| {
        let mut rest = Some(message);
        for part in remedy.message {
            rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
        }
        remedy.condition == condition && (remedy.reason.is_empty() || remedy.reason == reason) && rest.is_some()
    };
    all().find(fits)
}

/// What to do about a cluster that is in `status.attention` of a fleet for `reason`. `names` are
/// those of the fleet, with the ClusterProfile.
pub fn advice_for_attention(reason: &str, names: &Names<'_>) -> Option<Advice> {
    find(ATTENTION, reason, "").map(|remedy| remedy.advice(names))
}

#[cfg(test)]
mod tests {
    use knative_operator_fleet::absence::Gone;
    use knative_operator_fleet::gates::{GATE_FAILED, GATE_PENDING, GATE_UNKNOWN};
    use knative_operator_fleet::progress::{HUB_FAULT, NOT_OBSERVED, NOT_STORED, Progress, SKIPPED};
    use knative_operator_fleet::unknown::CONTENT_UNKNOWN;
    use knative_operator_shared::reason::Reason;

    use super::*;

    /// Parts of remedies, in turn prose and code.
    fn parts(text: &str) -> Vec<&str> {
        text.split('`').collect()
    }

    fn is_command(code: &str) -> bool {
        ["helm ", "kubectl ", "knative-operator "].iter().any(|program| code.starts_with(program))
    }

    #[test]
    fn first_remedy_that_fits_counts() {
        let starts = |condition, reason, message, start: &str| {
            let text = find(condition, reason, message).map(|remedy| remedy.text);
            assert!(text.is_some_and(|text| text.starts_with(start)), "{reason}: {message}: {text:?}");
        };
        let failed = "Install failed with message: Job n/j failed: BackoffLimitExceeded";
        starts(INSTALLED, "Error", failed, "Fix the cause, which the log of the Job has");
        starts(INSTALLED, "Error", "cannot watch Deployments", "Grant");
        let gateway = "the CustomResourceDefinitions of the Gateway API are not installed (no kind Gateway), so the operator can't apply 1 object: x";
        starts(INSTALLED, "Error", gateway, "Install what is missing");
        let used = "Install failed with message: Namespace knative-serving on the cluster existed before, with objects of others: x";
        starts(INSTALLED, "Error", used, "Remove the objects of others");
        starts(RESOLVED, "RemoteClusterStale", "x", "Wait: ");
        starts(RESOLVED, "RemoteClusterUnreachable", "the cluster can't be identified: x", "Grant");
        let lacks = "container \"a\" is killed, because the node lacks memory (OOMKilled)";
        starts("DeploymentsAvailable", "NotReady", lacks, "Add nodes");
        assert!(find(INSTALLED, "Installing", "Waiting for Job n/j").is_none());
        let recovers = |message| find(RESOLVED, "ClusterProfileUnavailable", message).map(|remedy| remedy.can_recover);
        let messages =
            ["ClusterProfile a/b has not been read yet", "cannot read ClusterProfile a/b: 403", "a/b has none"];
        assert_eq!(messages.map(recovers), [Some(true), Some(true), Some(false)]);
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

    /// The reasons that `progress` has in `status.attention`, apart from those of the resource. The
    /// compiler asks for those of a new variant.
    fn reasons(progress: &Progress) -> Vec<&'static str> {
        match progress {
            Progress::Pending => vec![NOT_OBSERVED],
            Progress::Updated => vec![NOT_STORED],
            Progress::Updating(_) => vec![HUB_FAULT, GATE_UNKNOWN, GATE_PENDING, NOT_OBSERVED],
            Progress::Soaking(_) => Vec::new(),
            Progress::Deferred(_) => vec!["Deferred"],
            Progress::Skipped => vec![SKIPPED],
            Progress::Failed(..) => vec!["Refused", "Unreachable", GATE_FAILED],
            Progress::Conflict(_) => vec!["Conflict"],
            Progress::Waiting(..) => {
                let gone = |gone: Gone| match gone {
                    Gone::Left | Gone::Vanished => gone.reason(),
                };
                vec![HUB_FAULT, gone(Gone::Left), gone(Gone::Vanished)]
            }
        }
    }

    #[test]
    fn each_reason_of_attention_has_a_remedy() {
        let text = String::new;
        let all = [
            Progress::Updating(None),
            Progress::Updated,
            Progress::Deferred(text()),
            Progress::Skipped,
            Progress::Failed(text(), text()),
            Progress::Conflict(text()),
            Progress::Waiting(text(), text(), None),
        ];
        // Those of clusters that are not counted.
        let uncounted = ["Duplicate", "NotPermitted"];
        let own: Vec<&str> = all.iter().flat_map(reasons).chain(uncounted).chain([CONTENT_UNKNOWN]).collect();
        for reason in &own {
            assert!(find(ATTENTION, reason, "").is_some_and(|remedy| remedy.reason == *reason), "{reason}");
        }
        for remedy in ATTENTION_REMEDIES {
            assert!(remedy.reason.is_empty() || own.contains(&remedy.reason), "no cluster has {}", remedy.reason);
        }
        let names = Names { name: "prod", namespace: "platform", ..Names::default() };
        let advice = advice_for_attention("ProgressDeadlineExceeded", &names).unwrap();
        assert!(advice.text.ends_with(": `knative-operator status -n platform`"), "{advice:?}");
    }

    #[test]
    fn remedies_are_imperative_and_their_commands_can_be_copied() {
        let names = Names {
            kind: "knativeservings",
            name: "a",
            namespace: "n",
            profile: "p",
            profile_namespace: "f",
            pod_namespace: "knative-serving",
            fleet: "",
        };
        for remedy in all() {
            let filled = names.fill(&remedy.text.replace("{fleet}", "prod"));
            assert!(!["None", "The ", "If ", "It "].iter().any(|start| filled.starts_with(start)), "{filled}");
            // Rows of tables in Markdown.
            assert!(!filled.contains(['|', '\n']), "{filled}");
            let is_placeholder = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase());
            assert!(!filled.split('{').skip(1).any(is_placeholder), "{filled}");
            let parts = parts(&filled);
            assert_eq!(parts.len() % 2, 1, "{filled}");
            let has_command = parts.iter().skip(1).step_by(2).any(|code| is_command(code));
            let last = parts.last().copied().unwrap_or_default();
            assert!(if has_command { !last.ends_with('.') } else { last.ends_with('.') }, "{filled}");
            for (index, code) in parts.iter().enumerate().skip(1).step_by(2).filter(|(_, code)| is_command(code)) {
                assert!(parts[index - 1].ends_with(": "), "{filled}");
                let next = parts[index + 1];
                assert!(next.is_empty() || next.starts_with("; "), "{filled}: {code}");
            }
        }
    }
}
