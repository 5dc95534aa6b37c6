//! How kinds are addressed: a table for Kubernetes' own, the plan's CRDs for theirs, discovery for the rest.

use std::collections::HashMap;

use kube::core::{ApiResource, GroupVersionKind};

use crate::object::Kind;
use crate::packed::Packed;

/// Kubernetes' own kinds that releases use: group, kind, resource name, whether namespaced.
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

/// How the kinds of a cluster are addressed.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    learnt: HashMap<GroupVersionKind, Kind>,
}

impl Kinds {
    /// The kinds that CustomResourceDefinitions among `objects` define.
    pub fn defined<'o>(objects: impl Iterator<Item = &'o Packed>) -> Self {
        let kinds = objects.filter_map(Packed::definition).flat_map(|definition| definition.kinds.iter().cloned());
        Self { learnt: kinds.collect() }
    }

    /// Learns how one kind is addressed.
    pub fn insert(&mut self, gvk: GroupVersionKind, kind: Kind) {
        self.learnt.insert(gvk, kind);
    }

    /// How `gvk` is addressed, if that is known.
    pub fn get(&self, gvk: &GroupVersionKind) -> Option<Kind> {
        if let Some(kind) = self.learnt.get(gvk) {
            return Some(kind.clone());
        }
        let (_, _, plural, namespaced) =
            BUILT_IN.iter().find(|(group, kind, ..)| *group == gvk.group && *kind == gvk.kind)?;
        Some(Kind { resource: ApiResource::from_gvk_with_plural(gvk, plural), namespaced: *namespaced })
    }
}

/// Whether objects of this kind live outside of namespaces, as far as the table knows; kinds that it doesn't know
/// are taken for namespaced unless one of `crds` says otherwise.
pub fn cluster_scoped(gvk: &GroupVersionKind, crds: &Kinds) -> bool {
    crds.get(gvk).is_some_and(|kind| !kind.namespaced)
}
