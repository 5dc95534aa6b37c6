//! Every label, annotation, finalizer and manager name, in one place.

/// API group of the custom resources.
pub const GROUP: &str = "operator.knative.dev";
/// Version of the custom resources.
pub const VERSION: &str = "v1beta1";
/// Field manager of everything that the operator applies. Never change it: fields would be orphaned.
pub const FIELD_MANAGER: &str = "knative-operator";
/// Field manager of everything that the webhook writes.
pub const WEBHOOK_FIELD_MANAGER: &str = "knative-operator-webhook";
/// Says which component an object belongs to; selects what is watched.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Says which version an object belongs to.
pub const APP_VERSION: &str = "app.kubernetes.io/version";
/// Says who manages an object that is not part of a release.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Names, on an anchor and a namespace, the custom resource they were made for.
pub const CR_NAME: &str = "operator.knative.dev/cr-name";
/// Marks an anchor ConfigMap.
pub const ANCHOR: &str = "operator.knative.dev/anchor";
/// Warns against deleting an object by hand.
pub const PROTECTED: &str = "operator.knative.dev/protected";
/// Says what an object is for.
pub const DESCRIPTION: &str = "operator.knative.dev/description";
/// What becomes of a resource that is deleted while its cluster can't be reached: [`ORPHAN`], or it waits.
pub const ON_UNREACHABLE: &str = "operator.knative.dev/on-unreachable";
/// Value of [`ON_UNREACHABLE`]: it goes, and leaves behind what was installed.
pub const ORPHAN: &str = "orphan";
/// Changing its value asks for a reconcile.
pub const TRIGGER: &str = "reconcile.knative.dev/trigger";
/// On a namespace: which resource's operator created it, so that it may be deleted with it.
pub const CREATED_BY: &str = "operator.knative.dev/created-by";
/// On each applied object: the digest of what was applied.
pub const DIGEST: &str = "operator.knative.dev/digest";
/// Annotation in the status: the namespace of the spoke that it is installed in, where that is not the canonical one.
pub const INSTALLED_IN: &str = "operator.knative.dev/installed-in";
/// On a resource: it may wait for a cluster that another one of its kind has.
pub const SHARED_TARGET: &str = "operator.knative.dev/shared-target";
/// On a ConfigMap in the operator's namespace: what the operator can install, for the webhook.
pub const RELEASES_CONFIG_MAP: &str = "knative-operator-releases";
