//! Groups refused objects by a common cause, a dependency that is not installed, and describes
//! cause and remedy. Pure.

use std::collections::BTreeSet;

use knative_operator_shared::api::Component;
use knative_operator_shared::text::and_more;

use knative_operator_apply::error::ApplyError;
use knative_operator_objects::ObjectId;

/// Maximum number of named objects per cause.
const MAX_NAMED: usize = 3;

/// A missing dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Dependency {
    Istio,
    CertManager,
    TrustManager,
    GatewayApi,
    Contour,
    /// Another custom kind: kind and group.
    Kind(String, String),
    Namespace(String),
}

impl Dependency {
    /// The dependency whose absence caused the refusal `why` of `id`, if any.
    fn of(id: &ObjectId, why: &ApplyError) -> Option<(Self, Absent)> {
        match why {
            ApplyError::NoKind { kind, .. } => {
                let cause = match id.group.as_str() {
                    group if group.ends_with(".istio.io") => Self::Istio,
                    "cert-manager.io" => Self::CertManager,
                    "trust.cert-manager.io" => Self::TrustManager,
                    "gateway.networking.k8s.io" => Self::GatewayApi,
                    "projectcontour.io" => Self::Contour,
                    group => Self::Kind(kind.clone(), group.to_owned()),
                };
                Some((cause, Absent::Kind(kind.clone())))
            }
            ApplyError::NoNamespace(namespace) => {
                let cause = match namespace.as_str() {
                    "istio-system" => Self::Istio,
                    "projectcontour" | "contour-external" | "contour-internal" => Self::Contour,
                    other => Self::Namespace(other.to_owned()),
                };
                Some((cause, Absent::Namespace(namespace.clone())))
            }
            _ => None,
        }
    }

    /// What is missing, and the remedy.
    fn describe(&self, component: Component) -> (String, String) {
        let kourier = "set spec.ingress.kourier.enabled: true and spec.config.network.ingress-class: kourier.ingress.networking.knative.dev";
        let ingress = |name: &str| match component {
            Component::Serving => format!("install {name}, or {kourier}"),
            Component::Eventing => format!("install {name}"),
        };
        let tls = |name: &str| format!("install {name}, or remove transport-encryption from spec.config.features");
        match self {
            Self::Istio => ("Istio is not installed".to_owned(), ingress("Istio")),
            Self::Contour => ("Contour is not installed".to_owned(), ingress("Contour")),
            Self::GatewayApi => (
                "the CustomResourceDefinitions of the Gateway API are not installed".to_owned(),
                ingress("the Gateway API"),
            ),
            Self::CertManager => ("cert-manager is not installed".to_owned(), tls("cert-manager")),
            Self::TrustManager => ("trust-manager is not installed".to_owned(), tls("trust-manager")),
            Self::Kind(kind, group) => (
                format!("the kind {kind} of {group} is not defined"),
                format!("install the CustomResourceDefinition of {kind}"),
            ),
            Self::Namespace(name) => {
                (format!("namespace {name} does not exist"), format!("create it: kubectl create namespace {name}"))
            }
        }
    }
}

/// What exactly is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Absent {
    Kind(String),
    Namespace(String),
}

/// One sentence for each missing dependency, and the refusals with other causes.
pub fn group_by_dependency(
    component: Component,
    refused: &[(ObjectId, ApplyError)],
) -> (Vec<String>, Vec<&(ObjectId, ApplyError)>) {
    let mut groups: Vec<(Dependency, BTreeSet<Absent>, Vec<&ObjectId>)> = Vec::new();
    let mut others = Vec::new();
    for rejection in refused {
        let (id, why) = rejection;
        let Some((cause, absent)) = Dependency::of(id, why) else {
            others.push(rejection);
            continue;
        };
        match groups.iter_mut().find(|(known, _, _)| *known == cause) {
            Some((_, all, ids)) => {
                all.insert(absent);
                ids.push(id);
            }
            None => groups.push((cause, [absent].into(), vec![id])),
        }
    }
    (groups.iter().map(|(cause, absent, ids)| sentence(component, cause, absent, ids)).collect(), others)
}

