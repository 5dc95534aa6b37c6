//! Permissions that the API server is asked about.

use k8s_openapi::api::authorization::v1::ResourceAttributes;

/// Verb: install Knative on the cluster of a ClusterProfile.
pub const USE: &str = "use";
/// Verb: bring content into an installation that its release does not have.
pub const CUSTOMIZE: &str = "customize";

/// A permission: a verb for a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permission {
    /// [`USE`] or [`CUSTOMIZE`].
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

/// Whether a permission is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is.
    Allowed,
    /// It is not.
    Denied,
    /// The API server could not be asked.
    Unknown,
}

impl Permission {
    /// To use the ClusterProfile `name` in `namespace`; empty for all.
    pub fn to_use(namespace: &str, name: &str) -> Self {
        let (group, resource) = ("multicluster.x-k8s.io", "clusterprofiles");
        Self { verb: USE, group, resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// To customize resources in `namespace`.
    pub fn to_customize(resource: &'static str, namespace: &str) -> Self {
        let group = knative_operator_shared::label::GROUP;
        Self { verb: CUSTOMIZE, group, resource, namespace: namespace.to_owned(), name: String::new() }
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
            (USE, "") => format!("use all ClusterProfiles {place}"),
            (USE, name) => format!("use ClusterProfile \"{}/{name}\"", self.namespace),
            (verb, _) => format!("{verb} {} {place}", self.resource),
        }
    }
}
