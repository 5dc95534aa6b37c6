//! Fields of the spec that are not rendered yet. They are refused, loudly, instead of being ignored.

use knative_operator_shared::api::{Knative, KnativeServingSpec};

/// The paths of what `resource` asks for and this version can't do.
pub fn unsupported(resource: &Knative) -> Vec<&'static str> {
    let common = resource.common();
    let mut fields: Vec<(&'static str, bool)> = vec![
        ("spec.manifests", !common.manifests.is_empty()),
        ("spec.additionalManifests", !common.additional_manifests.is_empty()),
        ("spec.registry", common.registry.is_some()),
        ("spec.high-availability", common.high_availability.is_some()),
        ("spec.workloads", !common.workloads.is_empty()),
        ("spec.deployments", !common.deployments.is_empty()),
        ("spec.resources", !common.resources.is_empty()),
        ("spec.services", !common.services.is_empty()),
        ("spec.podDisruptionBudgets", !common.pod_disruption_budgets.is_empty()),
    ];
    if let Knative::Serving(serving) = resource {
        let KnativeServingSpec { controller_custom_certs, security, ingress, .. } = &serving.spec;
        let istio = ingress.as_ref().and_then(|i| i.istio.as_ref());
        fields.extend([
            ("spec.controller-custom-certs", controller_custom_certs.is_some()),
            ("spec.security.securityGuard", security.as_ref().is_some_and(|s| s.security_guard.enabled)),
            ("spec.ingress.istio.knative-ingress-gateway", istio.is_some_and(|i| i.knative_ingress_gateway.is_some())),
            ("spec.ingress.istio.knative-local-gateway", istio.is_some_and(|i| i.knative_local_gateway.is_some())),
        ]);
    }
    fields.into_iter().filter_map(|(field, asked)| asked.then_some(field)).collect()
}
