//! The two kinds, seen as one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{CommonSpec, KnativeEventing, KnativeServing, KnativeStatus};
use crate::label::INSTALLED_IN;

/// Which of the two components a resource is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// Knative Serving.
    Serving,
    /// Knative Eventing.
    Eventing,
}

impl Component {
    /// Both, in the order in which they are listed everywhere.
    pub const ALL: [Self; 2] = [Self::Serving, Self::Eventing];

    /// The kind of its custom resource.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Serving => "KnativeServing",
            Self::Eventing => "KnativeEventing",
        }
    }

    /// The resource name of its custom resource.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Serving => "knativeservings",
            Self::Eventing => "knativeeventings",
        }
    }

    /// The finalizer of its custom resource, as the Go operator names it.
    pub const fn finalizer(self) -> &'static str {
        match self {
            Self::Serving => "knativeservings.operator.knative.dev",
            Self::Eventing => "knativeeventings.operator.knative.dev",
        }
    }

    /// Its directory in a bundle, its namespace on a spoke, and the value of its `app.kubernetes.io/name` label.
    pub const fn canonical(self) -> &'static str {
        match self {
            Self::Serving => "knative-serving",
            Self::Eventing => "knative-eventing",
        }
    }

    /// The word that its Jobs' names carry.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Eventing => "eventing",
        }
    }

    /// The component of `kind`, if it is one of ours.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.kind() == kind)
    }
}

impl std::fmt::Display for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

/// A custom resource of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Knative {
    /// A `KnativeServing`.
    Serving(KnativeServing),
    /// A `KnativeEventing`.
    Eventing(KnativeEventing),
}

impl Knative {
    /// Which component it asks for.
    pub fn component(&self) -> Component {
        match self {
            Self::Serving(_) => Component::Serving,
            Self::Eventing(_) => Component::Eventing,
        }
    }

    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Serving(s) => &s.metadata,
            Self::Eventing(e) => &e.metadata,
        }
    }

    /// The part of the spec that both kinds share.
    pub fn common(&self) -> &CommonSpec {
        match self {
            Self::Serving(s) => &s.spec.common,
            Self::Eventing(e) => &e.spec.common,
        }
    }

    /// The stored status, if there is one.
    pub fn status(&self) -> Option<&KnativeStatus> {
        match self {
            Self::Serving(s) => s.status.as_ref(),
            Self::Eventing(e) => e.status.as_ref(),
        }
    }

    /// The same resource with `status`: what a request says of it is of no effect.
    #[must_use]
    pub fn with_status(mut self, status: Option<KnativeStatus>) -> Self {
        match &mut self {
            Self::Serving(s) => s.status = status,
            Self::Eventing(e) => e.status = status,
        }
        self
    }

    /// Its name; empty only for an object that was never stored.
    pub fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Its namespace; empty only for an object that was never stored.
    pub fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// Whether deletion was asked for.
    pub fn deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// The namespace that the component is installed in: its own locally, the canonical one on a spoke
    /// (knative/operator#2345: many resources on one hub, one namespace a spoke).
    pub fn target_namespace(&self) -> &str {
        if self.common().cluster_profile_ref.is_none() {
            return self.namespace();
        }
        let other = self.status().and_then(|status| status.annotations.get(INSTALLED_IN));
        other.map_or_else(|| self.component().canonical(), String::as_str)
    }

    /// The same resource, of which the status tells that it is installed in `namespace` of its spoke: an installation of the Go
    /// operator's that stays where it is.
    #[must_use]
    pub fn installed_in(mut self, namespace: &str) -> Self {
        let status = match &mut self {
            Self::Serving(s) => &mut s.status,
            Self::Eventing(e) => &mut e.status,
        };
        status.get_or_insert_default().annotations.insert(INSTALLED_IN.to_owned(), namespace.to_owned());
        self
    }
}