fn sentence(component: Component, cause: &Dependency, absent: &BTreeSet<Absent>, ids: &[&ObjectId]) -> String {
    let (lacks, remedy) = cause.describe(component);
    let kinds: Vec<_> =
        absent.iter().filter_map(|a| if let Absent::Kind(kind) = a { Some(kind.as_str()) } else { None }).collect();
    let namespaces: Vec<_> = absent
        .iter()
        .filter_map(|a| if let Absent::Namespace(name) = a { Some(name.as_str()) } else { None })
        .collect();
    let kinds = (!kinds.is_empty()).then(|| format!("no kind {}", kinds.join(" or ")));
    let namespaces = (!namespaces.is_empty()).then(|| format!("no namespace {}", namespaces.join(" or ")));
    let details = match cause {
        Dependency::Kind(..) | Dependency::Namespace(_) => String::new(),
        _ => format!(" ({})", [kinds, namespaces].into_iter().flatten().collect::<Vec<_>>().join(", ")),
    };
    let mut names: Vec<_> = ids.iter().map(ToString::to_string).collect();
    names.sort();
    let more = and_more(names.len().saturating_sub(MAX_NAMED));
    let objects = if ids.len() == 1 { "1 object" } else { &format!("{} objects", ids.len()) };
    names.truncate(MAX_NAMED);
    format!("{lacks}{details}, so the operator can't apply {objects}: {}{more}; {remedy}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_kind(group: &str, kind: &str, namespace: &str, name: &str) -> (ObjectId, ApplyError) {
        let why = ApplyError::NoKind { kind: kind.to_owned(), version: format!("{group}/v1") };
        (ObjectId::new(group, kind, namespace, name), why)
    }

    fn no_namespace(kind: &str, namespace: &str, name: &str) -> (ObjectId, ApplyError) {
        (ObjectId::new("", kind, namespace, name), ApplyError::NoNamespace(namespace.to_owned()))
    }

    #[test]
    fn refusals_with_one_cause_make_one_sentence() {
        let gateway = |name: &str| no_kind("networking.istio.io", "Gateway", "knative-serving", name);
        let policy = no_kind("security.istio.io", "PeerAuthentication", "knative-serving", "webhook");
        let service = no_namespace("Service", "istio-system", "knative-local-gateway");
        let other = (ObjectId::new("", "ConfigMap", "a", "b"), ApplyError::Other("forbidden".to_owned()));
        let refused = [gateway("a"), other.clone(), policy, gateway("b"), service];
        let (sentences, others) = group_by_dependency(Component::Serving, &refused);
        assert_eq!(
            sentences,
            [
                "Istio is not installed (no kind Gateway or PeerAuthentication, no namespace istio-system), so the operator can't apply 4 objects: \
              Gateway knative-serving/a, Gateway knative-serving/b, PeerAuthentication knative-serving/webhook and 1 more; install Istio, or set \
              spec.ingress.kourier.enabled: true and spec.config.network.ingress-class: kourier.ingress.networking.knative.dev"
            ]
        );
        assert_eq!(others, [&other]);
    }

    #[test]
    fn each_dependency_has_its_remedy() {
        for (rejection, expected) in [
            (
                no_kind("cert-manager.io", "Issuer", "n", "x"),
                "cert-manager is not installed (no kind Issuer), so the operator can't apply 1 object: Issuer n/x; install cert-manager, or remove transport-encryption from spec.config.features",
            ),
            (
                no_kind("example.com", "Thing", "n", "x"),
                "the kind Thing of example.com is not defined, so the operator can't apply 1 object: Thing n/x; install the CustomResourceDefinition of Thing",
            ),
            (
                no_namespace("Secret", "gone", "x"),
                "namespace gone does not exist, so the operator can't apply 1 object: Secret gone/x; create it: kubectl create namespace gone",
            ),
        ] {
            assert_eq!(group_by_dependency(Component::Eventing, &[rejection]).0, [expected]);
        }
    }
}
