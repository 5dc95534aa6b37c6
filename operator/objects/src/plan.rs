//! Desired objects of an installation, in phases. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use knative_operator_patch::remove_directives;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::CompactObject;
use crate::Kinds;
use crate::Owner;
use crate::{Digest, Id, Kind, ObjectId};

/// Group and kind of CustomResourceDefinitions.
pub const CRD: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

/// When an object is applied: phases follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Namespaces.
    Namespaces,
    /// Services. They depend on nothing, and an API server takes long to allocate their addresses.
    Services,
    /// CustomResourceDefinitions.
    Definitions,
    /// ServiceAccounts.
    Accounts,
    /// RBAC.
    Access,
    /// ConfigMaps and Secrets.
    Configuration,
    /// Workloads and other kinds that Kubernetes defines.
    Workloads,
    /// Custom resources: retried until their definition is served.
    CustomResources,
    /// Webhook configurations, after the workloads that serve them.
    Webhooks,
    /// Objects that the component's own webhooks admit, after its Deployments are available.
    Dependents,
    /// Jobs, after everything else.
    Jobs,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 11] = [
        Self::Namespaces,
        Self::Services,
        Self::Definitions,
        Self::Accounts,
        Self::Access,
        Self::Configuration,
        Self::Workloads,
        Self::CustomResources,
        Self::Webhooks,
        Self::Dependents,
        Self::Jobs,
    ];

    /// Phase of objects of kind `kind` in API group `group`.
    pub fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace") => Self::Namespaces,
            ("", "Service") => Self::Services,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definitions,
            ("", "ServiceAccount") => Self::Accounts,
            ("rbac.authorization.k8s.io", _) => Self::Access,
            ("", "ConfigMap" | "Secret") => Self::Configuration,
            ("admissionregistration.k8s.io", _) => Self::Webhooks,
            ("networking.internal.knative.dev", _) => Self::Dependents,
            ("batch", "Job") => Self::Jobs,
            // Kubernetes' own API groups have no dot or end in `.k8s.io`.
            _ if !group.contains('.') || group.ends_with(".k8s.io") && group != "gateway.networking.k8s.io" => {
                Self::Workloads
            }
            _ => Self::CustomResources,
        }
    }

    /// Whether a CustomResourceDefinition defines the kinds of the phase.
    pub fn is_custom(self) -> bool {
        matches!(self, Self::CustomResources | Self::Dependents)
    }
}

/// An object of a plan.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which object.
    pub id: ObjectId,
    /// Its group, version and kind.
    pub gvk: GroupVersionKind,
    /// The object, without its owner reference.
    pub object: CompactObject,
}

impl Item {
    /// An item for `object`.
    pub fn new(object: CompactObject) -> Self {
        Self { id: object.id().clone(), gvk: object.gvk().clone(), object }
    }

    /// Phase in which it is applied.
    pub fn phase(&self) -> Phase {
        Phase::of(&self.id.group, &self.id.kind)
    }

    /// Whether it binds a role: a RoleBinding or a ClusterRoleBinding.
    pub fn is_binding(&self) -> bool {
        self.phase() == Phase::Access && self.id.kind.ends_with("Binding")
    }
}

/// Objects in phases, shared by all clusters that install the same.
#[derive(Debug)]
pub struct Rendered {
    /// In apply order.
    items: Vec<Item>,
    positions: HashMap<ObjectId, usize>,
    kinds: Kinds,
    unowned: HashSet<ObjectId>,
    unlabeled: HashSet<ObjectId>,
}

impl Rendered {
    /// Sorts `objects`, which are distinct, by phase. The order within a phase is kept.
    pub fn new(objects: Vec<CompactObject>) -> Self {
        let kinds = Kinds::defined(objects.iter());
        let mut items: Vec<Item> = objects.into_iter().map(Item::new).collect();
        items.sort_by_key(Item::phase);
        let positions = items.iter().enumerate().map(|(position, item)| (item.id.clone(), position)).collect();
        Self { items, positions, kinds, unowned: HashSet::new(), unlabeled: HashSet::new() }
    }

    /// The same objects, of which `unowned` get no owner reference, and `unlabeled` lack the label
    /// that selects a component's objects.
    #[must_use]
    pub fn with_exceptions(mut self, unowned: HashSet<ObjectId>, unlabeled: HashSet<ObjectId>) -> Self {
        (self.unowned, self.unlabeled) = (unowned, unlabeled);
        self
    }
}

/// Desired objects on one cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct Plan {
    rendered: Arc<Rendered>,
    /// The owner reference, as JSON, and its namespace.
    owner: Arc<(String, String)>,
    first: usize,
}

