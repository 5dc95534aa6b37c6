//! Facts about the cluster that rules use. Rules skip what is unknown.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use knative_operator_shared::api::fleet::{Placement, Selecting};
use knative_operator_shared::api::{ClusterProfileReference, Component, Knative};
use knative_operator_shared::fleet::placement::{MAX_NAMESPACES, selected};
use knative_operator_shared::fleet::selector::Traits;
use knative_operator_shared::version::Version;

/// Facts about the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleContext<'a> {
    /// Catalog of releases.
    pub catalog: Option<&'a Catalog>,
    /// State of the ClusterProfile that the resource refers to.
    pub profile: Option<Profile>,
    /// Namespace and name of another resource of the same kind for the same cluster.
    pub competitor: Option<&'a str>,
    /// Field manager of the change.
    pub field_manager: Option<&'a str>,
}

/// State of a ClusterProfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// It does not exist.
    Missing,
    /// Its control plane is not known to be healthy.
    Unhealthy,
    /// Its control plane is healthy.
    Healthy,
}

/// Catalog of the releases that the operator can install. The operator publishes it for the webhook
/// in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// Versions by kind (`KnativeServing`).
    pub versions: BTreeMap<String, Vec<Version>>,
    /// Names in a release, by kind and `major.minor`.
    pub names: BTreeMap<String, BTreeMap<String, ReleaseNames>>,
    /// Whether the operator keeps what is installed while `spec.version` means it; `None` if an
    /// earlier version of the operator wrote it.
    #[serde(default, rename = "keepsInstalled", skip_serializing_if = "Option::is_none")]
    pub keeps_installed: Option<bool>,
}

/// Names in a release that a spec may refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseNames {
    /// Deployments, StatefulSets and, by `generateName`, Jobs.
    pub workloads: BTreeMap<String, Workload>,
    /// HorizontalPodAutoscalers.
    pub autoscalers: BTreeSet<String>,
    /// Services.
    pub services: BTreeSet<String>,
    /// PodDisruptionBudgets.
    pub budgets: BTreeSet<String>,
    /// ConfigMaps with their documented keys.
    pub configs: BTreeMap<String, BTreeSet<String>>,
    /// Images of Knative's image cache.
    pub images: BTreeSet<String>,
    /// Identities of the objects, by part: empty for the release itself, the name of an ingress or
    /// source, or [`GUARD`].
    #[serde(default)]
    pub objects: BTreeMap<String, Identities>,
}

/// Names of objects by API version and kind, such as `apps/v1 Deployment`.
pub type Identities = BTreeMap<String, BTreeSet<String>>;

/// The part of a release with the security guard.
pub const GUARD: &str = "security-guard";
/// Stands for the version in the name of a Job.
pub const VERSION_PLACEHOLDER: &str = "${VERSION}";

/// A workload of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its containers.
    pub containers: BTreeMap<String, Container>,
    /// Whether a spec can override it.
    pub overridable: bool,
    /// Whether a spec can set its replicas.
    pub replicas: bool,
}

/// A container of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its environment variables.
    pub env: BTreeSet<String>,
    /// Whether it has a readiness probe.
    pub readiness: bool,
    /// Whether it has a liveness probe.
    pub liveness: bool,
}

impl Catalog {
    /// The versions of `component`.
    pub fn versions(&self, component: Component) -> &[Version] {
        self.versions.get(component.kind()).map_or(&[], Vec::as_slice)
    }
}

impl<'a> RuleContext<'a> {
    /// The version that `resource` asks for, if the operator has it.
    pub fn version(&self, resource: &Knative) -> Option<Version> {
        let common = resource.common();
        let available = self.catalog?.versions(resource.component());
        let installed = resource.installed_version();
        let version = Version::resolve_after(common.version.as_deref(), installed.as_ref(), available);
        version.ok().filter(|_| common.manifests.is_empty())
    }

    /// Names in the release that `resource` asks for, if known, and if it has no manifests of its
    /// own.
    pub fn names(&self, resource: &Knative) -> Option<&'a ReleaseNames> {
        let releases = self.catalog.filter(|_| resource.common().additional_manifests.is_empty())?;
        releases.names.get(resource.component().kind())?.get(&self.version(resource)?.minor())
    }
}

/// Facts about the cluster that rules for fleets use. Rules skip what is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct FleetContext<'a> {
    /// Catalog of releases.
    pub catalog: Option<&'a Catalog>,
    /// All ClusterProfiles, with what selectors look at.
    pub profiles: Option<&'a [(ClusterProfileReference, Traits<'static>)]>,
}

impl FleetContext<'_> {
    /// The clusters that `placement` of a fleet in `namespace` selects, with what other selectors
    /// look at, if that is known.
    pub(super) fn selected(
        &self,
        placement: &Placement,
        namespace: &str,
    ) -> Option<Vec<(ClusterProfileReference, &Traits<'static>)>> {
        let is_checked = placement.namespaces.len() <= MAX_NAMESPACES;
        let has_selector = placement.has_selector() && placement.decision.is_none();
        let profiles = self.profiles.filter(|_| has_selector && is_checked)?;
        let all = profiles.iter().map(|(reference, traits)| (reference, traits.borrowed()));
        let names = selected(placement, namespace, all).ok()?;
        let traits: HashMap<&ClusterProfileReference, &Traits<'static>> =
            profiles.iter().map(|(reference, traits)| (reference, traits)).collect();
        Some(names.into_iter().filter_map(|name| Some((name.clone(), *traits.get(&name)?))).collect())
    }
}
