//! Resource names of kinds: a table for Kubernetes' own, the plan's CRDs for custom ones, discovery
//! for the rest.

use std::collections::HashMap;

use kube::core::{ApiResource, GroupVersionKind};

use super::compact::CompactObject;
use super::kind::Kind;

/// Kubernetes kinds that releases use: group, kind, resource name, whether namespaced.
const BUILT_IN: &[(&str, &str, &str, bool)] = &[
    ("", "ConfigMap", "configmaps", true),
    ("", "Namespace", "namespaces", false),
    ("", "Secret", "secrets", true),
    ("", "Service", "services", true),
    ("", "ServiceAccount", "serviceaccounts", true),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("apiregistration.k8s.io", "APIService", "apiservices", false),
    ("apps", "DaemonSet", "daemonsets", true),
    ("apps", "Deployment", "deployments", true),
    ("apps", "StatefulSet", "statefulsets", true),
    ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("batch", "CronJob", "cronjobs", true),
    ("batch", "Job", "jobs", true),
    ("networking.k8s.io", "Ingress", "ingresses", true),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies", true),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "Role", "roles", true),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", true),
    ("scheduling.k8s.io", "PriorityClass", "priorityclasses", false),
    ("storage.k8s.io", "StorageClass", "storageclasses", false),
];

/// Resource names and scopes of the kinds of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    discovered: HashMap<GroupVersionKind, Kind>,
}

impl Kinds {
    /// The kinds that the CustomResourceDefinitions among `objects` define.
    pub fn defined<'o>(objects: impl Iterator<Item = &'o CompactObject>) -> Self {
        let kinds =
            objects.filter_map(CompactObject::definition).flat_map(|definition| definition.kinds.iter().cloned());
        Self { discovered: kinds.collect() }
    }

    /// Adds one kind.
    pub fn insert(&mut self, gvk: GroupVersionKind, kind: Kind) {
        self.discovered.insert(gvk, kind);
    }

    /// Resource name and scope of `gvk`, if known.
    pub fn get(&self, gvk: &GroupVersionKind) -> Option<Kind> {
        if let Some(kind) = self.discovered.get(gvk) {
            return Some(kind.clone());
        }
        let (_, _, plural, namespaced) =
            BUILT_IN.iter().find(|(group, kind, ..)| *group == gvk.group && *kind == gvk.kind)?;
        Some(Kind { resource: ApiResource::from_gvk_with_plural(gvk, plural), namespaced: *namespaced })
    }
}

/// Whether `gvk` is known to be cluster-scoped. Kinds that neither Kubernetes' table nor `crds` has
/// count as namespaced.
pub fn is_cluster_scoped(gvk: &GroupVersionKind, crds: &Kinds) -> bool {
    crds.get(gvk).is_some_and(|kind| !kind.namespaced)
}
