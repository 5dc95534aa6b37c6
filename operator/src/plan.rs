//! What is to be on the cluster: objects in phases. Pure.

use crate::kinds::Kinds;
use crate::object::{Digest, Kind, ObjectId};
use crate::packed::Packed;
use kube::core::GroupVersionKind;

/// When an object is applied: each phase after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Namespaces.
    Namespaces,
    /// Services: an API server takes long to give each its address, and nothing has to be there before.
    Services,
    /// CustomResourceDefinitions.
    Definitions,
    /// ServiceAccounts and RBAC.
    Access,
    /// ConfigMaps and Secrets.
    Configuration,
    /// Workloads and everything else that Kubernetes itself defines.
    Workloads,
    /// What is of a kind that somebody else defines: tried until its definition is served.
    Customs,
    /// Webhook configurations: after the workloads that answer them.
    Webhooks,
    /// What the component's own webhooks judge: after its Deployments are available.
    Dependents,
    /// Jobs: after everything.
    Jobs,
}

impl Phase {
    /// All phases, first to last.
    pub const ALL: [Self; 10] = [
        Self::Namespaces,
        Self::Services,
        Self::Definitions,
        Self::Access,
        Self::Configuration,
        Self::Workloads,
        Self::Customs,
        Self::Webhooks,
        Self::Dependents,
        Self::Jobs,
    ];

    /// The phase of objects of kind `kind` in API group `group`.
    pub fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace") => Self::Namespaces,
            ("", "Service") => Self::Services,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definitions,
            ("rbac.authorization.k8s.io", _) | ("", "ServiceAccount") => Self::Access,
            ("", "ConfigMap" | "Secret") => Self::Configuration,
            ("admissionregistration.k8s.io", _) => Self::Webhooks,
            ("networking.internal.knative.dev", _) => Self::Dependents,
            ("batch", "Job") => Self::Jobs,
            // Groups of Kubernetes' own have no dot, or end so.
            _ if !group.contains('.') || group.ends_with(".k8s.io") && group != "gateway.networking.k8s.io" => Self::Workloads,
            _ => Self::Customs,
        }
    }
}

/// One object of a plan.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which object.
    pub id: ObjectId,
    /// Its group, version and kind.
    pub gvk: GroupVersionKind,
    /// The object as it is applied.
    pub object: Packed,
    /// Its digest.
    pub digest: Digest,
}

impl Item {
    /// An item for `object`.
    pub fn new(object: Packed) -> Self {
        Self { id: object.id().clone(), gvk: object.gvk().clone(), digest: object.digest().clone(), object }
    }

    /// When it is applied.
    pub fn phase(&self) -> Phase {
        Phase::of(&self.id.group, &self.id.kind)
    }
}

/// What is to be on the cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The objects, in apply order.
    pub items: Vec<Item>,
    /// How the kinds that its CRDs define are addressed.
    pub kinds: Kinds,
}

impl Plan {
    /// A plan for `objects`, each of which is there once. The order within a phase is kept.
    pub fn new(objects: Vec<Packed>) -> Self {
        let kinds = Kinds::defined(objects.iter());
        let mut items: Vec<Item> = objects.into_iter().map(Item::new).collect();
        items.sort_by_key(Item::phase);
        Self { items, kinds }
    }

    /// The definition of `kind`, if the plan has it.
    pub fn definition(&self, kind: &Kind) -> Option<&Item> {
        let name = format!("{}.{}", kind.resource.plural, kind.resource.group);
        self.phase(Phase::Definitions).find(|item| item.id.name == name)
    }

    /// The items of `phase`.
    pub fn phase(&self, phase: Phase) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.phase() == phase)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_need_comes_first() {
        let object = |api: &str, kind: &str| Packed::new(&json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x"}}));
        let plan = Plan::new(vec![
            object("batch/v1", "Job"),
            object("networking.internal.knative.dev/v1alpha1", "Certificate"),
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            object("networking.istio.io/v1", "Gateway"),
            object("apps/v1", "Deployment"),
            object("v1", "ConfigMap"),
            object("rbac.authorization.k8s.io/v1", "ClusterRole"),
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            object("v1", "Service"),
            object("v1", "Namespace"),
        ]);
        let phases: Vec<_> = plan.items.iter().map(Item::phase).collect();
        assert_eq!(phases, Phase::ALL);
    }
}
