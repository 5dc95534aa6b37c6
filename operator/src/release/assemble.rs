//! Which directories of a bundle a resource asks for.

use knative_operator_shared::api::{IngressConfigs, Knative, SourceConfigs};
use knative_operator_shared::version::Version;
use serde_json::Value;

use super::bundle::{Bundle, ReleaseError};

/// The objects of `version` with the ingresses or sources that `resource` enables, and where they came from.
pub fn objects(bundle: &Bundle, resource: &Knative, version: &Version) -> Result<(Vec<Value>, Vec<String>), ReleaseError> {
    let mut directories = vec![bundle.release(resource.component(), version)];
    match resource {
        Knative::Serving(serving) => {
            // No ingress given means Istio, as with the Go operator.
            let enabled = serving.spec.ingress.as_ref().map_or_else(|| vec!["istio"], IngressConfigs::enabled);
            directories.extend(enabled.into_iter().map(|name| bundle.extra("ingress", version, name)));
        }
        Knative::Eventing(eventing) => {
            let enabled = eventing.spec.source.as_ref().map(SourceConfigs::enabled).unwrap_or_default();
            directories.extend(enabled.into_iter().map(|name| bundle.extra("eventing-source", version, name)));
        }
    }
    let mut objects = Vec::new();
    for directory in &directories {
        objects.extend(bundle.objects(directory)?.iter().cloned());
    }
    Ok((objects, directories.iter().map(|d| d.display().to_string()).collect()))
}