impl Plan {
    /// A plan of `rendered`; `owner` owns the objects in its own namespace.
    pub fn new(rendered: Arc<Rendered>, owner: &Owner) -> Self {
        Self { rendered, owner: Arc::new((owner.reference().to_string(), owner.namespace.clone())), first: 0 }
    }

    /// The same plan without Namespaces.
    #[must_use]
    pub fn without_namespaces(mut self) -> Self {
        self.first = self.phase(Phase::Namespaces).count();
        self
    }

    /// The objects, in apply order.
    pub fn items(&self) -> &[Item] {
        &self.rendered.items[self.first..]
    }

    /// Kinds that the plan's CRDs define.
    pub fn kinds(&self) -> &Kinds {
        &self.rendered.kinds
    }

    /// The item for `id`, if the plan has one.
    pub fn get(&self, id: &Id) -> Option<&Item> {
        self.rendered
            .positions
            .get(id)
            .filter(|position| **position >= self.first)
            .and_then(|position| self.rendered.items.get(*position))
    }

    /// The object of `item` as it is applied, with its owner reference.
    pub fn object_of(&self, item: &Item) -> Value {
        let mut object = self.rendered_object_of(item);
        // Where an object lacks a map, a patch leaves its directives in the object, as in the Go
        // operator. An API server refuses them.
        if item.object.text().contains("\"$") {
            remove_directives(&mut object);
        }
        object
    }

    /// The object of `item` as the Go operator renders it, with its owner reference.
    pub fn rendered_object_of(&self, item: &Item) -> Value {
        let mut object = item.object.parse();
        if let Some(owner) = self.owner(item) {
            let owner: Value = serde_json::from_str(owner).unwrap_or_default();
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        object
    }

    /// The owner reference of `item`, if its namespace is the owner's.
    fn owner(&self, item: &Item) -> Option<&str> {
        let (owner, namespace) = &*self.owner;
        let is_owned = !item.id.namespace.is_empty()
            && item.id.namespace == *namespace
            && !self.rendered.unowned.contains(&item.id);
        is_owned.then_some(owner.as_str())
    }

    /// The objects without the label that selects a component's objects.
    pub fn unlabeled(&self) -> &HashSet<ObjectId> {
        &self.rendered.unlabeled
    }

    /// Digest of the object of `item` as it is applied.
    pub fn digest(&self, item: &Item) -> Digest {
        let digest = item.object.digest();
        self.owner(item).map_or(digest, |owner| digest.owned(owner))
    }

    /// The CustomResourceDefinition of `kind`, if the plan has it.
    pub fn definition(&self, kind: &Kind) -> Option<&Item> {
        let name = format!("{}.{}", kind.resource.plural, kind.resource.group);
        self.get(&Id { group: CRD.0.to_owned(), kind: CRD.1.to_owned(), namespace: String::new(), name })
    }

    /// The CustomResourceDefinition of the kind of `item`, if the plan has it.
    pub fn definition_of(&self, item: &Item) -> Option<&Item> {
        self.definition(&self.kinds().get(&item.gvk)?)
    }

    /// Whether `definition` defines the kind of `item`.
    pub fn defines(&self, definition: &Item, item: &Item) -> bool {
        self.definition_of(item).is_some_and(|found| found.id == definition.id)
    }

    /// Whether the plan has custom resources of the kind that `definition` defines.
    pub fn has_instances(&self, definition: &Item) -> bool {
        self.items().iter().filter(|item| item.phase().is_custom()).any(|item| self.defines(definition, item))
    }

    /// The items of `phase`.
    pub fn phase(&self, phase: Phase) -> impl Iterator<Item = &Item> {
        self.items().iter().filter(move |item| item.phase() == phase)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dependencies_come_first() {
        let object = |api: &str, kind: &str| {
            CompactObject::new(&json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x"}}))
        };
        let rendered = Rendered::new(vec![
            object("batch/v1", "Job"),
            object("networking.internal.knative.dev/v1alpha1", "Certificate"),
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            object("networking.istio.io/v1", "Gateway"),
            object("apps/v1", "Deployment"),
            object("v1", "ConfigMap"),
            object("rbac.authorization.k8s.io/v1", "ClusterRole"),
            object("v1", "ServiceAccount"),
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            object("v1", "Service"),
            object("v1", "Namespace"),
        ]);
        let owner = Owner {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "anchor".into(),
            uid: "1".into(),
            namespace: "n".into(),
        };
        let plan = Plan::new(Arc::new(rendered), &owner);
        let phases: Vec<_> = plan.items().iter().map(Item::phase).collect();
        assert_eq!(phases, Phase::ALL);
        assert_eq!(plan.without_namespaces().items().len(), Phase::ALL.len() - 1);
    }
}
