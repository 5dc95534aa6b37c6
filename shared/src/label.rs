//! Labels, annotations, finalizers and field managers.

/// API group of the custom resources.
pub const GROUP: &str = "operator.knative.dev";
/// Version of the custom resources.
pub const VERSION: &str = "v1beta1";
/// Version of the custom resources of fleets.
pub const FLEET_VERSION: &str = "v1alpha1";
/// Name of the operator's ServiceAccount in the chart.
pub const SERVICE_ACCOUNT: &str = "knative-operator";
/// Label: the component of a release in the archive of the operator; an annotation with the same
/// name has the version.
pub const ARCHIVED_RELEASE: &str = "operator.knative.dev/archived-release";
/// Field manager of the operator. Never change it: applied fields would be orphaned.
pub const FIELD_MANAGER: &str = "knative-operator";
/// Field manager of the webhook.
pub const WEBHOOK_FIELD_MANAGER: &str = "knative-operator-webhook";
/// Label: the component of an object; the operator's watches select it.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Label: the version of an object.
pub const APP_VERSION: &str = "app.kubernetes.io/version";
/// Label: the manager of an object that is not part of a release.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of an anchor or a namespace: name of the custom resource.
pub const CR_NAME: &str = "operator.knative.dev/cr-name";
/// Annotation: marks an anchor ConfigMap.
pub const ANCHOR: &str = "operator.knative.dev/anchor";
/// Annotation: protects an object from deletion.
pub const PROTECTED: &str = "operator.knative.dev/protected";
/// Annotation of a fleet: the number of clusters from which its deletion (`25`), or that of a
/// component (`eventing=25`), may uninstall.
pub const CONFIRM_REMOVAL: &str = "operator.knative.dev/confirm-removal";
/// Annotation of an anchor: the owner of the installation, as JSON.
pub const OWNER: &str = "operator.knative.dev/owner";
/// Annotation of applied objects: a digest of the owner of the installation.
pub const OWNER_DIGEST: &str = "operator.knative.dev/owner-digest";
/// Annotation of a resource: the hub to take the installation over from, by the uid of its
/// namespace `kube-system`, optionally with `/` and the time in the record; or, by that of the
/// cluster, to overwrite what others have there.
pub const TAKE_OVER: &str = "operator.knative.dev/take-over";
/// Annotation: the purpose of an object.
pub const DESCRIPTION: &str = "operator.knative.dev/description";
/// Annotation: what happens if a resource is deleted while its cluster is unreachable: [`ORPHAN`];
/// by default, the deletion waits.
pub const ON_UNREACHABLE: &str = "operator.knative.dev/on-unreachable";
/// Annotation: what happens to the installation if a resource is deleted: [`ORPHAN`] or [`WAIT`];
/// by default, it is uninstalled.
pub const ON_DELETE: &str = "operator.knative.dev/on-delete";
/// Value of [`ON_UNREACHABLE`] and [`ON_DELETE`]: delete the resource and leave its objects on the
/// cluster.
pub const ORPHAN: &str = "orphan";
/// Value of [`ON_DELETE`]: uninstall once the users' objects of Knative are gone.
pub const WAIT: &str = "wait";
/// Annotation of a resource: with [`EACH`], the operator goes through minor versions by itself; by
/// default, the next one must be asked for.
pub const MINOR_VERSIONS: &str = "operator.knative.dev/minor-versions";
/// Value of [`MINOR_VERSIONS`]: install each minor version on the way.
pub const EACH: &str = "each";
/// Annotation: a changed value triggers a reconcile.
pub const TRIGGER: &str = "reconcile.knative.dev/trigger";
/// Annotation of a namespace: the resource whose operator created it, with which it is deleted.
pub const CREATED_BY: &str = "operator.knative.dev/created-by";
/// Annotation of applied objects: their digest.
pub const DIGEST: &str = "operator.knative.dev/digest";
/// Annotation of the status: the namespace of the installation on the spoke, if not the canonical
/// one.
pub const INSTALLED_IN: &str = "operator.knative.dev/installed-in";
/// Annotation of the status: uid of the namespace `kube-system` of the target cluster, which
/// identifies it, regardless of the names of its ClusterProfiles.
pub const CLUSTER_UID: &str = "operator.knative.dev/cluster-uid";
/// Annotation of the status: uid of the cluster that the author of the resource was permitted to
/// use.
pub const PERMITTED_ON: &str = "operator.knative.dev/permitted-on";
/// Annotation of the status: clusters that the ClusterProfile referred to before, where
/// installations may be left, as JSON.
pub const FORMER_CLUSTERS: &str = "operator.knative.dev/former-clusters";
/// Annotation of the status: what others had put into the namespace on the spoke before.
pub const NAMESPACE_CONTENTS: &str = "operator.knative.dev/namespace-contents";

