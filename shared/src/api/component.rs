//! The two kinds of custom resources, as one type.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{CommonSpec, IngressConfigs, KnativeEventing, KnativeServing, KnativeStatus, SourceConfigs};
use crate::label::INSTALLED_IN;
use crate::version::Version;

/// A component of Knative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// Knative Serving.
    Serving,
    /// Knative Eventing.
    Eventing,
}

impl Component {
    /// Both components, in their usual order.
    pub const ALL: [Self; 2] = [Self::Serving, Self::Eventing];

    /// Kind of its custom resource.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Serving => "KnativeServing",
            Self::Eventing => "KnativeEventing",
        }
    }

    /// Resource name of its custom resource.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Serving => "knativeservings",
            Self::Eventing => "knativeeventings",
        }
    }

    /// Finalizer of its custom resource, as in the Go operator.
    pub const fn finalizer(self) -> &'static str {
        match self {
            Self::Serving => "knativeservings.operator.knative.dev",
            Self::Eventing => "knativeeventings.operator.knative.dev",
        }
    }

    /// Its directory in a bundle, its namespace on a spoke, and the value of its label
    /// `app.kubernetes.io/name`.
    pub const fn canonical(self) -> &'static str {
        match self {
            Self::Serving => "knative-serving",
            Self::Eventing => "knative-eventing",
        }
    }

    /// Its name within the names of its Jobs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Eventing => "eventing",
        }
    }

    /// The component with the custom resource `kind`.
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
    /// The component that it installs.
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

    /// The part of the spec that both kinds share, to change it.
    pub fn common_mut(&mut self) -> &mut CommonSpec {
        match self {
            Self::Serving(s) => &mut s.spec.common,
            Self::Eventing(e) => &mut e.spec.common,
        }
    }

    /// The stored status, if there is one.
    pub fn status(&self) -> Option<&KnativeStatus> {
        match self {
            Self::Serving(s) => s.status.as_ref(),
            Self::Eventing(e) => e.status.as_ref(),
        }
    }

    /// The same resource with `status`; the status in a request has no effect.
    #[must_use]
    pub fn with_status(mut self, status: Option<KnativeStatus>) -> Self {
        match &mut self {
            Self::Serving(s) => s.status = status,
            Self::Eventing(e) => e.status = status,
        }
        self
    }

    /// Its name; empty only before it is stored.
    pub fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Its namespace; empty only before it is stored.
    pub fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// Directory names, in the bundle, of the ingresses or sources that it installs.
    pub fn extras(&self) -> Vec<&'static str> {
        match self {
            // Without an ingress, Istio is the default, as with the Go operator.
            Self::Serving(s) => s.spec.ingress.as_ref().map_or_else(|| vec!["istio"], IngressConfigs::enabled),
            Self::Eventing(e) => e.spec.source.as_ref().map(SourceConfigs::enabled).unwrap_or_default(),
        }
    }

    /// Whether it installs the security guard.
    pub fn has_guard(&self) -> bool {
        match self {
            Self::Serving(s) => s.spec.security.as_ref().is_some_and(|security| security.security_guard.enabled),
            Self::Eventing(_) => false,
        }
    }

    /// The value of the annotation `name`.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.meta().annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether it is terminating.
    pub fn is_terminating(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Whether it installed a version, as its status tells, which only the operator writes.
    pub fn has_installed(&self) -> bool {
        self.status().is_some_and(|status| status.version.is_some())
    }

    /// Whether its installation began: nothing is installed before the finalizer, and a status may
    /// be lost.
    pub fn has_begun(&self) -> bool {
        let mut finalizers = self.meta().finalizers.iter().flatten();
        self.has_installed() || finalizers.any(|finalizer| finalizer == self.component().finalizer())
    }

    /// The installed version in the status; `None` if there is none, or if it can't be read.
    pub fn installed_version(&self) -> Option<Version> {
        self.status()?.version.as_deref()?.parse().ok()
    }

    /// The namespace of the installation: the resource's own on the local cluster, the canonical
    /// one on a spoke (knative/operator#2345: many resources on one hub, one namespace per spoke).
    pub fn target_namespace(&self) -> &str {
        if self.common().cluster_profile_ref.is_none() {
            return self.namespace();
        }
        let other = self.status().and_then(|status| status.annotations.get(INSTALLED_IN));
        other.map_or_else(|| self.component().canonical(), String::as_str)
    }

    /// The same resource with `namespace` as its namespace on the spoke, in memory only: the
    /// annotation of a stored status doesn't count. For installations of the Go operator that stay
    /// where they are.
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
