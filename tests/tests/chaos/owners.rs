//! Who owns the installations on a spoke, as its anchors record it, and what the resources that use
//! the spoke have to show then.

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_objects::InstallationOwner;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{CR_NAME, FIELD_MANAGER, MANAGED_BY, OWNER};
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};

use super::site::{Resource, State, with_mark};

/// The owners that the anchors of a spoke record, at one moment.
pub async fn recorded(spoke: Client) -> Result<Vec<InstallationOwner>> {
    let anchors = ListParams::default().labels(&format!("{MANAGED_BY}={FIELD_MANAGER},{CR_NAME}"));
    let owner = |anchor: &PartialObjectMeta<ConfigMap>| -> Result<InstallationOwner> {
        let record = anchor.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OWNER));
        let owner = record.and_then(|record| InstallationOwner::decode(record));
        owner.ok_or_else(|| format!("no owner: {:?}", anchor.metadata).into())
    };
    Api::<ConfigMap>::all(spoke).list_metadata(&anchors).await?.items.iter().map(owner).collect()
}

/// Checks that no component has two owners.
pub fn check_single(recorded: &[InstallationOwner]) -> Result<()> {
    for component in Component::ALL {
        let is_owner = |owner: &&InstallationOwner| owner.confirmed && owner.kind == component.kind();
        let owners: Vec<_> = recorded.iter().filter(is_owner).collect();
        if owners.len() > 1 {
            return Err(format!("{component} has several owners: {owners:?}").into());
        }
    }
    Ok(())
}

/// A resource that exists.
pub struct Declared<'r> {
    pub resource: &'r Resource,
    /// What a cluster without faults has that it owns.
    pub objects: State,
}

/// What the resources that use a spoke are, by its owners.
pub struct Claims<'d> {
    /// The owner of each component, with its mark.
    owners: Vec<(&'d Declared<'d>, String)>,
    /// The resources that wait until an owner is deleted.
    pub waiting: Vec<&'d Resource>,
    /// Why the owners are not those that the resources need.
    pub objections: Vec<String>,
}

impl<'d> Claims<'d> {
    /// Those of all resources that use a spoke: each component has one owner, which is one of them.
    pub fn of(declared: &'d [Declared<'d>], recorded: &[InstallationOwner]) -> Self {
        let mut claims = Self { owners: Vec::new(), waiting: Vec::new(), objections: Vec::new() };
        for component in Component::ALL {
            let recorded: Vec<_> = recorded.iter().filter(|owner| owner.kind == component.kind()).collect();
            let (mut owners, mut resources) = (0_usize, 0_usize);
            for one in declared.iter().filter(|one| one.resource.component == component) {
                resources += 1;
                // The resources of a fleet are in its namespace.
                match recorded.iter().find(|owner| owner.confirmed && owner.namespace == one.resource.namespace) {
                    Some(owner) => {
                        owners += 1;
                        claims.owners.push((one, owner.mark()));
                    }
                    None => claims.waiting.push(one.resource),
                }
            }
            if owners != resources.min(1) || recorded.len() != owners {
                claims.objections.push(format!("{component}: {resources} resources, and the owners {recorded:?}"));
            }
        }
        claims
    }

    /// Whether the owners say that they are installed, and the others that they wait.
    pub async fn are_reported(&self, hub: &Cluster) -> Result<bool> {
        let mut are_reported = self.objections.is_empty();
        for (owner, _) in &self.owners {
            are_reported &= owner.resource.is_installed(hub).await?;
        }
        for resource in &self.waiting {
            are_reported &= resource.is_waiting(hub).await?;
        }
        Ok(are_reported)
    }

    /// What the spoke has, with the marks of the owners.
    pub fn expected(&self) -> State {
        let of_owner = |(owner, mark): &(&Declared<'_>, String)| -> State {
            let objects = owner.objects.iter();
            objects.map(|(name, content)| (name.clone(), with_mark(content.clone(), mark))).collect()
        };
        self.owners.iter().flat_map(of_owner).collect()
    }
}
