//! What is to be on the cluster: objects in phases. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::kinds::Kinds;
use crate::object::{Digest, Id, Kind, ObjectId};
use crate::owner::Owner;
use crate::packed::Packed;

/// Group and kind of definitions of kinds.
pub const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

/// When an object is applied: each phase after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Namespaces.
    Namespaces,
    /// Services: an API server takes long to give each its address, and nothing has to be there before.
    Services,
    /// CustomResourceDefinitions.
    Definitions,
    /// ServiceAccounts.
    Accounts,
    /// RBAC.
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
    pub const ALL: [Self; 11] = [
        Self::Namespaces,
        Self::Services,
        Self::Definitions,
        Self::Accounts,
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
            ("", "ServiceAccount") => Self::Accounts,
            ("rbac.authorization.k8s.io", _) => Self::Access,
            ("", "ConfigMap" | "Secret") => Self::Configuration,
            ("admissionregistration.k8s.io", _) => Self::Webhooks,
            ("networking.internal.knative.dev", _) => Self::Dependents,
            ("batch", "Job") => Self::Jobs,
            // Groups of Kubernetes' own have no dot, or end so.
            _ if !group.contains('.') || group.ends_with(".k8s.io") && group != "gateway.networking.k8s.io" => {
                Self::Workloads
            }
            _ => Self::Customs,
        }
    }

    /// Whether its objects are of kinds that somebody else defines.
    pub fn is_custom(self) -> bool {
        matches!(self, Self::Customs | Self::Dependents)
    }
}

/// One object of a plan.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which object.
    pub id: ObjectId,
    /// Its group, version and kind.
    pub gvk: GroupVersionKind,
    /// The object, but for who owns it.
    pub object: Packed,
}

impl Item {
    /// An item for `object`.
    pub fn new(object: Packed) -> Self {
        Self { id: object.id().clone(), gvk: object.gvk().clone(), object }
    }

    /// When it is applied.
    pub fn phase(&self) -> Phase {
        Phase::of(&self.id.group, &self.id.kind)
    }
}

/// Objects in phases, which may be installed on many clusters.
#[derive(Debug)]
pub struct Rendered {
    /// In apply order.
    items: Vec<Item>,
    places: HashMap<ObjectId, usize>,
    kinds: Kinds,
}

impl Rendered {
    /// Out of `objects`, each of which is there once. The order within a phase is kept.
    pub fn new(objects: Vec<Packed>) -> Self {
        let kinds = Kinds::defined(objects.iter());
        let mut items: Vec<Item> = objects.into_iter().map(Item::new).collect();
        items.sort_by_key(Item::phase);
        let places = items.iter().enumerate().map(|(place, item)| (item.id.clone(), place)).collect();
        Self { items, places, kinds }
    }
}

/// What is to be on one cluster. Clones share it.
#[derive(Clone, Debug)]
pub struct Plan {
    rendered: Arc<Rendered>,
    /// Who owns the objects in which namespace.
    owner: Arc<(String, String)>,
    first: usize,
}

impl Plan {
    /// `rendered`, whose objects in the namespace of `owner` it owns.
    pub fn new(rendered: Arc<Rendered>, owner: &Owner) -> Self {
        Self { rendered, owner: Arc::new((owner.reference().to_string(), owner.namespace.clone())), first: 0 }
    }

    /// The same without Namespaces.
    #[must_use]
    pub fn without_namespaces(mut self) -> Self {
        self.first = self.phase(Phase::Namespaces).count();
        self
    }

    /// The objects, in apply order.
    pub fn items(&self) -> &[Item] {
        &self.rendered.items[self.first..]
    }

    /// How the kinds that its CRDs define are addressed.
    pub fn kinds(&self) -> &Kinds {
        &self.rendered.kinds
    }

    /// The item for `id`, if it has one.
    pub fn find(&self, id: &Id) -> Option<&Item> {
        self.rendered
            .places
            .get(id)
            .filter(|place| **place >= self.first)
            .and_then(|place| self.rendered.items.get(*place))
    }

    /// The object of `item` as it is applied.
    pub fn open(&self, item: &Item) -> Value {
        let mut object = item.object.open();
        if let Some(owner) = self.owner(item) {
            let owner: Value = serde_json::from_str(owner).unwrap_or_default();
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        object
    }

    /// Who owns `item`, if anybody does: nobody owns what is in another namespace.
    fn owner(&self, item: &Item) -> Option<&str> {
        let (owner, namespace) = &*self.owner;
        (!item.id.namespace.is_empty() && item.id.namespace == *namespace).then_some(owner.as_str())
    }

    /// The digest of the object of `item` as it is applied.
    pub fn digest(&self, item: &Item) -> Digest {
        let digest = item.object.digest();
        self.owner(item).map_or(digest, |owner| digest.owned(owner))
    }

    /// The definition of `kind`, if the plan has it.
    pub fn definition(&self, kind: &Kind) -> Option<&Item> {
        let name = format!("{}.{}", kind.resource.plural, kind.resource.group);
        self.find(&Id {
            group: DEFINITIONS.0.to_owned(),
            kind: DEFINITIONS.1.to_owned(),
            namespace: String::new(),
            name,
        })
    }

    /// The definition of the kind of `item`, if the plan has it.
    pub fn definition_of(&self, item: &Item) -> Option<&Item> {
        self.definition(&self.kinds().get(&item.gvk)?)
    }

    /// Whether `item` is of the kind that `definition` defines.
    pub fn defines(&self, definition: &Item, item: &Item) -> bool {
        self.definition_of(item).is_some_and(|found| found.id == definition.id)
    }

    /// Whether an object of the plan is of the kind that `definition` defines.
    pub fn is_awaited(&self, definition: &Item) -> bool {
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
    fn what_others_need_comes_first() {
        let object =
            |api: &str, kind: &str| Packed::new(&json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x"}}));
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
