//! Permissions that the API server is asked about.

use k8s_openapi::api::authorization::v1::ResourceAttributes;

use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::label::GROUP;

/// Verb: install Knative on the cluster of a ClusterProfile, or on the hub itself.
pub const USE: &str = "use";
/// The resource that stands for the hub itself as a target. It is not served: RBAC rules may name
/// it.
const LOCAL_CLUSTERS: &str = "localclusters";
/// Its name.
const LOCAL: &str = "local";
/// PlacementDecisions.
const DECISIONS: &str = "placementdecisions";
/// Verb: set fields of an installation that not every user may set.
pub const CUSTOMIZE: &str = "customize";

/// Verb: create approvals of rollouts.
pub const CREATE: &str = "create";

/// A permission: a verb for a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permission {
    /// Such as [`USE`], [`CUSTOMIZE`] or [`CREATE`].
    pub verb: &'static str,
    /// API group.
    pub group: &'static str,
    /// Plural of the resource.
    pub resource: &'static str,
    /// Namespace; empty for all.
    pub namespace: String,
    /// Name; empty for all.
    pub name: String,
}

impl Permission {
    /// To use the ClusterProfile `name` in `namespace`; empty for all.
    pub fn to_use(namespace: &str, name: &str) -> Self {
        let (group, resource) = ("multicluster.x-k8s.io", "clusterprofiles");
        Self { verb: USE, group, resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// To install on the cluster of the ClusterProfile `reference`; without one, on the hub itself.
    pub fn to_target(reference: Option<&ClusterProfileReference>) -> Self {
        reference.map_or_else(Self::to_use_local, |profile| Self::to_use(&profile.namespace, &profile.name))
    }

    /// To install on the hub itself.
    pub fn to_use_local() -> Self {
        let (namespace, name) = (String::new(), LOCAL.to_owned());
        Self { verb: USE, group: GROUP, resource: LOCAL_CLUSTERS, namespace, name }
    }

    /// Whether it is [`Self::to_use_local`].
    pub fn is_local(&self) -> bool {
        self.resource == LOCAL_CLUSTERS
    }

    /// To use the PlacementDecisions in `namespace`, whose writers choose the clusters of a fleet.
    pub fn to_use_decisions(namespace: &str) -> Self {
        let (group, resource) = ("multicluster.x-k8s.io", DECISIONS);
        Self { verb: USE, group, resource, namespace: namespace.to_owned(), name: String::new() }
    }

    /// To customize resources in `namespace`.
    pub fn to_customize(resource: &'static str, namespace: &str) -> Self {
        Self { verb: CUSTOMIZE, group: GROUP, resource, namespace: namespace.to_owned(), name: String::new() }
    }

    /// To approve the rollouts of fleets in `namespace`.
    pub fn to_approve(namespace: &str) -> Self {
        let (group, resource) = (GROUP, "knativefleetapprovals");
        Self { verb: CREATE, group, resource, namespace: namespace.to_owned(), name: String::new() }
    }

    /// The ClusterRole of the chart that grants it.
    pub fn role(&self) -> &'static str {
        match self.verb {
            CUSTOMIZE => "knative-operator-customizer",
            CREATE => "knative-operator-approver",
            _ if self.is_local() => "knative-operator-local-user",
            _ => "knative-operator-user",
        }
    }

    /// The binding of that ClusterRole, such as `RoleBinding in namespace "fleet"`.
    pub fn binding(&self) -> String {
        match self.namespace.as_str() {
            "" => "ClusterRoleBinding".to_owned(),
            namespace => format!("RoleBinding in namespace \"{namespace}\""),
        }
    }

    /// The permission as the API server is asked about it.
    pub fn attributes(&self) -> ResourceAttributes {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ResourceAttributes {
            verb: given(self.verb),
            group: given(self.group),
            version: given("*"),
            resource: given(self.resource),
            namespace: given(&self.namespace),
            name: given(&self.name),
            ..ResourceAttributes::default()
        }
    }

    /// What it permits, such as `use ClusterProfile "fleet/a"`.
    pub fn action(&self) -> String {
        let place = if self.namespace.is_empty() {
            "in all namespaces".to_owned()
        } else {
            format!("in namespace \"{}\"", self.namespace)
        };
        match (self.verb, self.name.as_str()) {
            _ if self.is_local() => "install on this cluster itself".to_owned(),
            (USE, _) if self.resource == DECISIONS => format!("use PlacementDecisions {place}"),
            (USE, "") => format!("use all ClusterProfiles {place}"),
            (USE, name) => format!("use ClusterProfile \"{}/{name}\"", self.namespace),
            (CREATE, _) => format!("approve rollouts {place}"),
            (verb, _) => format!("{verb} {} {place}", self.resource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_permission_has_role_and_binding() {
        let of_f = "RoleBinding in namespace \"f\"";
        for (permission, role, binding) in [
            (Permission::to_use("f", "a"), "user", of_f),
            (Permission::to_use("", ""), "user", "ClusterRoleBinding"),
            (Permission::to_use_decisions("f"), "user", of_f),
            (Permission::to_use_local(), "local-user", "ClusterRoleBinding"),
            (Permission::to_customize("knativeservings", "f"), "customizer", of_f),
            (Permission::to_approve("f"), "approver", of_f),
        ] {
            assert_eq!(permission.role(), format!("knative-operator-{role}"), "{permission:?}");
            assert_eq!(permission.binding(), binding, "{permission:?}");
        }
    }
}
