//! What a rule may know beside the resource itself. What isn't known is not judged.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::api::{Component, Knative};
use crate::version::Version;

/// What is known beside the resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings<'a> {
    /// What the operator can install.
    pub releases: Option<&'a Releases>,
    /// The ClusterProfile that the resource refers to.
    pub profile: Option<Profile>,
    /// Another resource of the same kind for the same cluster: namespace/name.
    pub rival: Option<&'a str>,
}

/// A ClusterProfile, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// It isn't there.
    Missing,
    /// Its control plane is not said to be healthy.
    Unhealthy,
    /// All is well.
    Healthy,
}

/// What the operator can install: its versions, and what they consist of. The operator tells it to the webhook in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Releases {
    /// The versions by component (`KnativeServing`).
    pub versions: BTreeMap<String, Vec<Version>>,
    /// What a release consists of, by component and `major.minor`.
    pub names: BTreeMap<String, BTreeMap<String, Names>>,
}

/// The names in a release that a spec may refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Deployments, StatefulSets and, by the beginning of their names, Jobs.
    pub workloads: BTreeMap<String, Workload>,
    /// HorizontalPodAutoscalers.
    pub autoscalers: BTreeSet<String>,
    /// Services.
    pub services: BTreeSet<String>,
    /// PodDisruptionBudgets.
    pub budgets: BTreeSet<String>,
    /// ConfigMaps, and the keys that each explains.
    pub configs: BTreeMap<String, BTreeSet<String>>,
    /// Images that Knative's caching holds.
    pub images: BTreeSet<String>,
}

/// One workload of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its containers.
    pub containers: BTreeMap<String, Container>,
    /// Whether a spec can override it.
    pub overridable: bool,
    /// Whether a spec can set its replicas.
    pub replicas: bool,
}

/// One container of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its environment variables.
    pub env: BTreeSet<String>,
    /// Whether it has a readiness probe.
    pub readiness: bool,
    /// Whether it has a liveness probe.
    pub liveness: bool,
}

impl Releases {
    /// The versions of `component`.
    pub fn versions(&self, component: Component) -> &[Version] {
        self.versions.get(component.kind()).map_or(&[], Vec::as_slice)
    }
}

impl Surroundings<'_> {
    /// The version that `resource` asks for, if the operator has it.
    pub fn version(&self, resource: &Knative) -> Option<Version> {
        let common = resource.common();
        let available = self.releases?.versions(resource.component());
        if common.manifests.is_empty() { Version::resolve(common.version.as_deref(), available).ok() } else { None }
    }

    /// What the release that `resource` asks for consists of, if that is known, and if nothing else is brought along.
    pub fn names(&self, resource: &Knative) -> Option<&Names> {
        let releases = self.releases.filter(|_| resource.common().additional_manifests.is_empty())?;
        releases.names.get(resource.component().kind())?.get(&self.version(resource)?.minor())
    }
}