/// Annotation of the status: the `spec.version` that was refused, because the cluster has a newer
/// version.
pub const REFUSED_VERSION: &str = "operator.knative.dev/refused-version";
/// Annotation of the status: the newest generation of the resource whose version the record on the
/// cluster allowed. In a hub that was restored to an older time, it is older than the record.
pub const ALLOWED_GENERATION: &str = "operator.knative.dev/allowed-generation";
/// Annotation of a Secret with a credential: the ClusterProfiles that get it, as `NAMESPACE/NAME`,
/// separated by commas.
pub const CLUSTER_PROFILE: &str = "operator.knative.dev/cluster-profile";
/// Annotation of a Secret with a credential: the servers that it is sent to, as URLs, separated by
/// commas; by default, the first one that each ClusterProfile had.
pub const SERVER: &str = "operator.knative.dev/server";
/// Annotation of a Secret with a credential: by ClusterProfile, where it was sent first. It is sent
/// nowhere else, unless [`SERVER`] says so.
pub const SENT_TO: &str = "operator.knative.dev/sent-to";
/// Annotation of a resource: it may wait for a cluster that another resource of its kind uses.
pub const SHARED_TARGET: &str = "operator.knative.dev/shared-target";
/// Annotation of a resource: the user who asked for it, as JSON. The webhook writes it.
pub const AUTHOR: &str = "operator.knative.dev/author";
/// Annotation of a fleet: the user who changed its templates or overrides last. The webhook writes
/// it.
pub const CHANGED_BY: &str = "operator.knative.dev/changed-by";
/// Annotation of a fleet: the user who paused it. The webhook writes it.
pub const PAUSED_BY: &str = "operator.knative.dev/paused-by";
/// Annotation of a fleet: why it is paused. The webhook removes it with the pause.
pub const PAUSE_REASON: &str = "operator.knative.dev/pause-reason";
/// Field manager of fleets, for their resources: not that of the operator, which writes other
/// fields of the same resources.
pub const FLEET_FIELD_MANAGER: &str = "knative-operator-fleet";
/// Finalizer of fleets.
pub const FLEET_FINALIZER: &str = "knativefleets.operator.knative.dev";
/// Annotation of a resource: a fleet in its namespace that selects its cluster may adopt it.
pub const ADOPT: &str = "operator.knative.dev/adopt";
/// Label of a resource: the fleet that manages it.
pub const FLEET: &str = "operator.knative.dev/fleet";
/// Label of a resource: its cluster.
pub const FLEET_CLUSTER: &str = "operator.knative.dev/cluster";
/// Annotation and label of a resource of a fleet: its revision; a name that is too long for a label
/// is shortened there.
pub const FLEET_REVISION: &str = "operator.knative.dev/fleet-revision";
/// Annotation of a resource of a fleet: the revision before.
pub const FLEET_PREVIOUS: &str = "operator.knative.dev/fleet-previous-revision";
/// Annotation of a resource of a fleet: time of the last update.
pub const FLEET_UPDATED_AT: &str = "operator.knative.dev/fleet-updated-at";
/// Annotation of a resource of a fleet: digest of its content.
pub const FLEET_CONTENT: &str = "operator.knative.dev/fleet-content";
/// Annotation of a resource of a fleet: what came of the last update.
pub const FLEET_OUTCOME: &str = "operator.knative.dev/fleet-outcome";
/// Annotation of a resource of a fleet: the stage of its cluster at the last update.
pub const FLEET_STAGE: &str = "operator.knative.dev/fleet-stage";
/// Annotation of a resource of a fleet: since when its cluster has left the fleet.
pub const FLEET_LEFT_AT: &str = "operator.knative.dev/fleet-left-at";
/// Annotation of a resource of a fleet: the rollout that leaves its cluster as it is.
pub const FLEET_SKIPPED: &str = "operator.knative.dev/fleet-skipped";
/// The annotations of a resource of a fleet that record the state of its rollout.
pub const FLEET_ANNOTATIONS: [&str; 8] = [
    FLEET_REVISION,
    FLEET_PREVIOUS,
    FLEET_UPDATED_AT,
    FLEET_CONTENT,
    FLEET_OUTCOME,
    FLEET_STAGE,
    FLEET_LEFT_AT,
    FLEET_SKIPPED,
];
/// The labels of a resource of a fleet that name its fleet, its cluster and its revision.
pub const FLEET_LABELS: [&str; 3] = [FLEET, FLEET_CLUSTER, FLEET_REVISION];
/// Label of a Job: the gate of a fleet that it measures.
pub const FLEET_GATE: &str = "operator.knative.dev/fleet-gate";
/// Annotation of a revision of a fleet: generation of the fleet in which its rollout failed.
pub const FLEET_FAILED: &str = "operator.knative.dev/fleet-failed-generation";
/// ConfigMap in the operator's namespace with the catalog of releases, for the webhook.
pub const RELEASES_CONFIG_MAP: &str = "knative-operator-releases";
/// Key of the catalog in it.
pub const RELEASES_KEY: &str = "releases.json";
